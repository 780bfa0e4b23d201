"""Prints what the classifier is worth, from the scores train.py wrote.

    python evaluate.py PREPARED_FOLDER OUT_FOLDER [GATE_FOLDER]

Sources left out: each row of natural text scored by a fit that knew none of its sources, pooled; its thresholds come from the
harmless training rows of the parts it is not in. Development files: the fit on all training rows, with the thresholds in the
model, from harmless training rows scored by fits that knew none of their sources. `gate` asks what share of harmless text passes a threshold at what recall, by bytes, were the classifier
the gate in front of a dearer one.

GATE_FOLDER holds what the crate itself said of both development files at the three operating points (examples/points.rs): the
figures of the gate as it ships, and of conversations replayed through it.

Intervals are 95 %: of shares Wilson's, of curves and F1 by resampling rows, on sources left out by resampling whole sources.
"""

import json
import pathlib
import sys

import numpy as np

import data
import families
from train import CURVE, SETS, doubts, lone

LABELS = ["injection", "jailbreak", "indirect_injection"]


def wilson(hits, n):
    if n == 0:
        return "-"
    z, p = 1.96, hits / n
    middle, half = p + z * z / (2 * n), z * np.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    low, high = (middle - half) / (1 + z * z / n), (middle + half) / (1 + z * z / n)
    return f"{100 * p:.1f} ({100 * max(0.0, low):.1f}–{100 * min(1.0, high):.1f})"


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
    quiet = np.array([(row["rules"] or 0) < 2 and row["source"] not in families.BORDERLINE for row in rows])
    pick = np.array(["train" in row["part"] and row["label"] == "benign" for row in rows]) & quiet
    out = np.zeros((len(CURVE), len(rows)))
    for k in range(families.FOLDS):
        for r in (0, 1):
            least = [np.ceil(np.quantile(scores[pick & (fold != k) & (role == r)], 1 - rate)) for rate, _ in CURVE]
            out[:, (fold == k) & (role == r)] = np.array(least)[:, None]
    return out


def doubted(rows, scores):
    """Rows whose lone sign is doubted, by what the training rows of the other parts say."""
    fold = np.array([families.fold(row["source"]) for row in rows])
    role = np.array([int(row["role"] == "tool") for row in rows])
    attacks = np.array(["train" in row["part"] and row["label"] != "benign" for row in rows])
    alone = np.array([lone(row) for row in rows])
    out = np.zeros(len(rows), bool)
    for k in range(families.FOLDS):
        use = fold != k
        least = np.array(doubts(scores[use], role[use], attacks[use], alone[use]))
        out |= (fold == k) & alone & (scores < least[role])
    return out


POINTS = ("high_recall", "balanced", "high_precision")
RESAMPLED = 300
# Texts of a conversation that is replayed.
TURNS = 8


def interval(figure, groups, seed=1):
    """`figure` of all rows, and between which values it lies when the groups (arrays of rows) are drawn again."""
    rng = np.random.default_rng(seed)
    draw = lambda: np.concatenate([groups[k] for k in rng.integers(len(groups), size=len(groups))])
    with np.errstate(invalid="ignore"):
        drawn = np.array([figure(draw()) for _ in range(RESAMPLED)])
        low, high = np.nanquantile(drawn, (0.025, 0.975), axis=0)
        return figure(np.concatenate(groups)), low, high


def curves(scores, label, groups):
    """AUC, and recall at two rates of false positives."""
    y = (label != "benign").astype(int)

    def figure(rows):
        s, l = scores[rows], label[rows]
        out = [auc(s, y[rows])]
        for rate in (0.01, 0.001):
            hit = s > np.quantile(s[l == "benign"], 1 - rate)
            out += [100 * hit[l != "benign"].mean(), *[100 * hit[l == x].mean() for x in LABELS]]
        return np.array(out)

    found, low, high = interval(figure, groups)
    print("| | AUC | " + " | ".join(f"{x} at {rate}" for rate in ("1 %", "0.1 %") for x in ["all", *LABELS]) + " |")
    said = [f"{found[0]:.3f} ({low[0]:.3f}–{high[0]:.3f})"]
    said += [f"{a:.1f} ({b:.1f}–{c:.1f})" for a, b, c in zip(found[1:], low[1:], high[1:])]
    print("| curve | " + " | ".join(said) + " |")


