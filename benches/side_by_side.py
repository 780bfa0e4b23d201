#!/usr/bin/env python3
"""Weir beside nginx, under the same load, in interleaved rounds.

Each round measures every target once, in a fixed order: direct (no proxy), nginx as a plain reverse proxy, weir as a
pass-through (no analysis, no storage, no cost estimation), weir with its defaults; with --before the same two of another
build in between, so that a change is measured in one run. The proxy is pinned to one core, the fake provider and
the load generator to another, and every proxy is started anew for each measurement. Reported are medians over the
rounds: CPU microseconds per request, requests per second, latencies, and what weir says it dropped.

    benches/side_by_side.py --loadtest target/release/weir-loadtest --weir target/release/weir

Only loopback, only processes started here are ended, everything is written to a temporary directory. Needs nothing
beyond the standard library; nginx (Debian: nginx-light) and taskset (util-linux) must be installed. Exit code: 0 all
answers as expected, 1 some measurement failed, 2 it could not be done.
"""

import argparse
import contextlib
import json
import os
import pathlib
import platform
import shutil
import socket
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
READY_TIMEOUT_S = 60
# Requests of a session, `weir-loadtest run --plan session`.
TURNS = 50
STOP_TIMEOUT_S = 20
def own_opener():
    """Asks without a proxy from the environment in between, for these requests stay on this machine, and trusts the certificate made here."""
    anybody = ssl.create_default_context()
    anybody.check_hostname, anybody.verify_mode = False, ssl.CERT_NONE
    return urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=anybody))


OPENER = own_opener()


class SetupError(Exception):
    """What keeps the comparison from running."""


GIVEN = set()


def free_port():
    """A port that nobody listens on, and none that was given before: a server that was given it may not have begun to listen."""
    while True:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        if port not in GIVEN:
            GIVEN.add(port)
            return port


def fetch(url, timeout_s=2):
    with OPENER.open(url, timeout=timeout_s) as answer:
        return answer.status, answer.read().decode("utf-8", "replace")


def certificate(work):
    """Paths of a certificate for the loopback address and of its key, made anew."""
    certificate, key = work / "tls.pem", work / "tls.key"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    command += ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost", "-keyout", key, "-out", certificate]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    if done.returncode != 0:
        raise SetupError(f"no certificate (Debian: openssl): {done.stderr.strip()}")
    return certificate, key


def with_tls(options):
    return getattr(options, "tls", False)


def scheme(options):
    return "https" if with_tls(options) else "http"


def pinned(core, command):
    return ["taskset", "-c", str(core), *map(str, command)]


@contextlib.contextmanager
def process(command, log_path):
    """A child of ours, ended (politely first) when the block ends."""
    with open(log_path, "ab") as log:
        child = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
    try:
        yield child
    finally:
        if child.poll() is None:
            child.terminate()
            try:
                child.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()


def tail(path, lines=15):
    with contextlib.suppress(OSError):
        return "\n".join(pathlib.Path(path).read_text(errors="replace").splitlines()[-lines:])
    return ""


def wait_ready(child, url, log_path):
    """Polls until the URL answers 200."""
    deadline = time.monotonic() + READY_TIMEOUT_S
    seen = "no answer"
    while time.monotonic() < deadline:
        if child.poll() is not None:
            raise SetupError(f"{child.args[-1]}: ended with {child.returncode} before it was ready\n{tail(log_path)}")
        try:
            if fetch(url)[0] == 200:
                return
        except urllib.error.HTTPError as error:
            seen = f"status {error.code}"
        except OSError as error:
            seen = str(error)
        time.sleep(0.05)
    raise SetupError(f"{url}: not ready after {READY_TIMEOUT_S} s ({seen})\n{tail(log_path)}")


def children_of(pid):
    path = pathlib.Path(f"/proc/{pid}/task/{pid}/children")
    return [int(child) for child in path.read_text().split()] if path.exists() else []


