#!/usr/bin/env python3
"""What gateways take of memory: idle, at most while they are loaded, and ten seconds after.

    benches/memory.py --loadtest target/release/weir-loadtest --weir target/release/weir --targets nginx,weir [--duration 5s]

Takes the targets and options of peers.py, but measures one target after the other, each started anew: two seconds after it is ready, during
64 connections in a closed loop with 1 KB and then with 100 KB, and afterwards. Reported is resident memory (pages of the binary that were
read count, and those that two processes share count twice), of all processes of a target together, looked at ten times a second. Exit code:
0 all answers as expected, 1 some failed, 2 it could not be done.
"""

import contextlib
import json
import pathlib
import sys
import tempfile
import threading
import time

import peers
import side_by_side as bench

CONNECTIONS = 64
BODIES = {"1 KB": 1000, "100 KB": 100_000}
REST_S = 10


def family(pids):
    """The processes and all that they started."""
    found, left = set(), list(pids)
    while left:
        pid = left.pop()
        if pid not in found:
            found.add(pid)
            with contextlib.suppress(OSError):
                left += bench.children_of(pid)
    return found


def resident_mib(pids):
    kib = 0
    for pid in family(pids):
        with contextlib.suppress(OSError):
            for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
                if line.startswith("VmRSS:"):
                    kib += int(line.split()[1])
    return kib / 1024


class Most:
    """The most that was resident while the block ran."""

    def __init__(self, pids):
        self.pids, self.mib, self.over = pids, 0, threading.Event()
        self.thread = threading.Thread(target=self.look)

    def look(self):
        while not self.over.wait(0.1):
            self.mib = max(self.mib, resident_mib(self.pids))

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()


def load(options, name, base, upstream, length, work):
    """Sends calls of one length; whether all were answered as expected."""
    report, log = work / f"{name}-{length}.json", work / f"{name}-{length}.log"
    command = [options.loadtest, "run", "--target", base, "--connections", CONNECTIONS, "--duration", options.duration or "5s"]
    command += ["--warmup", "0s", "--body-bytes", length, "--seen-share", "0.95", "--json", report, "--quiet"]
    for field in peers.PORTKEY_FIELDS if name == "portkey" else []:
        command += ["--header", field.format(upstream=upstream)]
    with bench.process(bench.pinned(options.load_core, command), log) as child:
        code = child.wait()
    if not report.exists():
        raise bench.SetupError(f"{name}: the load generator ended with {code}\n{bench.tail(log)}")
    return code == 0, json.loads(report.read_text())["ok_per_s"]


def row(options, name, start, upstream, work):
    """A target's figures as cells, and whether all went well."""
    with start(options, upstream, work) as (base, pids):
        time.sleep(2)
        cells, well = [name, f"{resident_mib(pids):.1f}"], True
        for length in BODIES.values():
            with Most(pids) as most:
                fine, rate = load(options, name, base, upstream, length, work)
            well &= fine
            cells.append(f"{most.mib:.1f} ({rate:,.0f}/s{'' if fine else ', some failed'})")
        time.sleep(REST_S)
        return [*cells, f"{resident_mib(pids):.1f}"], well


def main():
    options = peers.arguments(__doc__)
    well, left_out = True, []
    print("| target | idle, MiB | " + " | ".join(f"{name}, at most" for name in BODIES) + f" | {REST_S} s after |\n|---|--:" + "|--:" * (len(BODIES) + 1) + "|")
    with tempfile.TemporaryDirectory(prefix="weir-memory-") as temp, contextlib.ExitStack() as stack:
        work = pathlib.Path(temp)
        upstream = peers.provider(options, work, stack)
        for name, start in peers.wanted(options).items():
            if name == "direct":
                continue
            try:
                cells, fine = row(options, name, start, upstream, work)
                well &= fine
                print("| " + " | ".join(cells) + " |", flush=True)
            except bench.SetupError as error:
                left_out.append(f"- {name} is left out: {str(error).splitlines()[0]}")
    print("\n".join(["", *left_out]) if left_out else "", end="")
    return 0 if well else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except bench.SetupError as error:
        print(f"memory: {error}", file=sys.stderr)
        sys.exit(2)
