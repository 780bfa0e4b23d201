"""Reads the labelled sets and writes them as the detector sees them.

    python prepare.py DATA_FOLDER OUT_FOLDER

DATA_FOLDER holds prompts-train.jsonl, prompts-train-2.jsonl, prompts-dev.jsonl and prompts-dev-2.jsonl, one object per
line: {"id", "text", "label", "source", "lang"}. The crate itself folds and decodes each text (examples/prepare.rs), so
training and use share one reader.
"""

import json
import pathlib
import re
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


WRITTEN = pathlib.Path(__file__).resolve().parents[1] / "data" / "written"
LABEL = {"direct": "injection", "extraction": "injection", "jailbreak": "jailbreak"}


def written():
    """The texts written for the project: those to fit on, and those of the briefs that are set aside."""
    block = re.search(r"```\n(ash-[\s\S]*?)```", (WRITTEN / "README.md").read_text(encoding="utf-8"))
    aside = set(block.group(1).split())
    parts = {"written-train": [], "written-aside": []}
    for file in sorted(WRITTEN.rglob("*.jsonl")):
        lines = [json.loads(line) for line in open(file, encoding="utf-8")]
        rows = [line for line in lines if "text" in line]
        for at, row in enumerate(rows):
            label = "benign" if row["label"] == "harmless" else LABEL.get(row["kind"], "indirect_injection")
            # The crate tells apart what somebody asks and what is handed to the model; of system prompts it reads none.
            role = "user" if row["role"] in ("user", "system") else "tool"
            of = {"id": f"{file.stem}-{at}", "label": label, "source": f"written-{file.stem}", "lang": row["language"], "role": role}
            more = {"text": row["text"], "kind": row["kind"], "written_role": row["role"]}
            parts["written-aside" if file.stem in aside else "written-train"].append({**of, **more})
    return parts


def main():
    data, out = map(pathlib.Path, sys.argv[1:3])
    out.mkdir(parents=True, exist_ok=True)
    program = built("prepare")
    for name in SETS:
        through(program, data / f"{name}.jsonl", out / f"{name}.jsonl")
    show(program, made(), out / "made-agents.jsonl")
    for name, rows in written().items():
        show(program, rows, out / f"{name}.jsonl")


if __name__ == "__main__":
    main()
