#!/usr/bin/env python3
"""The profile `production` under load: each store away for a while, and what a call costs beside the profile `lite`.

    benches/stores_away.py --loadtest target/release/weir-loadtest --weir target/release/weir [--rate 1000] [--away 60]

PostgreSQL, Redis and chdb behind the shim of the tests are started in a temporary directory and ended with it. For each of the three a
gateway gets `--rate` calls a second for ten seconds more than `--away` on both sides of it; ten seconds after the first call the store is
killed, and started again on its folder `--away` seconds later. Reported: calls that failed (none may), how long after the load's end all
of them were in the analytics store, and whether as many are there, each once, as were answered.

`--ship SECONDS` records calls for so long with the analytics store away, and then measures how fast they are shipped, and what CPU time a
span takes of the gateway and of the store. `--lists SPANS` fills the analytics store with so many spans, made of calls that passed a
gateway, and asks the gateway for lists and sums. Both need `--stores ''` where nothing is to be killed.

`--cost` rounds compare CPU time per call of a gateway with a file and of one with the stores, in turn; shipping is part of it, as the
thread that ships is the gateway's. Exit code: 0 as promised, 1 not, 2 it could not be done.
"""

import contextlib
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

import side_by_side as bench

ROOT = bench.HERE.parent
AROUND_S = 10
# How long after the load's end all calls have to be in the analytics store.
DRAINED_S = 60
# Whoever waits longer than this for a store to start has none.
START_S = 60


class Store:
    """One of the three, on a folder of its own."""

    def __init__(self, name, folder, command, prepare=None):
        self.name, self.folder, self.port = name, folder, bench.free_port()
        folder.mkdir()
        self.child, self.command = None, command
        if prepare:
            prepare(folder)
        self.start()

    def start(self):
        until = time.monotonic() + START_S
        while time.monotonic() < until:
            log = open(self.folder.with_suffix(".log"), "ab")
            self.child = subprocess.Popen(self.command(self), stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd="/")
            while self.child.poll() is None and time.monotonic() < until:
                with contextlib.suppress(OSError), bench.socket.create_connection(("127.0.0.1", self.port), 1):
                    return
                time.sleep(0.05)
            # After a kill PostgreSQL refuses to start until its children have noticed.
            time.sleep(0.2)
        raise bench.SetupError(f"{self.name} does not start\n{bench.tail(self.folder.with_suffix('.log'))}")

    def kill(self):
        if self.child and self.child.poll() is None:
            self.child.kill()
            self.child.wait()


def as_postgres():
    return ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"] if os.geteuid() == 0 else []


def postgres_bin():
    found = sorted(pathlib.Path("/usr/lib/postgresql").glob("*/bin"))
    if not found:
        raise bench.SetupError("PostgreSQL is needed (Debian: postgresql)")
    return found[-1]


def prepare_postgres(folder):
    folder.chmod(0o777)
    command = [*as_postgres(), postgres_bin() / "initdb", "-D", folder / "data", "-U", "postgres", "-A", "trust", "-E", "UTF8"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd="/")


def postgres_command(of):
    return [*as_postgres(), postgres_bin() / "postgres", "-D", of.folder / "data", "-p", str(of.port), "-k", of.folder, "-h", "127.0.0.1"]


@contextlib.contextmanager
def stores(temp, python, by=()):
    """All three, in the order of the settings, started by a command in front of theirs."""
    if not shutil.which("redis-server"):
        raise bench.SetupError("Redis is needed (Debian: redis-server)")
    shim = ROOT / "tests/production/analytics.py"
    made = []
    try:
        made.append(Store("analytics", temp / "analytics", lambda of: [*by, python, shim, of.folder, str(of.port)]))
        made.append(Store("relational", temp / "relational", lambda of: [*by, *postgres_command(of)], prepare_postgres))
        redis = lambda of: [*by, "redis-server", "--port", str(of.port), "--dir", of.folder, "--save", "", "--appendonly", "no"]
        made.append(Store("cache", temp / "cache", redis))
        yield made
    finally:
        for store in made:
            store.kill()


