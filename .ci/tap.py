"""A tap on the wire: forwards every request to a model server and keeps what was asked.

    python .ci/tap.py SERVER_URL FOLDER

Writes its own base URL to FOLDER/url when it listens, and each request that has a body to
FOLDER/requests.jsonl. It runs until it is killed. Only for loopback.
"""

import http.client
import http.server
import json
import sys
import threading
from pathlib import Path
from urllib.parse import urlsplit


class Tap(http.server.BaseHTTPRequestHandler):
    """One request there and its answer back, piece by piece."""

    def do_GET(self):
        self.forward(None)

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.keep({"path": self.path, "body": json.loads(body)})
        self.forward(body)

    def forward(self, body):
        there = http.client.HTTPConnection(self.server.to, timeout=600)
        headers = {k: v for k, v in self.headers.items() if k.lower() not in ("host", "connection")}
        there.request(self.command, self.path, body, headers)
        answer = there.getresponse()
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in ("transfer-encoding", "connection", "content-length"):
                self.send_header(name, value)
        # The end of the connection is the end of the answer, whatever framing the server used.
        self.send_header("Connection", "close")
        self.end_headers()
        for piece in iter(lambda: answer.read1(65536), b""):
            self.wfile.write(piece)
            self.wfile.flush()
        there.close()

    def log_message(self, format, *args):
        """Stay silent: what was asked is in the file."""


class TapServer(http.server.ThreadingHTTPServer):
    """Listens on loopback for what goes to `server_url`."""

    def __init__(self, server_url, folder):
        super().__init__(("127.0.0.1", 0), Tap)
        self.to, self.folder, self.lock = urlsplit(server_url).netloc, folder, threading.Lock()
        self.url = "http://127.0.0.1:%d%s" % (self.server_port, urlsplit(server_url).path)

    def keep(self, request):
        """Append one request to the file."""
        with self.lock, open(str(self.folder / "requests.jsonl"), "a", encoding="utf-8") as file:
            file.write(json.dumps(request) + "\n")


def main():
    folder = Path(sys.argv[2])
    tap = TapServer(sys.argv[1], folder)
    (folder / "url").write_text(tap.url, encoding="utf-8")
    tap.serve_forever()


if __name__ == "__main__":
    main()
