#!/usr/bin/env python3
"""Reported spans: how many a core takes in, and what proxied calls notice of them.

    benches/ingest.py --loadtest target/release/weir-loadtest --weir target/release/weir [--spans 200000] [--beside 5000]

First phase: senders post OTLP/HTTP requests of 512 spans of 1 KB each, every text another, as fast as they are answered, until so many
spans are committed. The gateway with all its threads is pinned to one core. Reported are spans per second of that core: of the clock,
and of the CPU time the gateway used. Second phase: proxied calls at a fixed rate in an open loop alone, beside reports at a fixed rate,
and alone again. Provider, generator and senders share another core, where the senders come last.
Exit code: 0 all answered, 1 something failed, 2 it could not be done.
"""

import json
import multiprocessing
import os
import pathlib
import random
import socket
import statistics
import sys
import tempfile
import time

import list_reads
import side_by_side as bench
from instructions import prose

TENANT = list_reads.TENANT
# What a sender hands to the kernel at once.
PIECE_BYTES = 16 * 1024


def varint(value):
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def field(number, data):
    return varint(number << 3 | 2) + varint(len(data)) + data


def attribute(name, value):
    kind = varint(3 << 3) + varint(value) if isinstance(value, int) else field(1, value.encode())
    return field(9, field(1, name.encode()) + field(2, kind))


def said(role, text):
    return json.dumps([{"role": role, "parts": [{"type": "text", "content": text}]}])


class Spans:
    """Requests of spans that differ in their ids and in the last words of their texts."""

    # What is put in place: as long as what takes its place.
    TRACE, SPAN, MARK = b"T" * 16, b"S" * 8, b"M" * 16

    def __init__(self, span_bytes, per_request, per_trace):
        self.per_request, self.per_trace = per_request, per_trace
        now = time.time_ns()
        head = field(1, self.TRACE) + field(2, self.SPAN) + field(5, b"chat gpt-4o")
        head += varint(7 << 3 | 1) + (now - 10**9).to_bytes(8, "little") + varint(8 << 3 | 1) + now.to_bytes(8, "little")
        for name, value in {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": "openai",
            "gen_ai.request.model": "gpt-4o",
            "gen_ai.usage.input_tokens": 120,
            "gen_ai.usage.output_tokens": 40,
            "gen_ai.conversation.id": "session-7",
            "user.id": "ann",
            "gen_ai.output.messages": said("assistant", "It depends on how often the data changes."),
        }.items():
            head += attribute(name, value)
        source = random.Random("spans")
        text = lambda length: prose(length, source) + " " + self.MARK.decode()
        fits = lambda length: len(field(2, head + attribute("gen_ai.input.messages", said("user", text(length)))))
        length = max(16, span_bytes - fits(16) + 16)
        self.pool = []
        for _ in range(64):
            span = field(2, head + attribute("gen_ai.input.messages", said("user", text(length))))
            self.pool.append(self.pieces(span))
        self.span_bytes = len(span)

    def pieces(self, span):
        before, rest = span.split(self.TRACE)
        between, rest = rest.split(self.SPAN)
        words, after = rest.split(self.MARK)
        return before, between, words, after

    def request(self):
        ids = os.urandom(24 * self.per_request)
        out = []
        for at in range(self.per_request):
            before, between, words, after = self.pool[at % len(self.pool)]
            trace = at - at % self.per_trace
            mark = ids[16 * at : 16 * at + 8].hex().encode()
            own = ids[8 * at + 8 * self.per_request : 8 * at + 8 * self.per_request + 8]
            out += before, ids[16 * trace : 16 * trace + 16], between, own, words, mark, after
        scope = b"".join(out)
        body = field(1, field(1, field(1, field(1, b"service.name") + field(2, field(1, b"shop")))) + field(2, scope))
        head = f"POST /v1/traces HTTP/1.1\r\nHost: weir\r\n{TENANT}\r\nContent-Type: application/x-protobuf\r\nContent-Length: {len(body)}\r\n\r\n"
        return head.encode() + body


