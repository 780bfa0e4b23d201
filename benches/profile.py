#!/usr/bin/env python3
"""Makes the profile that release builds use (dist/profile/weir.profdata): how often each branch of a gateway under load is taken.

    rustup component add llvm-tools
    cargo build --release -p weir-loadtest
    benches/profile.py --loadtest target/release/weir-loadtest

It builds a gateway that counts (in a target directory of its own, --target-dir), sends it the traffic below, and merges what
the gateway wrote when it stopped. The traffic is that of the load tester (pass-through and default, with the embedded classifier and
by rules alone, texts new and seen before, both drivers, streams, two dialects, one upstream and twenty) and the prose and code of this repository, so that
inspection is not made for one kind of text. When to make it again: after a change of what every call runs. Until then a function that was
changed is built as without a profile. Exit code: 0 made, 2 it could not be done.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import types
import urllib.request

import instructions
import side_by_side as bench

ROOT = bench.HERE.parent
PROFILE = ROOT / "dist" / "profile" / "weir.profdata"
RULES_ALONE = "security_analysis:\n  ml_enabled: false\n"
# What each run of the load tester differs in from the first: targets, bytes of a body, share of text seen before, more.
LOADS = [
    {},
    {"seen_share": 0.9},
    {"body_bytes": 8000},
    {"body_bytes": 8000, "seen_share": 0.9},
    {"body_bytes": 8000, "dialect": "messages", "rules_alone": True},
    {"body_bytes": 8000, "seen_share": 0.9, "rules_alone": True},
    {"rules_alone": True},
    {"io_driver": "epoll"},
    {"upstreams": 1, "io_driver": "epoll"},
    {"upstreams": 20},
    {"stream": True},
]
PIECE = 4000


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--loadtest", required=True, help="path of the weir-loadtest binary (release build)")
    parser.add_argument("--target-dir", default=str(ROOT / "target" / "profile"), help="of the counting build (default: %(default)s)")
    parser.add_argument("--duration", default="3s", help="of each load (default: %(default)s)")
    parser.add_argument("--output", default=str(PROFILE), help="default: %(default)s")
    return parser.parse_args()


def llvm_profdata():
    root = subprocess.run(["rustc", "--print", "sysroot"], capture_output=True, text=True, check=True, cwd=ROOT).stdout.strip()
    found = sorted(pathlib.Path(root).glob("lib/rustlib/*/bin/llvm-profdata"))
    if not found:
        raise bench.SetupError(f"no llvm-profdata below {root}: rustup component add llvm-tools")
    return found[0]


def build(target_dir, raw):
    """A gateway that writes its counts below `raw` when it stops."""
    environment = os.environ | {"RUSTC_WRAPPER": str(ROOT / "dist" / "rustc"), "WEIR_PROFILE": f"make:{raw}", "CARGO_TARGET_DIR": target_dir}
    subprocess.run(["cargo", "build", "--release", "--locked", "-p", "weir"], check=True, cwd=ROOT, env=environment)
    return pathlib.Path(target_dir) / "release" / "weir"


def load_options(options, binary, work, changes, url=None):
    """What side_by_side's parts ask for; `url` is the provider's."""
    values = {
        "loadtest": options.loadtest, "weir": str(binary), "duration": options.duration, "warmup": "200ms",
        "proxy_core": 0, "load_core": 1, "core_threads": 1, "io_driver": "auto", "weir_extra": None,
        "connections": 64, "body_bytes": 1000, "answer_bytes": 1024, "mode": "closed", "rate": None, "dialect": "chat",
        "stream": False, "frames": 20, "frame_ms": 5, "seen_share": 0,
    }
    values |= {name: value for name, value in changes.items() if name not in ("rules_alone", "upstreams")}
    extra = []
    if changes.get("rules_alone"):
        extra.append(RULES_ALONE)
    if changes.get("upstreams"):
        extra += [*instructions.upstreams(types.SimpleNamespace(url=url), changes["upstreams"]), ""]
    if extra:
        values["weir_extra"] = work / "extra.yaml"
        values["weir_extra"].write_text("\n".join(extra))
    return argparse.Namespace(**values)


def pieces():
    """The prose and the code of this repository, as users paste them."""
    files = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("inference/src/**/*.rs"), *ROOT.glob("benches/*.py")])
    for file in files:
        text = file.read_text(encoding="utf-8")
        yield from (text[start : start + PIECE] for start in range(0, len(text), PIECE))


def ask(base, text):
    body = json.dumps({"model": "gpt-4o", "messages": [{"role": "user", "content": text}]}).encode()
    request = urllib.request.Request(f"{base}/v1/chat/completions", body, {"content-type": "application/json"})
    with bench.OPENER.open(request, timeout=30) as answer:
        answer.read()


def send_texts(options, url, work):
    """Every piece once, four at a time."""
    with bench.weir(options, url, work, passthrough=False) as (base, _):
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            return len(list(pool.map(lambda text: ask(base, text), pieces())))


def train(options, binary, temp):
    """Sends all of the traffic, to a gateway of its own each time."""
    port = bench.free_port()
    provider = load_options(options, binary, temp, {})
    log = temp / "provider.log"
    with bench.process(bench.provider_command(provider, port), log) as child:
        url = f"http://127.0.0.1:{port}"
        bench.wait_ready(child, f"{url}/", log)
        for number, changes in enumerate(LOADS):
            for target in ("weir", "weir-pass"):
                report = bench.measure(target, load_options(options, binary, temp, changes, url), url, temp / f"{number}-{target}")
                print(f"{target} {changes}: {report['ok_per_s']:,.0f}/s, failed {report['failed']}", flush=True)
        work = temp / "texts"
        work.mkdir()
        print(f"{send_texts(provider, url, work)} texts of this repository", flush=True)


def main():
    options = arguments()
    merge = llvm_profdata()
    # The path stands in the binary, and what is built already is not built again: the same path each time.
    raw = pathlib.Path(options.target_dir).resolve() / "counts"
    shutil.rmtree(raw, ignore_errors=True)
    binary = build(options.target_dir, raw)
    with tempfile.TemporaryDirectory(prefix="weir-profile-") as temp:
        temp = pathlib.Path(temp)
        train(options, binary, temp)
        written = sorted(raw.glob("*.profraw"))
        if not written:
            raise bench.SetupError("the gateway wrote no counts: was it ended before it could stop by itself?")
        pathlib.Path(options.output).parent.mkdir(exist_ok=True)
        subprocess.run([merge, "merge", "--sparse", "-o", options.output, *written], check=True)
    print(f"{options.output}: {pathlib.Path(options.output).stat().st_size:,} bytes")


if __name__ == "__main__":
    try:
        main()
    except (bench.SetupError, subprocess.CalledProcessError) as error:
        print(f"profile: {error}", file=sys.stderr)
        sys.exit(2)
