"""Calls under load while a receiver of spans is away, and what it gets when it is back.

    WEIR=target/release/weir LOADTEST=target/release/weir-loadtest SECONDS=3600 RATE=1000 python3 tests/clients/otel_away.py

Prints CPU time per call without a receiver and with one that is away, and how long the receiver takes for all that it missed. Exits with 1
when a call that is stored did not arrive, or arrived twice.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time

from otel_kills import ID, Quiet, Receiver, serve, start

SECONDS = int(os.environ.get("SECONDS", "120"))
RATE = int(os.environ.get("RATE", "300"))
LOADTEST = os.environ.get("LOADTEST", "target/release/weir-loadtest")


class Present(Receiver):
    came = []

    def do_POST(self):
        Present.came.extend(ID.findall(self.rfile.read(int(self.headers.get("content-length", 0)))))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()


def free_port():
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return held.getsockname()[1]


def cpu_s(process):
    with open(f"/proc/{process.pid}/stat") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def load(weir, addr, seconds, folder):
    """CPU time per call and what the clients waited."""
    report, before = f"{folder}/report.json", cpu_s(weir)
    command = [LOADTEST, "run", "--target", f"http://{addr}", "--mode", "open", "--rate", RATE, "--connections", 32]
    command += ["--duration", f"{seconds}s", "--warmup", "1s", "--body-bytes", 1024, "--json", report]
    done = subprocess.run(list(map(str, command)), stdout=subprocess.DEVNULL)
    if done.returncode != 0:
        sys.exit(f"the load generator ended with {done.returncode}")
    return (cpu_s(weir) - before) / (RATE * (seconds + 1)) * 1e6


def stored(folder):
    """The ids of all calls, whichever tenant's."""
    command = [os.environ.get("WEIR", "target/debug/weir"), "export", "--spans", "--no-texts", "--database", f"{folder}/weir.db"]
    lines = subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout.splitlines()
    return {json.loads(line)["span_id"].encode() for line in lines}


def settle(weir):
    """Waits until the process has nothing left to do."""
    busy, last = True, cpu_s(weir)
    while busy:
        time.sleep(2)
        now = cpu_s(weir)
        busy, last = now - last > 0.1, now


def main():
    provider, port = free_port(), free_port()
    fake = subprocess.Popen([LOADTEST, "provider", "--listen", f"127.0.0.1:{provider}"], stdout=subprocess.DEVNULL)
    try:
        figures = {}
        for name, export in (
            ("none", "false"),
            ("away", f"true, receivers: [{{endpoint: 'http://127.0.0.1:{port}'}}]"),
        ):
            with tempfile.TemporaryDirectory() as folder:
                with open(f"{folder}/service.yaml", "w") as file:
                    file.write(
                        f"listen_addr: 127.0.0.1:0\nupstream_url: http://127.0.0.1:{provider}\n"
                        f"storage: {{database_path: {folder}/weir.db}}\nrate_limiting: {{enabled: false}}\n"
                        f"otel_export: {{enabled: {export}}}\n"
                    )
                weir, addr = start(folder)
                try:
                    figures[name] = load(weir, addr, 20 if name == "none" else SECONDS, folder)
                    if name == "none":
                        continue
                    settle(weir)
                    all_ids = stored(folder)
                    came_before = time.time()
                    Quiet.allow_reuse_address = True
                    serve(Present, port)
                    while not all_ids <= set(Present.came) and time.time() < came_before + 300:
                        time.sleep(0.2)
                    took = time.time() - came_before
                finally:
                    weir.send_signal(signal.SIGTERM)
                    weir.wait()
    finally:
        fake.terminate()
    came, missing = Present.came, len(all_ids - set(Present.came))
    twice = len(came) - len(set(came))
    print(
        f"{SECONDS} s at {RATE} calls a second: {len(all_ids)} calls stored, {missing} missing, {twice} twice, all there "
        f"{took:.1f} s after the receiver was back; CPU per call {figures['none']:.0f} us without a receiver, "
        f"{figures['away']:.0f} us with one that is away"
    )
    return 0 if missing == 0 and twice == 0 and len(all_ids) >= SECONDS * RATE * 0.99 else 1


if __name__ == "__main__":
    sys.exit(main())