def worker_pids(master):
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        children = children_of(master)
        if children:
            return children
        time.sleep(0.02)
    raise SetupError("nginx started no worker")


@contextlib.contextmanager
def direct(options, provider_url, _work):
    yield provider_url, []


@contextlib.contextmanager
def nginx(options, provider_url, work):
    binary = shutil.which(options.nginx) or shutil.which(options.nginx, path="/usr/sbin:/usr/local/sbin")
    if not binary:
        raise SetupError(f"--nginx {options.nginx}: not found (Debian: apt-get install nginx-light)")
    port = free_port()
    template = (HERE / "nginx.conf").read_text()
    tls = ""
    if with_tls(options):
        tls = " ssl; ssl_certificate {}; ssl_certificate_key {}".format(*certificate(work))
    values = {
        "@WORK@": str(work),
        "@WORKERS@": str(getattr(options, "nginx_workers", 1)),
        "@LISTEN@": f"127.0.0.1:{port}{tls}",
        "@UPSTREAM@": provider_url.removeprefix("http://"),
        "@USER@": "user root;" if os.geteuid() == 0 else "",
        "@BUFFERING@": "off" if options.stream else "on",
    }
    for name, value in values.items():
        template = template.replace(name, value)
    config, log = work / "nginx.conf", work / "nginx.log"
    config.write_text(template)
    command = [binary, "-p", work, "-c", config, "-e", log]
    with process(pinned(options.proxy_core, command), log) as master:
        base = f"{scheme(options)}://127.0.0.1:{port}"
        wait_ready(master, f"{base}/", log)
        yield base, worker_pids(master.pid)


def weir_settings(options, provider_url, port, work, passthrough):
    """Everything not named here stays at the built-in default."""
    lines = [
        f'listen_addr: "127.0.0.1:{port}"',
        f'upstream_url: "{provider_url}"',
        f"max_connections: {max(1000, 2 * options.connections)}",
        "rate_limiting:",
        "  requests_per_second: 1000000",
        "  burst_size: 1000000",
        getattr(options, "storage", None) or f'storage:\n  database_path: "{work / "weir.db"}"',
        "server:",
        f"  core_threads: {options.core_threads}",
        f"  io_driver: {options.io_driver}",
    ]
    if with_tls(options):
        lines += ['enable_tls: true', 'tls_cert_file: "{}"\ntls_key_file: "{}"'.format(*certificate(work))]
    if passthrough:
        lines += ["enable_security_analysis: false", "enable_trace_storage: false", "cost_estimation: {enabled: false}"]
    if options.weir_extra:
        lines.append(pathlib.Path(options.weir_extra).read_text())
    return "\n".join(lines) + "\n"


@contextlib.contextmanager
def weir(options, provider_url, work, passthrough, binary="weir"):
    path = getattr(options, binary)
    if not path:
        raise SetupError(f"--{binary} is needed for this target: the path of the gateway's binary")
    port = free_port()
    config, log = work / "weir.yaml", work / "weir.log"
    config.write_text(weir_settings(options, provider_url, port, work, passthrough))
    base = f"{scheme(options)}://127.0.0.1:{port}"
    with process(pinned(options.proxy_core, [path, "--config", config]), log) as child:
        wait_ready(child, f"{base}/health", log)
        yield base, [child.pid]


@contextlib.contextmanager
def floor(options, provider_url, work):
    """Bytes passed on by the gateway's runtime with nothing read (benches/floor.rs)."""
    if not options.floor:
        raise SetupError("--floor is needed for this target: the path of the example `floor`, built for release")
    port = free_port()
    log = work / "floor.log"
    command = [options.floor, f"127.0.0.1:{port}", provider_url.removeprefix("http://")]
    with process(pinned(options.proxy_core, command), log) as child:
        wait_ready(child, f"http://127.0.0.1:{port}/", log)
        yield f"http://127.0.0.1:{port}", [child.pid]


