#!/usr/bin/env python3
"""What a gateway takes when nothing calls it: size, time from start to ready, memory; and what is embedded in it.

    tests/packages/footprint.py NAME=BINARY ...        e.g. appliance=target/dist/weir full=target/release/weir

Each binary runs with the settings of the packages on a new record; memory is read two seconds after it is ready (private and shared by
/proc/PID/smaps_rollup). The same without the embedded classifier, and without any analysis. Pages of files are resident because something
mapped them once, in pieces of 64 KB, as far as the kernel had them in its cache: what an idle gateway needs is its anonymous memory and the
pages of files that it still touches, which are counted in ten more seconds (/proc/PID/clear_refs).
"""

import contextlib
import glob
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

sys.dont_write_bytecode = True
import place  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
STARTS = 9
# Every thread that wakes by itself has done so several times by then.
IDLE_SECONDS = 10
# Settings that switch off what takes memory.
WITHOUT = ["security_analysis: {ml_enabled: false}", "enable_security_analysis: false"]
EMBEDDED = {
    "classifier (learned.bin)": "inference/model/learned.bin",
    "classifier of toxic answers (toxic.bin)": "inference/model/toxic.bin",
    "second stage (second.rten)": "models/model/second.rten",
    "its tokenizer": "models/model/tokenizer.json",
    "rules": "inference/rules/*.yaml",
    "prices": "config/prices/builtin.tsv",
    "page of the API": "src/serve/api/assets/*.gz",
    "console": "src/serve/api/console/*.[jchs]*",
}
VOCABULARIES = ["o200k_base", "o200k_harmony", "cl100k_base", "p50k_base", "r50k_base"]


class Gateway:
    def __init__(self, binary, folder, line=""):
        self.address = f"127.0.0.1:{place.free_port()}"
        settings = {"SERVICE_LISTEN_ADDR": self.address, "SERVICE_STORAGE_DATABASE_PATH": f"{folder}/weir.db", "SERVICE_LOG_LEVEL": "error",
                    "SERVICE_TIMEOUT_MS": "600000", "SERVICE_UPSTREAM_URL": "http://127.0.0.1:9",
                    "SERVICE_CONFIG": f"{folder}/weir.yaml"}
        pathlib.Path(settings["SERVICE_CONFIG"]).write_text(line + "\n")
        began = time.monotonic()
        self.process = subprocess.Popen([binary], env=settings)
        place.eventually("ready", self.ready)
        self.seconds = time.monotonic() - began

    def ready(self):
        with contextlib.suppress(OSError), urllib.request.urlopen(f"http://{self.address}/readyz", timeout=1) as answer:
            return answer.status == 200

    def memory(self):
        """Kilobytes: resident, of these private."""
        rows = dict(line.split(":") for line in pathlib.Path(f"/proc/{self.process.pid}/smaps_rollup").read_text().splitlines()[1:])
        number = {name: int(value.split()[0]) for name, value in rows.items()}
        return number["Rss"], number["Private_Clean"] + number["Private_Dirty"], number["Anonymous"]

    def needed(self):
        """Kilobytes: anonymous, and pages of files that were touched in the last seconds."""
        pathlib.Path(f"/proc/{self.process.pid}/clear_refs").write_text("1")
        time.sleep(IDLE_SECONDS)
        anonymous = touched = 0
        # One row of a mapping after the other: "Anonymous" stands behind "Referenced".
        for line in pathlib.Path(f"/proc/{self.process.pid}/smaps").read_text().splitlines():
            name, _, value = line.partition(":")
            if name == "Referenced":
                referenced = int(value.split()[0])
            elif name == "Anonymous":
                own = int(value.split()[0])
                anonymous += own
                touched += max(0, referenced - own)
        return anonymous, touched

    def stop(self):
        self.process.terminate()
        self.process.wait()


def idle(binary, line="", needed=False):
    with tempfile.TemporaryDirectory() as folder:
        gateway = Gateway(binary, folder, line)
        time.sleep(2)
        memory = gateway.memory(), gateway.needed() if needed else None
        gateway.stop()
    return memory


def starts(binary):
    """Seconds from start to ready on a record that is there."""
    with tempfile.TemporaryDirectory() as folder:
        seconds = []
        for _ in range(STARTS + 1):
            gateway = Gateway(binary, folder)
            gateway.stop()
            seconds.append(gateway.seconds)
    return statistics.median(seconds[1:]), max(seconds[1:])


def main():
    if len(sys.argv) < 2:
        print(__doc__)
        return 1
    for argument in sys.argv[1:]:
        name, binary = argument.split("=", 1)
        binary = str(pathlib.Path(binary).resolve())
        middle, worst = starts(binary)
        (resident, private, anonymous), (own, touched) = idle(binary, needed=True)
        print(f"{name}: {pathlib.Path(binary).stat().st_size:,} bytes; ready after {middle * 1000:.0f} ms (median of {STARTS}, worst {worst * 1000:.0f}); "
              f"idle {resident / 1024:.1f} MiB resident, {private / 1024:.1f} private, {anonymous / 1024:.1f} anonymous; needed {(own + touched) / 1024:.1f} MiB "
              f"({own / 1024:.1f} anonymous, {touched / 1024:.1f} of files touched in {IDLE_SECONDS} s)")
        for line in WITHOUT:
            (resident, _, anonymous), _ = idle(binary, line)
            print(f"{name}, {line}: idle {resident / 1024:.1f} MiB resident, {anonymous / 1024:.1f} anonymous")
    total = 0
    for name, pattern in EMBEDDED.items():
        size = sum(pathlib.Path(file).stat().st_size for file in glob.glob(str(ROOT / pattern)))
        total += size
        print(f"embedded: {name}: {size:,} bytes")
    metadata = json.loads(place.text("cargo", "metadata", "--locked", "--format-version", "1", cwd=ROOT, check=True))
    folder = next(pathlib.Path(package["manifest_path"]).parent for package in metadata["packages"] if package["name"] == "tiktoken-rs")
    for vocabulary in VOCABULARIES:
        for file in folder.rglob(f"{vocabulary}.tiktoken"):
            # Single bytes stand first in all of them; its middle is its own.
            text = file.read_bytes()
            inside = text[len(text) // 2 :][:400] in pathlib.Path(sys.argv[1].split("=", 1)[1]).read_bytes()
            print(f"embedded: vocabulary {vocabulary}: {file.stat().st_size if inside else 0:,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
