"""Tarball, symbols, wheel, npm packages and chart: archives with a few lines of metadata each."""

import base64
import hashlib
import io
import json
import lzma
import pathlib
import platform
import zipfile

from .common import ABOUT, FILES, MACHINES, ROOT, Archive, packed

LAUNCHER = """#!/usr/bin/env node
// Starts the binary that came with the package of this platform.
const { spawn } = require('node:child_process');
const { constants } = require('node:os');
let binary;
try {
  binary = require.resolve(`weir-${process.platform}-${process.arch}/bin/weir`);
} catch {
  console.error(`weir: there is no binary for ${process.platform} ${process.arch}; it runs on Linux, x64 and arm64`);
  process.exit(1);
}
const child = spawn(binary, process.argv.slice(2), { stdio: 'inherit' });
for (const signal of ['SIGTERM', 'SIGHUP']) process.on(signal, () => child.kill(signal));
// A terminal tells the binary, too; a second SIGINT would end it at once.
process.on('SIGINT', () => {});
child.on('error', (error) => {
  console.error(`weir: ${error.message}`);
  process.exit(1);
});
child.on('exit', (status, signal) => process.exit(signal ? 128 + constants.signals[signal] : status));
"""


def tar(release):
    """The appliance with install.sh."""
    name = f"weir-{release.version}-{platform.machine()}-linux"
    archive = Archive(release.when)
    archive.folder(name)
    archive.add(f"{name}/weir", release.binaries["appliance"].bytes, 0o755)
    archive.add(f"{name}/install.sh", (FILES / "install.sh").read_bytes(), 0o755)
    for file in [*release.units(), FILES / "weir.sysusers", FILES / "weir.yaml", FILES / "weir.default"]:
        archive.add(f"{name}/{file.name}", file.read_bytes())
    archive.add(f"{name}/weir.1", (release.stage / "weir.1").read_bytes())
    archive.add(f"{name}/THIRD-PARTY.txt", release.third_party["appliance"].encode())
    archive.add(f"{name}/weir.cdx.json", release.sboms["appliance"])
    archive.folder(f"{name}/completions")
    for file in ("weir.bash", "_weir", "weir.fish"):
        archive.add(f"{name}/completions/{file}", (release.stage / file).read_bytes())
    for file in ("LICENSE", "README.md", "CHANGELOG.md", "config/service.example.yaml"):
        archive.add(f"{name}/{pathlib.Path(file).name}", (ROOT / file).read_bytes())
    release.keep(f"{name}.tar.gz", packed(archive.bytes()))


def symbols(release):
    """Where lines are in the code, for profilers and debuggers: below /usr/lib/debug, found by the build id."""
    archive = Archive(release.when)
    for flavour in sorted({binary.build_id: name for name, binary in release.binaries.items()}.values()):
        binary = release.binaries[flavour]
        if binary.build_id:
            archive.add_below(f".build-id/{binary.build_id[:2]}/{binary.build_id[2:]}.debug", binary.symbols)
    release.keep(f"weir-{release.version}-{platform.machine()}-symbols.tar.xz", lzma.compress(archive.bytes(), preset=6))


def wheel(release):
    """A wheel with the full binary among its scripts (PyPA, binary distribution format): `uvx weir demo`."""
    about, data = f"weir-{release.version}.dist-info", f"weir-{release.version}.data"
    binary = release.binaries["full"]
    tag = f"py3-none-manylinux_{binary.oldest_glibc().replace('.', '_')}_{platform.machine()}"
    metadata = (
        f"Metadata-Version: 2.4\nName: weir\nVersion: {release.version}\nSummary: {ABOUT}\nLicense-Expression: Apache-2.0\n"
        "License-File: LICENSE\nLicense-File: THIRD-PARTY.txt\n"
    )
    files = [
        (f"{data}/scripts/weir", binary.bytes, 0o755),
        (f"{about}/METADATA", metadata.encode(), 0o644),
        (f"{about}/WHEEL", f"Wheel-Version: 1.0\nGenerator: weir dist/build\nRoot-Is-Purelib: false\nTag: {tag}\n".encode(), 0o644),
        (f"{about}/licenses/LICENSE", (ROOT / "LICENSE").read_bytes(), 0o644),
        (f"{about}/licenses/THIRD-PARTY.txt", release.third_party["full"].encode(), 0o644),
        (f"{about}/sboms/weir.cdx.json", release.sboms["full"], 0o644),
    ]

    def digest(content):
        return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()

    record = "".join(f"{name},sha256={digest(content)},{len(content)}\n" for name, content, _ in files) + f"{about}/RECORD,,\n"
    raw = io.BytesIO()
    with zipfile.ZipFile(raw, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, content, mode in [*files, (f"{about}/RECORD", record.encode(), 0o644)]:
            entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            entry.external_attr, entry.compress_type = (0o100000 | mode) << 16, zipfile.ZIP_DEFLATED
            archive.writestr(entry, content)
    release.keep(f"weir-{release.version}-{tag}.whl", raw.getvalue())


def npm(release):
    """`weir`, which starts the binary, and one package with it for this platform: `npx weir demo`."""
    mine = f"weir-linux-{release.npm_cpu}"
    common = {"version": release.version, "license": "Apache-2.0", "description": ABOUT}
    platforms = {f"weir-linux-{cpu}": release.version for _, cpu in MACHINES.values()}
    packages = {
        "weir": ({"name": "weir", **common, "bin": {"weir": "weir.js"}, "optionalDependencies": platforms}, [("weir.js", LAUNCHER.encode(), 0o755)]),
        mine: (
            {"name": mine, **common, "os": ["linux"], "cpu": [release.npm_cpu], "libc": ["glibc"]},
            [
                ("bin/weir", release.binaries["full"].bytes, 0o755),
                ("THIRD-PARTY.txt", release.third_party["full"].encode(), 0o644),
                ("weir.cdx.json", release.sboms["full"], 0o644),
            ],
        ),
    }
    for name, (manifest, files) in packages.items():
        # The time that npm itself gives to all files.
        archive = Archive(499162500)
        archive.add("package/package.json", (json.dumps(manifest, indent=2) + "\n").encode())
        for file, content, mode in files:
            archive.add(f"package/{file}", content, mode)
        archive.add("package/LICENSE", (ROOT / "LICENSE").read_bytes())
        release.keep(f"{name}-{release.version}.tgz", packed(archive.bytes()))


def chart(release):
    """The Helm chart as `helm package` would make it."""
    folder = ROOT / "deploy" / "helm" / "weir"
    archive = Archive(release.when)
    # Helm expects Chart.yaml first.
    files = sorted((file for file in folder.rglob("*") if file.is_file()), key=lambda file: (file.name != "Chart.yaml", str(file)))
    for file in files:
        archive.add(f"weir/{file.relative_to(folder)}", file.read_bytes())
    release.keep(f"weir-chart-{release.version}.tgz", packed(archive.bytes()))
