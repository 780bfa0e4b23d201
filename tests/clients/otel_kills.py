"""Kills a gateway again and again while it sends spans to a receiver that is slow and often busy, and counts what arrives.

    WEIR=target/debug/weir CYCLES=200 python3 tests/clients/otel_kills.py

Exits with 1 when a call that is stored was not accepted by the receiver, or when more came twice than was under way.
"""

import http.client
import http.server
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

CYCLES = int(os.environ.get("CYCLES", "200"))
# Spans of one batch of the feed.
BATCH = 256
ID = re.compile(rb"weir\.span\.id\x12&\n\$([0-9a-f-]{36})")


class Provider(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        self.rfile.read(int(self.headers.get("content-length", 0)))
        body = b'{"id":"x","model":"gpt-4o","choices":[{"index":0,"message":{"role":"assistant","content":"ok"}}],"usage":{"prompt_tokens":9,"completion_tokens":1,"total_tokens":10}}'
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Receiver(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    accepted, refused, lock = [], 0, threading.Lock()

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        time.sleep(random.random() * 0.03)
        status = 503 if random.random() < 0.2 else 200
        with Receiver.lock:
            if status == 200:
                Receiver.accepted.extend(ID.findall(body))
            else:
                Receiver.refused += 1
        try:
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()
        except OSError:
            pass

    def log_message(self, *_):
        pass


class Quiet(http.server.ThreadingHTTPServer):
    def handle_error(self, *_):
        """Connections of a process that was killed are reset."""


def serve(handler, port=0):
    server = Quiet(("127.0.0.1", port), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_address[1]


def start(folder):
    command = [os.environ.get("WEIR", "target/debug/weir"), "--config", f"{folder}/service.yaml", "--log-format", "json"]
    weir = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, env={})
    for line in weir.stderr:
        if "weir is ready" in line:
            threading.Thread(target=lambda: [None for _ in weir.stderr], daemon=True).start()
            return weir, json.loads(line)["listen"]
    sys.exit("the gateway did not start")


def ask(addr, until):
    body = json.dumps({"model": "gpt-4o", "messages": [{"role": "user", "content": "Hello"}]})
    try:
        client = http.client.HTTPConnection(addr, timeout=5)
        while time.time() < until:
            client.request("POST", "/v1/chat/completions", body, {"Content-Type": "application/json"})
            client.getresponse().read()
    except (OSError, http.client.HTTPException):
        pass


def main():
    random.seed(1)
    provider, receiver = serve(Provider), serve(Receiver)
    with tempfile.TemporaryDirectory() as folder:
        with open(f"{folder}/service.yaml", "w") as file:
            file.write(
                f"listen_addr: 127.0.0.1:0\nupstream_url: http://127.0.0.1:{provider}\n"
                f"storage: {{database_path: {folder}/weir.db}}\nrate_limiting: {{enabled: false}}\n"
                f"otel_export: {{enabled: true, receivers: [{{endpoint: 'http://127.0.0.1:{receiver}'}}]}}\n"
            )
        for _ in range(CYCLES):
            weir, addr = start(folder)
            until = time.time() + 0.2 + random.random() * 0.4
            callers = [threading.Thread(target=ask, args=(addr, until + 1)) for _ in range(3)]
            [caller.start() for caller in callers]
            time.sleep(until - time.time())
            weir.send_signal(signal.SIGKILL)
            weir.wait()
            [caller.join() for caller in callers]
        weir, addr = start(folder)
        stored, end = set(), time.time() + 60
        while time.time() < end:
            lines = urllib.request.urlopen(f"http://{addr}/api/v1/spans?format=jsonl&texts=false").read().splitlines()
            stored = {json.loads(line)["span_id"].encode() for line in lines}
            if stored <= set(Receiver.accepted):
                break
            time.sleep(0.5)
        weir.terminate()
        weir.wait()
    came = Receiver.accepted
    twice = len(came) - len(set(came))
    missing = len(stored - set(came))
    print(
        f"{CYCLES} kills, {Receiver.refused} requests refused; {len(stored)} calls stored, {missing} not accepted, "
        f"{len(set(came) - stored)} accepted and not stored, {twice} accepted twice"
    )
    return 0 if missing == 0 and twice <= CYCLES * BATCH else 1


if __name__ == "__main__":
    sys.exit(main())
