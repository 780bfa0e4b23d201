#!/usr/bin/env python3
"""Measures everything that PERF.md states of the present build, and writes the tables into it.

    cargo build --release -p weir -p weir-loadtest && cargo build --release -p weir --example floor
    benches/perf.py --loadtest target/release/weir-loadtest --weir target/release/weir --floor target/release/examples/floor

Each question is a few runs of the scripts beside this one; what they print is kept in --out, a file a run, and PERF.md takes its tables from
there, between `<!-- table: NAME -->` and `<!-- end -->`. --only asks some questions, --write none: it makes the page from what --out holds.
All of it takes about half an hour on two cores, which should do nothing else. Exit code: 0 all measured, 1 a run failed (its
table says so), 2 it could not be done.
"""

import argparse
import datetime
import functools
import json
import os.path
import pathlib
import platform
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent
PAGE = ROOT / "PERF.md"
# The forms of Weir and what each is, in the order of the table. Down to `weir`, its default, each has what the former has, and one thing more;
# those behind it are the default with one thing more; the last is all of them.
FORMS = {
    "weir-pass": "pass-through",
    "trace": "+ trace",
    "rules": "+ rules",
    "classifier": "+ classifier",
    "weir": "+ transformer: the default",
    "norecord": "default without trace",
    "caps": "default + caps",
    "block": "default + enforcement",
    "redact": "default + redaction",
    "zones": "default + zones of strangers' text",
    "export": "default + export of spans",
    "everything": "everything but export",
}
SEEN = ["--seen-share", "0.95"]
# A caller each of so many tenants, told by the number of the request.
TENANTS = ["--bodies", "10000", "--header", "x-service-tenant-id: 6f1c2b1e-0d5a-4c6f-9e7b-{n}"]


def side(*more, targets="nginx,floor,weir-pass,weir", seconds=3):
    return ["side_by_side.py", "--targets", targets, "--rounds", "2", "--duration", f"{seconds}s", "--warmup", "1s", *more]


def plain(*more):
    """1 KB, as in the first table, without the floor."""
    return side("--body-bytes", "1000", *SEEN, *more, targets="nginx,weir-pass,weir", seconds=2)


def on_both(threads):
    return plain("--proxy-core", "0,1", "--load-core", "0,1", "--core-threads", str(threads), "--nginx-workers", str(threads))


def peers(plan, *more):
    return ["peers.py", "--plan", plan, "--rounds", "3", *more]


PEERS = "direct,nginx,litellm,litellm-db,portkey,weir-pass,weir"