def send_in_pieces(connection, request):
    """The kernel takes a long request in one piece, and a kernel without preemption lets nobody else on the core meanwhile: generator
    and provider would be measured waiting for the senders."""
    for at in range(0, len(request), PIECE_BYTES):
        connection.sendall(request[at : at + PIECE_BYTES])


def post(address, options, pause_s, stop, taken, refused):
    """One sender: a request after the other on one connection."""
    os.sched_setaffinity(0, bench.cores_of(options.load_core))
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    spans = Spans(options.span_bytes, options.per_request, options.per_trace)
    with socket.create_connection(address) as connection:
        due = time.monotonic()
        while not stop.is_set():
            send_in_pieces(connection, spans.request())
            head = b""
            while b"\r\n\r\n" not in head:
                got = connection.recv(65536)
                if not got:
                    raise ConnectionError("the gateway closed a sender's connection")
                head += got
            head, _, body = head.partition(b"\r\n\r\n")
            fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])
            left = int(fields[b"content-length"]) - len(body)
            while left > 0:
                left -= len(connection.recv(left))
            good = head.split(b" ", 2)[1] == b"200" and fields[b"content-length"] == b"0"
            counter = taken if good else refused
            with counter.get_lock():
                counter.value += options.per_request
            if pause_s:
                due += pause_s
                stop.wait(max(0, due - time.monotonic()))


class Senders:
    """The senders, as processes of their own. `rate` is of all together; without it they do not pause."""

    def __init__(self, address, options, rate=None):
        self.stop = multiprocessing.Event()
        self.taken, self.refused = (multiprocessing.Value("q", 0) for _ in range(2))
        pause = options.senders * options.per_request / rate if rate else 0
        shared = (address, options, pause, self.stop, self.taken, self.refused)
        self.processes = [multiprocessing.Process(target=post, args=shared) for _ in range(options.senders)]

    def __enter__(self):
        for process in self.processes:
            process.start()
        return self

    def __exit__(self, *_):
        self.stop.set()
        for process in self.processes:
            process.join(60)
            if process.is_alive():
                process.kill()
                process.join()

    def failed(self):
        return sum(process.exitcode != 0 for process in self.processes)


def cpu_s(pid):
    """CPU time of a process, by thread as the scheduler counts it."""
    total = 0
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        total += int((task / "schedstat").read_text().split()[0])
    return total / 1e9


def arguments():
    parser = bench.base_arguments(__doc__, 3, "10s", "1s", duration_help="of each phase (default: %(default)s)")
    bench.call_arguments(parser, connections=64)
    parser.add_argument("--spans", type=int, default=200_000, help="of the first phase (default: %(default)s)")
    parser.add_argument("--span-bytes", type=int, default=1024)
    parser.add_argument("--per-request", type=int, default=512)
    parser.add_argument("--per-trace", type=int, default=8)
    parser.add_argument("--senders", type=int, default=4)
    parser.add_argument("--beside", type=float, default=5_000, help="spans per second beside proxied calls (default: %(default)s)")
    parser.add_argument("--rate", type=float, default=500, help="proxied calls per second (default: %(default)s)")
    options = bench.parse(parser)
    options.arrivals, options.dialect, options.stream, options.mode = "poisson", "chat", False, "open"
    options.run_extra = ["--header", TENANT]
    options.frames, options.frame_ms = 50, 10
    return options


def flood(options, address, pid):
    """Spans per second of the clock and of CPU time, and what failed."""
    with Senders(address, options) as senders:
        # The first requests make threads and fill caches.
        while senders.taken.value < options.spans // 10 and all(process.is_alive() for process in senders.processes):
            time.sleep(0.05)
        began, used, spans = time.monotonic(), cpu_s(pid), senders.taken.value
        while senders.taken.value < spans + options.spans and all(process.is_alive() for process in senders.processes):
            time.sleep(0.05)
        took, used, spans = time.monotonic() - began, cpu_s(pid) - used, senders.taken.value - spans
    return {"per_s": spans / took, "per_cpu_s": spans / used, "refused": senders.refused.value, "failed": senders.failed()}