TARGETS = {
    "direct": direct,
    "floor": floor,
    "nginx": nginx,
    "before-pass": lambda options, url, work: weir(options, url, work, passthrough=True, binary="before"),
    "weir-pass": lambda options, url, work: weir(options, url, work, passthrough=True),
    "before": lambda options, url, work: weir(options, url, work, passthrough=False, binary="before"),
    "weir": lambda options, url, work: weir(options, url, work, passthrough=False),
}


def dropped(base):
    """Every counter of /metrics whose name speaks of drops, with its labels, where it is not zero: but for what is switched off, and for
    texts that the second stage has no time for within its share."""
    try:
        _, text = fetch(f"{base}/metrics", timeout_s=10)
    except OSError as error:
        return {"metrics unreadable": str(error)}
    found = {}
    for line in text.splitlines():
        name, _, value = line.rpartition(" ")
        if line.startswith("#") or "dropped" not in name.lower() or 'reason="disabled"' in name or 'queue="second_stage"' in name:
            continue
        with contextlib.suppress(ValueError):
            if float(value) != 0:
                found[name] = float(value)
    return found


def run_command(options, base, pids, json_path):
    command = [options.loadtest, "run", "--target", base, "--mode", options.mode, "--dialect", options.dialect]
    command += ["--connections", options.connections, "--duration", options.duration, "--warmup", options.warmup]
    command += ["--body-bytes", options.body_bytes, "--json", json_path]
    if options.mode == "open":
        command += ["--rate", options.rate, "--arrivals", options.arrivals]
    if options.stream:
        command.append("--stream")
    if getattr(options, "plan", "bodies") != "bodies":
        command += ["--plan", options.plan]
    if getattr(options, "repeat_bodies", False):
        command.append("--repeat-bodies")
    if getattr(options, "seen_share", None) is not None:
        command += ["--seen-share", options.seen_share]
    if getattr(options, "early", None):
        command += ["--head-first", "--expect-status", options.early]
    if with_tls(options):
        command.append("--insecure")
    if getattr(options, "no_keep_alive", False):
        command.append("--no-keep-alive")
    command += getattr(options, "run_extra", [])
    for pid in pids:
        command += ["--pid", pid]
    return pinned(options.load_core, command)


def load(name, options, base, pids, work):
    """What the load generator reports of one run against `base`."""
    json_path, log_path = work / "report.json", work / "run.log"
    with process(run_command(options, base, pids, json_path), log_path) as child:
        code = child.wait()
    if not json_path.exists():
        raise SetupError(f"{name}: the load generator ended with {code}\n{tail(log_path)}")
    return json.loads(json_path.read_text()) | {"exit_code": code}


def measure(name, options, provider_url, work):
    """One measurement of one target."""
    work.mkdir(parents=True)
    with TARGETS[name](options, provider_url, work) as (base, pids):
        report = load(name, options, base, pids, work)
        report["drops"] = dropped(base) if name.startswith(("weir", "before")) else {}
    return report


def pick(report, *keys):
    for key in keys:
        report = report.get(key) if report else None
    return report


FIGURES = {
    "ok_per_s": ("ok_per_s",),
    "cpu_us_per_request": ("process", "cpu_us_per_request"),
    "cpu_us_per_frame": ("process", "cpu_us_per_frame"),
    "p50_us": ("latency", "p50_us"),
    "p99_us": ("latency", "p99_us"),
    "first_byte_p50_us": ("first_byte", "p50_us"),
    "frame_delay_p50_us": ("frame_delay", "p50_us"),
    "frame_delay_p99_us": ("frame_delay", "p99_us"),
    "rss_kib_before": ("process", "rss_kib_before"),
    "rss_kib_after": ("process", "rss_kib_after"),
    "generator_cpu_us_per_request": ("generator_cpu_us_per_request",),
}