# Question: its runs (name and command). What a run prints, or the table that peers.py writes, is the run's answer.
QUESTIONS = {
    "bodies": {
        "1 KB": side("--body-bytes", "1000", *SEEN),
        "8 KB": side("--body-bytes", "8000", *SEEN),
        "100 KB": side("--body-bytes", "100000", *SEEN),
        "1 MB": side("--body-bytes", "1000000", "--connections", "16", *SEEN),
        "1 KB, answer of 100 KB": side("--answer-bytes", "100000"),
        "session, 4 to 400 KB": side("--plan", "session", "--connections", "16"),
    },
    "features": {
        "features": peers(
            "benches/features.yaml", "--targets", "direct,nginx,weir-pass,weir", "--duration", "2s",
            *[word for name in FORMS if "weir" not in name for word in ("--weir-form", f"{name}=benches/forms/{name}.yaml")],
        ),
    },
    "peers": {
        "peers": peers(
            "benches/peers.yaml", "--targets", f"{PEERS},weir-production", "--duration", "2s", "--install",
            "--weir-form", "everything=benches/forms/everything.yaml",
        ),
    },
    "latency": {"latency": ["latency.py", "--rounds", "2", "--duration", "4s", "--warmup", "1s"]},
    "streams": {"streams": ["streams.py", "--rounds", "1", "--duration", "13s", "--frames", "60"]},
    "cores": {"one thread": on_both(1), "two threads": on_both(2)},
    "tls": {
        "1 KB": plain("--tls"),
        "8 KB": side("--body-bytes", "8000", *SEEN, "--tls", targets="nginx,weir-pass,weir", seconds=2),
        "1 KB, a connection for each call": plain("--tls", "--no-keep-alive"),
        "the same without TLS": plain("--no-keep-alive"),
    },
    "growth": {
        "1 connection": plain("--connections", "1"),
        "64 connections": plain(),
        "1,000 connections": plain("--connections", "1000"),
        "64 connections, 10,000 tenants": plain(*TENANTS),
    },
    "rows": {"rows": ["rows.py", "--spans", "1000000"]},
    "lists": {"lists": ["list_reads.py", "--spans", "200000", "--rounds", "2", "--duration", "5s"]},
    "memory": {
        "memory": ["memory.py", "--targets", f"{PEERS},haproxy", "--weir-form", "everything=benches/forms/everything.yaml", "--install"],
    },
    "connections": {"connections": ["idle_connections.py", "--connections", "10000"]},
}
# What else than the load tester and Weir a script is told.
TAKES = {
    "side_by_side.py": ["floor"],
    "peers.py": ["tools", "python"],
    "memory.py": ["tools", "python"],
}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--loadtest", help="path of weir-loadtest (release build)")
    parser.add_argument("--weir", help="path of weir (release build)")
    parser.add_argument("--floor", help="path of the example `floor` (release build)")
    parser.add_argument("--tools", default="target/peers", help="where LiteLLM and Portkey's gateway are or are installed")
    parser.add_argument("--python", help="a Python that has chdb, for the profile `production`")
    parser.add_argument("--only", default=",".join(QUESTIONS), help="questions, with commas between them (default: %(default)s)")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("target/perf"), help="what the runs say (default: %(default)s)")
    parser.add_argument("--write", action="store_true", help="measure nothing, make the page from --out")
    options = parser.parse_args()
    options.only = [name for name in options.only.split(",") if name]
    unknown = [name for name in options.only if name not in QUESTIONS]
    if unknown:
        parser.error(f"--only: unknown {', '.join(unknown)}; accepted are {', '.join(QUESTIONS)}")
    if not options.write and not (options.loadtest and options.weir and options.floor):
        parser.error("--loadtest, --weir and --floor are needed, or --write")
    return options


def file_of(options, name, run):
    """Where the answer to a run of a question is kept: two questions may have a run of one name."""
    return options.out / (re.sub(r"[^a-z0-9]+", "-", f"{name} {run}".lower()) + ".md")


def commit():
    done = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    return done.stdout.strip() or "unknown"


