#!/usr/bin/env python3
"""What a judge that never answers does to calls: latency with it and without it, and what became of every call.

    benches/judge_dead.py --loadtest target/release/weir-loadtest --weir target/release/weir [--rate 1000]

Open loop, Poisson arrivals; latency counts from the due time. Every call has a finding (a rule of the script's own that matches the
load's prose), so the action router is asked about every one of them. Two gateways in interleaved rounds:

- without: the router on, its default action `log`, the judge off
- dead: the default action `judge_route`, and a judge whose backend takes connections and never says a word

Reported: medians over the rounds, the share by which p99 differs, and for the gateway with the dead judge how many calls it was
asked about and how many were dropped, by status and reason: together they must be all calls the router sent to it. Exit code: 0
every call answered and accounted for and p99 within --tolerance, 1 not, 2 it could not be done.
"""

import json
import pathlib
import socket
import statistics
import sys
import threading
import time

import side_by_side as bench

# Half of what loadtest/src/prose.rs writes about: hardly a message holds none of them.
THINGS = (
    "billing report, search index, delivery schedule, onboarding guide, nightly import, release checklist, mobile client, "
    "warehouse scanner, training plan, quarterly forecast, message queue, product catalogue, support rota, backup job, "
    "login page, price list, event calendar, sensor feed, test suite, migration script"
).split(", ")
RULE = f"""
rules:
  - id: prose
    type: prompt_injection
    severity: Medium
    confidence: 0.9
    about: Matches what the load generator writes
    scope: [user]
    before: 16
    literals: {json.dumps(THINGS)}
    pattern: '{"|".join(THINGS)}'
    hits: ['the message queue']
    misses: ['nothing of that kind']
"""
# How long the worker may take to be done with what it was asked: its queue is short and each call of it too.
SETTLE_S = 60
TIMEOUT_MS = 500


