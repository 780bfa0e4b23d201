"""Which credentials and personal data the rules find in packages of registries, where hardly any are.

    cargo build --release -p weir-inference --example measure
    python3 benches/packages.py FOLDER [--megabytes 100] [--examples 12] > hits.md

FOLDER holds unpacked packages (such as `~/.cargo/registry/src/*`). Readable files are taken in the order of their paths until there
are so many megabytes, in pieces of at most 64 KiB, as a user's text. Prints per type the number of hits, hits per megabyte, different
values, and the commonest ones with where they stand, for a person to judge: a hit is no error by itself.
"""

import argparse
import collections
import json
import pathlib
import re
import subprocess
import tempfile

PIECE = 64 << 10
MEASURE = pathlib.Path(__file__).parent.parent / "target/release/examples/measure"
# `measure` prints them so: `FALSE {"pii_type": "email"} Some("a@b.example") in "the text"`.
HIT = re.compile(r'^FALSE \{.*?"(?:pii|secret)_type": "([a-z0-9_]+)".*?\} Some\("((?:[^"\\]|\\.)*)"\) in "')


def texts(folder, most):
    """Names and pieces of readable files, until there are `most` bytes."""
    left = most
    for path in sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()):
        try:
            text = path.read_text(encoding="utf-8")
        except (UnicodeDecodeError, OSError):
            continue
        name = str(path.relative_to(folder))
        for at in range(0, len(text), PIECE):
            piece = text[at : at + PIECE]
            left -= len(piece.encode())
            yield name, piece
        if left <= 0:
            return


def found(measure, mode, file):
    """Each hit: its type, its value, and the number of its line in the file."""
    lines = subprocess.run([measure, mode, file, "--false"], capture_output=True, text=True, check=True).stdout
    for line in lines.splitlines():
        match = HIT.match(line)
        if match:
            yield match.groups()
        elif line.startswith("FALSE"):
            raise SystemExit(f"a line of `measure` is in no known form: {line[:200]}")


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("folder", type=pathlib.Path)
    arguments.add_argument("--megabytes", type=float, default=100)
    arguments.add_argument("--examples", type=int, default=12, help="values that are shown of a type")
    arguments.add_argument("--measure", default=str(MEASURE))
    options = arguments.parse_args()
    files, size, pieces = set(), 0, []
    for name, piece in texts(options.folder, options.megabytes * 1e6):
        files.add(name)
        size += len(piece.encode())
        pieces.append((name, piece))
    hits = collections.defaultdict(collections.Counter)
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as out:
        for _, piece in pieces:
            out.write(json.dumps({"text": piece, "spans": [], "kind": "hard_negative"}) + "\n")
        out.flush()
        for mode in ("secrets", "pii"):
            for kind, value in found(options.measure, mode, out.name):
                hits[kind][value] += 1
    print(f"{size:,} bytes, {len(files):,} files\n")
    print("| type | hits | per MB | different | values, commonest first, each with the first file it stands in |")
    print("|---|--:|--:|--:|---|")
    for kind in sorted(hits):
        count = sum(hits[kind].values())
        shown = []
        for value, times in hits[kind].most_common(options.examples):
            plain = json.loads(f'"{value}"') if "\\u{" not in value and "\\'" not in value else value
            where = next((name for name, piece in pieces if plain in piece), "?")
            shown.append(f"`{value[:60]}` {times} ({'/'.join(pathlib.PurePath(where).parts[-3:])})")
        per_mb = count * 1e6 / size
        print(f"| `{kind}` | {count} | {per_mb:.3f} | {len(hits[kind])} | {', '.join(shown)} |")


if __name__ == "__main__":
    main()
