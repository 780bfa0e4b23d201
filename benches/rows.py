#!/usr/bin/env python3
"""What a call costs while its record grows: CPU time per call of one gateway from an empty database to many spans.

    benches/rows.py --loadtest target/release/weir-loadtest --weir target/release/weir [--spans 1000000]

The calls that are measured are those that fill the database: a closed loop of 64 connections with 1 KB, 95 % of whose text was sent before.
Reported at each tenth of the way: spans before, CPU time per call of all threads, latency, and bytes of the file per span. Exit code: 0 all
answered, 1 some failed, 2 it could not be done.
"""

import pathlib
import sys
import tempfile

import side_by_side as bench

SLICE_S = 5


def arguments():
    parser = bench.base_arguments(__doc__, rounds=1, duration=f"{SLICE_S}s", warmup="0s")
    bench.call_arguments(parser, connections=64)
    parser.add_argument("--spans", type=int, default=1_000_000, help="where it ends (default: %(default)s)")
    options = bench.parse(parser)
    options.mode, options.dialect, options.stream, options.seen_share = "closed", "chat", False, 0.95
    options.frames, options.frame_ms = 50, 10
    return options


def main():
    options, spans, shown, failed = arguments(), 0, -1, 0
    print("| spans before | CPU us/call | p50 us | p99 us | bytes of the files per span |\n|--:|--:|--:|--:|--:|")
    with tempfile.TemporaryDirectory(prefix="weir-rows-") as temp:
        work, port = pathlib.Path(temp), bench.free_port()
        log = work / "provider.log"
        with bench.process(bench.provider_command(options, port), log) as provider:
            url = f"http://127.0.0.1:{port}"
            bench.wait_ready(provider, f"{url}/", log)
            with bench.weir(options, url, work, passthrough=False) as (base, pids):
                while spans < options.spans:
                    report = bench.load("weir", options, base, pids, work)
                    after, failed = spans + report["ok"], failed + report["failed"]
                    size = sum(file.stat().st_size for file in work.glob("weir.db*"))
                    part = spans * 10 // options.spans
                    if part != shown or after >= options.spans:
                        shown = part
                        latency = report["latency"]
                        figures = [f"{report['process']['cpu_us_per_request']:.1f}", f"{latency['p50_us']:,.0f}", f"{latency['p99_us']:,.0f}"]
                        print(f"| {spans:,} | " + " | ".join([*figures, f"{size / after:,.0f}"]) + " |", flush=True)
                    spans = after
                drops = bench.dropped(base)
    print(f"\ndropped: {drops or 0}")
    return 1 if failed else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except bench.SetupError as error:
        print(f"rows: {error}", file=sys.stderr)
        sys.exit(2)
