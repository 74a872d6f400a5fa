"""A stand-in for the model server: answers /health, and what its arguments say. A script, run by a keeper.

Arguments: port, then any of ``die`` (end with code 3 after a word on stderr), ``mute`` (never be ready),
``stubborn`` (ignore SIGTERM), ``slow`` (be
ready after a second).
"""

import http.server
import os
import signal
import sys
import time

BEGAN = time.monotonic()


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        slow = "slow" in sys.argv and time.monotonic() < BEGAN + 1
        ready = self.path == "/health" and "mute" not in sys.argv and not slow
        self.send_response(200 if ready else 503)
        self.send_header("Content-Length", "0")
        self.end_headers()


if __name__ == "__main__":
    print("hello from", sys.argv[1], "key", os.environ.get("SECRET_KEY"), "extra", os.environ.get("EXTRA"),
          file=sys.stderr, flush=True)
    if "die" in sys.argv:
        print("no such model", file=sys.stderr)
        sys.exit(3)
    if "stubborn" in sys.argv:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