def main():
    options = arguments()
    with tempfile.TemporaryDirectory(prefix="weir-ingest-") as temp:
        work, port = pathlib.Path(temp), bench.free_port()
        extra = work / "extra.yaml"
        given = pathlib.Path(options.weir_extra).read_text() + "\n" if options.weir_extra else ""
        extra.write_text(f"{given}otel_ingest: {{enabled: true}}\n")
        options.weir_extra, log = extra, work / "provider.log"
        with bench.process(bench.provider_command(options, port), log) as provider:
            list_reads.goes_first(provider)
            url = f"http://127.0.0.1:{port}"
            bench.wait_ready(provider, f"{url}/", log)
            with bench.weir(options, url, work, passthrough=False) as (base, pids):
                address, pid = ("127.0.0.1", int(base.rsplit(":", 1)[1])), pids[0]
                floods, phases, failed = [], {"alone": [], "beside": [], "alone again": []}, 0
                for number in range(1, options.rounds + 1):
                    floods.append(flood(options, address, pid))
                    print(f"round {number}/{options.rounds}: {floods[-1]['per_s']:,.0f} spans/s, {floods[-1]['per_cpu_s']:,.0f} per second of CPU", file=sys.stderr, flush=True)
                for number in range(1, options.rounds + 1):
                    phases["alone"].append(list_reads.run(options, base, pid, work, "alone"))
                    with Senders(address, options, options.beside) as senders:
                        phases["beside"].append(list_reads.run(options, base, pid, work, "beside"))
                    failed += senders.failed() + senders.refused.value
                    phases["alone again"].append(list_reads.run(options, base, pid, work, "again"))
                    figures = ", ".join(f"{name} {reports[-1]['latency']['p50_us']:,.0f}/{reports[-1]['latency']['p99_us']:,.0f}" for name, reports in phases.items())
                    print(f"round {number}/{options.rounds} p50/p99 us: {figures}; {senders.taken.value:,} spans", file=sys.stderr, flush=True)
                drops = bench.dropped(base)
    failed += sum(one["failed"] + one["refused"] for one in floods)
    middle = lambda key: statistics.median(one[key] for one in floods)
    size = Spans(options.span_bytes, options.per_request, options.per_trace).span_bytes
    print(f"\nspans of {size} bytes, {options.per_request} a request, {options.per_trace} a trace, {options.senders} senders, one core; medians of {options.rounds} rounds\n")
    print(f"taken in: {middle('per_s'):,.0f} spans/s; {middle('per_cpu_s'):,.0f} per second of CPU time\n")
    print(f"proxied calls at {options.rate:g}/s beside {options.beside:,.0f} spans/s\n\n| phase | p50 us | p99 us | p99.9 us | failed |\n|---|--:|--:|--:|--:|")
    for name, reports in phases.items():
        median = lambda key: statistics.median(report["latency"][key] for report in reports)
        failures = sum(report["failed"] for report in reports)
        failed += sum(report["exit_code"] != 0 for report in reports)
        print(f"| {name} | {median('p50_us'):,.0f} | {median('p99_us'):,.0f} | {median('p99_9_us'):,.0f} | {failures} |")
    print(f"\ndrops: {drops or 0}")
    if options.json:
        settings = {key: str(value) for key, value in vars(options).items() if key != "json"}
        pathlib.Path(options.json).write_text(json.dumps({"settings": settings, "floods": floods, "phases": phases, "drops": drops}, indent=2) + "\n")
    return 1 if failed else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except bench.SetupError as error:
        print(f"ingest: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
