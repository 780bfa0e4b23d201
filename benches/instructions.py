#!/usr/bin/env python3
"""Instructions per call and per part, counted by callgrind and compared with benches/instructions.json.

    benches/instructions.py                        build, count, compare
    benches/instructions.py --accept               the same, and what was counted becomes the baseline
    benches/instructions.py --weir OTHER/BINARY    count the calls of another build of the gateway
    benches/instructions.py --weir BINARY --settings FILE    the same, with these settings beside those of a scenario
    benches/instructions.py --weir BINARY --only TEXT    the same, of the scenarios that have this in their name
    benches/instructions.py --keep DIR             keep the profiles; then, with those of an older state:
    benches/instructions.py --functions OLD/default-1-KB NEW/default-1-KB    the functions the difference lies in

Two kinds of scenarios:

- part: code without I/O, run in a loop by benches/instructions (a crate of its own), counted from the loop's start to its end.
- call: a whole call through the gateway, built with the release profile (epoll driver, one core thread, one connection, calls one
  after the other). Client and provider are threads of this script. Counted twice: the core thread's instructions per call, and
  those of all threads.

CPU time depends on the machine and on what else it does; instruction counts hardly do. They leave out the kernel and say nothing
of caches: what a change is worth is measured by side_by_side.py.

What the baseline depends on: the Rust toolchain, valgrind, the C library, the release profile in Cargo.toml, and whether the
machine has AVX2 (valgrind passes that on, and hides AVX-512). The build is one without the profile of dist/rustc. They stand in the baseline; where one differs, the comparison says so
and is made all the same.

Exit code: 0 within the tolerances, 1 outside, 2 it could not be done.
"""

import argparse
import collections
import contextlib
import json
import os
import pathlib
import platform
import random
import re
import shutil
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time

import side_by_side as bench

ROOT = pathlib.Path(__file__).resolve().parent.parent
BASELINE = ROOT / "benches" / "instructions.json"
# How much more than the baseline is too much, by what is counted. Threads beside the core work in groups whose size depends on
# time (commits) and do some work that time alone brings, so all threads together repeat less well.
TOLERANCES = {"part": 0.03, "core thread": 0.05, "all threads": 0.10}
# One binary needs a few instructions more or less where its stack begins elsewhere, as with another environment: copying and comparing look
# at how memory is aligned. Of the smallest parts that is more than their share.
GRAIN = 16
# A baseline that is so much too high would hide the next change for the worse: it is to be taken anew.
OUTDATED = 0.10
WARM_UP = 200
# Client and provider think for so long before they send: the gateway waits for every message, as under callgrind it otherwise would
# for some of them, depending on what else the machine does. Then it has time for the records of one call before the next, too.
PACE_S = 0.005
QUIET_S = 1
# How long the texts of a scenario's calls may take to be read.
READING_LIMIT_S = 120
# Under callgrind the rules take their time.
bench.READY_TIMEOUT_S = 180

SENTENCES = [
    "Could you explain why the {} reports a {} result when the {} is idle?",
    "The customer says their {} arrived late, but the {} shows it left on time.",
    "Please compare the {} with the {} and tell me which one is more {}.",
    "After the upgrade the {} started to look {}, and nobody touched the {}.",
    "Is it normal that the {} takes longer than the {} on Monday mornings?",
    "What would you check first if the {} and the {} disagree about the {}?",
    "List three risks of running the {} without the {} and the {}.",
    "There is a {} difference between the {} we planned and the {} we have.",
    "The budget for the {} is fine, but the {} needs another {} look.",
    "Thanks, that was {}; now do the same for the {} and leave the {} alone.",
]
WORDS = """billing report|search index|delivery schedule|release checklist|warehouse scanner|training plan|message queue|backup job
price list|event calendar|sensor feed|migration script|design review|energy meter|photo archive|network map|road survey|bus timetable
slow|reliable|surprising|expensive|readable|quiet|fragile|simple|outdated|precise|useful|stable""".replace("\n", "|").split("|")


# === What is sent ===


def prose(length, source):
    """English that has not been sent before and in which nothing is to be found."""
    text = ""
    while len(text) < length:
        sentence = source.choice(SENTENCES)
        text += sentence.format(*(source.choice(WORDS) for _ in range(3))) + " "
    return text[:length]