def f1(hit, bad, groups):
    figure = lambda rows: 200 * (hit & bad)[rows].sum() / max(1, hit[rows].sum() + bad[rows].sum())
    found, low, high = interval(figure, groups)
    return f"{found:.1f} ({low:.1f}–{high:.1f})"


def kinds(rows):
    """Rows by what is told apart in the tables."""
    label = np.array([row["label"] for row in rows])
    edge = np.array([row["source"] in families.BORDERLINE for row in rows])
    other = np.array([row["lang"] != "en" for row in rows])
    good = label == "benign"
    return [good & ~edge, good & edge, *[label == x for x in LABELS], ~good & other]


def points(rows, rules, hits, boths):
    """What the rules, the classifier and both find at each operating point."""
    groups = kinds(rows)
    print("| point | " + " | ".join(["harmless", "borderline", *LABELS, "other languages"]) + " |")
    print("| n | " + " | ".join(str(int(g.sum())) for g in groups) + " |")
    line = lambda what, hit: print(f"| {what} | " + " | ".join(wilson(hit[g].sum(), g.sum()) for g in groups) + " |")
    line("rules", rules)
    for point, hit, both in zip(POINTS, hits, boths):
        line(f"{point}: classifier", hit)
        line(f"{point}: both", both)


def slices(rows, hit, groups):
    """F1 of `hit` by label, language and length, and recall or false alarms by source."""
    label = np.array([row["label"] for row in rows])
    lang = np.array([row["lang"] for row in rows])
    # What the crate was asked about lies there as it was written.
    length = np.array([len(row.get("folded") or row["text"]) for row in rows])
    source = np.array([row["source"] for row in rows])
    bad = label != "benign"
    inside = lambda m: [kept for kept in (g[m[g]] for g in groups) if len(kept)] or [np.where(bad)[0][:0]]
    row = lambda what, m, wanted: print(
        f"| {what} | {int((m & wanted).sum())} | {wilson((hit & m & wanted).sum(), (m & wanted).sum())} | "
        f"{int((m & ~bad).sum())} | {wilson((hit & m & ~bad).sum(), (m & ~bad).sum())} | {f1(hit, wanted, inside(m))} |"
    )
    print("| both at balanced | attacks | recall | harmless | false alarms | F1 |")
    for x in LABELS:
        row(x, (label == x) | ~bad, label == x)
    for x in sorted(set(lang), key=lambda x: -(lang == x).sum()):
        if ((lang == x) & bad).sum() >= 20:
            row(x, lang == x, bad)
    row("all but en", lang != "en", bad)
    for low, high in ((0, 200), (200, 1000), (1000, 4000), (4000, 10**9)):
        row(f"{low} to {high} characters" if high < 10**9 else f"from {low} characters", (length >= low) & (length < high), bad)
    for x in sorted(set(source)):
        if ((source == x) & bad).sum() >= 30:
            row(x, source == x, bad)


