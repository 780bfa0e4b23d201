"""What all parts of dist/build need: places, commands, and archives whose bytes depend on their content alone."""

import gzip
import io
import os
import pathlib
import subprocess
import tarfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
FILES = ROOT / "dist" / "files"
MACHINES = {"x86_64": ("amd64", "x64"), "aarch64": ("arm64", "arm64")}
ABOUT = "LLM egress gateway that records, scores and limits every call"


def run(*command, **options):
    return subprocess.run([str(part) for part in command], check=True, **options)


def output(*command, **options):
    return run(*command, stdout=subprocess.PIPE, text=True, **options).stdout.strip()


def version():
    for line in (ROOT / "Cargo.toml").read_text().splitlines():
        if line.startswith("version = "):
            return line.split('"')[1]
    raise SystemExit("Cargo.toml names no version")


def commit_time():
    if "SOURCE_DATE_EPOCH" in os.environ:
        return int(os.environ["SOURCE_DATE_EPOCH"])
    return int(output("git", "log", "-1", "--format=%ct", cwd=ROOT))


def venv(folder, *packages):
    """A virtual environment with packages from PyPI, made once; its folder of programs."""
    done = folder / "installed"
    if not done.exists() or done.read_text() != " ".join(packages):
        run("python3", "-m", "venv", folder)
        run(folder / "bin" / "pip", "-q", "install", *packages)
        done.write_text(" ".join(packages))
    return folder / "bin"


class Archive:
    """A tar archive whose bytes depend on its content alone."""

    def __init__(self, when):
        self.when, self.raw, self.folders = when, io.BytesIO(), set()
        self.tar = tarfile.open(fileobj=self.raw, mode="w", format=tarfile.PAX_FORMAT)

    def entry(self, name, mode, owner):
        entry = tarfile.TarInfo(name)
        entry.mode, entry.mtime, entry.uid, entry.gid = mode, self.when, owner, owner
        return entry

    def add(self, name, data, mode=0o644, owner=0):
        entry = self.entry(name, mode, owner)
        entry.size = len(data)
        self.tar.addfile(entry, io.BytesIO(data))

    def folder(self, name, mode=0o755, owner=0):
        entry = self.entry(name, mode, owner)
        entry.type = tarfile.DIRTYPE
        self.folders.add(name)
        self.tar.addfile(entry)

    def add_below(self, name, data, mode=0o644):
        """A file with the folders it lies in."""
        parents = [str(one) for one in pathlib.PurePosixPath(name).parents if str(one) != "."]
        for folder in sorted(parents, key=len):
            if folder not in self.folders:
                self.folder(folder)
        self.add(name, data, mode)

    def bytes(self):
        self.tar.close()
        return self.raw.getvalue()


def packed(data):
    return gzip.compress(data, 9, mtime=0)
