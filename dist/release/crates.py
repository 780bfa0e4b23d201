"""What is in the binary: the crates with their licences, as text (THIRD-PARTY.txt) and as CycloneDX."""

import hashlib
import json
import pathlib
import re

from .common import ROOT, output, version

# Embedded weights: where they lie, and under what they may be used. What they were made from is said by NOTICE beside each.
MODELS = {
    "learned.bin": ("inference/model", "Apache-2.0"),
    "toxic.bin": ("inference/model", "Apache-2.0"),
    "second.rten": ("models/model", "Apache-2.0 AND MIT"),
}
NAMES = re.compile(r"(LICEN[CS]E|COPYING|NOTICE|COPYRIGHT|UNLICENSE)", re.IGNORECASE)


def linked(flavour):
    """The crates that are linked, from cargo's own resolution: no test or build dependency."""
    tree = output("cargo", "tree", "--locked", "-p", "weir", "-e", "normal", "--prefix", "none", "--no-dedupe",
                  "--format", "{p}\t{l}\t{r}", *flavour, cwd=ROOT)
    crates = {}
    for line in tree.splitlines():
        about, licence, repository = (line.split("\t") + ["", ""])[:3]
        name, number = about.split()[:2]
        crates[name, number.removeprefix("v")] = (licence, repository)
    return dict(sorted(crates.items()))


def texts_of(folder):
    """Texts of licences in a crate's folder."""
    for file in sorted(folder.iterdir()):
        if file.is_file() and NAMES.match(file.name):
            yield file.read_text(errors="replace")


def texts(crates):
    """Each text of a licence once, with the crates that come under it."""
    metadata = json.loads(output("cargo", "metadata", "--locked", "--format-version", "1", cwd=ROOT))
    found = {}
    without = []
    for package in metadata["packages"]:
        key = package["name"], package["version"]
        if key not in crates or package["source"] is None:
            continue
        here = list(texts_of(pathlib.Path(package["manifest_path"]).parent))
        if not here:
            without.append(f"{key[0]} {key[1]}")
        for text in here:
            words = hashlib.sha256(" ".join(text.split()).encode()).hexdigest()
            found.setdefault(words, (text.strip("\n"), set()))[1].add(f"{key[0]} {key[1]}")
    own = [
        (f"{name} (part of the console or of the API's page)", (ROOT / "src/serve/api" / path).read_text())
        for name, path in (("preact", "console/LICENSE.preact"), ("htm", "console/LICENSE.htm"), ("uPlot", "console/LICENSE.uplot"),
                           ("Swagger UI", "assets/LICENSE.swagger-ui"), ("Swagger UI, parts", "assets/LICENSE.swagger-ui-bundle.txt"))
    ]
    own.append(("embedded weights", (ROOT / "inference/model/NOTICE").read_text()))
    own.append(("weights of the second stage", (ROOT / "models/model/NOTICE").read_text()))
    return sorted(found.values(), key=lambda one: sorted(one[1])), sorted(without), own


def third_party(crates):
    """Every library with licence and source, then every text of a licence once."""
    groups, without, own = texts(crates)
    lines = ["Libraries that are part of the binary, with their licences and sources.", ""]
    lines += [f"{name} {number}: {licence or 'see its source'}, {where}" for (name, number), (licence, where) in crates.items()]
    lines += ["", "SQLite (public domain) comes with libsqlite3-sys, zstd (BSD-3-Clause) with zstd-sys."]
    if without:
        lines += ["", "These come without a text; their licence is the one named above: " + ", ".join(without) + "."]
    for text, users in groups:
        lines += ["", "=" * 100, ", ".join(sorted(users)), "=" * 100, text]
    for name, text in own:
        lines += ["", "=" * 100, name, "=" * 100, text.strip("\n")]
    return "\n".join(lines) + "\n"


def cyclonedx(crates):
    lock = (ROOT / "Cargo.lock").read_text()
    sums = {}
    for package in lock.split("[[package]]")[1:]:
        fields = dict(line.split(" = ", 1) for line in package.strip().splitlines() if " = " in line)
        sums[fields["name"].strip('"'), fields["version"].strip('"')] = fields.get("checksum", "").strip('"')
    parts = []
    for (name, number), (licence, _) in crates.items():
        part = {"type": "library", "name": name, "version": number, "bom-ref": f"{name}@{number}", "purl": f"pkg:cargo/{name}@{number}"}
        if licence:
            part["licenses"] = [{"expression": licence.replace("/", " OR ")}]
        if sums.get((name, number)):
            part["hashes"] = [{"alg": "SHA-256", "content": sums[name, number]}]
        parts.append(part)
    for name, (folder, licence) in MODELS.items():
        if not (ROOT / folder / name).exists():
            continue  # A tree without the weights of the second stage builds without it.
        digest = hashlib.sha256((ROOT / folder / name).read_bytes()).hexdigest()
        parts.append({"type": "machine-learning-model", "name": name, "version": digest[:12], "bom-ref": name,
                      "licenses": [{"expression": licence}], "hashes": [{"alg": "SHA-256", "content": digest}]})
    document = {"bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1, "components": parts,
                "metadata": {"component": {"type": "application", "name": "weir", "version": version(), "bom-ref": "weir"}}}
    return (json.dumps(document, indent=1) + "\n").encode()
