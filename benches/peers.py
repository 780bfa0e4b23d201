#!/usr/bin/env python3
"""Weir beside the gateways that people choose between, under one plan, in one run of weir-loadtest.

    benches/peers.py --loadtest target/release/weir-loadtest --weir target/release/weir --install --plan quick --plan session

All targets are started in front of one fake provider and take turns in every round. Known are direct, nginx, haproxy, litellm, litellm-db
(the same with its database, PostgreSQL), portkey, weir-pass (no analysis, no storage, no cost estimation), weir (its defaults) and
weir-production (the defaults with PostgreSQL, Redis and the analytics store of the tests, which --python has chdb for); what cannot be
started is left out, and the table says why. --install gets what is missing: nginx, HAProxy, PostgreSQL and Redis by apt, LiteLLM and chdb
by pip into environments of their own, Portkey's gateway by npm, the latter three into --tools. Any other gateway takes part by its command, with {port} and {upstream} where they go, and is asked for its
readiness at --ready; another form of Weir by a file with more of its settings, in which @RECEIVER@ is the address of a receiver of spans:

    --weir-form everything=everything.yaml
    --other 'mine=/opt/mine/gateway --listen 127.0.0.1:{port} --upstream {upstream}'

For each plan PLAN.md, PLAN.json and PLAN.html are written into --out. Only loopback, only processes started here are ended. Exit code: 0
all answers as expected, 1 some failed, 2 it could not be done.
"""

import argparse
import contextlib
import copy
import os
import pathlib
import shlex
import shutil
import subprocess
import sys
import tempfile

import side_by_side as bench
import stores_away
from latency import haproxy

LITELLM = """
model_list:
  - model_name: fake-small
    litellm_params:
      model: openai/fake-small
      api_base: {upstream}/v1
      api_key: fake-key-for-load-tests
litellm_settings:
  telemetry: false
"""
# Portkey's gateway is told by the caller where to go; the others take no notice of these fields.
PORTKEY_FIELDS = ["x-portkey-provider: openai", "x-portkey-custom-host: {upstream}/v1"]
START_S = 120


