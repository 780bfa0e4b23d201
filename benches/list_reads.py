#!/usr/bin/env python3
"""What proxied calls notice of the lists being read: latency at a fixed rate alone, beside readers, and alone again.

    benches/list_reads.py --loadtest target/release/weir-loadtest --weir target/release/weir [--spans 100000] [--rate 500]

Fills a database with spans of real calls, then loads the gateway in an open loop (latency counts from the time a request
was due) while, in the middle phase, clients read pages of every list, deep ones too, without a pause unless told. The gateway with all
its threads is pinned to one core, which is the hardest case for it; provider, generator and readers share another. There
provider and generator have a real-time priority, if the kernel allows it (else the bench says so), so that what is measured
is the gateway's delay and not that of a generator which waits for a reader.
Exit code: 0 all answered, 1 something failed, 2 it could not be done.
"""

import json
import multiprocessing
import os
import pathlib
import socket
import statistics
import sys
import tempfile
import time
import urllib.request

import side_by_side as bench

FILL_LIMIT_S = 300
TENANT = "x-service-tenant-id: 6f1c2b1e-0d5a-4c6f-9e7b-0d9a4c3b2a10"


def goes_first(child):
    """Gives a child of ours, with all its threads to come, the CPU whenever it wants it."""
    try:
        os.sched_setscheduler(child.pid, os.SCHED_FIFO, os.sched_param(1))
    except PermissionError:
        print("no real-time priority for the load: readers may hold up the generator", file=sys.stderr)


def read_pages(address, paths, pause_s, stop, answered, refused, longest_us):
    """One client: asks for page after page on one connection, and throws the answers away."""
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    requests = [f"GET {path} HTTP/1.1\r\nHost: {address[0]}\r\n{TENANT}\r\n\r\n".encode() for path in paths]
    buffer = bytearray(1 << 20)
    with socket.create_connection(address) as connection:
        at = 0
        while not stop.is_set():
            began = time.monotonic()
            connection.sendall(requests[at % len(requests)])
            at += 1
            head = b""
            while b"\r\n\r\n" not in head:
                got = connection.recv(65536)
                if not got:
                    raise ConnectionError("the gateway closed a reader's connection")
                head += got
            head, _, body = head.partition(b"\r\n\r\n")
            fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])
            left = int(fields[b"content-length"]) - len(body)
            while left:
                # The kernel throws the bytes away without copying them: the readers share a core with the generator.
                got = connection.recv_into(buffer, min(left, len(buffer)), socket.MSG_TRUNC)
                if not got:
                    raise ConnectionError("the gateway cut an answer to a reader")
                left -= got
            counter = answered if head.split(b" ", 2)[1] == b"200" else refused
            with counter.get_lock():
                counter.value += 1
            with longest_us.get_lock():
                longest_us.value = max(longest_us.value, int(1e6 * (time.monotonic() - began)))
            if pause_s:
                stop.wait(pause_s)


