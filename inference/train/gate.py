"""Asks the crate itself, with the weights compiled in, about both development files at each operating point.

    python gate.py DATA_FOLDER OUT_FOLDER
"""

import json
import pathlib
import subprocess
import sys

import prepare


def main():
    data, out = map(pathlib.Path, sys.argv[1:3])
    out.mkdir(parents=True, exist_ok=True)
    program = prepare.built("points")
    for name in ("prompts-dev", "prompts-dev-2"):
        prepare.through(program, data / f"{name}.jsonl", out / f"{name}.jsonl")


if __name__ == "__main__":
    main()