def settings(three, database, journal):
    """The storage block of the profile."""
    analytics, relational, cache = three
    psql = ["psql", "-h", "127.0.0.1", "-p", str(relational.port), "-U", "postgres", "-c", f"CREATE DATABASE {database}"]
    until = time.monotonic() + START_S
    while subprocess.run(psql, capture_output=True, check=False).returncode:
        if time.monotonic() > until:
            raise bench.SetupError(f"no database {database}")
        time.sleep(0.1)
    return f"""storage:
  profile: production
  database_path: "{journal}"
  analytics_url: "http://127.0.0.1:{analytics.port}"
  analytics_database: {database}
  relational_url: "postgres://postgres@127.0.0.1:{relational.port}/{database}?sslmode=disable"
  cache_url: "redis://127.0.0.1:{cache.port}"
"""


def rows(analytics, database):
    """Rows of spans that the analytics store answers with, and how many different spans they are."""
    question = b"SELECT count() AS n, uniqExact(span_id) AS different FROM weir_calls FINAL"
    url = f"http://127.0.0.1:{analytics.port}/?database={database}&default_format=JSONEachRow"
    with bench.OPENER.open(urllib.request.Request(url, data=question), timeout=60) as answer:
        row = json.loads(answer.read())
    return int(row["n"]), int(row["different"])


@contextlib.contextmanager
def gateway(options, url, work, storage):
    """A gateway with this storage block."""
    work.mkdir(parents=True)
    port, log, config = bench.free_port(), work / "weir.log", work / "weir.yaml"
    options.weir_extra, options.storage = None, storage
    config.write_text(bench.weir_settings(options, url, port, work, passthrough=False))
    base = f"http://127.0.0.1:{port}"
    with bench.process([options.weir, "--config", config], log) as child:
        bench.wait_ready(child, f"{base}/health", log)
        yield base, child.pid, log


def run(options, base, pids, work, seconds, name):
    """What the load generator reports."""
    options.duration, options.warmup = f"{seconds}s", "0s"
    path, log = work / f"{name}.json", work / f"{name}.log"
    command = [part for part in bench.run_command(options, base, pids, path)][3:]
    with bench.process(command, log) as child:
        code = child.wait()
    if not path.exists():
        raise bench.SetupError(f"the load generator ended with {code}\n{bench.tail(log)}")
    return json.loads(path.read_text()) | {"exit_code": code}


def away(options, three, url, temp, which):
    """One store away under load; whether it was as promised."""
    store = three[which]
    database, work = f"away_{store.name}", temp / f"away-{store.name}"
    with gateway(options, url, work, settings(three, database, work / "journal.db")) as (base, pid, _):
        timer = [threading.Timer(AROUND_S, store.kill), threading.Timer(AROUND_S + options.away, store.start)]
        for one in timer:
            one.start()
        seen = []
        looking = threading.Timer(AROUND_S + options.away / 2, lambda: seen.append(json.loads(bench.fetch(f"{base}/health", 10)[1])))
        looking.start()
        report = run(options, base, [pid], work, 2 * AROUND_S + options.away, "report")
        ended = time.monotonic()
        for one in timer:
            one.join()
        answered = report["ok"]
        there = (0, 0)
        while there[0] < answered and time.monotonic() - ended < 4 * DRAINED_S:
            time.sleep(0.25)
            with contextlib.suppress(OSError):
                there = rows(three[0], database)
        drained = time.monotonic() - ended
    status = seen[0]["status"] if seen else "not asked"
    good = report["failed"] == 0 and there == (answered, answered) and drained <= DRAINED_S and status == "degraded"
    print(
        f"| {store.name} away {options.away} s at {options.rate:g}/s | {answered} answered, {report['failed']} failed | p99 "
        f"{report['latency']['p99_us'] / 1000:.1f} ms | /health meanwhile: {status} | {there[0]} rows of {there[1]} spans in the analytics store "
        f"{drained:.1f} s after the end | {'as promised' if good else 'NOT as promised'} |",
        flush=True,
    )
    return good


