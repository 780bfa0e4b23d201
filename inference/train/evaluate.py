"""Prints what the classifier is worth, from the scores train.py wrote.

    python evaluate.py PREPARED_FOLDER OUT_FOLDER

Sources left out: each row of natural text scored by a fit that knew none of its sources, pooled; its thresholds come from the
harmless training rows of the parts it is not in. Development files: the fit on all training rows, with the thresholds in the
model, from harmless training rows scored by fits that knew none of their sources. `gate` asks what share of harmless text passes a threshold at what recall, by bytes, were the classifier
the gate in front of a dearer one. Intervals are 95 %, Wilson's.
"""

import pathlib
import sys

import numpy as np

import data
import families
from train import CURVE, SETS

LABELS = ["injection", "jailbreak", "indirect_injection"]
# Harmless rows that look otherwise: trigger words, role play, security, borderline questions.
BORDERLINE = set(
    """or-bench-hard k-idioms gpt-protections in-the-wild-regular jackhhao-train synth-trigger-benign synth-quoted-attack-benign
    synth-persona-benign synth-secret-benign synth-sensitive-benign synth-multilingual-benign owasp-cheatsheets owasp-wstg
    payloads-all-the-things clean-benign-corpus pif-benchmark""".split()
)


def wilson(hits, n):
    if n == 0:
        return "-"
    z, p = 1.96, hits / n
    middle, half = p + z * z / (2 * n), z * np.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    low, high = (middle - half) / (1 + z * z / n), (middle + half) / (1 + z * z / n)
    return f"{100 * p:.1f} ({100 * low:.1f}–{100 * high:.1f})"


def auc(scores, labels):
    order = np.argsort(scores, kind="stable")
    rank = np.empty(len(scores))
    _, same, counts = np.unique(scores[order], return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    rank[order] = (ends - (counts - 1) / 2)[same]
    bad = labels == 1
    return (rank[bad].sum() - bad.sum() * (bad.sum() + 1) / 2) / (bad.sum() * (~bad).sum())


def cross(rows, scores):
    """Thresholds for each row at each point, from the harmless training rows of its role in the other parts."""
    fold = np.array([families.fold(row["source"]) for row in rows])
    role = np.array([int(row["role"] == "tool") for row in rows])
    pick = np.array(["train" in row["part"] and row["label"] == "benign" for row in rows])
    out = np.zeros((len(CURVE), len(rows)))
    for k in range(families.FOLDS):
        for r in (0, 1):
            least = [np.ceil(np.quantile(scores[pick & (fold != k) & (role == r)], 1 - rate)) for rate, _ in CURVE]
            out[:, (fold == k) & (role == r)] = np.array(least)[:, None]
    return out


def table(name, rows, scores, least_of):
    label = np.array([row["label"] for row in rows])
    y = (label != "benign").astype(int)
    rules = np.array([(row["rules"] or 0) >= 2 for row in rows])
    edge = np.array([row["source"] in BORDERLINE for row in rows])
    lang = np.array([row["lang"] for row in rows])
    length = np.array([len(row["folded"]) for row in rows])
    print(f"\n## {name}: {len(rows)} rows, {int((y == 0).sum())} harmless, AUC {auc(scores, y):.3f}")
    for rate in (0.01, 0.001):
        least = np.quantile(scores[y == 0], 1 - rate)
        said = "  ".join(f"{x} {wilson((scores[label == x] > least).sum(), (label == x).sum())}" for x in LABELS)
        print(f"recall at {100 * rate:g} % false positives: all {wilson((scores[y == 1] > least).sum(), y.sum())}  {said}")
    print("| point | " + " | ".join(["harmless", "borderline", *LABELS, "other languages"]) + " |")
    groups = [(y == 0) & ~edge, (y == 0) & edge, *[label == x for x in LABELS], (y == 1) & (lang != "en")]
    print("| n | " + " | ".join(str(int(g.sum())) for g in groups) + " |")
    line = lambda what, hit: print(f"| {what} | " + " | ".join(wilson(hit[g].sum(), g.sum()) for g in groups) + " |")
    line("rules", rules)
    for at, point in enumerate(("high_recall", "balanced", "high_precision")):
        hit = scores >= least_of[at]
        line(f"{point}: classifier", hit)
        line(f"{point}: both", hit | rules)
    hit = scores >= least_of[1]
    tp, fp = (hit & (y == 1)).sum(), (hit & (y == 0)).sum()
    print(f"F1 at balanced: classifier {2 * tp / (tp + fp + y.sum()):.3f}")
    for low, high in ((0, 200), (200, 1000), (1000, 4000), (4000, 10**9)):
        m = (length >= low) & (length < high)
        bad, good = m & (y == 1), m & (y == 0)
        print(f"length {low}..{high}: recall {wilson(hit[bad].sum(), bad.sum())} false {wilson(hit[good].sum(), good.sum())}")
    for x in ["benign", *LABELS]:
        for source in sorted({row["source"] for row in rows}):
            m = np.array([row["source"] == source for row in rows]) & (label == x)
            if m.sum() >= 30:
                print(f"  {x} {source} n {m.sum()}: rules {100 * rules[m].mean():.1f} classifier {100 * hit[m].mean():.1f} "
                      f"both {100 * (hit | rules)[m].mean():.1f}")
    print("gate: share of harmless bytes passed, recall")
    for share in (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5):
        order = np.argsort(-scores[y == 0])
        size = length[y == 0][order].cumsum()
        least = scores[y == 0][order][np.searchsorted(size, share * size[-1])]
        said = " ".join(f"{x} {100 * (scores[label == x] >= least).mean():.1f}" for x in LABELS)
        print(f"  {100 * share:g} %: {said}")


def main():
    folder, out = map(pathlib.Path, sys.argv[1:3])
    rows = [row for name in SETS for row in data.read(folder, name)]
    scores = np.load(out / "scores.npz")
    part = np.array([row["part"] for row in rows])
    pick = lambda mask: [row for row, use in zip(rows, mask) if use]
    m = ~np.isnan(scores["left_out"])
    table("sources left out", pick(m), scores["left_out"][m], cross(pick(m), scores["left_out"][m]))
    for name in ("prompts-dev", "prompts-dev-2"):
        m = part == name
        role = np.array([int(row["role"] == "tool") for row in pick(m)])
        table(name, pick(m), scores["shipped"][m], scores["curves"][role, 1:4, 0].T)


if __name__ == "__main__":
    main()