def run_quietly(command, why):
    print(f"{why}: {shlex.join(map(str, command))}", file=sys.stderr, flush=True)
    done = subprocess.run(list(map(str, command)), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        said = done.stdout.strip()
        raise bench.SetupError(f"{why} failed: {said.rpartition(chr(10))[2]}\n{said[-2000:]}")


def by_apt(package, options, program=None):
    if options.install and not shutil.which(program or package, path="/usr/sbin:/usr/bin:/usr/local/sbin"):
        run_quietly(["apt-get", "install", "-y", "--no-install-recommends", package], f"installing {package}")


def by_pip(options, name, *packages):
    """The folder of the programs of an environment of its own."""
    place = options.tools / name / "bin"
    if options.install and not (place / "pip").exists():
        run_quietly([sys.executable, "-m", "venv", place.parent], f"making an environment for {name}")
        run_quietly([place / "pip", "install", "--quiet", *packages], f"installing {name}")
    return place


def litellm_binary(options):
    binary = by_pip(options, "litellm", f"litellm[proxy]{options.litellm_version}", "prisma") / "litellm"
    if not binary.exists():
        raise bench.SetupError("not installed: run with --install, or put it where --tools says")
    return binary


def portkey_script(options):
    place = options.tools / "portkey"
    script = place / "node_modules" / "@portkey-ai" / "gateway" / "build" / "start-server.js"
    if options.install and not script.exists():
        place.mkdir(parents=True, exist_ok=True)
        package = f"@portkey-ai/gateway{options.portkey_version}"
        run_quietly(["npm", "install", "--silent", "--no-fund", "--no-audit", "--prefix", place, package], "installing Portkey's gateway")
    if not script.exists():
        raise bench.SetupError("not installed: run with --install, or put it where --tools says")
    return script


@contextlib.contextmanager
def started(options, command, port, ready, work, name, environment=None):
    """A gateway under way: its URL and its process."""
    log = work / f"{name}.log"
    with_environment = ["env", *[f"{key}={value}" for key, value in (environment or {}).items()], *command]
    with bench.process(bench.pinned(options.proxy_core, with_environment), log) as child:
        bench.READY_TIMEOUT_S = START_S
        bench.wait_ready(child, f"http://127.0.0.1:{port}{ready}", log)
        yield f"http://127.0.0.1:{port}", [child.pid]


@contextlib.contextmanager
def litellm(options, upstream, work):
    port, config = bench.free_port(), work / "litellm.yaml"
    config.write_text(LITELLM.format(upstream=upstream))
    # It listens on loopback only, and every key may call it, as with the others.
    environment = {"NO_PROXY": "*", "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true"}
    command = [litellm_binary(options), "--config", config, "--host", "127.0.0.1", "--port", port, "--num_workers", 1]
    with started(options, command, port, "/health/liveliness", work, "litellm", environment) as target:
        yield target


@contextlib.contextmanager
def litellm_db(options, upstream, work):
    """LiteLLM with keys, spend and logs in PostgreSQL. Its database client fetches an engine when it is made ready."""
    binary = litellm_binary(options)
    by_apt("postgresql", options, "pg_ctlcluster")
    port, place = bench.free_port(), work / "litellm-db"
    place.mkdir()
    work.chmod(0o755)
    postgres = stores_away.Store("postgres", place / "postgres", stores_away.postgres_command, stores_away.prepare_postgres)
    try:
        address = f"postgresql://postgres@127.0.0.1:{postgres.port}/postgres"
        schema = next(binary.parent.parent.glob("lib/python*/site-packages/litellm/proxy/schema.prisma"))
        prisma = ["env", f"PATH={binary.parent}:{os.environ['PATH']}", f"DATABASE_URL={address}", binary.parent / "prisma"]
        try:
            run_quietly([*prisma, "generate", "--schema", schema], "making LiteLLM's database client")
        except bench.SetupError as error:
            print(error, file=sys.stderr, flush=True)
            raise bench.SetupError("its database client could not fetch its engine") from error
        run_quietly([*prisma, "db", "push", "--skip-generate", "--schema", schema], "making LiteLLM's tables")
        config = place / "litellm.yaml"
        config.write_text(LITELLM.format(upstream=upstream) + f"general_settings: {{database_url: '{address}'}}\n")
        environment = {"NO_PROXY": "*", "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true"}
        command = [binary, "--config", config, "--host", "127.0.0.1", "--port", port, "--num_workers", 1]
        with started(options, command, port, "/health/liveliness", work, "litellm-db", environment) as target:
            yield target
    finally:
        postgres.kill()


@contextlib.contextmanager
def portkey(options, upstream, work):
    port = bench.free_port()
    command = ["node", portkey_script(options), f"--port={port}", "--headless"]
    environment = {"TRUSTED_CUSTOM_HOSTS": "127.0.0.1,localhost", "NODE_ENV": "production"}
    with started(options, command, port, "/", work, "portkey", environment) as target:
        yield target


@contextlib.contextmanager
def other(command, options, upstream, work, name):
    port = bench.free_port()
    filled = [part.format(port=port, upstream=upstream, work=work) for part in shlex.split(command)]
    with started(options, filled, port, options.ready, work, name) as target:
        yield target


@contextlib.contextmanager
def proxy(by, package, options, upstream, work):
    by_apt(package, options)
    place = work / package
    place.mkdir()
    with by(options, upstream, place) as target:
        yield target


@contextlib.contextmanager
def weir(name, passthrough, options, upstream, work, settings=None):
    place, own = work / name, copy.copy(options)
    place.mkdir()
    with contextlib.ExitStack() as stack:
        own.weir_extra = stack.enter_context(filled_in(options, settings, place)) if settings else None
        yield stack.enter_context(bench.weir(own, upstream, place, passthrough))


@contextlib.contextmanager
def filled_in(options, settings, place):
    """The file of settings, with the address of a receiver that runs meanwhile where it asks for one."""
    text = pathlib.Path(settings).read_text()
    if "@RECEIVER@" not in text:
        yield settings
        return
    port, file = bench.free_port(), place / "form.yaml"
    command = [sys.executable, bench.HERE / "receiver.py", port]
    with bench.process(bench.pinned(options.load_core, command), place / "receiver.log") as child:
        bench.wait_ready(child, f"http://127.0.0.1:{port}/", place / "receiver.log")
        file.write_text(text.replace("@RECEIVER@", f"http://127.0.0.1:{port}"))
        yield file


@contextlib.contextmanager
def production(options, upstream, work):
    """Weir's defaults with a journal beside it and three stores, which run on the load's cores."""
    for package, program in (("postgresql", "pg_ctlcluster"), ("redis-server", None)):
        by_apt(package, options, program)
    # A link to an interpreter stays one, or it would not find its packages; the stores are started in another folder.
    python = os.path.abspath(options.python) if options.python else by_pip(options, "chdb", "--no-deps", "chdb-core==26.9.0") / "python"
    if not pathlib.Path(python).exists():
        raise bench.SetupError("no Python with chdb: run with --install, or name one with --python")
    place, own = work / "weir-production", copy.copy(options)
    place.mkdir()
    work.chmod(0o755)
    with stores_away.stores(place, python, bench.pinned(options.load_core, [])) as three:
        own.storage = stores_away.settings(three, "peers", place / "journal.db")
        own.weir_extra = None
        with bench.weir(own, upstream, place, False) as target:
            yield target


TARGETS = {
    "direct": lambda options, upstream, work: bench.direct(options, upstream, work),
    "nginx": lambda options, upstream, work: proxy(bench.nginx, "nginx", options, upstream, work),
    "haproxy": lambda options, upstream, work: proxy(haproxy, "haproxy", options, upstream, work),
    "litellm": litellm,
    "litellm-db": litellm_db,
    "portkey": portkey,
    "weir-pass": lambda options, upstream, work: weir("weir-pass", True, options, upstream, work),
    "weir": lambda options, upstream, work: weir("weir", False, options, upstream, work),
    "weir-production": production,
}


def arguments(doc=__doc__):
    """What is asked for on the command line; memory.py takes the same."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--loadtest", required=True, help="path of weir-loadtest")
    parser.add_argument("--weir", help="path of weir; without it Weir takes no part")
    parser.add_argument("--targets", help=f"which ones, with commas between them (default: {','.join(TARGETS)})")
    parser.add_argument("--weir-form", action="append", default=[], metavar="NAME=FILE", help="Weir with these settings added; may be repeated")
    parser.add_argument("--other", action="append", default=[], metavar="NAME=COMMAND", help="another gateway; may be repeated")
    parser.add_argument("--ready", default="/", help="the path at which another gateway answers 200 when it is ready")
    parser.add_argument("--plan", action="append", help="plans of weir-loadtest; may be repeated (default: quick)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--duration", help="of each measurement, in place of the plan's: 2s")
    parser.add_argument("--rate", help="requests per second, in place of the plan's")
    out = pathlib.Path("target/peers/results")
    parser.add_argument("--out", type=pathlib.Path, default=out, help="where the results go (default: %(default)s)")
    parser.add_argument("--tools", type=pathlib.Path, default=pathlib.Path("target/peers"), help="where LiteLLM and Portkey's gateway are")
    parser.add_argument("--install", action="store_true", help="get what is missing from apt, PyPI and npm")
    parser.add_argument("--python", default=os.environ.get("WEIR_CHDB_PYTHON"), help="a Python that has chdb, for weir-production")
    parser.add_argument("--litellm-version", default="", metavar="==1.2.3", help="in place of the newest")
    parser.add_argument("--portkey-version", default="", metavar="@1.2.3", help="in place of the newest")
    parser.add_argument("--nginx", default="nginx")
    parser.add_argument("--proxy-core", default="0", help="the cores of the gateways, as taskset takes them")
    parser.add_argument("--load-core", default="1", help="the cores of the provider and the load tester")
    options = parser.parse_args()
    options.plan = options.plan or ["quick"]
    if not shutil.which(options.loadtest):
        build = "build it with `cargo build --release -p weir-loadtest`"
        raise bench.SetupError(f"--loadtest is {options.loadtest}, which is no program; {build}")
    if options.weir and not shutil.which(options.weir):
        raise bench.SetupError(f"--weir is {options.weir}, which is no program; build it with `cargo build --release`")
    options.tools, options.out = options.tools.resolve(), options.out.resolve()
    # What the helpers of side_by_side.py ask for.
    options.stream, options.connections, options.core_threads = True, 1000, 1
    options.io_driver, options.weir_extra = "auto", None
    return options


def wanted(options):
    names = [name for name in (options.targets or ",".join(TARGETS)).split(",") if name]
    unknown = [name for name in names if name not in TARGETS]
    if unknown:
        raise bench.SetupError(f"--targets: {', '.join(unknown)}; accepted are {', '.join(TARGETS)}")
    without = [name for name in names if name.startswith("weir") and not options.weir]
    if without and options.targets:
        what_to_do = "add --weir target/release/weir, or leave them out"
        raise bench.SetupError(f"--targets names {', '.join(without)}, and there is no --weir; {what_to_do}")
    all_of = {name: TARGETS[name] for name in names if name not in without}
    for text in options.weir_form:
        name, _, settings = text.partition("=")
        if not options.weir or not name or not pathlib.Path(settings).is_file():
            raise bench.SetupError(f"--weir-form is `{text}`; accepted is NAME=FILE, with --weir")
        all_of[name] = lambda options, upstream, work, name=name, settings=settings: weir(name, False, options, upstream, work, settings)
    for text in options.other:
        name, _, command = text.partition("=")
        if not name or not command:
            raise bench.SetupError(f"--other is `{text}`; accepted is NAME=COMMAND with {{port}} and {{upstream}} in it")
        all_of[name] = lambda options, upstream, work, command=command, name=name: other(command, options, upstream, work, name)
    return all_of


def provider(options, work, stack):
    """The URL of the fake provider, which runs until the stack ends."""
    port, log = bench.free_port(), work / "provider.log"
    command = [options.loadtest, "provider", "--listen", f"127.0.0.1:{port}", "--digest", "--frames", 20, "--frame-ms", 5]
    child = stack.enter_context(bench.process(bench.pinned(options.load_core, command), log))
    bench.wait_ready(child, f"http://127.0.0.1:{port}/", log)
    return f"http://127.0.0.1:{port}"


def measure(options, plan, running, upstream, left_out):
    name = pathlib.Path(plan).stem
    files = {kind: options.out / f"{name}.{kind}" for kind in ("md", "json", "html")}
    command = [options.loadtest, "run", "--plan", plan, "--rounds", options.rounds]
    command += ["--json", files["json"], "--markdown", files["md"], "--html", files["html"]]
    for option in ("duration", "rate"):
        if getattr(options, option):
            command += [f"--{option}", getattr(options, option)]
    for name, why in left_out.items():
        command += ["--note", f"{name} is left out: {why}"]
    for name, (url, pids) in running.items():
        command += ["--target", f"{name}={url}"]
        if pids:
            command += ["--process", f"{name}={','.join(map(str, pids))}"]
    for field in PORTKEY_FIELDS if "portkey" in running else []:
        command += ["--header", field.format(upstream=upstream)]
    code = subprocess.run(bench.pinned(options.load_core, command)).returncode
    return code, files


def main():
    options = arguments()
    options.out.mkdir(parents=True, exist_ok=True)
    left_out, worst = {}, 0
    with tempfile.TemporaryDirectory(prefix="weir-peers-") as temp, contextlib.ExitStack() as stack:
        work, running = pathlib.Path(temp), {}
        upstream = provider(options, work, stack)
        for name, start in wanted(options).items():
            try:
                running[name] = stack.enter_context(start(options, upstream, work))
                print(f"{name}: {running[name][0]}", file=sys.stderr, flush=True)
            except bench.SetupError as error:
                left_out[name] = str(error).splitlines()[0]
                print(f"{name} is left out: {error}", file=sys.stderr, flush=True)
        for plan in options.plan:
            code, files = measure(options, plan, running, upstream, left_out)
            worst = max(worst, code)
            # A plan that could not be run has written nothing; what lay there before is not of this run.
            if code in (0, 1):
                print(f"{files['md']}, {files['json']}, {files['html']}", file=sys.stderr)
    return worst


if __name__ == "__main__":
    try:
        sys.exit(main())
    except bench.SetupError as error:
        print(f"peers: {error}", file=sys.stderr)
        sys.exit(2)
