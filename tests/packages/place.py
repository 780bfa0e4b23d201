"""Clean machines for the tests of packages: a Debian 12 root made by debootstrap, and a container with its own systemd on it.

Needs root, debootstrap, systemd-nspawn (package systemd-container) and overlayfs; nothing outside the given folders is changed.
"""

import contextlib
import http.server
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import threading
import time
import urllib.error
import urllib.request

INCLUDED = "ca-certificates,systemd,systemd-sysv,dbus,python3,python3-venv"
SUITE, MIRROR = "bookworm", "http://deb.debian.org/debian"
# What would show that something is compiled on the way.
COMPILERS = ["cc", "gcc", "clang", "rustc", "cargo", "make"]


def run(*command, check=True, **options):
    return subprocess.run([str(part) for part in command], check=check, **options)


def text(*command, check=True, **options):
    done = run(*command, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)
    if check and done.returncode != 0:
        raise SystemExit(f"{' '.join(map(str, command))} ended with {done.returncode}:\n{done.stdout}")
    return done.stdout


def eventually(what, look, seconds=60):
    """The first true answer of `look`."""
    until = time.monotonic() + seconds
    while True:
        found = look()
        if found:
            return found
        if time.monotonic() > until:
            raise SystemExit(f"{what}: not within {seconds} s")
        time.sleep(0.02)


def debian(folder):
    """A minimal Debian 12 in `folder`, made once."""
    folder = pathlib.Path(folder)
    if not (folder / "usr/bin/python3").exists():
        run("debootstrap", "--variant=minbase", f"--include={INCLUDED}", SUITE, folder, MIRROR, stdout=subprocess.DEVNULL)
    return folder


@contextlib.contextmanager
def layer(base):
    """A root that begins as `base` and is thrown away."""
    with tempfile.TemporaryDirectory(prefix="weir-root-") as place:
        place = pathlib.Path(place)
        for part in ("upper", "work", "root"):
            (place / part).mkdir()
        run("mount", "-t", "overlay", "overlay", "-o", f"lowerdir={base},upperdir={place}/upper,workdir={place}/work", place / "root")
        try:
            yield place / "root"
        finally:
            run("umount", "-l", place / "root")


class Machine:
    """A container with its own systemd and nothing but a loopback interface."""

    def __init__(self, root):
        self.root = root
        self.log = tempfile.TemporaryFile(mode="w+")
        command = ["systemd-nspawn", "--quiet", "--register=no", "--keep-unit", "--private-network", "-b", "-D", root,
                   "--machine=weir-test", "--console=read-only", "systemd.log_target=journal"]
        self.nspawn = subprocess.Popen([str(part) for part in command], stdin=subprocess.DEVNULL, stdout=self.log, stderr=subprocess.STDOUT)
        self.leader = eventually("systemd in the container", self._leader)
        eventually("the container's start", lambda: self.shell("systemctl is-system-running", check=False).strip() in ("running", "degraded"))

    def _leader(self):
        if self.nspawn.poll() is not None:
            self.log.seek(0)
            raise SystemExit(f"systemd-nspawn ended:\n{self.log.read()}")
        children = pathlib.Path(f"/proc/{self.nspawn.pid}/task/{self.nspawn.pid}/children").read_text().split()
        for child in children:
            with contextlib.suppress(OSError):
                if os.readlink(f"/proc/{child}/ns/pid") != os.readlink("/proc/self/ns/pid") and "systemd" in os.readlink(f"/proc/{child}/exe"):
                    return int(child)
        return None

    def shell(self, command, check=True):
        """A command inside, as root."""
        inside = ["nsenter", "-t", self.leader, "-m", "-u", "-i", "-p", "-n", "-r", "-w", "env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin",
                  "HOME=/root", "DEBIAN_FRONTEND=noninteractive", "sh", "-c", command]
        return text(*inside, check=check)

    def beside(self, *command):
        """What starts a program of this machine in the container's network."""
        return [str(part) for part in ("nsenter", "-t", self.leader, "-n", *command)]

    def stop(self):
        """Powers off; kills what is left after that."""
        self.nspawn.terminate()
        try:
            self.nspawn.wait(30)
        except subprocess.TimeoutExpired:
            self.nspawn.kill()
            self.nspawn.wait()


@contextlib.contextmanager
def machine(base):
    with layer(base) as root:
        one = Machine(root)
        try:
            yield one
        finally:
            one.stop()


ANSWER = {
    "id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "gpt-4o-mini",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hello."}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11},
}


class Provider(http.server.BaseHTTPRequestHandler):
    """Answers every call as a provider would."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        self.rfile.read(int(self.headers.get("content-length", 0)))
        body = json.dumps(ANSWER).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def provider():
    """A provider on this machine's loopback interface; its port."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Provider)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()


CALL = {"model": "gpt-4o-mini", "messages": [{"role": "user", "content": "Say hello"}]}


def first_trace(address):
    """Makes one call and reads its trace, waiting for both: the trace as the API gives it."""
    def call():
        request = urllib.request.Request(f"http://{address}/v1/chat/completions", json.dumps(CALL).encode(), {"content-type": "application/json"})
        with contextlib.suppress(OSError):
            with urllib.request.urlopen(request, timeout=10) as answer:
                return answer.headers["x-service-trace-id"]
        return None

    trace = eventually("a call through the gateway", call)

    def look():
        with contextlib.suppress(OSError):
            with urllib.request.urlopen(f"http://{address}/api/v1/traces/{trace}", timeout=10) as answer:
                return json.load(answer)
        return None

    return eventually("the call's trace", look)


def free_port():
    with http.server.HTTPServer(("127.0.0.1", 0), Provider) as server:
        return server.server_address[1]


def only(folder, pattern):
    """The one file of that form; files of earlier versions would make the answer a guess."""
    found = sorted(pathlib.Path(folder).glob(pattern))
    if len(found) != 1:
        raise SystemExit(f"{folder}/{pattern}: {len(found)} files, expected one")
    return found[0]


def without_compilers(root):
    found = [name for name in COMPILERS if shutil.which(name, path=f"{root}/usr/bin:{root}/usr/local/bin")]
    if found:
        raise SystemExit(f"{root} has {', '.join(found)}")


if __name__ == "__main__":
    # A provider of its own process, for a container's network: prints its port and serves until it is ended.
    with provider() as own_port:
        print(own_port, flush=True)
        threading.Event().wait()
