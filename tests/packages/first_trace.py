#!/usr/bin/env python3
"""How long it takes from a package to the first stored trace, on machines without a compiler.

    tests/packages/first_trace.py --dist target/dist [--root FOLDER] [--only deb,tar,wheel,npm,uvx,image]

deb: `apt-get install`, `systemctl enable --now`, a call, its trace, in a Debian 12 container with its own systemd; then the same is
asked of /health whether the ring runs under the unit's filter. tar: unpacked and run as a user. wheel: `pip install` into a venv and
`weir demo --once`. npm: `npm install` of both packages and `npx weir demo --once`. uvx: `uvx --from WHEEL weir demo --once`. image: its
layer unpacked and run by bubblewrap as a user without rights, with a read-only root and a filter that denies io_uring, as container
runtimes have it. --root keeps the Debian root for the next run. Exit code: 0 each within --limit seconds, 1 not.
"""

import argparse
import contextlib
import io
import json
import os
import pathlib
import struct
import subprocess
import sys
import tarfile
import tempfile
import time
import urllib.request

sys.dont_write_bytecode = True
import place  # noqa: E402

NODE = ["nodejs", "npm"]
# Rows of the demonstration's table.
DEMO_CALLS = 9
NOBODY = 65534


def demo_is_whole(output):
    rows = [line for line in output.splitlines() if " fake-" in line]
    if len(rows) != DEMO_CALLS:
        raise SystemExit(f"the demonstration has {len(rows)} traces, not {DEMO_CALLS}:\n{output}")


def deb(options):
    package = place.only(options.dist, "weir_*.deb")
    with place.machine(place.debian(options.root)) as machine:
        place.without_compilers(machine.root)
        (machine.root / "root/weir.deb").write_bytes(package.read_bytes())
        provider = subprocess.Popen(machine.beside(sys.executable, "-B", place.__file__), stdout=subprocess.PIPE, text=True)
        try:
            port = int(provider.stdout.readline())
            began = time.monotonic()
            machine.shell("apt-get install -y -qq /root/weir.deb")
            machine.shell(f"sed -i 's|^upstream_url: .*|upstream_url: http://127.0.0.1:{port}|' /etc/weir/weir.yaml")
            machine.shell("systemctl enable --now weir.socket weir.service")
            client = [sys.executable, "-B", "-c", "import place, json; print(json.dumps(place.first_trace('127.0.0.1:8080')))"]
            trace = json.loads(place.text(*machine.beside(*client), cwd=pathlib.Path(place.__file__).parent))
            took = time.monotonic() - began
            health = json.loads(place.text(*machine.beside("curl", "-s", "http://127.0.0.1:8080/health")))
            owner = machine.shell("stat -c %U /var/lib/weir/weir.db").strip()
        finally:
            provider.kill()
    return took, f"trace of {len(trace['spans'])} span, {health['io_driver']} under the unit's filter, record of user {owner}"


def tar(options):
    with tempfile.TemporaryDirectory() as folder, place.provider() as port:
        began = time.monotonic()
        with tarfile.open(place.only(options.dist, "weir-*-linux.tar.gz")) as archive:
            archive.extractall(folder, filter="data")
        here = next(pathlib.Path(folder).iterdir())
        place.run("sh", here / "install.sh", "--prefix", f"{folder}/usr", stdout=subprocess.DEVNULL)
        address = f"127.0.0.1:{place.free_port()}"
        settings = {"SERVICE_LISTEN_ADDR": address, "SERVICE_UPSTREAM_URL": f"http://127.0.0.1:{port}",
                    "SERVICE_STORAGE_DATABASE_PATH": f"{folder}/weir.db", "SERVICE_LOG_LEVEL": "error"}
        gateway = subprocess.Popen([f"{folder}/usr/bin/weir"], env=settings)
        try:
            place.first_trace(address)
            took = time.monotonic() - began
        finally:
            gateway.terminate()
            gateway.wait()
    return took, "install.sh --prefix"


@contextlib.contextmanager
def chroot(options, base):
    with place.layer(base) as root:
        place.without_compilers(root)
        for name in ("proc", "dev"):
            place.run("mount", "--rbind", f"/{name}", root / name)
        try:
            yield root
        finally:
            for name in ("dev", "proc"):
                place.run("umount", "-l", "-R", root / name, check=False)


def wheel(options):
    file = place.only(options.dist, "weir-*.whl")
    with chroot(options, place.debian(options.root)) as root:
        (root / "root" / file.name).write_bytes(file.read_bytes())
        began = time.monotonic()
        script = f"python3 -m venv /root/venv && /root/venv/bin/pip -q install --no-index /root/{file.name} && /root/venv/bin/weir demo --once"
        demo_is_whole(place.text("chroot", root, "sh", "-c", script))
        return time.monotonic() - began, "pip install --no-index into a new venv"


def npm(options):
    with_node = pathlib.Path(f"{options.root}-node")
    if not (with_node / "usr/bin/npm").exists():
        place.run("cp", "-a", place.debian(options.root), with_node)
        place.run("cp", "/etc/resolv.conf", with_node / "etc/resolv.conf")
        place.run("chroot", with_node, "sh", "-c", f"apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends {' '.join(NODE)}",
                  stdout=subprocess.DEVNULL)
    with chroot(options, with_node) as root:
        names = []
        for pattern in ("weir-linux-*.tgz", "weir-[0-9]*.tgz"):
            file = place.only(options.dist, pattern)
            (root / "root" / file.name).write_bytes(file.read_bytes())
            names.append(f"/root/{file.name}")
        began = time.monotonic()
        script = f"mkdir /root/app && cd /root/app && npm install --offline --no-audit --no-fund --silent {' '.join(names)} && npx weir demo --once"
        demo_is_whole(place.text("chroot", root, "sh", "-c", script))
        return time.monotonic() - began, "npm install --offline of both packages"


