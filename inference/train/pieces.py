"""Pieces of texts, as long as a window of the small classifier, that a teacher is asked about (`teacher.py`, `minilm_whole.py`)."""

import re

import numpy as np

import families

WORDS = 64
# Pieces of one source and label: natural harmless ones, natural attacks, composed ones.
HARMLESS, ATTACKS, COMPOSED = 220, 500, 150
SEED = 1
WORD = re.compile(r"[0-9A-Za-z]{1,24}|[^\x00-\x7f]")


def pieces(text):
    """A text in pieces of so many words."""
    ends = [m.end() for m in WORD.finditer(text)]
    cuts = [0, *[ends[at - 1] for at in range(WORDS, len(ends), WORDS)], len(text)]
    return [text[a:b] for a, b in zip(cuts, cuts[1:]) if WORD.search(text[a:b])]


def drawn(rows, times=1):
    """Pieces with their source, role and label: 0, 1, or -1 where it is not known. `times` as many of each source and label."""
    rng = np.random.default_rng(SEED)
    groups = {}
    for row in rows:
        if "train" in row["part"]:
            groups.setdefault((row["source"], row["label"]), []).append(row)
    out = []
    for (source, label), found in sorted(groups.items()):
        most = times * (COMPOSED if families.fold(source) < 0 else HARMLESS if label == "benign" else ATTACKS)
        some = []
        for at in rng.permutation(len(found))[:most]:
            cut = pieces(found[at]["folded"])
            known = 0 if label == "benign" else 1 if len(cut) == 1 else -1
            some += [{"folded": piece, "source": source, "role": found[at]["role"], "label": known} for piece in cut]
        out += [some[at] for at in sorted(rng.permutation(len(some))[:most])]
    return out
