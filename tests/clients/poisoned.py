"""Definitions of tools that other people wrote to test their scanners with, and how many of them the gateway would refuse.

    python poisoned.py WORK_FOLDER WEIR

The packages come from PyPI and npm into WORK_FOLDER, where they are not there yet (pip asks a package's own build for its name); their
tests are read, not run. Looked at is every literal or JSON object with a name and a description, and of one package of rules the texts
that its rules about definitions are tested with. Which of them are poisoned was decided by reading, before the gateway was asked:
`poisoned_labels.txt`, by the hash of the text. The sets stand in the order in which they were read: rules/overreach.yaml was written with
a, then b was asked and read, then c, then d; e was asked last. Needs PyYAML. Prints for each set how many are High or worse, and writes
the texts with their labels to WORK_FOLDER/poisoned.jsonl.
"""

import ast
import collections
import hashlib
import json
import pathlib
import subprocess
import sys
import tarfile

import yaml

PYPI = """agent-audit-kit==0.6.26 mcp-tool-auditor==1.10.2 agent-security-harness==4.28.1 bastionsupply==0.11.1 mcp-hygiene==0.2.0
    mcp-safeguard==0.9.4 mcpradar==1.0.0rc4 mcpscan-cli==0.21.0 pyhroff-mcpaudit==0.8.0 agentic-shield==1.0.0b1 bastiongateway==0.14.0
    cisco-ai-mcp-scanner==4.8.7 deconvolute==0.1.5 ianua-broker==1.11.6 mcp-guard-audit==0.13.1 mcp-integrity==0.1.1 mcp-scan==0.4.2
    mcp-tool-pin-check==0.2.2 mcpsurface==0.2.1 mseep-gensecai-mcp-poisoning-poc==1.0.0 ogulcanaydogan-mcp-security-scanner==1.0.32
    agentseal==0.10.0 guardmcp==0.1.0 honeymcp==0.1.8 mcpolish==0.1.1 redcell==0.1.0 reizan-mcpfuzz==0.1.1 sentinel-scan-cli==1.4.16
    spidershield==0.3.4 tessera-proxy==0.2.3 warden-mcp==0.2.1 agentgauge-harness==0.5.3 clayseal==0.6.2 theriac==0.1.0
    sluice-mcp==0.1.0 promptproof==0.2.0""".split()
RULES = "agent-threat-rules@4.0.0"
LONGEST = 3_000_000


def fetch(work):
    """Puts what is not there yet into the folder, unpacked."""
    work.mkdir(parents=True, exist_ok=True)
    for wanted in PYPI:
        name = wanted.split("==")[0].replace("-", "_")
        if not list(work.glob(f"{name}-*.tar.gz")):
            pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", ":all:", "-d", work, wanted]
            subprocess.run(pip, check=True, timeout=300)
    if not list(work.glob("agent-threat-rules-*.tgz")):
        subprocess.run(["npm", "pack", "--silent", "--pack-destination", work, RULES], check=True, timeout=300)
    for archive in [*work.glob("*.tar.gz"), *work.glob("*.tgz")]:
        folder = work / "unpacked" / archive.name
        if not folder.exists():
            tarfile.open(archive).extractall(folder, filter="data")


def constant(node):
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None


def written(tree):
    """Objects in a program: literals, and calls with a description."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Dict):
            yield constant(node)
        elif isinstance(node, ast.Call):
            yield {key.arg: constant(key.value) for key in node.keywords}


def objects(value):
    """All objects in a document."""
    if isinstance(value, dict):
        yield value
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else []:
        yield from objects(inner)


def words(tool):
    """What a definition says: its description, and all descriptions, titles, values and defaults below."""
    out = []

    def walk(value):
        for key, inner in sorted(value.items()) if isinstance(value, dict) else [("", inner) for inner in value]:
            if key in ("description", "title", "default") and isinstance(inner, str):
                out.append(inner)
            elif key == "enum" and isinstance(inner, list):
                out.extend(map(str, inner))
            elif isinstance(inner, (dict, list)):
                walk(inner)

    walk({str(key): value for key, value in tool.items() if key not in ("description", "name")})
    return "\n".join([tool["description"], *out])


def texts(work):
    for file in sorted((work / "unpacked").rglob("*")):
        if not file.is_file() or file.stat().st_size > LONGEST or file.suffix not in (".py", ".json", ".jsonl", ".yaml"):
            continue
        try:
            if file.suffix == ".yaml":
                cases = (yaml.safe_load(file.read_text()) or {}).get("test_cases") or {}
                for case in [*(cases.get("true_positives") or []), *(cases.get("true_negatives") or [])]:
                    yield from (text for text in case.values() if isinstance(text, str))
                continue
            said = file.read_text()
            found = written(ast.parse(said)) if file.suffix == ".py" else [
                one for line in (said.splitlines() if file.suffix == ".jsonl" else [said]) if line.strip() for one in objects(json.loads(line))
            ]
        except (ValueError, SyntaxError, AttributeError, yaml.YAMLError, RecursionError):
            continue
        yield from (words(tool) for tool in found if isinstance(tool, dict) and isinstance(tool.get("description"), str))


def main():
    work, weir = pathlib.Path(sys.argv[1]), sys.argv[2]
    fetch(work)
    listed = pathlib.Path(__file__).with_name("poisoned_labels.txt").read_text().splitlines()
    labels = {mark: (name, label) for name, label, mark in (line.split() for line in listed if not line.startswith("#"))}
    rows = {}
    for text in texts(work):
        mark = hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:16]
        if mark in labels:
            rows[mark] = {"set": labels[mark][0], "label": labels[mark][1], "text": text}
    rows, file = list(rows.values()), work / "poisoned.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    scan = [weir, "scan", "--role", "tool_definition", "--field", "text", "--min-severity", "high", "--json", file]
    said = [json.loads(line) for line in subprocess.run(scan, stdout=subprocess.PIPE, text=True).stdout.splitlines()]
    found = {one["record"] for one in said if one["kind"] == "finding" and one["finding_type"] not in ("pii_detected", "secret_leakage")}
    of, high = collections.Counter(), collections.Counter()
    for number, row in enumerate(rows, 1):
        of[row["set"], row["label"]] += 1
        high[row["set"], row["label"]] += number in found
    print(f"{len(rows)} of {len(labels)} labelled texts are there")
    for key in sorted(of):
        print(*key, f"{high[key]} of {of[key]}")


if __name__ == "__main__":
    main()
