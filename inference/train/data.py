"""The prepared rows as arrays, with what the scripts make from them."""

import json
import pathlib
import re

import numpy as np

import families
import features

# The second part is natural text; of the first, nine attacks in ten are composed.
PART_WEIGHT = {"prompts-train": 1.0, "prompts-train-2": 3.0}
SOURCE_ROWS = 600.0
# Decoded pieces of one text that are looked at.
DECODED_MAX = 8


def read(folder, name):
    rows = [json.loads(line) for line in open(pathlib.Path(folder) / f"{name}.jsonl", encoding="utf-8")]
    for row in rows:
        row["part"] = name
        row["sources"] = {row["source"]}
    return rows


class Arrays:
    """Features of rows: `rows[r]..rows[r + 1]` are texts (a row and what encoded words in it say), `starts[s]..starts[s + 1]`
    words; `ids` says which of `names` each word has."""

    def __init__(self, rows):
        parts, starts, first, at = [], [0], [0], 0
        for row in rows:
            for text in [row["folded"], *row["decoded"][:DECODED_MAX]]:
                found = features.of(text.encode())
                parts.append(found)
                at += len(found)
                starts.append(at)
            first.append(len(starts) - 1)
        names = np.concatenate(parts)
        self.names, ids = np.unique(names, return_inverse=True)
        self.ids = ids.reshape(names.shape).astype(np.int32)
        self.starts = np.array(starts, np.int64)
        self.rows = np.array(first, np.int64)
        self.labels = np.array([row["label"] != "benign" for row in rows], np.int64)
        self.roles = np.array([int(row["role"] == "tool") for row in rows], np.int64)
        row_of_word = np.repeat(np.arange(len(rows)), np.diff(self.starts[self.rows]))
        seen = np.unique(self.ids.astype(np.int64) * len(rows) + row_of_word[:, None])
        self.count = np.bincount(seen // len(rows), minlength=len(self.names))
        self._met(rows, seen)

    def _met(self, rows, seen):
        """In how many families of training sources each feature stands, in all and by the part they are left out with."""
        collected = np.array(["train" in row["part"] for row in rows])
        names = [families.family(row["source"]) for row in rows]
        known = sorted(set(names))
        family = np.array([known.index(name) for name in names])
        seen = seen[collected[seen % len(rows)]]
        pairs = np.unique(seen // len(rows) * len(known) + family[seen % len(rows)])
        feature, fold = pairs // len(known), np.array([families.fold(name) for name in known])[pairs % len(known)]
        met = lambda mask: np.bincount(feature[mask], minlength=len(self.names))
        self.families = {k: met(fold == k) for k in range(-1, families.FOLDS)}


def weights(rows):
    """Of each row: no source may outweigh the others by its size alone."""
    count = {}
    for row in rows:
        key = (row["source"], row["label"])
        count[key] = count.get(key, 0) + 1
    out = []
    for row in rows:
        size = count[(row["source"], row["label"])]
        out.append(PART_WEIGHT.get(row["part"], 2.0) * min(1.0, (SOURCE_ROWS / size) ** 0.5))
    return np.array(out, np.float32)


def is_natural(row):
    """Whether somebody wrote it, and no script put it together from phrases."""
    return not row["source"].startswith(("synth-", "made-")) and row["source"] not in ("spikee", "tasktracker")


def _sentences(text):
    return [m.end() for m in re.finditer(r"[.!?:\n]\s+", text)]


def compose(rows, seed=1, buried=3000):
    """Rows made from others: orders of natural origin buried in data."""
    rng = np.random.default_rng(seed)
    direct = [row for row in rows if row["label"] in ("injection", "jailbreak")]
    orders = [row for row in direct if is_natural(row) and 25 < len(row["folded"]) < 500]
    carriers = [row for row in rows if row["label"] == "benign" and row["role"] == "tool" and 300 < len(row["folded"])]
    out = []
    for _ in range(buried):
        order, carrier = orders[rng.integers(len(orders))], carriers[rng.integers(len(carriers))]
        text = carrier["folded"]
        cuts = _sentences(text) or [len(text)]
        at = [cuts[rng.integers(len(cuts))], len(text), 0][rng.choice(3, p=[0.6, 0.25, 0.15])]
        before = "" if at == 0 else "\n" if rng.random() < 0.3 else " "
        made = text[:at] + before + order["folded"] + "\n" + text[at:]
        sources = order["sources"] | carrier["sources"]
        more = {"label": "indirect_injection", "role": "tool", "source": "made-buried", "part": "made"}
        out.append({"folded": made, "decoded": [], "sources": sources, **more})
    return out