# Bodies from here on are conversations: nineteen twentieths are turns that came with every call before, as an agent sends them.
CONVERSATION = 50_000
TURN = 2_000


def history(length):
    """Turns that every call of this length begins with."""
    if length < CONVERSATION:
        return []
    source = random.Random("history")
    return [{"role": ("user", "assistant")[at % 2], "content": prose(TURN, source)} for at in range(length * 19 // 20 // (TURN + 40))]


def request(length, number, stream=False):
    """One chat call whose body has `length` bytes; another newest text for every number."""
    source = random.Random(number)
    before = history(length)
    body = lambda text: json.dumps(
        {"model": "gpt-4o-mini", "stream": stream, "temperature": 0.2,
         "messages": [{"role": "system", "content": "You answer briefly."}, *before, {"role": "user", "content": text}]}
    ).encode()
    body = body(prose(length - len(body("")), source))
    head = (
        "POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:8080\r\nAccept: application/json\r\nAccept-Encoding: gzip, deflate\r\n"
        "Content-Type: application/json\r\nUser-Agent: OpenAI/Python 1.61.0\r\nX-Stainless-Lang: python\r\n"
        f"Authorization: Bearer sk-0123456789abcdef0123456789abcdef\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def answer():
    """A whole answer of about 1 KB."""
    body = json.dumps(
        {"id": "chatcmpl-0123456789abcdef", "object": "chat.completion", "created": 1764000000, "model": "gpt-4o-mini-2024-07-18",
         "choices": [{"index": 0, "message": {"role": "assistant", "content": prose(620, random.Random("answer"))},
                      "logprobs": None, "finish_reason": "stop"}],
         "usage": {"prompt_tokens": 211, "completion_tokens": 140, "total_tokens": 351}, "system_fingerprint": "fp_0123456789"}
    ).encode()
    head = (
        "HTTP/1.1 200 OK\r\nDate: Fri, 20 Nov 2026 12:00:00 GMT\r\nContent-Type: application/json\r\nServer: provider\r\n"
        f"X-Request-Id: req_0123456789abcdef\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def frames(count):
    """The pieces of a streamed answer, head first."""
    chunk = lambda text: f"{len(text):x}\r\n{text}\r\n"
    frame = lambda delta, reason: chunk("data: " + json.dumps(
        {"id": "chatcmpl-0123456789abcdef", "object": "chat.completion.chunk", "created": 1764000000, "model": "gpt-4o-mini",
         "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}]}) + "\n\n")
    head = (
        "HTTP/1.1 200 OK\r\nDate: Fri, 20 Nov 2026 12:00:00 GMT\r\nContent-Type: text/event-stream\r\nServer: provider\r\n"
        "Transfer-Encoding: chunked\r\n\r\n"
    )
    words = prose(4000, random.Random("stream")).split()
    pieces = [frame({"content": " " + words[at]}, None) for at in range(count - 1)]
    usage = {"choices": [], "usage": {"prompt_tokens": 211, "completion_tokens": count, "total_tokens": 211 + count}}
    end = frame({}, "stop") + chunk(f"data: {json.dumps(usage)}\n\n") + chunk("data: [DONE]\n\n") + "0\r\n\r\n"
    return [piece.encode() for piece in [head, *pieces, end]]


# === Client and provider ===


def read_until(connection, buffer, whole):
    """Reads until `whole(buffer)` says how long the message is."""
    while (length := whole(buffer)) is None:
        piece = connection.recv(1 << 16)
        if not piece:
            raise EOFError
        buffer += piece
    message = bytes(buffer[:length])
    del buffer[:length]
    return message


def with_length(buffer):
    """The length of the message at the start, once its head and as much as its Content-Length says are there."""
    end = buffer.find(b"\r\n\r\n")
    if end < 0:
        return None
    length = re.search(rb"\r\ncontent-length: *(\d+)", buffer[:end].lower())
    total = end + 4 + (int(length.group(1)) if length else 0)
    return total if len(buffer) >= total else None


class Provider:
    """Answers every connection in a thread of its own. Of a stream it sends a frame when the client has the one before."""

    pace_s = 0

    def __init__(self, stream_frames=20):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        self.whole, self.frames = answer(), frames(stream_frames)
        self.received = threading.Semaphore(0)
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=self.serve, args=(self.listener.accept()[0],), daemon=True).start()

    def serve(self, connection):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        buffer = bytearray()
        with contextlib.suppress(EOFError, OSError), connection:
            while True:
                is_stream = b'"stream": true' in read_until(connection, buffer, with_length)
                for piece in self.frames if is_stream else [self.whole]:
                    time.sleep(self.pace_s)
                    connection.sendall(piece)
                    if is_stream:
                        self.received.acquire()


class Client:
    """One connection, one call at a time."""

    def __init__(self, base, provider):
        host, port = base.removeprefix("http://").split(":")
        self.connection = socket.create_connection((host, int(port)), timeout=60)
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buffer, self.provider, self.number = bytearray(), provider, 0

    def call(self, length, stream):
        self.number += 1
        time.sleep(self.provider.pace_s)
        self.connection.sendall(request(length, self.number, stream))
        if not stream:
            message = read_until(self.connection, self.buffer, with_length)
        else:
            message = b""
            # The head first, then frame after frame, each of which the gateway passes on before the next is sent.
            for frame in self.provider.frames:
                ending = frame[-24:]
                piece = read_until(
                    self.connection, self.buffer, lambda buffer: len(buffer) if buffer.endswith(ending[-2:]) else None
                )
                message = message or piece
                self.provider.received.release()
        if not message.startswith(b"HTTP/1.1 200 "):
            raise bench.SetupError(f"a call was answered with {message[:300]!r}")


# === Counting ===


def profile_files(folder):
    """What callgrind dumped at our word: one file for each thread."""
    return sorted(folder.glob("profile.1-*"))


def total(path):
    with open(path, errors="replace") as lines:
        for line in lines:
            if line.startswith(("totals:", "summary:")):
                return int(line.split()[1])
    raise bench.SetupError(f"{path}: callgrind wrote no total")


# Its first caller fills it, whoever that is: the further buckets of a histogram, with the first latency of another magnitude.
FIRST_USE = "std::sync::once_lock::OnceLock<T>::initialize"


def first_uses(path):
    """Instructions for what is made at its first use. Which call that is, and how many of those counted, is a matter of chance."""
    names, taken, function, callee, is_call = {}, 0, "", "", False
    with open(path, errors="replace") as lines:
        for line in lines:
            if named := re.match(r"(c?fn)=\((\d+)\)(?: (.*))?", line):
                kind, number, name = named.groups()
                name = names.setdefault(number, name)
                function, callee = (name, callee) if kind == "fn" else (function, name)
            elif line.startswith("calls="):
                is_call = True
            elif is_call:
                # The line after `calls=` is what the callee took.
                taken += int(line.split()[1]) if FIRST_USE in callee and FIRST_USE not in function else 0
                is_call = False
    return taken


def loops(path):
    """How much of monoio's loop the profile holds: that of the core thread most, one of the pool that wakes it a little."""
    return path.read_bytes().count(b" monoio::")


def control(pid, order):
    done = subprocess.run(["callgrind_control", order, str(pid)], capture_output=True, text=True, timeout=120)
    if done.returncode != 0 or "ERROR" in done.stdout + done.stderr:
        raise bench.SetupError(f"callgrind_control {order} {pid}: {done.stdout}{done.stderr}")


# Further YAML for the gateways whose calls are counted.
EXTRA = ""
# Valgrind knows no AVX-512, which the second stage uses where there is some.
os.environ["SERVICE_SECOND_STAGE_CPU_SHARE"] = "0"


def upstreams(provider, count):
    """So many upstreams, of which the last one serves the calls; half of the others have routes that fit other calls."""
    name = lambda at: f"provider-{at}"
    entries = [f'  {name(at)}: {{url: "{provider.url}", providers: [other-{at}]}}' for at in range(count - 1)]
    entries.append(f'  {name(count - 1)}: {{url: "{provider.url}", providers: [openai]}}')
    routes = [f'  - {{path: "/elsewhere/{at}/*", upstream: {name(at)}}}' for at in range(count // 2)]
    return ["upstreams:", *entries, *(["routes:", *routes] if routes else [])]


def settings(port, provider, work, passthrough, count, more):
    lines = [
        f'listen_addr: "127.0.0.1:{port}"',
        f'upstream_url: "{provider.url}"',
        "rate_limiting: {requests_per_second: 1000000, burst_size: 1000000}",
        f'storage: {{database_path: "{work / "weir.db"}"}}',
        "server: {core_threads: 1, io_driver: epoll}",
        # Under callgrind the texts of the warm-up wait for longer than the default: given up, they would open the breaker, and the calls
        # that are counted would not be looked at.
        f"security_analysis_timeout_ms: {READING_LIMIT_S * 1000}",
    ]
    if count:
        lines += upstreams(provider, count)
    if passthrough:
        lines += ["enable_security_analysis: false", "enable_trace_storage: false", "cost_estimation: {enabled: false}"]
    return "\n".join([*lines, *more]) + "\n" + EXTRA


def stored(work):
    """How many calls the gateway has looked at and stored. Read past the gateway, which would have to answer for it."""
    with contextlib.closing(sqlite3.connect(f"file:{work / 'weir.db'}?mode=ro", uri=True)) as store:
        return store.execute("SELECT count(*) FROM spans").fetchone()[0]


def wait_until_stored(work, calls):
    """A call is stored once its texts are read, which under callgrind takes far longer than to pass it on."""
    limit = time.monotonic() + READING_LIMIT_S
    while (there := stored(work)) < calls:
        if time.monotonic() > limit:
            raise bench.SetupError(f"{work}: {there} of {calls} calls are stored after {READING_LIMIT_S} s")
        time.sleep(0.2)
    time.sleep(QUIET_S)


# System message, question, answer.
TEXTS_LEAST = 3


def assert_all_read(base, calls):
    """Counts of calls whose texts were passed over would say nothing."""
    with bench.OPENER.open(f"{base}/metrics", timeout=60) as answer:
        metrics = answer.read().decode()
    read = sum(map(int, re.findall(r'^service_security_texts_total\{outcome="(?:scanned|known)"\} (\d+)$', metrics, re.MULTILINE)))
    if read < TEXTS_LEAST * calls:
        raise bench.SetupError(f"{base}: {read} texts of {calls} calls were read; expected {TEXTS_LEAST} of each at least")


def count_calls(weir, work, passthrough, length, calls, stream=False, count=0, more=()):
    """Instructions per call: those of the core thread, those of all threads, and those of all but the core and the store's writer."""
    work.mkdir(parents=True)
    provider, port = Provider(), bench.free_port()
    config, log = work / "weir.yaml", work / "weir.log"
    config.write_text(settings(port, provider, work, passthrough, count, more))
    command = ["valgrind", "--tool=callgrind", "--fair-sched=yes", "--separate-threads=yes", f"--callgrind-out-file={work / 'profile'}"]
    base = f"http://127.0.0.1:{port}"
    with bench.process([*command, str(weir), "--config", str(config)], log) as child:
        bench.wait_ready(child, f"{base}/readyz", log)
        client = Client(base, provider)
        for _ in range(WARM_UP):
            client.call(length, stream)
        provider.pace_s = PACE_S
        settle = time.sleep if passthrough else lambda _: wait_until_stored(work, client.number)
        settle(QUIET_S)
        control(child.pid, "-z")
        for _ in range(calls):
            client.call(length, stream)
        # The last calls' spans are stored a moment later.
        settle(QUIET_S)
        control(child.pid, "-d")
        if not passthrough:
            assert_all_read(base, client.number)
        files = profile_files(work)
    provider.listener.close()
    lasting = lambda path: total(path) - first_uses(path)
    most = max(map(loops, files), default=0)
    core = [lasting(path) for path in files if most and loops(path) == most]
    if len(core) != 1:
        raise bench.SetupError(f"{work}: {len(core)} of {len(files)} profiles are a core thread's; expected 1")
    everything = sorted(map(lasting, files))
    # The writer takes most of what the core does not; how much depends on how many calls share a commit.
    return round(core[0] / calls), round(sum(everything) / calls), round(sum(everything[:-2]) / calls)


# What acts on findings, of which these calls have none: nobody listens where it would be told.
ACTING = (
    'alerts: {enabled: true, channels: [{type: webhook, url: "http://127.0.0.1:9/"}, {type: slack, url: "http://127.0.0.1:9/"}]}',
    "action_router: {enabled: true, default_actions: [log, webhook, alert, block_ip], "
    'webhook: {url: "http://127.0.0.1:9/"}, rules: [{finding_type: jailbreak, actions: [block]}]}',
)
# What was the default until the classifier was on: the series of figures goes on with it.
RULES_ALONE = ("security_analysis: {ml_enabled: false}",)
# Under callgrind calls take their time, and some far more than others.
WATCHING = ("anomaly_detection: {enabled: true, check_latency: false}",)
# Name: analysis and storage off?, bytes of the request's body, calls counted, streamed answer?, upstreams beside `upstream_url`, and
# further settings, where there are any.
CALLS = {
    "pass-through 1 KB": (True, 1000, 400, False, 0),
    "pass-through 8 KB": (True, 8000, 400, False, 0),
    "pass-through 100 KB": (True, 100_000, 100, False, 0),
    "pass-through 1 KB, one upstream": (True, 1000, 400, False, 1),
    "pass-through 1 KB, twenty upstreams": (True, 1000, 400, False, 20),
    "default 1 KB": (False, 1000, 300, False, 0),
    "default 8 KB": (False, 8000, 200, False, 0),
    "default 100 KB": (False, 100_000, 40, False, 0),
    "default 1 KB, rules alone": (False, 1000, 300, False, 0, RULES_ALONE),
    "default 8 KB, rules alone": (False, 8000, 200, False, 0, RULES_ALONE),
    "default 1 KB, one upstream": (False, 1000, 300, False, 1),
    "default 1 KB, twenty upstreams": (False, 1000, 300, False, 20),
    "default 1 KB, router and alerts": (False, 1000, 300, False, 0, ACTING),
    "default 1 KB, anomalies": (False, 1000, 300, False, 0, WATCHING),
    "default, stream of 20 frames": (False, 1000, 40, True, 0),
}
# How much more than another scenario, on the core thread, one may take: whatever the baseline says. Two runs differ by half a percent.
# Pass-through does so little that the same steps are a larger share of it. What the kernel does for a call is not counted:
# `upstreams.py` measures the CPU time.
BESIDE = {
    "default 1 KB, one upstream": ("default 1 KB", 0.015),
    "default 1 KB, twenty upstreams": ("default 1 KB", 0.03),
    # Its spans say where they came from, which is most of it.
    "default 1 KB, router and alerts": ("default 1 KB", 0.025),
    "default 1 KB, anomalies": ("default 1 KB", 0.015),
    # Of a call that takes a fifth less since the build has a profile: before, these were 2.5 and 6 %, which was more.
    "pass-through 1 KB, one upstream": ("pass-through 1 KB", 0.03),
    "pass-through 1 KB, twenty upstreams": ("pass-through 1 KB", 0.07),
}
# The same on all threads but the core and the store's writer, as a share of what the other scenario takes on all threads. What acts on
# findings looks into the store every five seconds, whatever is called: of the few calls a second that are made here, each bears more of
# that than one of a busy gateway.
ASIDE = {"default 1 KB, router and alerts": ("default 1 KB", 0.03)}


# Which thread reads so much text is a matter of chance: 70,000 to 131,000 instructions on the core thread in four counts, 1,537,000 to
# 1,603,000 on all together.
READ_BY_ANY = {"default 100 KB"}


def file_name(scenario):
    return re.sub(r"[^a-z0-9A-Z]+", "-", scenario)


def all_calls(weir, work, only=""):
    """Instructions of calls, and those of them that belong neither to the core nor to the store's writer."""
    counted, aside = {}, {}
    for name, scenario in CALLS.items():
        if only not in name:
            continue
        core, everything, aside[name] = count_calls(weir, work / file_name(name), *scenario)
        if name not in READ_BY_ANY:
            counted[f"call: {name}, core thread"] = core
        counted[f"call: {name}, all threads"] = everything
    return counted, aside


def all_parts(binary, work):
    """Instructions of one round of each part."""
    work.mkdir(parents=True)
    # Every entry of this function starts the counting afresh, every exit writes what was counted.
    marks = [f"--{what}=weir_instructions::measured" for what in ("zero-before", "dump-after")]
    command = ["valgrind", "--tool=callgrind", "--fair-sched=yes", *marks, f"--callgrind-out-file={work / 'profile'}"]
    done = subprocess.run([*command, str(binary), "parts"], capture_output=True, text=True, timeout=300)
    if done.returncode != 0:
        raise bench.SetupError(f"{binary} parts: ended with {done.returncode}\n{done.stderr[-2000:]}")
    scenarios = [line.split(" ", 1) for line in done.stdout.splitlines()]
    counted = {}
    for number, (rounds, name) in enumerate(scenarios, start=1):
        counted[f"part: {name}"] = round(total(work / f"profile.{number}") / int(rounds))
    return counted


# === Comparing ===


def depends_on():
    """What the counts depend on besides the code."""
    version = lambda *command: subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[0]
    flags = pathlib.Path("/proc/cpuinfo").read_text()
    return {
        "rustc": version("rustc", "--version"),
        "valgrind": version("valgrind", "--version"),
        "libc": " ".join(platform.libc_ver()),
        "processor": f"{platform.machine()}, {'with' if ' avx2' in flags else 'without'} AVX2",
    }


def tolerance(name):
    return next(value for ending, value in TOLERANCES.items() if name.startswith(ending) or name.endswith(ending))


def compare(baseline, counted):
    """Prints the table; returns what is to be said besides, and whether all is within its tolerance."""
    remarks, good = [], True
    width = max(map(len, counted))
    print(f"{'scenario':{width}} {'baseline':>10} {'now':>10} {'ratio':>7} {'allowed':>8}")
    for name, now in counted.items():
        known, allowed = baseline["instructions"].get(name), 1 + tolerance(name)
        if known is None:
            print(f"{name:{width}} {'-':>10} {now:>10,}")
            remarks.append(f"{name}: not in the baseline")
            # What ASIDE holds already may wait for the next baseline.
            good &= name in {f"call: {held}, all threads" for held in ASIDE}
            continue
        verdict = "  TOO MANY" if now > max(known * allowed, known + GRAIN) else ""
        good &= not verdict
        print(f"{name:{width}} {known:>10,} {now:>10,} {now / known:>7.3f} {allowed:>8.2f}{verdict}")
        if now < known * (1 - OUTDATED):
            remarks.append(f"{name}: far below its baseline, which would hide the next change for the worse; take it anew")
    for name in baseline["instructions"].keys() - counted.keys():
        remarks.append(f"{name}: in the baseline, but not counted")
        good = False
    return remarks, good


def beside(counted, aside):
    """Prints what a scenario takes beside another one; returns whether all stay within their bars."""
    good = True
    for name, (other, allowed) in BESIDE.items():
        now, plain = (counted[f"call: {which}, core thread"] for which in (name, other))
        verdict = "" if now <= plain * (1 + allowed) else "  TOO MANY"
        good &= not verdict
        print(f"{name}: {now / plain:.4f} of {other}, at most {1 + allowed:.3f}{verdict}")
    for name, (other, allowed) in ASIDE.items():
        more, plain = aside[name] - aside[other], counted[f"call: {other}, all threads"]
        verdict = "" if more <= plain * allowed else "  TOO MANY"
        good &= not verdict
        print(f"{name}, beside core and writer: {more:,} more than {other}, at most {allowed:.1%} of its {plain:,}{verdict}")
    return good


def verdict(counted, aside):
    baseline, here = json.loads(BASELINE.read_text()), depends_on()
    remarks, good = compare(baseline, counted)
    good &= beside(counted, aside)
    for what, then in baseline["depends_on"].items():
        if here.get(what) != then:
            print(f"\nNOTE: the baseline was counted with {what} {then!r}; here it is {here.get(what)!r}. A difference may come "
                  f"from that alone: count the commit before with the same tools.")
    for remark in remarks:
        print(remark)
    if not good:
        print("\nMore instructions than the baseline allows. Where they are: benches/instructions.py --keep DIR here and in a "
              "checkout of the commit before, then --functions. If they are worth it: benches/instructions.py --accept, and the "
              "reason in the commit's message.")
    return 0 if good else 1


def by_function(folder):
    """Instructions of the core thread by function, callees not counted in."""
    text = max(profile_files(folder), key=loops).read_text(errors="replace")
    names, cost, function, is_call = {}, collections.Counter(), None, False
    for line in text.splitlines():
        if named := re.match(r"(c?fn)=\((\d+)\)(?: (.*))?", line):
            kind, number, name = named.groups()
            if name:
                names[number] = re.sub(r"::h[0-9a-f]{16}|'\d+", "", name)
            if kind == "fn":
                function = number
        elif line.startswith("calls="):
            is_call = True
        elif line[:1] and line[0] in "+-*0123456789":
            # The line after `calls=` is what the callee took.
            if not is_call:
                cost[function] += int(line.split()[1])
            is_call = False
    merged = collections.Counter()
    for number, instructions in cost.items():
        merged[names[number]] += instructions
    return merged


def show_functions(old, new, rows=60):
    calls = {file_name(name): scenario[2] for name, scenario in CALLS.items()}[new.name]
    before, after = by_function(old), by_function(new)
    print(f"core thread, instructions per call: {sum(before.values()) / calls:,.0f} before, {sum(after.values()) / calls:,.0f} now")
    changed = sorted(before.keys() | after.keys(), key=lambda name: -abs(after[name] - before[name]))
    for name in changed[:rows]:
        print(f"{(after[name] - before[name]) / calls:+9.0f} {before[name] / calls:9.0f} {after[name] / calls:9.0f}  {name[:140]}")


def build():
    command = ["cargo", "build", "--release", "--locked", "--package", "weir-instructions"]
    subprocess.run(command, cwd=ROOT, check=True)
    return ROOT / "target" / "release" / "weir-instructions"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--accept", action="store_true", help="write the baseline")
    parser.add_argument("--binary", help="path of a weir-instructions binary; it is not built then")
    parser.add_argument("--weir", help="path of a gateway's binary: its calls are counted, and nothing is built or compared")
    parser.add_argument("--settings", help="with --weir: a file with further YAML for its configuration")
    parser.add_argument("--only", default="", help="with --weir: a part of the names of the scenarios to count")
    parser.add_argument("--keep", help="new folder for the profiles")
    parser.add_argument("--functions", nargs=2, metavar=("OLD", "NEW"), help="folders of one scenario's profiles")
    options = parser.parse_args()
    if options.settings:
        if not options.weir:
            parser.error("--settings is for --weir: the baseline is that of the defaults")
        global EXTRA
        EXTRA = pathlib.Path(options.settings).read_text()
    if options.only and not options.weir:
        parser.error("--only is for --weir: the baseline is that of all")
    if options.functions:
        show_functions(*map(pathlib.Path, options.functions))
        return 0
    if not shutil.which("valgrind"):
        raise bench.SetupError("valgrind not found (Debian: apt-get install valgrind)")
    with contextlib.ExitStack() as stack:
        work = options.keep or stack.enter_context(tempfile.TemporaryDirectory(prefix="weir-instructions-"))
        work = pathlib.Path(work).resolve()
        if options.weir:
            counted, aside = all_calls(pathlib.Path(options.weir).resolve(), work, options.only)
            for name, instructions in counted.items():
                print(f"{instructions:>10,} {name}")
            for name, instructions in aside.items():
                print(f"{instructions:>10,} call: {name}, all threads but the core and the store's writer")
            return 0
        binary = pathlib.Path(options.binary).resolve() if options.binary else build()
        calls, aside = all_calls(binary, work)
        counted = all_parts(binary, work / "parts") | calls
    if options.accept:
        BASELINE.write_text(json.dumps({"depends_on": depends_on(), "instructions": counted}, indent=2) + "\n")
        print(f"{BASELINE.relative_to(ROOT)}: written, {len(counted)} scenarios")
        return 0
    return verdict(counted, aside)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (bench.SetupError, OSError, subprocess.SubprocessError) as error:
        print(error, file=sys.stderr)
        sys.exit(2)
