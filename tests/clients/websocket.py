"""A WebSocket server and a client of the `websockets` library, with Weir between them.

`serve` prints its port and echoes until its standard input ends; `talk URL` holds a conversation and fails loudly.
"""

import os
import sys
import threading

from websockets.sync.client import connect
from websockets.sync.server import serve


def echo(connection):
    for message in connection:
        connection.send(message)


def run_server():
    server = serve(echo, "127.0.0.1", 0, subprotocols=["realtime"], max_size=None)
    print(server.socket.getsockname()[1], flush=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdin.read()


def talk(url):
    # permessage-deflate is negotiated between the two ends, as it would be without a gateway.
    with connect(url, subprotocols=["realtime"], max_size=None) as connection:
        assert connection.subprotocol == "realtime"
        assert connection.response.headers["X-Service-Trace-Id"]
        for message in ["hello", "größe 🙂", b"\x00\xff" * 10, "x" * 1_000_000, os.urandom(300_000)]:
            connection.send(message)
            assert connection.recv(timeout=20) == message
        connection.ping().wait(timeout=20)
    assert connection.close_code == 1000, connection.close_code


if sys.argv[1] == "serve":
    run_server()
else:
    talk(sys.argv[2])
