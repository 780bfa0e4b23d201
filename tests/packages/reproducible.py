#!/usr/bin/env python3
"""The same commit gives the same artefacts from another folder: tests/packages/reproducible.py DIST [--build OPTION ...]

Clones the commit of this checkout into a folder of another length, runs dist/build there with a target folder of its own, and compares
every file with those of DIST (made by dist/build here, from a checkout without changes). Takes as long as a release build. What is
given behind --build goes to dist/build: `--binary FILE` compares the packaging alone. Exit code: 0 the same bytes, 1 not.
"""

import hashlib
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def sums(folder):
    files = (file for file in sorted(pathlib.Path(folder).iterdir()) if file.is_file() and not file.name.startswith("SHA256SUMS"))
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def main():
    if len(sys.argv) < 2:
        print(__doc__)
        return 1
    more = sys.argv[3:] if sys.argv[2:3] == ["--build"] else []
    with tempfile.TemporaryDirectory(prefix="a-folder-of-another-length-") as folder:
        clone = f"{folder}/sources"
        subprocess.run(["git", "clone", "--quiet", "--no-hardlinks", ROOT, clone], check=True)
        subprocess.run(["git", "checkout", "--quiet", subprocess.check_output(["git", "rev-parse", "HEAD"], cwd=ROOT, text=True).strip()], cwd=clone, check=True)
        subprocess.run([f"{clone}/dist/build", "--out", f"{folder}/made-elsewhere", *more], check=True, stdout=subprocess.DEVNULL)
        here, there = sums(sys.argv[1]), sums(f"{folder}/made-elsewhere")
    different = sorted(name for name in here.keys() | there.keys() if here.get(name) != there.get(name))
    for name in different:
        print(f"{name}: {here.get(name, 'not made here')} here, {there.get(name, 'not made there')} there")
    print(f"reproducible: {len(here) - len(different)} of {len(here)} artefacts are the same bytes from another folder")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
