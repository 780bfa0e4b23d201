#!/usr/bin/env python3
"""A long run under mixed traffic, in each I/O mode: no stall, flat memory and descriptors, nothing refused.

    benches/soak.py --loadtest target/release/weir-loadtest --weir target/release/weir [--minutes 10]

At once: small and large JSON calls, event streams, chunked uploads, clients that leave in the middle of a stream, new
connections for every request, and weir's own API. Every few seconds it notes resident memory, descriptors, threads and
what each core says of its loop (how late it runs, when it last turned). The verdict of each mode, as JSON with --json:

- stall: a core's loop stood still, or ran late, for longer than --stall-ms and the time its thread stood in the queue for
  a CPU meanwhile (the machine was busy with something else then); the samples around it are kept
- memory: the second half of the run grew by more than --growth-mib above the first half's end
- descriptors: after the traffic has stopped more are open than before it began, by more than --descriptors
- answers: anything but 2xx where 2xx is due

Exit code: 0 all passed, 1 something did not, 2 it could not be done.
"""

import argparse
import contextlib
import http.client
import json
import os
import pathlib
import random
import re
import socket
import sys
import tempfile
import threading
import time

import side_by_side as bench
from streams import raise_descriptor_limit


class Traffic:
    """What the load generator has no mode for, each kind in a thread of its own at a steady pace."""

    def __init__(self, base, seed):
        self.host, self.port = base.removeprefix("http://").split(":")
        self.port = int(self.port)
        self.random = random.Random(seed)
        self.stopping = threading.Event()
        self.lock = threading.Lock()
        self.counts = {}
        self.unexpected = {}
        self.threads = []

    def start(self):
        for name, work, pause_s in [
            ("churn", self.churn, 0.02),
            ("aborts", self.abort, 0.05),
            ("uploads", self.upload, 0.2),
            ("api", self.own_api, 0.1),
            ("garbage", self.garbage, 0.2),
        ]:
            thread = threading.Thread(target=self.loop, args=(name, work, pause_s), daemon=True)
            thread.start()
            self.threads.append(thread)

    def stop(self):
        self.stopping.set()
        for thread in self.threads:
            thread.join(30)

    def loop(self, name, work, pause_s):
        while not self.stopping.is_set():
            try:
                wrong = work()
            except OSError as error:
                wrong = f"{type(error).__name__}: {error}"
            except http.client.HTTPException as error:
                wrong = f"{type(error).__name__}: {error}"
            with self.lock:
                self.counts[name] = self.counts.get(name, 0) + 1
                if wrong:
                    known = self.unexpected.setdefault(f"{name}: {wrong}", 0)
                    self.unexpected[f"{name}: {wrong}"] = known + 1
            self.stopping.wait(pause_s)

    def connection(self):
        return http.client.HTTPConnection(self.host, self.port, timeout=30)

    @staticmethod
    def body(stream=False, text="hello"):
        return json.dumps({"model": "fake-small", "stream": stream, "messages": [{"role": "user", "content": text}]})

    def ask(self, method, path, body=None, headers=None, expected=(200,)):
        with contextlib.closing(self.connection()) as connection:
            connection.request(method, path, body, headers or {})
            answer = connection.getresponse()
            answer.read()
            return None if answer.status in expected else f"{method} {path.split('?')[0]} {answer.status}"

    def churn(self):
        """A new connection for one request."""
        return self.ask("POST", "/v1/chat/completions", self.body(), {"Content-Type": "application/json"})

    def abort(self):
        """A client that leaves in the middle of a stream, sometimes with a reset."""
        with contextlib.closing(socket.create_connection((self.host, self.port), 30)) as client:
            body = self.body(stream=True).encode()
            head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
            client.sendall(head.encode() + body)
            first = client.recv(4096)
            if self.random.random() < 0.5:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            return None if first.startswith(b"HTTP/1.1 200") else f"a stream began with {first[:30]!r}"

    def upload(self):
        """A chunked body of up to 4 MiB on a path nothing has to read."""
        size = self.random.choice([1, 1000, 70_000, 1_000_000, 4_000_000])
        pieces = (b"u" * 16384 for _ in range(size // 16384 + 1))
        headers = {"Content-Type": "application/octet-stream", "Transfer-Encoding": "chunked"}
        with contextlib.closing(self.connection()) as connection:
            connection.request("POST", "/v1/files", pieces, headers, encode_chunked=True)
            answer = connection.getresponse()
            answer.read()
            # The fake provider knows no such path; that it says so means that the upload arrived.
            return None if answer.status in (200, 404) else f"upload {answer.status}"

    def own_api(self):
        path = self.random.choice(["/health", "/livez", "/metrics", "/api/v1/traces?limit=20", "/api/v1/spans?limit=5", "/api/v1/stats"])
        return self.ask("GET", path, expected=(200, 404) if path.endswith("stats") else (200,))

    def garbage(self):
        """What is no HTTP is refused and costs nobody else anything."""
        with contextlib.closing(socket.create_connection((self.host, self.port), 30)) as client:
            client.sendall(self.random.choice([b"\x16\x03\x01\x02\x00", b"GET / HTTP/1.1\nHost: x\n\n", b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n"]) + b"\r\n\r\n\r\n")
            client.settimeout(30)
            first = client.recv(4096)
            return None if first.startswith(b"HTTP/1.1 4") else f"garbage got {first[:30]!r}"


LOADS = [
    ("small", ["--mode", "open", "--rate", "{rate}", "--connections", "32", "--body-bytes", "1000"]),
    ("large", ["--mode", "open", "--rate", "3", "--connections", "4", "--body-bytes", "500000"]),
    ("messages", ["--mode", "open", "--rate", "20", "--connections", "8", "--dialect", "messages"]),
    ("streams", ["--mode", "closed", "--connections", "{streams}", "--stream", "--timeout", "30s"]),
    ("gzip", ["--mode", "closed", "--connections", "4", "--stream", "--gzip", "--header", "x-fake-frames: 20", "--header", "x-fake-frame-ms: 50"]),
]


def memory_kib(pid):
    text = pathlib.Path(f"/proc/{pid}/status").read_text()
    value = lambda name: int(re.search(rf"^{name}:\s+(\d+)", text, re.M).group(1))
    return value("VmRSS"), value("Threads")


def waited_for_cpu_ms(pid):
    """How long each core thread has been ready to run without a CPU, since it began (proc_pid_schedstat: the second field)."""
    waited = {}
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError, ValueError, IndexError):
            if (task / "comm").read_text().startswith("weir-core"):
                waited[task.name] = int((task / "schedstat").read_text().split()[1]) / 1e6
    return waited


def heartbeat(text):
    """The worst of what the cores say of their loops, by metric; empty where this version does not say."""
    found = {}
    for name, value in re.findall(r"^(service_core_[a-z_]+)(?:\{[^}]*\})? (\S+)$", text, re.M):
        with contextlib.suppress(ValueError):
            found[name] = max(found.get(name, 0.0), float(value))
    return found


class Sampler(threading.Thread):
    """Memory, descriptors and heartbeats, and how long a request of our own takes meanwhile."""

    def __init__(self, pid, base, every_s):
        super().__init__(daemon=True)
        self.pid, self.base, self.every_s = pid, base, every_s
        self.stopping = threading.Event()
        self.samples = []

    def run(self):
        start, waited = time.monotonic(), waited_for_cpu_ms(self.pid)
        while not self.stopping.wait(self.every_s):
            sample = {"at_s": round(time.monotonic() - start, 1)}
            try:
                before, waited = waited, waited_for_cpu_ms(self.pid)
                longest = max((waited[task] - before.get(task, 0) for task in waited), default=0)
                sample["waited_for_cpu_ms"] = round(longest, 1)
                sample["rss_kib"], sample["threads"] = memory_kib(self.pid)
                sample["fds"] = len(os.listdir(f"/proc/{self.pid}/fd"))
                began = time.monotonic()
                text = bench.fetch(f"{self.base}/metrics", 20)[1]
                sample["metrics_ms"] = round((time.monotonic() - began) * 1000, 1)
                sample["heartbeat"] = heartbeat(text)
            except (OSError, AttributeError) as error:
                sample["error"] = str(error)
            self.samples.append(sample)


# An idle core's loop turns once a second.
IDLE_TURN_MS = 1000


def lag_ms(sample):
    """The largest lag a core reports, or how overdue its next turn is, in milliseconds."""
    seen = sample.get("heartbeat", {})
    overdue = seen.get("service_core_heartbeat_age_seconds", 0.0) * 1000 - IDLE_TURN_MS
    return max(seen.get("service_core_loop_lag_seconds", 0.0) * 1000, overdue, 0.0)


def stalled(options, before, sample):
    """Whether a loop was late for longer than allowed in this sample, or reached a new worst since the one before."""
    if "error" in sample:
        return True
    worst = lambda s: s.get("heartbeat", {}).get("service_core_loop_lag_max_seconds", 0.0) * 1000
    risen = worst(sample) if worst(sample) > worst(before) else 0.0
    allowed = options.stall_ms + sample.get("waited_for_cpu_ms", 0.0)
    return max(lag_ms(sample), risen, sample.get("metrics_ms", 0.0)) > allowed


def judge(options, samples, fds_before, fds_after, reports, traffic):
    verdict = {}
    stalls = [sample for before, sample in zip([{}, *samples], samples) if stalled(options, before, sample)]
    verdict["stall"] = {"passed": not stalls, "worst_lag_ms": max(map(lag_ms, samples), default=0), "stalls": stalls[:20]}
    verdict["stall"]["worst_metrics_ms"] = max((s.get("metrics_ms", 0) for s in samples), default=0)
    verdict["stall"]["worst_wait_for_cpu_ms"] = max((s.get("waited_for_cpu_ms", 0) for s in samples), default=0)
    verdict["stall"]["heartbeat_seen"] = any(s.get("heartbeat") for s in samples)
    # Since the start, between two samples too.
    lags = [s["heartbeat"].get("service_core_loop_lag_max_seconds", 0.0) for s in samples if s.get("heartbeat")]
    verdict["stall"]["lag_max_ms"] = max(lags, default=0.0) * 1000
    verdict["stall"]["passed"] &= verdict["stall"]["heartbeat_seen"]
    rss = [s["rss_kib"] for s in samples if "rss_kib" in s]
    middle = rss[len(rss) // 2 - len(rss) // 8 : len(rss) // 2 + 1] or [0]
    late = rss[-max(1, len(rss) // 8) :] or [0]
    grown_mib = (sum(late) / len(late) - sum(middle) / len(middle)) / 1024
    verdict["memory"] = {"passed": grown_mib <= options.growth_mib, "grown_mib": round(grown_mib, 2), "max_mib": round(max(rss, default=0) / 1024, 1)}
    verdict["descriptors"] = {"passed": fds_after - fds_before <= options.descriptors, "before": fds_before, "after": fds_after, "max": max((s.get("fds", 0) for s in samples), default=0)}
    failed = {name: {"failed": r["failed"], "failures": r["failures"], "statuses": r["statuses"]} for name, r in reports.items() if r["failed"]}
    verdict["answers"] = {"passed": not failed and not traffic.unexpected, "failed": failed, "unexpected": traffic.unexpected}
    return verdict


def soak(options, driver, work):
    work.mkdir()
    port = bench.free_port()
    provider_log = work / "provider.log"
    command = [options.loadtest, "provider", "--listen", f"127.0.0.1:{port}", "--frames", 50, "--frame-ms", 40]
    with bench.process([str(part) for part in command], provider_log) as provider:
        url = f"http://127.0.0.1:{port}"
        bench.wait_ready(provider, f"{url}/", provider_log)
        weir_port = bench.free_port()
        config, log = work / "weir.yaml", work / "weir.log"
        options.io_driver = driver
        config.write_text(bench.weir_settings(options, url, weir_port, work, False))
        base = f"http://127.0.0.1:{weir_port}"
        with bench.process([options.weir, "--config", str(config)], log) as weir:
            bench.wait_ready(weir, f"{base}/health", log)
            fds_before = len(os.listdir(f"/proc/{weir.pid}/fd"))
            seconds = int(options.minutes * 60)
            with contextlib.ExitStack() as stack:
                runs = {}
                for name, arguments in LOADS:
                    filled = [part.format(rate=options.rate, streams=options.streams) for part in arguments]
                    run = [options.loadtest, "run", "--target", base, "--duration", f"{seconds}s", "--warmup", "1s"]
                    run += [*filled, "--json", str(work / f"{name}.json")]
                    runs[name] = stack.enter_context(bench.process(run, work / f"{name}.log"))
                traffic, sampler = Traffic(base, options.seed), Sampler(weir.pid, base, options.sample_s)
                traffic.start()
                sampler.start()
                end = time.monotonic() + seconds + 90
                for child in runs.values():
                    child.wait(max(1, end - time.monotonic()))
                traffic.stop()
                sampler.stopping.set()
                sampler.join(30)
            reports = {}
            for name in runs:
                path = work / f"{name}.json"
                if not path.exists():
                    raise bench.SetupError(f"{name} left no report\n{bench.tail(work / f'{name}.log')}")
                reports[name] = json.loads(path.read_text())
            # What idles on the provider's side is given up after 8 s.
            time.sleep(10)
            fds_after = len(os.listdir(f"/proc/{weir.pid}/fd"))
            drops = bench.dropped(base)
            alive = weir.poll() is None
        panics = [line for line in log.read_text(errors="replace").splitlines() if "panicked" in line]
    verdict = judge(options, sampler.samples, fds_before, fds_after, reports, traffic)
    verdict["process"] = {"passed": alive and not panics, "panics": panics[:3]}
    answered = {name: report["ok"] for name, report in reports.items()}
    return {
        "driver": driver, "passed": all(part["passed"] for part in verdict.values()), "verdict": verdict,
        "answered": answered, "other_traffic": traffic.counts, "dropped": drops, "samples": sampler.samples,
    }


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--loadtest", required=True, help="path of the weir-loadtest binary (release build)")
    parser.add_argument("--weir", required=True, help="path of the weir binary (release build)")
    parser.add_argument("--minutes", type=float, default=10, help="of each I/O mode (default: %(default)s)")
    parser.add_argument("--drivers", default="io_uring,io_uring_plain,epoll", help="values of server.io_driver, one after the other (default: %(default)s)")
    parser.add_argument("--rate", type=int, default=300, help="small calls per second (default: %(default)s)")
    parser.add_argument("--streams", type=int, default=50, help="streams at once (default: %(default)s)")
    parser.add_argument("--sample-s", type=float, default=2)
    parser.add_argument("--stall-ms", type=float, default=500)
    parser.add_argument("--growth-mib", type=float, default=8)
    parser.add_argument("--descriptors", type=int, default=8)
    parser.add_argument("--core-threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--weir-extra", help="file with further YAML for weir's configuration")
    parser.add_argument("--json", help="where the full result goes")
    options = parser.parse_args()
    # All loads together, for weir's `max_connections`.
    options.connections = options.streams + 100
    return options


def main():
    options = arguments()
    raise_descriptor_limit(8192)
    results = []
    with tempfile.TemporaryDirectory(prefix="weir-soak-") as temp:
        for driver in options.drivers.split(","):
            result = soak(options, driver, pathlib.Path(temp) / driver)
            results.append(result)
            print(f"{result['driver']}: {'passed' if result['passed'] else 'FAILED'}; answered {result['answered']}; other {result['other_traffic']}; dropped {result['dropped'] or 0}")
            for name, part in result["verdict"].items():
                print(f"  {name}: {'passed' if part['passed'] else 'FAILED'} {({key: value for key, value in part.items() if key != 'passed'})}", flush=True)
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(results, indent=2) + "\n")
    return 0 if all(result["passed"] for result in results) else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except bench.SetupError as error:
        print(f"soak: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