def model_name():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def measure(options, path, run, command):
    """Makes one run and keeps what it said, under a line with date, commit, machine and command."""
    script, *more = command
    full = [sys.executable, str(HERE / script), "--weir", options.weir, *more]
    if script != "idle_connections.py":
        full += ["--loadtest", options.loadtest]
    for name in TAKES.get(script, []):
        full += [f"--{name}", getattr(options, name)] if getattr(options, name) else []
    made = options.out / "peers"
    if script == "peers.py":
        full += ["--out", str(made)]
    print(f"{run}: {' '.join(more)}", file=sys.stderr, flush=True)
    done = subprocess.run(full, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    said = done.stdout
    if script == "peers.py":
        table = made / f"{pathlib.Path(command[command.index('--plan') + 1]).stem}.md"
        said = table.read_text() if table.exists() else ""
    stamp = f"{datetime.date.today()}, {commit()}, {model_name()}: `benches/{script} {' '.join(more)}`"
    path.write_text(f"{stamp}\n\n{said}")
    return done.returncode == 0


def rows(text):
    """The rows of every Markdown table in a text, each as a dictionary by the heads of its columns."""
    heads, found = None, []
    for line in text.splitlines():
        if not line.startswith("|"):
            heads = None
            continue
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if heads is None:
            heads = cells
        elif not all(set(cell) <= set("-: ") for cell in cells):
            found.append(dict(zip(heads, cells)))
    return found


def first(cell):
    """The figure of a cell like `12.3 (11-14)`."""
    return cell.split(" ")[0] if cell else "-"


def ratio(row):
    return f"{first(row.get('CPU us/req (min-max)', '-'))} ({row.get('x nginx CPU', '-')} x)"


def bodies(at, runs):
    """One table of all sizes, from the runs' tables."""
    yield "| what is asked | nginx, CPU us | floor | pass-through | default | default, req/s | default, MiB before / after | records dropped |"
    yield "|---|--:|--:|--:|--:|--:|--:|--:|"
    for run in runs:
        path = at(run)
        of = {row.get("target"): row for row in rows(path.read_text())} if path.exists() else {}
        if "weir" not in of:
            yield f"| {run} | not measured | | | | | | |"
            continue
        nginx, floor, passed, default = (of.get(name, {}) for name in ("nginx", "floor", "weir-pass", "weir"))
        cells = [first(nginx.get("CPU us/req (min-max)", "-")), ratio(floor) if floor else "-", ratio(passed), ratio(default)]
        cells += [first(default.get("req/s (min-max)", "-")), default.get("RSS MiB before/after", "-"), default.get("dropped", "-")]
        yield "| " + " | ".join([run, *cells]) + " |"


def features(at, runs):
    """A row for nginx and for each form of Weir, with what it costs at both sizes."""
    yield "| form | 1 KB: CPU us | x nginx | p50 | MiB | 8 KB: CPU us | x nginx | p50 | MiB |"
    yield "|---|--:|--:|--:|--:|--:|--:|--:|--:|"
    found = {}
    for run in runs:
        path = at(run)
        for row in rows(path.read_text()) if path.exists() else []:
            found.setdefault(row["target"], []).append(row)
    bases = [number(row["CPU/request"]) for row in found.get("nginx", [])]
    for name, title in {"nginx": "nginx", **FORMS}.items():
        cells = [title]
        if name not in found:
            yield f"| {title} | not measured | | | | | | | |"
            continue
        for row, base in zip(found[name], bases):
            cpu = number(row["CPU/request"])
            cells += [f"{cpu:g}", f"{cpu / base:.2f}", row["p50"], row["memory"].removesuffix(" MiB")]
        yield "| " + " | ".join(cells) + " |"


def number(cell):
    return float(cell.split(" ")[0])


def instructions():
    """A row for each kind of call of the committed baseline."""
    found = {}
    for name, count in json.loads((HERE / "instructions.json").read_text())["instructions"].items():
        call, _, threads = name.removeprefix("call: ").rpartition(", ")
        if name.startswith("call: "):
            found.setdefault(call, {})[threads] = count
    yield "| call | core thread | all threads |"
    yield "|---|--:|--:|"
    for call, counts in found.items():
        cells = [f"{counts[threads]:,.0f}" if threads in counts else "" for threads in ("core thread", "all threads")]
        yield f"| {call} | {' | '.join(cells)} |"


def as_said(at, runs):
    """What the runs printed, without their first line."""
    for run in runs:
        path = at(run)
        yield path.read_text().partition("\n\n")[2].strip() if path.exists() else f"{run}: not measured"


def stamps(at, runs):
    """When, of what and how the runs were made; said once where they have it in common."""
    found = {}
    for run in runs:
        path = at(run)
        if path.exists():
            when, _, command = path.read_text().splitlines()[0].partition(": ")
            found.setdefault(when, []).append((run, command))
    for when, commands in found.items():
        shared = os.path.commonprefix([command.rstrip("`") + " " for _, command in commands]).rpartition(" ")[0]
        if len(commands) == 1:
            yield f"{when}. {commands[0][1]}."
        else:
            differ = "; ".join(f"{run}: `{command.removeprefix(shared).strip(' `') or 'as it is'}`" for run, command in commands)
            yield f"{when}. {shared}` with, by row, {differ}."


def write(options):
    page, made = PAGE.read_text(), {"instructions": "\n".join(instructions())}
    for name, runs in QUESTIONS.items():
        # What was not asked anew stays as it is, with its own date.
        at = functools.partial(file_of, options, name)
        if not any(at(run).exists() for run in runs):
            continue
        make = {"features": features, **dict.fromkeys(["bodies", "cores", "tls", "growth"], bodies)}.get(name, as_said)
        made[name] = "\n".join([*make(at, runs), "", *stamps(at, runs)])
    for name, table in made.items():
        block = f"<!-- table: {name} -->\n{table}\n<!-- end -->"
        page, count = re.subn(rf"<!-- table: {name} -->.*?<!-- end -->", lambda _: block, page, flags=re.DOTALL)
        if count != 1:
            print(f"perf: PERF.md has {count} places for `{name}`, and needs one", file=sys.stderr)
            return False
    PAGE.write_text(page)
    return True


def main():
    options = arguments()
    options.out.mkdir(parents=True, exist_ok=True)
    well = True
    if not options.write:
        for name in options.only:
            for run, command in QUESTIONS[name].items():
                well &= measure(options, file_of(options, name, run), run, command)
    if not write(options):
        return 2
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())
