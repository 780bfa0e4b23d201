#!/usr/bin/env python3
"""Resident memory of the gateway without and with an ONNX model in the place of the embedded classifier.

    benches/model_memory.py --weir target/release/weir --library FOLDER_OF_LIBONNXRUNTIME --models FOLDER minilm minilm-int8

FOLDER is a folder for models (`security_analysis.ml_cache_dir`); those named after it are ids in it. For each, and for the embedded classifier, a gateway of its own is started in `block` mode:
memory when it is ready, after so many requests of about --bytes each, one after the other, and when it has had time to give memory
back. No provider answers: every request is judged first and then fails.
"""

import argparse
import json
import os
import pathlib
import random
import tempfile
import time
import urllib.error
import urllib.request

import instructions
import side_by_side as bench

SETTLE_S = 40


def status(pid):
    """Resident and anonymous memory in MB."""
    lines = dict(line.split(":", 1) for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines())
    return tuple(int(lines[name].split()[0]) / 1024 for name in ("VmRSS", "RssAnon"))


def ask(port, text):
    """One call; what the gateway says of a provider that is not there, and how long that took in ms."""
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": text}]}).encode()
    head = {"Content-Type": "application/json"}
    begun = time.monotonic()
    try:
        urllib.request.urlopen(urllib.request.Request(f"http://127.0.0.1:{port}/v1/chat/completions", body, head), timeout=60)
    except urllib.error.HTTPError as error:
        if error.code != 502 or "x-service-analysis" in error.headers:
            raise SystemExit(f"{error.code} {error.headers} {error.read()}") from error
    return (time.monotonic() - begun) * 1e3


def settings(options, port, model):
    more = {"mode": "block", "timeout_ms": 60000}
    analysis = {"ml_cache_dir": str(options.models), "ml_runtime_path": str(options.library), "ml_hub_url": None}
    if model:
        analysis["ml_model"] = model
    return "\n".join([
        f"listen_addr: 127.0.0.1:{port}",
        "upstream_url: http://127.0.0.1:9",
        "storage: {profile: memory}",
        "circuit_breaker: {enabled: false}",
        "rate_limiting: {enabled: false}",
        f"enforcement: {json.dumps(more)}",
        f"security_analysis: {json.dumps(analysis)}",
    ])


def measure(options, model):
    """One line of the table."""
    work = pathlib.Path(tempfile.mkdtemp(prefix="weir-model-memory-"))
    port = bench.free_port()
    (work / "service.yaml").write_text(settings(options, port, model))
    begun = time.monotonic()
    with bench.process([options.weir, "--config", work / "service.yaml"], work / "log") as gateway:
        bench.wait_ready(gateway, f"http://127.0.0.1:{port}/health", work / "log")
        ready = time.monotonic() - begun
        health = json.loads(bench.fetch(f"http://127.0.0.1:{port}/health")[1])
        loaded = ", ".join(f"{one['name']} {one['status']}" for one in health["ml_models"]["models"])
        time.sleep(3)
        at_first = status(gateway.pid)
        source = random.Random(1)
        took = sorted(ask(port, instructions.prose(options.bytes, source)) for _ in range(options.requests))
        after = status(gateway.pid)
        time.sleep(SETTLE_S)
        settled = status(gateway.pid)
    memory = " | ".join(f"{rss:.1f} ({anon:.1f})" for rss, anon in (at_first, after, settled))
    return f"| {model or 'embedded'} | {loaded} | {ready:.1f} | {memory} | {took[len(took) // 2]:.1f} |"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weir", required=True)
    parser.add_argument("--library", type=pathlib.Path, required=True)
    parser.add_argument("--models", type=pathlib.Path, required=True)
    parser.add_argument("--requests", type=int, default=100)
    parser.add_argument("--bytes", type=int, default=2000)
    parser.add_argument("named", nargs="*", metavar="ID")
    options = parser.parse_args()
    options.models, options.library = options.models.resolve(), options.library.resolve()
    print(f"{os.cpu_count()} cores; resident (anonymous) memory in MB, median of {options.requests} requests of {options.bytes} bytes")
    print("| classifier | /health says | ready after s | when ready | after the requests | settled | ms a request |")
    print("|---|---|--:|--:|--:|--:|--:|")
    for model in [None, *options.named]:
        print(measure(options, model), flush=True)


if __name__ == "__main__":
    main()
