"""A tap on the wire: forwards every request to a model server and keeps what was asked.

    python .ci/tap.py SERVER_URL FILE

Prints its own base URL when it listens, and appends each request that has a body to FILE as a line of JSON.
It runs until it is killed. Only for loopback.
"""

import http.client
import http.server
import json
import sys
import threading
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

    def __init__(self, server_url, file):
        super().__init__(("127.0.0.1", 0), Tap)
        self.to, self.file, self.lock = urlsplit(server_url).netloc, file, threading.Lock()
        self.url = "http://127.0.0.1:%d%s" % (self.server_port, urlsplit(server_url).path)

    def keep(self, request):
        """Append one request to the file."""
        with self.lock, open(self.file, "a", encoding="utf-8") as file:
            file.write(json.dumps(request) + "\n")


if __name__ == "__main__":
    tap = TapServer(sys.argv[1], sys.argv[2])
    print(tap.url, flush=True)
    tap.serve_forever()