def table(name, rows, scores, least_of, low, clusters):
    label = np.array([row["label"] for row in rows])
    y = (label != "benign").astype(int)
    rules = np.array([(row["rules"] or 0) >= 2 for row in rows])
    length = np.array([len(row["folded"]) for row in rows])
    source = np.array([row["source"] for row in rows])
    groups = [np.where(source == x)[0] for x in sorted(set(source))] if clusters else [np.array([k]) for k in range(len(rows))]
    print(f"\n## {name}: {len(rows)} rows, {int((y == 0).sum())} harmless")
    print("classifier alone")
    curves(scores, label, groups)
    print("both: the rules first")
    curves(np.where(rules & ~low, 1e6, scores), label, groups)
    hits = [scores >= least_of[at] for at in range(3)]
    # At high_recall nothing is doubted.
    heard = [rules, rules & ~low, rules & ~low]
    points(rows, rules, [hit & ~rules for hit in hits], [hit | rules if k == 0 else (hit & ~rules) | said for k, (hit, said) in enumerate(zip(hits, heard))])
    slices(rows, (hits[1] & ~rules) | heard[1], groups)
    print("calibration, rows that the rules do not speak of: attacks among those from each point to the next")
    for low, high, said in [(0, 1, "0.5 to 0.8"), (1, 2, "0.8 to 0.95"), (2, 3, "from 0.95")]:
        m = hits[low] & ~rules & (~hits[high] if high < 3 else True)
        print(f"| {said} | {int(m.sum())} | {wilson(y[m].sum(), m.sum())} |")
    print("gate: share of harmless bytes passed, recall")
    for share in (0.01, 0.05, 0.1, 0.2, 0.3, 0.5):
        order = np.argsort(-scores[y == 0])
        size = length[y == 0][order].cumsum()
        least = scores[y == 0][order][np.searchsorted(size, share * size[-1])]
        said = " ".join(f"{x} {100 * (scores[label == x] >= least).mean():.1f}" for x in LABELS)
        print(f"  {100 * share:g} %: {said}")


def gate(name, folder):
    """What the crate said of a development file, with the rules as they are compiled in."""
    rows = [json.loads(line) for line in open(folder / f"{name}.jsonl", encoding="utf-8")]
    rules = np.array([row["rules"] for row in rows])
    both = np.array([[row[point] for point in POINTS] for row in rows]).T
    print(f"\n## {name}, through the crate: {len(rows)} rows")
    points(rows, rules, [hit & ~rules for hit in both], both)
    slices(rows, both[1], [np.array([k]) for k in range(len(rows))])
    groups = kinds(rows)
    print("beside them: the suppressor of over-defence on (with the rules alone, with the classifier at balanced), and fusion")
    for what in ("rules", "rules_suppressed", "balanced", "suppressed", "fused_high_recall", "fused"):
        hit = np.array([row[what] for row in rows])
        attacks = groups[2] | groups[3] | groups[4]
        said = [f"{wilson(hit[g].sum(), g.sum())}" for g in [*groups, attacks]]
        print(f"| {what} | " + " | ".join(said) + f" | {int(hit[groups[1]].sum())} borderline, {int(hit[attacks].sum())} attacks |")
    ordinary = kinds(rows)[0] & np.array([data.is_natural(row) for row in rows])
    print("conversations of ordinary natural texts: requests without an alarm, each with all turns before it")
    for point, hit in [("rules", rules), *zip(POINTS, both)]:
        alarms = hit[ordinary]
        calm = [not alarms[at : end + 1].any() for at in range(0, len(alarms), TURNS) for end in range(at, min(at + TURNS, len(alarms)))]
        print(f"| {point} | {len(calm)} | {wilson(sum(calm), len(calm))} |")


def main():
    folder, out = map(pathlib.Path, sys.argv[1:3])
    rows = [row for name in SETS for row in data.read(folder, name)]
    scores = np.load(out / "scores.npz")
    part = np.array([row["part"] for row in rows])
    pick = lambda mask: [row for row, use in zip(rows, mask) if use]
    m = ~np.isnan(scores["left_out"])
    table("sources left out", pick(m), scores["left_out"][m], cross(pick(m), scores["left_out"][m]), doubted(pick(m), scores["left_out"][m]), True)
    for name in ("prompts-dev", "prompts-dev-2"):
        m = part == name
        role = np.array([int(row["role"] == "tool") for row in pick(m)])
        alone = np.array([lone(row) for row in pick(m)])
        low = alone & (scores["shipped"][m] < scores["doubts"][role])
        table(name, pick(m), scores["shipped"][m], scores["curves"][role, 1:4, 0].T, low, False)
    if len(sys.argv) > 3:
        for name in ("prompts-dev", "prompts-dev-2"):
            gate(name, pathlib.Path(sys.argv[3]))


if __name__ == "__main__":
    main()
