#!/usr/bin/env python3
"""The same commit gives the same artefacts from another folder: tests/packages/reproducible.py DIST [--build OPTION ...]

Clones the commit of this checkout into a folder of another length, runs dist/build there with a target folder of its own, and compares
every file with those of DIST (made by dist/build here, from a checkout without changes). Takes as long as a release build. What is
given behind --build goes to dist/build: `--binary FILE` compares the packaging alone.

    tests/packages/reproducible.py --linker

A small program, linked with its symbols by dist/build's linker in two folders: whether what Zig adds to a binary and its symbols depends on
where Zig lies. Two minutes. Exit code: 0 the same bytes, 1 not.
"""

import hashlib
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "dist"))
from release import binary  # noqa: E402

# Zig's start files, its unwinder, and functions that an old C library has under other names come into it.
PROGRAM = 'fn main() { println!("{:?}", std::fs::metadata("/")); }\n'


def linked(folder):
    """PROGRAM, linked in that folder, with symbols and what Zig compiles for it."""
    folder.mkdir()
    source, program = folder / "program.rs", folder / "program"
    source.write_text(PROGRAM)
    # Else the second folder would have what was compiled for the first.
    environment = os.environ | {"ZIG_GLOBAL_CACHE_DIR": str(folder / "zig-cache")}
    subprocess.run(["rustc", "-O", "-g", f"-Clinker={binary.linker(folder / '.zig')}", f"--remap-path-prefix={folder}=/weir", source, "-o", program],
                   cwd=ROOT, check=True, env=environment)
    return program.read_bytes()


def linker():
    with tempfile.TemporaryDirectory() as folder:
        one, other = (linked(pathlib.Path(folder, name)) for name in ("here", "a-folder-of-another-length"))
        named = [folder for whole in (one, other) if folder.encode() in whole]
    print(f"a program of {len(one):,} bytes with its symbols, linked in two folders: {'the same' if one == other else 'not the same'}; "
          f"{len(named)} of 2 name the folder")
    return 0 if one == other and not named else 1


def sums(folder):
    files = (file for file in sorted(pathlib.Path(folder).iterdir()) if file.is_file() and not file.name.startswith("SHA256SUMS"))
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def main():
    if len(sys.argv) < 2:
        print(__doc__)
        return 1
    if sys.argv[1] == "--linker":
        return linker()
    more = sys.argv[3:] if sys.argv[2:3] == ["--build"] else []
    with tempfile.TemporaryDirectory(prefix="a-folder-of-another-length-") as folder:
        clone = f"{folder}/sources"
        subprocess.run(["git", "clone", "--quiet", "--no-hardlinks", ROOT, clone], check=True)
        subprocess.run(["git", "checkout", "--quiet", subprocess.check_output(["git", "rev-parse", "HEAD"], cwd=ROOT, text=True).strip()], cwd=clone, check=True)
        subprocess.run([f"{clone}/dist/build", "--out", f"{folder}/made-elsewhere", *more], check=True, stdout=subprocess.DEVNULL,
                       env=os.environ | {"ZIG_GLOBAL_CACHE_DIR": f"{folder}/zig-cache"})
        here, there = sums(sys.argv[1]), sums(f"{folder}/made-elsewhere")
    different = sorted(name for name in here.keys() | there.keys() if here.get(name) != there.get(name))
    for name in different:
        print(f"{name}: {here.get(name, 'not made here')} here, {there.get(name, 'not made there')} there")
    print(f"reproducible: {len(here) - len(different)} of {len(here)} artefacts are the same bytes from another folder")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