class Readers:
    """The clients, as processes of their own."""

    def __init__(self, address, spans, options):
        self.stop = multiprocessing.Event()
        self.answered, self.refused, self.longest_us = (multiprocessing.Value("q", 0) for _ in range(3))
        depths = [0, spans // 3, spans // 2, spans - 1000]
        pages = [f"{list_}?limit={options.limit}&offset={depth}" for depth in depths for list_ in ("traces", "spans")]
        pages += [f"spans?limit={options.limit}&security_score_min=1", f"security/findings?limit={options.limit}", "stats", "actions/summary", "audit"]
        paths = [f"/api/v1/{page}" for page in pages]
        shared = (options.pause_ms / 1000, self.stop, self.answered, self.refused, self.longest_us)
        self.processes = [
            multiprocessing.Process(target=read_pages, args=(address, paths[n % len(paths):] + paths[:n % len(paths)], *shared))
            for n in range(options.readers)
        ]

    def __enter__(self):
        self.began = time.monotonic()
        for process in self.processes:
            process.start()
        return self

    def __exit__(self, *_):
        self.stop.set()
        self.took_s = time.monotonic() - self.began
        for process in self.processes:
            process.join(30)
            if process.is_alive():
                process.kill()
                process.join()

    def failed(self):
        return sum(process.exitcode != 0 for process in self.processes)


def arguments():
    parser = bench.base_arguments(__doc__, 3, "10s", "1s", duration_help="of each phase (default: %(default)s)")
    bench.call_arguments(parser, connections=64)
    parser.add_argument("--spans", type=int, default=100_000, help="spans in the database at least (default: %(default)s)")
    parser.add_argument("--readers", type=int, default=8)
    parser.add_argument("--limit", type=int, default=300, help="records of a page (default: %(default)s)")
    parser.add_argument("--pause-ms", type=float, default=0, help="between two pages of a reader (default: %(default)s)")
    parser.add_argument("--rate", type=float, default=500, help="proxied calls per second (default: %(default)s)")
    options = bench.parse(parser)
    options.arrivals, options.dialect, options.stream = "poisson", "chat", False
    options.run_extra = ["--header", TENANT]
    options.frames, options.frame_ms = 50, 10
    return options


def run(options, base, pid, work, name):
    json_path, log = work / f"{name}.json", work / f"{name}.log"
    with bench.process(bench.run_command(options, base, [pid], json_path), log) as child:
        goes_first(child)
        code = child.wait()
    if not json_path.exists():
        raise bench.SetupError(f"{name}: the load generator ended with {code}\n{bench.tail(log)}")
    report = json.loads(json_path.read_text())
    report["exit_code"] = code
    return report


def stored(base):
    name, value = TENANT.split(": ")
    request = urllib.request.Request(f"{base}/api/v1/stats", headers={name: value})
    with bench.OPENER.open(request, timeout=10) as answer:
        return json.load(answer)["total_spans"]


def fill(options, base, pid, work):
    """Calls until the database holds enough spans, and the store has written all of them."""
    options.mode, duration, warmup = "closed", options.duration, options.warmup
    options.duration, options.warmup = "5s", "0s"
    deadline, spans, former = time.monotonic() + FILL_LIMIT_S, 0, -1
    while spans < options.spans or spans != former:
        if time.monotonic() > deadline:
            raise bench.SetupError(f"only {spans} spans were stored within {FILL_LIMIT_S} s")
        if spans < options.spans:
            run(options, base, pid, work, "fill")
        else:
            time.sleep(0.5)
        print(f"{spans:,} spans", file=sys.stderr, flush=True)
        former, spans = spans, stored(base)
    options.mode, options.duration, options.warmup = "open", duration, warmup
    return spans


def main():
    options = arguments()
    with tempfile.TemporaryDirectory(prefix="weir-list-reads-") as temp:
        work, port = pathlib.Path(temp), bench.free_port()
        log = work / "provider.log"
        with bench.process(bench.provider_command(options, port), log) as provider:
            goes_first(provider)
            url = f"http://127.0.0.1:{port}"
            bench.wait_ready(provider, f"{url}/", log)
            with bench.weir(options, url, work, passthrough=False) as (base, pids):
                spans = fill(options, base, pids[0], work)
                address = ("127.0.0.1", int(base.rsplit(":", 1)[1]))
                phases, rows = {"alone": [], "beside": [], "alone again": []}, []
                failed = 0
                for number in range(1, options.rounds + 1):
                    phases["alone"].append(run(options, base, pids[0], work, "alone"))
                    with Readers(address, spans, options) as readers:
                        phases["beside"].append(run(options, base, pids[0], work, "beside"))
                    failed += readers.failed()
                    rows.append((readers.answered.value / readers.took_s, readers.refused.value, readers.longest_us.value / 1e3))
                    phases["alone again"].append(run(options, base, pids[0], work, "again"))
                    figures = ", ".join(
                        f"{name} {reports[-1]['latency']['p50_us']:,.0f}/{reports[-1]['latency']['p99_us']:,.0f}"
                        for name, reports in phases.items()
                    )
                    print(f"round {number}/{options.rounds} p50/p99 us: {figures}; {rows[-1][0]:,.0f} reads/s", file=sys.stderr, flush=True)
                drops = bench.dropped(base)
    print(f"\n{options.rate:g} calls/s, {spans:,} spans, {options.readers} readers of pages of {options.limit}, a pause of {options.pause_ms:g} ms between them; medians of {options.rounds} rounds\n")
    print("| phase | p50 us | p99 us | p99.9 us | failed |\n|---|--:|--:|--:|--:|")
    for name, reports in phases.items():
        median = lambda key: statistics.median(report["latency"][key] for report in reports)
        failures = sum(report["failed"] for report in reports)
        failed += sum(report["exit_code"] != 0 for report in reports)
        print(f"| {name} | {median('p50_us'):,.0f} | {median('p99_us'):,.0f} | {median('p99_9_us'):,.0f} | {failures} |")
    reads, refused, longest = (statistics.median(column) for column in zip(*rows))
    print(f"\nreads: {reads:,.0f}/s, {refused:g} refused, the longest {longest:,.0f} ms; drops: {drops or 0}")
    if options.json:
        settings = {key: value for key, value in vars(options).items() if key != "json"}
        document = {"settings": settings, "spans": spans, "phases": phases, "reads": rows, "drops": drops}
        pathlib.Path(options.json).write_text(json.dumps(document, indent=2) + "\n")
    return 1 if failed else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except bench.SetupError as error:
        print(f"list_reads: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
