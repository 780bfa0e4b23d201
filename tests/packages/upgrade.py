#!/usr/bin/env python3
"""Upgrades of the .deb under load, and its end, in a Debian 12 container with its own systemd.

    tests/packages/upgrade.py --dist target/dist --loadtest target/release/weir-loadtest [--root FOLDER] [--seconds 120] [--upgrades 4]

The package is installed, socket unit and service are started, and clients call without a pause and without a second try while the
package is upgraded by `apt-get install` again and again (the same files under higher versions). No call may fail. Then: every call is a
span of the record; the backup unit's backup is whole; a store that cannot be used is tried until it can be, and wrong settings are not;
what systemd says about the unit's exposure; lintian; and after `apt-get purge` no file is left that was not there before, but for the log
of dpkg. Exit code: 0 all as said, 1 not.
"""

import argparse
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
import place  # noqa: E402

ADDRESS = "127.0.0.1:8080"
# What the load tester's clients send: it names the tenant.
KEY = "Authorization: Bearer fake-key-for-load-tests"
EXPOSURE_MAX = 1.5
# Longer than the pause between two starts.
SETTLED_S = 3
SETTINGS = """
listen_addr: 127.0.0.1:8080
upstream_url: http://{provider}
rate_limiting: {{enabled: false}}
storage: {{database_path: /var/lib/weir/weir.db}}
"""
# Lists of packages and logs change with every package.
KEPT_BY_OTHERS = ("/var/lib/dpkg", "/var/lib/apt", "/var/cache", "/var/log", "/var/lib/systemd", "/run", "/tmp", "/root", "/proc", "/sys", "/dev",
                  "/etc/passwd", "/etc/group", "/etc/shadow", "/etc/gshadow", "/etc/.pwd.lock", "/etc/subuid", "/etc/subgid")


def with_version(package, number, folder):
    """The same package under another version."""
    tree = pathlib.Path(folder, "tree")
    place.run("dpkg-deb", "-R", package, tree)
    control = tree / "DEBIAN" / "control"
    control.write_text(re.sub(r"(?m)^Version: .*$", f"Version: {number}", control.read_text()))
    made = pathlib.Path(folder, f"weir_{number}.deb")
    place.run("dpkg-deb", "--root-owner-group", "-Zgzip", "-z1", "-b", tree, made, stdout=subprocess.DEVNULL)
    place.run("rm", "-r", tree)
    return made


def files(root):
    found = set(place.text("find", root, "-xdev", "-not", "-type", "d").splitlines()) | set(place.text("find", root / "etc", root / "var/lib", "-type", "d").splitlines())
    short = {name.removeprefix(str(root)) for name in found}
    return {name for name in short if not name.startswith(KEPT_BY_OTHERS)}


def under_load(machine, options, packages):
    """Upgrades while clients call; what the load tester counted."""
    provider = subprocess.Popen(machine.beside(options.loadtest, "provider", "--listen", "127.0.0.1:0"), stdout=subprocess.PIPE, text=True)
    with tempfile.TemporaryDirectory() as folder:
        try:
            address = re.search(r"127\.0\.0\.1:\d+", provider.stdout.readline())[0]
            (machine.root / "etc/weir/weir.yaml").write_text(SETTINGS.format(provider=address))
            machine.shell("systemctl enable --now weir.socket weir.service")
            report = f"{folder}/report.json"
            load = subprocess.Popen(
                machine.beside(options.loadtest, "run", "--target", f"http://{ADDRESS}", "--connections", options.connections, "--duration",
                               f"{options.seconds}s", "--warmup", "0s", "--timeout", "60s", "--json", report),
                stdout=subprocess.DEVNULL)
            until = time.monotonic() + options.seconds
            for at, package in enumerate(packages):
                # Spread over the time of the load, the last well before its end.
                time.sleep(max(0.0, until - options.seconds * (1 - (at + 0.5) / (len(packages) + 1)) - time.monotonic()))
                machine.shell(f"apt-get install -y -qq /root/{package.name}")
                said = machine.shell("systemctl show -p NRestarts -p ActiveState weir.service").split()
                if "ActiveState=active" not in said:
                    raise SystemExit(f"after an upgrade: {said}\n{machine.shell('journalctl -u weir -n 30 --no-pager', check=False)}")
            load.wait()
            counted = json.loads(pathlib.Path(report).read_text())
            spans = recorded(machine, counted["ok"])
        finally:
            provider.kill()
    return counted, spans