def summarise(reports):
    """Medians of one target's measurements, with their range."""
    summary = {"runs": len(reports), "failed": sum(report["failed"] for report in reports), "drops": {}}
    for figure, keys in FIGURES.items():
        values = [value for value in (pick(report, *keys) for report in reports) if value is not None]
        if values:
            summary[figure] = {"median": statistics.median(values), "min": min(values), "max": max(values)}
    for report in reports:
        for name, value in report["drops"].items():
            known = summary["drops"].get(name, 0)
            summary["drops"][name] = value if isinstance(value, str) or isinstance(known, str) else known + value
    return summary


def median(summary, figure):
    return summary.get(figure, {}).get("median")


def ratio(summary, base, figure):
    own, other = median(summary, figure), median(base, figure) if base else None
    return own / other if own is not None and other else None


def shown(value, digits=1):
    return "-" if value is None else f"{value:,.{digits}f}"


def markdown(summaries, options):
    load = f"{options.mode} loop" + (f" at {options.rate}/s ({options.arrivals})" if options.mode == "open" else "")
    sessions = getattr(options, "plan", "bodies") == "session"
    bodies = f"sessions of {TURNS} turns from 4 KB to 400 KB" if sessions else f"bodies of {options.body_bytes} bytes"
    title = f"**{load}, {options.connections} connections, {options.dialect} {bodies}"
    title += f", {options.seen_share:g} of the text seen before" if getattr(options, "seen_share", None) is not None else ""
    title += f", answered {options.early} from the head" if getattr(options, "early", None) else ""
    title += ", TLS" if with_tls(options) else ""
    title += ", a connection for each request" if getattr(options, "no_keep_alive", False) else ""
    title += f", streams of {options.frames} frames every {options.frame_ms} ms**" if options.stream else "**"
    columns = ["target", "runs", "CPU us/req (min-max)", "x nginx CPU", "req/s (min-max)", "x nginx req/s"]
    columns += ["p50 us", "p99 us", "RSS MiB before/after", "failed", "dropped"]
    if sessions:
        columns[3:3] = ["CPU ms/session"]
    if options.stream:
        columns[6:6] = ["CPU us/frame", "first byte p50 us", "frame delay p50 us", "frame delay p99 us"]
    rows = [columns, ["---"] + ["--:"] * (len(columns) - 1)]
    base = summaries.get("nginx")
    for name, summary in summaries.items():
        ranged = lambda figure, digits: shown(median(summary, figure), digits) + (
            f" ({shown(summary[figure]['min'], digits)}-{shown(summary[figure]['max'], digits)})"
            if figure in summary
            else ""
        )
        mib = lambda figure: None if median(summary, figure) is None else median(summary, figure) / 1024
        row = [name, str(summary["runs"]), ranged("cpu_us_per_request", 2)]
        if sessions:
            per_request = median(summary, "cpu_us_per_request")
            row += [shown(None if per_request is None else per_request * TURNS / 1000, 2)]
        row += [shown(ratio(summary, base, "cpu_us_per_request"), 2), ranged("ok_per_s", 0)]
        row += [shown(ratio(summary, base, "ok_per_s"), 3)]
        if options.stream:
            row += [shown(median(summary, "cpu_us_per_frame"), 2)]
            row += [shown(median(summary, f)) for f in ("first_byte_p50_us", "frame_delay_p50_us", "frame_delay_p99_us")]
        row += [shown(median(summary, "p50_us")), shown(median(summary, "p99_us"))]
        row += [f"{shown(mib('rss_kib_before'))} / {shown(mib('rss_kib_after'))}", str(summary["failed"])]
        drops = [f"{drop}: {value:g}" if not isinstance(value, str) else f"{drop}: {value}"
                 for drop, value in summary["drops"].items()]
        rows.append(row + ["; ".join(drops) or "0"])
    return "\n".join([title, ""] + ["| " + " | ".join(row) + " |" for row in rows])


