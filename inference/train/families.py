"""Which sources are left out together: those that share texts, writers or a way of making."""

import zlib

FAMILIES = [
    "bipia-train carrier-x-payload agentdojo llmail-emails swe-lancer-issues tau2-bench gdm-tickets",
    "in-the-wild-jailbreaks jackhhao-train in-the-wild-regular guardrails-detect-jailbreak self-reminder gptfuzzer",
    "garak garak-latent garak-multilingual",
    "spikee spikee-benign",
    "owasp-cheatsheets owasp-wstg payloads-all-the-things",
]
FIRST = {name: family.split()[0] for family in FAMILIES for name in family.split()}
FOLDS = 6
# The large families are spread out; the others go where their name says.
PLACED = {
    "bipia-train": 0, "arcanum-taxonomy": 1, "garak": 1, "in-the-wild-jailbreaks": 2, "tasktracker": 3, "aisafetylab": 3,
    "spikee": 4, "pincer": 4, "redteamcua": 5, "goodwiins-multilang": 5, "pif-benchmark": 5,
    "written-ash": 0, "written-birch": 2, "written-cedar": 4,
}

# Harmless rows that look otherwise: trigger words, role play, security, borderline questions.
BORDERLINE = set(
    """or-bench-hard k-idioms gpt-protections in-the-wild-regular jackhhao-train synth-trigger-benign synth-quoted-attack-benign
    synth-persona-benign synth-secret-benign synth-sensitive-benign synth-multilingual-benign owasp-cheatsheets owasp-wstg
    payloads-all-the-things clean-benign-corpus pif-benchmark""".split()
)


def family(source):
    """Those that share texts, writers or a way of making; all composed sources draw on one bank of phrases. Of the written texts each
    brief is one, so that what stands in several briefs counts; they are left out by who wrote them (`fold`)."""
    name = FIRST.get(source, source)
    return "synth-" if name.startswith(("synth-", "made-")) else name


def fold(source):
    """The part in which a source is left out; composed sources (`synth-`) are only ever trained on: -1."""
    name = family(source)
    if name.startswith("written-"):
        name = "-".join(name.split("-")[:2])
    return -1 if name == "synth-" else PLACED.get(name, zlib.crc32(name.encode()) % FOLDS)
