#!/usr/bin/env python3
"""Many paced streams at once: none lost, merged or cut, and the CPU each frame costs, weir beside nginx in one run.

    benches/streams.py --loadtest target/release/weir-loadtest --weir target/release/weir [--gzip] [--streams 5000]

Every round measures each target once, in a fixed order (direct, nginx with proxy_buffering off, weir as a pass-through,
weir with its defaults): that many connections hold a stream each whose frames come every --frame-ms. A frame counts as
merged when the client gets it in one read with the frame before it; since a busy client reads late, the figure is judged
against the same client's direct run. Exit code: 0 nothing lost or cut, 1 something was, 2 it could not be done.
"""

import json
import pathlib
import resource
import statistics
import sys

import side_by_side as bench


def arguments():
    parser = bench.base_arguments(__doc__, 3, "30s", "1s", duration_help="streams begun within this time are measured")
    bench.target_arguments(parser, "direct,nginx,weir-pass,weir")
    parser.add_argument("--streams", type=int, default=5000, help="at once (default: %(default)s)")
    parser.add_argument("--frames", type=int, default=100, help="of a stream (default: %(default)s)")
    parser.add_argument("--frame-ms", type=int, default=200, help="between two frames (default: %(default)s)")
    parser.add_argument("--gzip", action="store_true", help="compressed answers, as the official clients ask for")
    options = bench.parse(parser)
    # What side_by_side's parts ask for.
    options.stream, options.mode, options.rate, options.arrivals = True, "closed", None, "constant"
    options.connections, options.dialect, options.body_bytes, options.answer_bytes = options.streams, "chat", 1000, 1024
    options.run_extra = ["--timeout", "60s"]
    if options.gzip:
        # Compressed streams are made for each request; these fields say how.
        options.run_extra += ["--gzip", "--header", f"x-fake-frames: {options.frames}"]
        options.run_extra += ["--header", f"x-fake-frame-ms: {options.frame_ms}"]
    return options


def raise_descriptor_limit(needed):
    """Every stream takes two descriptors of a proxy; children inherit the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < needed:
        if hard != resource.RLIM_INFINITY and hard < needed:
            raise bench.SetupError(f"{needed} descriptors are needed, the hard limit is {hard}: raise it (ulimit -Hn)")
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


def faults(reports, direct):
    """What a target did to its streams, in words; empty when nothing."""
    found = []
    for report in reports:
        if report["failed"]:
            found.append(f"{report['failed']} streams failed: {report['failures']} {report['statuses']}")
        if len(report["streams_by_frames"]) != 1:
            found.append(f"streams differ in their number of frames: {report['streams_by_frames']}")
        if direct and set(report["streams_by_frames"]) != set(direct[0]["streams_by_frames"]):
            found.append(f"frames per stream {report['streams_by_frames']}, directly {direct[0]['streams_by_frames']}")
    return found


def row(name, reports, base):
    median = lambda *keys: statistics.median([value for value in (bench.pick(r, *keys) for r in reports) if value is not None] or [0])
    per_frame = median("process", "cpu_us_per_frame")
    base_frame = statistics.median([bench.pick(r, "process", "cpu_us_per_frame") or 0 for r in base]) if base else 0
    share = lambda key: statistics.median([r[key] / max(r["frames"], 1) for r in reports])
    return [
        name, str(sum(r["ok"] for r in reports)), str(sum(r["frames"] for r in reports)),
        f"{share('frames_joined'):.4%}", f"{share('frames_split'):.4%}", f"{per_frame:.2f}",
        f"{per_frame / base_frame:.2f}" if base_frame and per_frame else "-",
        f"{median('frame_delay', 'p50_us'):.0f}", f"{median('frame_delay', 'p99_us'):.0f}",
        f"{median('frame_gap', 'p99_us') / 1000:.1f}", f"{median('process', 'rss_kib_after') / 1024:.0f}",
        str(sum(r["failed"] for r in reports)),
    ]


def main():
    options = arguments()
    raise_descriptor_limit(2 * options.streams + 2048)
    results = bench.compare(options)
    direct, nginx = results.get("direct"), results.get("nginx")
    wrong = {name: faults(reports, direct) for name, reports in results.items()}
    print(f"**{options.streams} streams, {options.frames} frames every {options.frame_ms} ms{', gzip' if options.gzip else ''}**\n")
    columns = ["target", "streams", "frames", "joined", "split", "CPU us/frame", "x nginx", "frame delay p50 us", "p99 us"]
    columns += ["frame gap p99 ms", "RSS MiB", "failed"]
    print("| " + " | ".join(columns) + " |\n|" + "---|" * len(columns))
    for name, reports in results.items():
        print("| " + " | ".join(row(name, reports, nginx)) + " |")
    for name, found in wrong.items():
        for fault in found:
            print(f"{name}: {fault}")
    if options.json:
        settings = {key: value for key, value in vars(options).items() if key != "json"}
        pathlib.Path(options.json).write_text(json.dumps({"settings": settings, "reports": results, "faults": wrong}, indent=2) + "\n")
    return 1 if any(wrong.values()) else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except bench.SetupError as error:
        print(f"streams: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