def base_arguments(doc, rounds, duration, warmup, duration_help="of each measurement (default: %(default)s)"):
    """What every comparison here can be told, with its own defaults."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--loadtest", required=True, help="path of the weir-loadtest binary (release build)")
    parser.add_argument("--weir", help="path of the weir binary (release build)")
    parser.add_argument("--rounds", type=int, default=rounds)
    parser.add_argument("--duration", default=duration, help=duration_help)
    parser.add_argument("--warmup", default=warmup)
    parser.add_argument("--proxy-core", default="0", metavar="CORES", help="cores of the proxy, as taskset takes them (default: %(default)s)")
    parser.add_argument("--load-core", default="1", metavar="CORES", help="cores of provider and generator (default: %(default)s)")
    parser.add_argument("--core-threads", type=int, default=1, help="weir's server.core_threads")
    parser.add_argument("--io-driver", default="auto", help="weir's server.io_driver")
    parser.add_argument("--weir-extra", help="file with further YAML for weir's configuration")
    parser.add_argument("--json", help="where the full result goes")
    return parser


def call_arguments(parser, connections):
    """How large calls are and how many at once."""
    parser.add_argument("--connections", type=int, default=connections)
    parser.add_argument("--body-bytes", type=int, default=1000)
    parser.add_argument("--answer-bytes", type=int, default=1024)


def target_arguments(parser, targets):
    """What is compared."""
    parser.add_argument("--nginx", default="nginx", help="nginx binary (default: from PATH)")
    parser.add_argument("--floor", help="path of the example `floor` (release build), for the target of this name")
    parser.add_argument("--before", help="path of another build of the weir binary to compare with")
    parser.add_argument("--targets", default=targets, help="comma-separated, in order (default: %(default)s)")


def parse(parser):
    """The options, once they fit together."""
    options = parser.parse_args()
    if "targets" not in options:
        if not options.weir:
            parser.error("--weir is needed")
        return options
    options.names = [name for name in options.targets.split(",") if name]
    if options.before and options.targets == parser.get_default("targets"):
        options.names = ["direct", "nginx", "before-pass", "weir-pass", "before", "weir"]
    unknown = [name for name in options.names if name not in TARGETS]
    if unknown or not options.names:
        parser.error(f"--targets: unknown {', '.join(unknown)}; accepted are {', '.join(TARGETS)}")
    if options.rounds < 1:
        parser.error("--rounds: accepted is 1 or more")
    if any(name.startswith("weir") for name in options.names) and not options.weir:
        parser.error("--weir is needed for the weir targets; leave them out with --targets direct,nginx")
    return options


def arguments():
    parser = base_arguments(__doc__, rounds=5, duration="10s", warmup="2s")
    target_arguments(parser, "direct,nginx,weir-pass,weir")
    call_arguments(parser, connections=64)
    parser.add_argument("--mode", choices=["closed", "open"], default="closed")
    parser.add_argument("--rate", type=float, help="requests per second, open mode")
    parser.add_argument("--arrivals", choices=["constant", "poisson"], default="constant")
    parser.add_argument("--dialect", choices=["chat", "messages", "local"], default="chat")
    parser.add_argument("--stream", action="store_true", help="streamed answers")
    parser.add_argument("--frames", type=int, default=50, help="content frames of a stream")
    parser.add_argument("--frame-ms", type=int, default=10, help="milliseconds between frames")
    parser.add_argument("--plan", choices=["bodies", "session"], default="bodies",
                        help="session: conversations of a coding agent that grow from 4 KB to 400 KB in 50 turns")
    parser.add_argument("--repeat-bodies", action="store_true", help="the same 512 bodies again and again, as the history of a conversation comes back")
    parser.add_argument("--seen-share", type=float, help="share of each body's text that stood in earlier requests; 0: one new message")
    parser.add_argument("--early", type=int, metavar="STATUS",
                        help="the provider answers with this status from the head, and clients write head and body by themselves")
    parser.add_argument("--tls", action="store_true", help="clients speak TLS to the proxies; the provider stays as it is")
    parser.add_argument("--no-keep-alive", action="store_true", help="a connection for each request")
    parser.add_argument("--nginx-workers", type=int, default=1, help="nginx's worker_processes (default: %(default)s)")
    parser.add_argument("--header", action="append", default=[], help="an extra field of every request; may be repeated")
    parser.add_argument("--bodies", type=int, help="different requests prepared")
    parser.add_argument("--markdown", help="where the table goes besides standard output")
    options = parse(parser)
    options.run_extra = [word for field in options.header for word in ("--header", field)]
    options.run_extra += ["--bodies", options.bodies] if options.bodies else []
    if options.tls and not set(options.names) <= {"nginx", "weir", "weir-pass", "before", "before-pass"}:
        parser.error("--tls: accepted are the targets nginx, weir, weir-pass, before and before-pass")
    if (options.mode == "open") != (options.rate is not None):
        parser.error("--mode open and --rate belong together")
    return options


def cores_of(text):
    """The numbers of `0` and `0,1`."""
    parts = str(text).split(",")
    if not all(part.isdigit() for part in parts):
        raise SetupError(f"cores are `{text}`; accepted are numbers with commas between them, `0` or `0,1`")
    return set(map(int, parts))


def provider_command(options, port):
    command = [options.loadtest, "provider", "--listen", f"127.0.0.1:{port}", "--answer-bytes", options.answer_bytes]
    if getattr(options, "early", None):
        command += ["--early", options.early]
    return pinned(options.load_core, command + ["--frames", options.frames, "--frame-ms", options.frame_ms])


def compare(options):
    results = {name: [] for name in options.names}
    with tempfile.TemporaryDirectory(prefix="weir-side-by-side-") as temp:
        temp, port = pathlib.Path(temp), free_port()
        log = temp / "provider.log"
        with process(provider_command(options, port), log) as provider:
            url = f"http://127.0.0.1:{port}"
            wait_ready(provider, f"{url}/", log)
            for number in range(1, options.rounds + 1):
                for name in options.names:
                    report = measure(name, options, url, temp / f"{number}-{name}")
                    results[name].append(report)
                    cpu = pick(report, "process", "cpu_us_per_request")
                    print(
                        f"round {number}/{options.rounds} {name}: {shown(cpu, 2)} us/req, {report['ok_per_s']:,.0f}/s, "
                        f"p50 {shown(pick(report, 'latency', 'p50_us'))} us, failed {report['failed']}",
                        file=sys.stderr,
                        flush=True,
                    )
    return results


def main():
    options = arguments()
    if not shutil.which("taskset"):
        raise SetupError("taskset not found (Debian: apt-get install util-linux)")
    usable = os.sched_getaffinity(0)
    proxy, load_ = cores_of(options.proxy_core), cores_of(options.load_core)
    if not proxy <= usable or not load_ <= usable:
        raise SetupError(f"--proxy-core {options.proxy_core}, --load-core {options.load_core}: accepted are cores of {sorted(usable)}, `0` or `0,1`")
    if proxy & load_:
        print("proxy and load share a core: read the CPU time, not the rates", file=sys.stderr)
    results = compare(options)
    summaries = {name: summarise(reports) for name, reports in results.items()}
    table = markdown(summaries, options)
    print(table)
    if options.markdown:
        pathlib.Path(options.markdown).write_text(table + "\n")
    if options.json:
        settings = {key: value for key, value in vars(options).items() if key not in ("json", "markdown")}
        machine = {"kernel": platform.release(), "cpus": os.cpu_count(), "load_average": os.getloadavg()}
        document = {"settings": settings, "machine": machine, "summaries": summaries, "reports": results}
        pathlib.Path(options.json).write_text(json.dumps(document, indent=2) + "\n")
    failed = any(report["exit_code"] != 0 for reports in results.values() for report in reports)
    return 1 if failed else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except SetupError as error:
        print(f"side_by_side: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