def cost(options, three, url, temp):
    """CPU time per call of both profiles, in turn."""
    figures = {"lite": [], "production": []}
    for number in range(options.cost):
        for name, all_ in figures.items():
            work = temp / f"cost-{number}-{name}"
            block = settings(three, f"cost_{number}", work / "journal.db") if name == "production" else f'storage:\n  database_path: "{work / "weir.db"}"\n'
            with gateway(options, url, work, block) as (base, pid, _):
                run(options, base, [pid], work, 5, "warm")
                report = run(options, base, [pid], work, 20, "report")
                all_.append(report["process"]["cpu_us_per_request"])
    medians = {name: statistics.median(all_) for name, all_ in figures.items()}
    for name, all_ in figures.items():
        print(f"| CPU per call at {options.rate:g}/s, {name} | {medians[name]:.0f} us | {min(all_):.0f} to {max(all_):.0f} us in {options.cost} rounds |")
    print(f"production beside lite: {medians['production'] / medians['lite'] - 1:+.1%}", flush=True)


def cpu_s(pid):
    """CPU time of a process so far, with that of its threads."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def ship(options, three, url, temp):
    """How fast one gateway ships what has piled up."""
    analytics, database, work = three[0], "ship", temp / "ship"
    with gateway(options, url, work, settings(three, database, work / "journal.db")) as (base, pid, _):
        analytics.kill()
        answered = run(options, base, [pid], work, options.ship, "report")["ok"]
        analytics.start()
        there, before = 0, None
        while True:
            with contextlib.suppress(OSError):
                there = rows(analytics, database)[0]
            now = (time.monotonic(), there, cpu_s(pid), cpu_s(analytics.child.pid))
            if before is None and there:
                before = now
            if there >= answered:
                break
            # Each look costs the store some.
            time.sleep(0.5)
    seconds, spans, ours, theirs = (after - of for after, of in zip(now, before, strict=True))
    print(
        f"| shipping, bodies of {options.body_bytes} and answers of {options.answer_bytes} bytes | {spans} spans in {seconds:.1f} s: "
        f"{spans / seconds:.0f} a second | CPU time a span: gateway {ours / spans * 1e6:.0f} us, store {theirs / spans * 1e6:.0f} us |",
        flush=True,
    )


def tell(analytics, database, statement):
    """Runs a statement in the analytics store."""
    url = f"http://127.0.0.1:{analytics.port}/?database={database}&default_format=JSONEachRow"
    try:
        with bench.OPENER.open(urllib.request.Request(url, data=statement.encode()), timeout=600) as answer:
            return [json.loads(line) for line in answer.read().splitlines()]
    except urllib.error.HTTPError as error:
        raise bench.SetupError(f"the analytics store: {error.read().decode(errors='replace')[:1000]}") from error


def lists(options, three, url, temp):
    """Lists and sums at a depth, through a gateway: made of calls that passed it, each with ids and a start of its own."""
    analytics, database, work = three[0], "lists", temp / "lists"
    with gateway(options, url, work, settings(three, database, work / "journal.db")) as (base, pid, _):
        answered = run(options, base, [pid], work, 2, "calls")["ok"]
        while rows(analytics, database)[0] < answered:
            time.sleep(0.1)
        seeds = min(1000, answered)
        step, pieces = options.lists // seeds, 20
        tell(analytics, database, f"CREATE TABLE seeds ENGINE = Memory AS SELECT span_id FROM weir_calls LIMIT {seeds}")
        for piece in range(pieces):
            # The same ids in both tables: a hash of the span it is made of and its number.
            numbers = f"(SELECT number AS n FROM numbers({piece * step // pieces}, {step // pieces}))"
            made = "reinterpretAsUUID(sipHash128(s.span_id, n))", "reinterpretAsUUID(sipHash128(s.trace_id, intDiv(n, 2)))"
            moved = "s.start_us - toInt64(n) * 7000000 - 60000000"
            # Both ids of a call that is a trace by itself are the same.
            named = [[f"concat('\"{name}\":\"', toString({id}))" for id in ids] for name, *ids in (("span_id", "s.span_id", made[0]), ("trace_id", "s.trace_id", made[1]))]
            record = f"replaceOne(replaceOne(s.record, {', '.join(named[0])}), {', '.join(named[1])})"
            for table, more in (("weir_calls", ""), ("weir_spans", f", {record} AS record")):
                tell(
                    analytics,
                    database,
                    f"INSERT INTO {table} SELECT s.* REPLACE ({made[0]} AS span_id, {made[1]} AS trace_id, {moved} AS start_us{more}) FROM "
                    f"(SELECT * FROM {table} WHERE span_id IN (SELECT span_id FROM seeds)) AS s CROSS JOIN {numbers} AS numbers "
                    "SETTINGS max_partitions_per_insert_block = 0",
                )
        depth = rows(analytics, database)[0]
        tenant = tell(analytics, database, "SELECT tenant_id FROM weir_calls LIMIT 1")[0]["tenant_id"]

        def answer(path):
            asked = urllib.request.Request(f"{base}{path}", headers={"X-Service-Tenant-ID": tenant})
            with bench.OPENER.open(asked, timeout=60) as answered:
                return json.loads(answered.read())

        # While the store draws together what was put in, a question may take it longer than a gateway waits: the journal answers then.
        until, page = time.monotonic() + 4 * DRAINED_S, {"total": 0}
        while page["total"] != depth:
            if time.monotonic() > until:
                raise bench.SetupError(f"{page['total']} spans in the answer, {depth} in the store")
            page = answer(f"/api/v1/spans?limit=1&offset={depth // 3}")
        some = page["data"][0]
        asked = {
            "newest 20": "/api/v1/spans?limit=20",
            "newest 20 traces": "/api/v1/traces?limit=20",
            "by trace": f"/api/v1/traces/{some['trace_id']}",
            "a filter": f"/api/v1/spans?limit=20&model={some['model']}&status=2xx",
            "a filter that finds nothing": "/api/v1/spans?limit=20&model=none",
            "totals": "/api/v1/stats",
        }
        for name, path in asked.items():
            took, turns, ours, theirs = [], 9, cpu_s(pid), cpu_s(analytics.child.pid)
            for _ in range(turns):
                began = time.monotonic()
                answer(path)
                took.append((time.monotonic() - began) * 1000)
            ours, theirs = ((cpu_s(of) - before) / turns * 1000 for of, before in ((pid, ours), (analytics.child.pid, theirs)))
            print(
                f"| {name} at {depth} spans | {statistics.median(took):.0f} ms | {min(took):.0f} to {max(took):.0f} ms | CPU time: gateway "
                f"{ours:.0f} ms, store {theirs:.0f} ms |",
                flush=True,
            )


def main():
    parser = bench.base_arguments(__doc__, rounds=1, duration="20s", warmup="0s")
    bench.call_arguments(parser, connections=64)
    parser.add_argument("--rate", type=float, default=1000, help="calls per second (default: %(default)s)")
    parser.add_argument("--away", type=int, default=60, help="seconds (default: %(default)s)")
    parser.add_argument("--stores", default="analytics,relational,cache", help="which are killed (default: %(default)s)")
    parser.add_argument("--cost", type=int, default=3, help="rounds of CPU time per call; 0 for none (default: %(default)s)")
    parser.add_argument("--ship", type=int, default=0, help="seconds of calls that are shipped at once; 0 for none (default: %(default)s)")
    parser.add_argument("--lists", type=int, default=0, help="spans that lists are asked of; 0 for none (default: %(default)s)")
    parser.add_argument("--python", default=os.environ.get("WEIR_CHDB_PYTHON", sys.executable), help="a Python that has chdb")
    options = bench.parse(parser)
    options.mode, options.arrivals, options.dialect, options.stream = "open", "constant", "chat", False
    options.frames, options.frame_ms = 50, 10
    # The stores are started in another folder; a link to an interpreter stays one, or it would not find its packages.
    options.python = os.path.abspath(options.python) if "/" in options.python else options.python
    good = True
    with bench.tempfile.TemporaryDirectory(prefix="weir-stores-away-") as temp:
        temp, port = pathlib.Path(temp), bench.free_port()
        temp.chmod(0o755)
        log = temp / "provider.log"
        with bench.process(bench.provider_command(options, port)[3:], log) as provider, stores(temp, options.python) as three:
            url = f"http://127.0.0.1:{port}"
            bench.wait_ready(provider, f"{url}/", log)
            for which, store in enumerate(three):
                if store.name in options.stores.split(","):
                    good &= away(options, three, url, temp, which)
            if options.ship:
                ship(options, three, url, temp)
            if options.lists:
                lists(options, three, url, temp)
            if options.cost:
                cost(options, three, url, temp)
    return 0 if good else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except bench.SetupError as error:
        print(f"stores_away: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
