"""Reads the labelled sets and writes them as the detector sees them.

    python prepare.py DATA_FOLDER OUT_FOLDER

DATA_FOLDER holds prompts-train.jsonl, prompts-train-2.jsonl, prompts-dev.jsonl and prompts-dev-2.jsonl, one object per
line: {"id", "text", "label", "source", "lang"}. The crate itself folds and decodes each text (examples/prepare.rs), so
training and use share one reader.
"""

import json
import pathlib
import subprocess
import sys

SETS = ["prompts-train", "prompts-train-2", "prompts-dev", "prompts-dev-2"]

# Sources whose harmless texts are data that an application hands to the model: tool results, mails, pages, documents.
DATA = set(
    """agent-threat-bench agentdojo bipia-train carrier-x-payload garak-latent gdm-tickets ipi-coding-agent llmail-emails
    moltshield owasp-cheatsheets owasp-wstg payloads-all-the-things prompt-guide-docs python-peps rust-book
    swe-lancer-issues synth-carrier-benign synth-carrier-benign-multilingual synth-long-documents tasktracker tau2-bench
    tldr-pages xquad agent-injection-bench redteamcua""".split()
)


def role(row):
    """The role of the part the text would be: `tool` for data, `user` for what somebody asks."""
    return "tool" if row["label"] == "indirect_injection" or row["source"] in DATA else "user"


def main():
    data, out = map(pathlib.Path, sys.argv[1:3])
    out.mkdir(parents=True, exist_ok=True)
    root = pathlib.Path(__file__).resolve().parents[2]
    build = ["cargo", "build", "--locked", "-p", "weir-inference", "--example", "prepare"]
    subprocess.run(build, check=True, cwd=root)
    for name in SETS:
        rows = [json.loads(line) for line in open(data / f"{name}.jsonl", encoding="utf-8")]
        for row in rows:
            row["role"] = role(row)
        said = "\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
        with open(out / f"{name}.jsonl", "w", encoding="utf-8") as sink:
            program = [str(root / "target/debug/examples/prepare")]
            subprocess.run(program, input=said, text=True, stdout=sink, check=True)
        print(name, len(rows))


if __name__ == "__main__":
    main()
