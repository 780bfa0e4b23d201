"""An analytics store for tests: the HTTP interface of ClickHouse, as far as Weir uses it, in front of chdb in this process.

Usage: analytics.py FOLDER PORT. It says `ready PORT` on its output when it answers. It is one process with one engine: it proves what is
asked and answered, not a network, replication or several servers.
"""

import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl, urlsplit

from chdb import session

ENGINE = session.Session(sys.argv[1])
ALONE = threading.Lock()
# Databases that are there, and the one that is used: a statement less for each that is asked.
KNOWN = {"default"}
USED = ["default"]


class Handler(BaseHTTPRequestHandler):
    """Runs a statement per request."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):  # noqa: N802 (the base class names it)
        """Runs the statement in the body with the parameters of the address."""
        values = dict(parse_qsl(urlsplit(self.path).query, keep_blank_values=True))
        statement = self.rfile.read(int(self.headers.get("content-length", 0))).decode()
        params = {name[6:]: value for name, value in values.items() if name.startswith("param_")}
        database = values.get("database", "default")
        try:
            with ALONE:
                if database not in KNOWN:
                    ENGINE.query(f"CREATE DATABASE IF NOT EXISTS `{database}`")
                    KNOWN.add(database)
                if USED[0] != database:
                    ENGINE.query(f"USE `{database}`")
                    USED[0] = database
                options = {"params": params} if params else {}
                result = ENGINE.query(statement, values.get("default_format", "TabSeparated"), **options)
            status, body = 200, result.bytes() or b""
        except Exception as error:  # noqa: BLE001 (whatever the engine says is the answer)
            status, body = 500, str(error).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        """Nothing is logged."""


class Server(ThreadingHTTPServer):
    """Requests of one engine, one after another."""

    daemon_threads = True


if __name__ == "__main__":
    server = Server(("127.0.0.1", int(sys.argv[2])), Handler)
    print("ready", server.server_address[1], flush=True)
    server.serve_forever()
