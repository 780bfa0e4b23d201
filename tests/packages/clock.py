#!/usr/bin/env python3
"""A gateway whose wall clock jumps while it serves calls: tests/packages/clock.py --weir BINARY --loadtest BINARY --faketime LIBRARY

LIBRARY is libfaketime.so.1 of Debian's package libfaketime, which is put before the C library and answers what a file says; the monotonic
clock goes on as it does. The clock goes an hour back, forty days ahead, to 2001, and is right again. Each time: every call is answered, the
gateway says that it is ready, each call is a span with the time of the clock, and a hard budget that is used up stays used up while the
clock goes back. A rate that is used up comes back after as long as it takes, whatever the clock does. Afterwards the database is whole, the
audit log's chain, too, and `weir doctor` says of a database from the future that the clock went back. Exit code: 0 all as said, 1 not.
"""

import argparse
import contextlib
import datetime
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

sys.dont_write_bytecode = True
import place  # noqa: E402

CALLS = 10
HOUR, DAY = 3_600, 86_400
# A burst for what one round calls, and a rate of which a token takes long enough to be missed.
BURST, RATE = 25, 2
SETTINGS = """
listen_addr: {address}
upstream_url: http://{provider}
storage: {{database_path: {folder}/weir.db, retention_days: 0}}
rate_limiting: {{requests_per_second: {rate}, burst_size: {burst}}}
cost_caps:
  enabled: true
  status: 402
  reserve_completion_tokens: 0
  agents:
    - {{agent_id: spender, budget_caps: [{{window: daily, hard_limit_usd: 0.0001}}]}}
"""


class Gateway:
    def __init__(self, options, folder, provider):
        self.address, self.folder = f"127.0.0.1:{place.free_port()}", folder
        self.offset = pathlib.Path(folder, "offset")
        self.jump(0)
        self.config = pathlib.Path(folder, "weir.yaml")
        self.config.write_text(SETTINGS.format(address=self.address, provider=provider, folder=folder, rate=RATE, burst=BURST))
        self.command = [options.weir, "--config", self.config]
        self.faked = os.environ | {"LD_PRELOAD": options.faketime, "FAKETIME_TIMESTAMP_FILE": str(self.offset), "FAKETIME_NO_CACHE": "1",
                                   "FAKETIME_DONT_FAKE_MONOTONIC": "1", "SERVICE_LOG_LEVEL": "error"}
        self.process = subprocess.Popen(self.command, env=self.faked)
        place.eventually("ready", lambda: self.status("/readyz") == 200)

    def jump(self, seconds):
        """The clock from now on: so far from the right time."""
        coming = self.offset.with_suffix(".coming")
        coming.write_text(f"{seconds:+d}\n")
        coming.rename(self.offset)

    def status(self, path, body=None, **fields):
        fields = {"Authorization": "Bearer a-key", "Content-Type": "application/json"} | {name.replace("_", "-"): value for name, value in fields.items()}
        request = urllib.request.Request(f"http://{self.address}{path}", data=body and json.dumps(body).encode(), headers=fields)
        with contextlib.suppress(ConnectionError):
            try:
                with urllib.request.urlopen(request, timeout=30) as answer:
                    self.said = json.loads(answer.read() or b"null") if path.startswith("/api/") else None
                    return answer.status
            except urllib.error.HTTPError as refused:
                return refused.code
            except urllib.error.URLError:
                return None

    def call(self, **fields):
        return self.status("/v1/chat/completions", {"model": "gpt-4o", "messages": [{"role": "user", "content": "What is the time?"}]}, **fields)

    def weir(self, *arguments, faked=False):
        return subprocess.run([self.command[0], *arguments, "--config", self.config], env=self.faked if faked else None, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, check=False)


def recorded(gateway, count):
    """Waits until the record holds so many spans."""
    place.eventually(f"{count} spans", lambda: gateway.status("/api/v1/stats") == 200 and gateway.said["total_spans"] >= count)


def rounds(gateway):
    """What was not as it should be while the clock jumped."""
    faults, spans = [], 0
    for name, offset in (("right", 0), ("an hour back", -HOUR), ("forty days ahead", 40 * DAY), ("in 2001", -9_000 * DAY), ("right again", 0)):
        gateway.jump(offset)
        answers = [gateway.call() for _ in range(CALLS)]
        # This agent may spend what a few calls cost. Its day has only begun anew where the clock went ahead.
        spender = [gateway.call(X_Service_Agent_ID="spender")]
        while spender[-1] == 200 and len(spender) < CALLS:
            spender.append(gateway.call(X_Service_Agent_ID="spender"))
        ready = gateway.status("/readyz")
        spans += CALLS + spender.count(200)
        recorded(gateway, spans)
        now = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=offset)
        seen = place.text(*gateway.command[:1], "traces", "list", "--config", gateway.config, "--json", "--limit", "1000")
        near = sum(abs((datetime.datetime.fromisoformat(row["created_at"].replace("Z", "+00:00")) - now).total_seconds()) < HOUR / 2
                   for row in map(json.loads, seen.splitlines()))
        first = 200 if name in ("right", "forty days ahead") else 402
        print(f"clock {name}: {answers.count(200)} of {CALLS} calls answered, /readyz {ready}, {near} spans with that time, the agent with little money {spender}")
        if answers.count(200) != CALLS or ready != 200 or (spender[0], spender[-1]) != (first, 402) or near < CALLS:
            faults.append(f"clock {name}: {answers}, {ready}, {spender}, {near}")
        # The bucket is full again for the next round.
        time.sleep(BURST / RATE)
    return faults


def rate(gateway):
    """A used up rate comes back by the time that passes."""
    for offset in (-DAY, DAY, 0):
        while gateway.call() == 200:
            pass
        began = time.monotonic()
        gateway.jump(offset)
        refused = gateway.call()
        place.eventually("a call is let in", lambda: gateway.call() == 200, seconds=10)
        print(f"rate used up, clock {offset / DAY:+.0f} days: {refused}, let in again after {time.monotonic() - began:.1f} s")
        if refused != 429:
            return [f"the clock gave a rate back: {refused}"]
    return []


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weir", required=True)
    parser.add_argument("--loadtest", required=True)
    parser.add_argument("--faketime", required=True)
    options = parser.parse_args()
    provider = subprocess.Popen([options.loadtest, "provider", "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE, text=True)
    with tempfile.TemporaryDirectory() as folder:
        try:
            gateway = Gateway(options, folder, re.search(r"127\.0\.0\.1:\d+", provider.stdout.readline())[0])
            try:
                faults = rounds(gateway) + rate(gateway)
            finally:
                gateway.process.terminate()
                gateway.process.wait()
            whole = gateway.weir("db", "check")
            print(whole.stdout.strip())
            faults += [] if whole.returncode == 0 else [whole.stdout]
            gateway.jump(-DAY)
            said = [line for line in gateway.weir("doctor", faked=True).stdout.splitlines() if " clock " in line]
            print(*said, sep="\n")
            faults += [] if said and said[0].startswith("FAIL") else [f"doctor a day before the last write: {said}"]
        finally:
            provider.kill()
    for fault in faults:
        print(f"FAULT {fault}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
