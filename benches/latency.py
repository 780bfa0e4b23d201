#!/usr/bin/env python3
"""Latency that a proxy adds to a direct call, at a fixed moderate rate: weir beside nginx and HAProxy in one run.

    benches/latency.py --loadtest target/release/weir-loadtest --weir target/release/weir [--rate 1000] [--gzip]

Open loop: requests are due at the rate whatever the answers do, and latency counts from the due time, so a proxy that
falls behind cannot hide it. Each round measures whole answers on every target, then streamed ones (time to the first
byte, and each frame's way from the provider to the client). Reported: medians over the rounds, and what is left when the
direct call's median is taken off. Exit code: 0 all answered, 1 something failed, 2 it could not be done.
"""

import contextlib
import copy
import json
import pathlib
import shutil
import statistics
import sys

import side_by_side as bench
from streams import raise_descriptor_limit

HAPROXY = """
global
    maxconn 4000
    nbthread 1
defaults
    mode http
    timeout connect 5s
    timeout client 300s
    timeout server 300s
    option http-keep-alive
    http-reuse always
    option http-no-delay
frontend front
    bind {listen}
    default_backend provider
backend provider
    server provider {upstream} pool-max-conn 2048
"""


@contextlib.contextmanager
def haproxy(options, provider_url, work):
    binary = shutil.which("haproxy") or shutil.which("haproxy", path="/usr/sbin:/usr/local/sbin")
    if not binary:
        raise bench.SetupError("haproxy: not found (Debian: apt-get install haproxy)")
    port = bench.free_port()
    config, log = work / "haproxy.cfg", work / "haproxy.log"
    config.write_text(HAPROXY.format(listen=f"127.0.0.1:{port}", upstream=provider_url.removeprefix("http://")))
    with bench.process(bench.pinned(options.proxy_core, [binary, "-db", "-f", config]), log) as child:
        bench.wait_ready(child, f"http://127.0.0.1:{port}/", log)
        yield f"http://127.0.0.1:{port}", [child.pid]


bench.TARGETS["haproxy"] = haproxy


def arguments():
    parser = bench.base_arguments(__doc__, rounds=5, duration="10s", warmup="2s")
    bench.target_arguments(parser, "direct,nginx,haproxy,weir-pass,weir")
    bench.call_arguments(parser, connections=256)
    parser.add_argument("--rate", type=float, default=1000, help="whole answers per second (default: %(default)s)")
    parser.add_argument("--stream-rate", type=float, default=50, help="streams per second (default: %(default)s)")
    parser.add_argument("--frames", type=int, default=50)
    parser.add_argument("--frame-ms", type=int, default=20)
    parser.add_argument("--gzip", action="store_true", help="compressed streams; frames carry no time of sending then")
    options = bench.parse(parser)
    options.mode, options.arrivals, options.dialect, options.run_extra = "open", "poisson", "chat", []
    return options


def figure(reports, *keys):
    values = [value for value in (bench.pick(report, *keys) for report in reports) if value is not None]
    return statistics.median(values) if values else None


def table(title, results, figures):
    print(f"\n**{title}**\n")
    columns = ["target"] + [heading for label, _ in figures for heading in (label, "added")] + ["failed"]
    print("| " + " | ".join(columns) + " |\n|" + "---|" * len(columns))
    direct = results.get("direct")
    for name, reports in results.items():
        cells = [name]
        for _, keys in figures:
            own, base = figure(reports, *keys), figure(direct, *keys) if direct else None
            cells.append(bench.shown(own, 0))
            cells.append(bench.shown(own - base, 0) if own is not None and base is not None and name != "direct" else "-")
        print("| " + " | ".join(cells + [str(sum(report["failed"] for report in reports))]) + " |")


def main():
    options = arguments()
    raise_descriptor_limit(16384)
    whole = copy.copy(options)
    whole.stream = False
    whole_results = bench.compare(whole)
    streamed = copy.copy(options)
    streamed.stream, streamed.rate = True, options.stream_rate
    streamed.connections = max(options.connections, int(4 * options.stream_rate * options.frames * options.frame_ms / 1000) + 16)
    if options.gzip:
        streamed.run_extra = ["--gzip", "--header", f"x-fake-frames: {options.frames}", "--header", f"x-fake-frame-ms: {options.frame_ms}"]
    stream_results = bench.compare(streamed)
    table(
        f"whole answers, {options.rate:g}/s, Poisson, {options.body_bytes} B asked, {options.answer_bytes} B answered (us)",
        whole_results,
        [("p50", ("latency", "p50_us")), ("p90", ("latency", "p90_us")), ("p99", ("latency", "p99_us"))],
    )
    table(
        f"streams, {options.stream_rate:g}/s, {options.frames} frames every {options.frame_ms} ms{', gzip' if options.gzip else ''} (us)",
        stream_results,
        [
            ("first byte p50", ("first_byte", "p50_us")),
            ("first byte p99", ("first_byte", "p99_us")),
            ("frame p50", ("frame_delay", "p50_us")),
            ("frame p99", ("frame_delay", "p99_us")),
        ],
    )
    if options.json:
        settings = {key: value for key, value in vars(options).items() if key != "json"}
        document = {"settings": settings, "whole": whole_results, "streamed": stream_results}
        pathlib.Path(options.json).write_text(json.dumps(document, indent=2) + "\n")
    reports = [report for results in (whole_results, stream_results) for list_ in results.values() for report in list_]
    return 1 if any(report["exit_code"] != 0 for report in reports) else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except bench.SetupError as error:
        print(f"latency: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