def silent_backend():
    """A listener that takes connections and never says a word; its address."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=512)
    held = []

    def take():
        while True:
            try:
                held.append(listener.accept()[0])
            except OSError:
                return

    threading.Thread(target=take, daemon=True).start()
    return f"http://127.0.0.1:{listener.getsockname()[1]}"


def settings(work, name, backend):
    """A file with what the two gateways differ in."""
    rules = work / "rules"
    rules.mkdir(exist_ok=True)
    (rules / "prose.yaml").write_text(RULE)
    action = "judge_route" if name == "dead" else "log"
    lines = [
        f'security_analysis: {{rules_dir: "{rules}"}}',
        f"action_router: {{enabled: true, default_actions: [{action}]}}",
    ]
    if name == "dead":
        worker = f"{{timeout_ms: {TIMEOUT_MS}, total_deadline_ms: {TIMEOUT_MS}, channel_buffer: 20}}"
        lines.append(f'judge: {{enabled: true, selfhosted: {{base_url: "{backend}"}}, retry: {{max_retries: 0}}, worker: {worker}}}')
    path = work / f"{name}.yaml"
    path.write_text("\n".join(lines) + "\n")
    return path


def samples(base, family):
    """The samples of a family of /metrics, by their labels."""
    _, text = bench.fetch(f"{base}/metrics", timeout_s=10)
    found = {}
    for line in text.splitlines():
        name, _, value = line.rpartition(" ")
        if name.split("{")[0] == family and float(value):
            found[name[len(family) :]] = float(value)
    return found


def counted(base):
    """Calls the router sent to the judge, and what became of them, once nothing moves any more."""
    until = time.monotonic() + SETTLE_S
    while True:
        routed = sum(value for labels, value in samples(base, "service_action_executions_total").items() if "judge_route" in labels)
        asked, dropped = samples(base, "service_judge_requests_total"), samples(base, "service_judge_dropped_total")
        if routed == sum(asked.values()) + sum(dropped.values()) or time.monotonic() > until:
            return {"routed": routed, "asked": asked, "dropped": dropped}
        time.sleep(0.25)


def measure(options, name, url, work, backend):
    work.mkdir(parents=True)
    options.weir_extra = settings(work, name, backend)
    with bench.weir(options, url, work, passthrough=False) as (base, pids):
        report, log = work / "report.json", work / "run.log"
        with bench.process(bench.run_command(options, base, pids, report), log) as child:
            code = child.wait()
        if not report.exists():
            raise bench.SetupError(f"{name}: the load generator ended with {code}\n{bench.tail(log)}")
        figures = json.loads(report.read_text())
        figures["exit_code"] = code
        if name == "dead":
            figures["judge"] = counted(base)
    return figures


def arguments():
    parser = bench.base_arguments(__doc__, rounds=5, duration="20s", warmup="3s")
    bench.call_arguments(parser, connections=64)
    parser.add_argument("--rate", type=float, default=1000, help="calls per second (default: %(default)s)")
    parser.add_argument("--tolerance", type=float, default=0.10, help="by how much p99 may differ (default: %(default)s)")
    options = bench.parse(parser)
    options.mode, options.arrivals, options.dialect, options.stream = "open", "poisson", "chat", False
    options.frames, options.frame_ms = 50, 10
    return options


def show(results, options):
    print(f"\n**{options.rate:g} calls/s, Poisson, {options.rounds} rounds of {options.duration} (us)**\n")
    print("| judge | p50 | p99 | p99, lowest to highest | failed |\n|---|--:|--:|--:|--:|")
    p99 = {}
    for name, reports in results.items():
        at = lambda key: [report["latency"][key] for report in reports]
        p99[name] = statistics.median(at("p99_us"))
        spread = f"{min(at('p99_us')):,.0f} to {max(at('p99_us')):,.0f}"
        failed = sum(report["failed"] for report in reports)
        print(f"| {name} | {statistics.median(at('p50_us')):,.0f} | {p99[name]:,.0f} | {spread} | {failed} |")
    change = p99["dead"] / p99["without"] - 1
    print(f"\np99 with the dead judge: {change:+.1%}\n")
    print("| round | routed to the judge | asked | dropped | not accounted for |\n|---|--:|---|---|--:|")
    missing = 0
    for number, report in enumerate(results["dead"], 1):
        judge = report["judge"]
        asked, dropped = sum(judge["asked"].values()), sum(judge["dropped"].values())
        left = judge["routed"] - asked - dropped
        missing += abs(left)
        list_ = lambda counts: "; ".join(f"{labels} {count:g}" for labels, count in counts.items()) or "0"
        print(f"| {number} | {judge['routed']:g} | {list_(judge['asked'])} | {list_(judge['dropped'])} | {left:g} |")
    return change, missing


def main():
    options = arguments()
    backend = silent_backend()
    results = {"without": [], "dead": []}
    with bench.tempfile.TemporaryDirectory(prefix="weir-judge-dead-") as temp:
        temp, port = pathlib.Path(temp), bench.free_port()
        log = temp / "provider.log"
        with bench.process(bench.provider_command(options, port), log) as provider:
            url = f"http://127.0.0.1:{port}"
            bench.wait_ready(provider, f"{url}/", log)
            for number in range(1, options.rounds + 1):
                for name, reports in results.items():
                    report = measure(options, name, url, temp / f"{number}-{name}", backend)
                    reports.append(report)
                    p99 = report["latency"]["p99_us"]
                    print(f"round {number}/{options.rounds} {name}: p99 {p99:,.0f} us, failed {report['failed']}", file=sys.stderr, flush=True)
    change, missing = show(results, options)
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(results, indent=2) + "\n")
    answered = all(report["exit_code"] == 0 for reports in results.values() for report in reports)
    return 0 if answered and missing == 0 and change <= options.tolerance else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except bench.SetupError as error:
        print(f"judge_dead: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