def uvx(options):
    file = place.only(options.dist, "weir-*.whl").resolve()
    with tempfile.TemporaryDirectory() as folder:
        place.run(sys.executable, "-m", "venv", f"{folder}/venv")
        place.run(f"{folder}/venv/bin/pip", "-q", "install", "uv==0.9.7")
        began = time.monotonic()
        environment = os.environ | {"UV_CACHE_DIR": f"{folder}/cache", "UV_TOOL_DIR": f"{folder}/tools"}
        demo_is_whole(place.text(f"{folder}/venv/bin/uvx", "--offline", "--python", sys.executable, "--from", file, "weir", "demo", "--once", env=environment))
        return time.monotonic() - began, "uvx --from the wheel"


def denies_ring():
    """A seccomp filter (BPF) that denies io_uring_setup, _enter and _register and allows all else, as a file descriptor."""
    load, equal_or_more, more, give = 0x20, 0x35, 0x25, 0x06
    rules = [
        (load, 0, 0, 0),  # The number of the call.
        (equal_or_more, 0, 2, 425),
        (more, 1, 0, 427),
        (give, 0, 0, 0x00050001),  # EPERM
        (give, 0, 0, 0x7FFF0000),
    ]
    reader, writer = os.pipe()
    os.write(writer, b"".join(struct.pack("<HBBI", *rule) for rule in rules))
    os.close(writer)
    return reader


def image(options):
    """Read as a runtime reads it: index, manifest, layer; each by its digest."""
    with tempfile.TemporaryDirectory() as folder, place.provider() as port:
        os.chmod(folder, 0o755)
        root, record = pathlib.Path(folder, "root"), pathlib.Path(folder, "record")
        began = time.monotonic()
        with tarfile.open(place.only(options.dist, "weir-*-oci.tar")) as archive:
            def blob(entry):
                return archive.extractfile(f"blobs/sha256/{entry['digest'].removeprefix('sha256:')}").read()

            manifest = json.loads(blob(json.load(archive.extractfile("index.json"))["manifests"][0]))
            config = json.loads(blob(manifest["config"]))["config"]
            size = sum(entry["size"] for entry in manifest["layers"])
            for entry in manifest["layers"]:
                with tarfile.open(fileobj=io.BytesIO(blob(entry))) as one:
                    one.extractall(root, filter="tar")
        shells = [name for name in ("bin/sh", "usr/bin/sh", "bin/busybox", "bin/bash") if (root / name).exists()]
        if shells:
            raise SystemExit(f"the image has {shells}")
        # Runtimes make the places of their mounts before they make the root read-only.
        for name in ("proc", "dev"):
            (root / name).mkdir(exist_ok=True)
        record.mkdir()
        os.chown(record, NOBODY, NOBODY)
        address = f"127.0.0.1:{place.free_port()}"
        user = config["User"].split(":")[0]
        filter_of_runtimes = denies_ring()
        command = [
            "setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "bwrap", "--unshare-all", "--share-net", "--uid", user, "--gid", user,
            "--ro-bind", root, "/", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--bind", record, "/var/lib/weir", "--cap-drop", "ALL",
            "--die-with-parent", "--chdir", config["WorkingDir"], "--clearenv", "--setenv", "SERVICE_LISTEN_ADDR", address,
            "--setenv", "SERVICE_UPSTREAM_URL", f"http://127.0.0.1:{port}", "--setenv", "SERVICE_LOG_LEVEL", "error",
            "--seccomp", str(filter_of_runtimes), *config["Entrypoint"], *config["Cmd"],
        ]
        runtime = subprocess.Popen([str(part) for part in command], pass_fds=[filter_of_runtimes], stdout=subprocess.DEVNULL)
        try:
            place.first_trace(address)
            took = time.monotonic() - began
            with urllib.request.urlopen(f"http://{address}/health") as answer:
                driver = json.load(answer)["io_driver"]
        finally:
            runtime.terminate()
            runtime.wait()
    if driver != "epoll":
        raise SystemExit(f"io_driver is {driver} where io_uring is denied")
    return took, f"layer of {size:,} bytes compressed, user {config['User']}, read-only root, {driver}"


KINDS = {"deb": deb, "tar": tar, "wheel": wheel, "npm": npm, "uvx": uvx, "image": image}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dist", required=True, help="folder with the artefacts")
    parser.add_argument("--root", help="folder of the Debian root (default: a temporary one)")
    parser.add_argument("--only", default=",".join(KINDS))
    parser.add_argument("--limit", type=float, default=60)
    options = parser.parse_args()
    late = False
    with tempfile.TemporaryDirectory() as temporary:
        options.root = options.root or f"{temporary}/debian"
        for kind in options.only.split(","):
            took, more = KINDS[kind](options)
            late |= took > options.limit
            print(f"{kind:<6} {took:>6.1f} s to the first trace; {more}", flush=True)
    return 1 if late else 0


if __name__ == "__main__":
    sys.exit(main())