def recorded(machine, calls, seconds=30):
    """Spans of the record, once there are as many as calls, or after `seconds`."""
    until = time.monotonic() + seconds
    while True:
        spans = json.loads(place.text(*machine.beside("curl", "-s", "-H", KEY, f"http://{ADDRESS}/api/v1/stats")))["total_spans"]
        if spans >= calls or time.monotonic() > until:
            return spans
        time.sleep(0.2)


def supervised(machine):
    """What the units do by themselves; the faults."""
    faults = []
    machine.shell("systemctl start weir-backup.service")
    verified = machine.shell("weir restore --config /etc/weir/weir.yaml /var/lib/weir/backups --verify").splitlines()[0]
    print(f"backup unit: {verified}")
    # systemd's own limit would be five tries.
    machine.shell("systemctl stop weir.service && mv /var/lib/weir/weir.db /var/lib/weir/kept && mkdir /var/lib/weir/weir.db && systemctl start --no-block weir.service")
    place.eventually("eight tries to start on a store that cannot be used", lambda: tries(machine) >= 8)
    machine.shell("rmdir /var/lib/weir/weir.db && mv /var/lib/weir/kept /var/lib/weir/weir.db")
    place.eventually("a start once the store can be used", lambda: state(machine) == "active")
    print(f"store that could not be used: {tries(machine)} tries, then a start without help")
    settings = machine.root / "etc/weir/weir.yaml"
    right = settings.read_text()
    settings.write_text(right + "no_such_setting: 1\n")
    machine.shell("systemctl restart weir.service", check=False)
    time.sleep(SETTLED_S)
    if state(machine) != "failed" or tries(machine):
        faults.append(f"wrong settings: {state(machine)} after {tries(machine)} further tries")
    settings.write_text(right)
    machine.shell("systemctl restart weir.socket weir.service")
    return faults


def state(machine):
    return machine.shell("systemctl is-active weir.service", check=False).strip()


def tries(machine):
    """How often systemd has started the service again by itself."""
    return int(machine.shell("systemctl show -p NRestarts --value weir.service"))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dist", required=True, help="folder with the artefacts")
    parser.add_argument("--loadtest", required=True, help="path of weir-loadtest")
    parser.add_argument("--root", help="folder of the Debian root (default: a temporary one)")
    parser.add_argument("--seconds", type=int, default=120)
    parser.add_argument("--upgrades", type=int, default=4)
    parser.add_argument("--connections", type=int, default=16)
    options = parser.parse_args()
    options.loadtest = pathlib.Path(options.loadtest).resolve()
    package = place.only(options.dist, "weir_*.deb")
    faults = []

    lintian = place.text("lintian", "--allow-root", "--fail-on", "error", package, check=False).splitlines()
    errors = [line for line in lintian if line.startswith("E:")]
    faults += errors
    print(f"lintian: {len(errors)} errors, {sum(line.startswith('W:') for line in lintian)} warnings")

    with tempfile.TemporaryDirectory() as temporary, place.machine(place.debian(options.root or f"{temporary}/debian")) as machine:
        before = files(machine.root)
        (machine.root / "root" / package.name).write_bytes(package.read_bytes())
        newer = [with_version(package, f"99.{at}", machine.root / "root") for at in range(options.upgrades)]
        machine.shell(f"apt-get install -y -qq /root/{package.name}")
        counted, spans = under_load(machine, options, newer)
        print(f"upgrades: {options.upgrades} by apt-get under {options.connections} connections in {options.seconds} s: {counted['ok']:,} calls answered, "
              f"{counted['failed']} failed {counted['failures'] or ''}, {spans:,} spans in the record")
        if counted["failed"] or not counted["ok"]:
            faults.append("calls failed")
        if spans != counted["ok"]:
            faults.append(f"{counted['ok']:,} calls, {spans:,} spans; the journal says: " + machine.shell("journalctl -u weir --no-pager -p warning | tail -n 20"))
        faults += supervised(machine)
        said = machine.shell("systemd-analyze security --no-pager weir.service").splitlines()[-1]
        exposure = float(re.search(r": ([0-9.]+)", said)[1])
        print(f"exposure of the running unit: {exposure}")
        if exposure > EXPOSURE_MAX:
            faults.append(said)
        machine.shell("apt-get purge -y -qq weir && systemctl daemon-reload")
        left = sorted(files(machine.root) - before)
        active = machine.shell("systemctl is-active weir.service weir.socket", check=False).split()
        print(f"purge: {len(left)} files left, units {' '.join(active)}")
        faults += [f"left by purge: {name}" for name in left]
        faults += [f"still {state}" for state in active if state == "active"]
    for fault in faults:
        print(fault)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
