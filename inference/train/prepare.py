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

import agents

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


def built(example):
    """An example of the crate, built."""
    root = pathlib.Path(__file__).resolve().parents[2]
    build = ["cargo", "build", "--locked", "-p", "weir-inference", "--example", example]
    subprocess.run(build, check=True, cwd=root)
    return root / "target/debug/examples" / example


def through(program, source, target):
    """Gives labelled texts, with their roles, to a program that says something of each."""
    rows = [json.loads(line) for line in open(source, encoding="utf-8")]
    for row in rows:
        row["role"] = role(row)
    show(program, rows, target)


def show(program, rows, target):
    """The same with rows that have roles."""
    said = "\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
    with open(target, "w", encoding="utf-8") as sink:
        subprocess.run([str(program)], input=said, text=True, stdout=sink, check=True)
    print(target.name, len(rows))


def made():
    """What agents send, composed by `agents.py`: harmless."""
    of = lambda at, role, form: {"id": f"agent-{at}", "label": "benign", "source": f"made-agent-{form}", "lang": "en", "role": role}
    return [{**of(at, role, form), "text": text} for at, (role, form, text) in enumerate(agents.texts())]


def main():
    data, out = map(pathlib.Path, sys.argv[1:3])
    out.mkdir(parents=True, exist_ok=True)
    program = built("prepare")
    for name in SETS:
        through(program, data / f"{name}.jsonl", out / f"{name}.jsonl")
    show(program, made(), out / "made-agents.jsonl")


if __name__ == "__main__":
    main()
