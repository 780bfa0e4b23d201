"""Fits what each signal counts for when all detectors are weighed together, and writes it.

    python fusion.py PREPARED_FOLDER OUT_FOLDER

PREPARED_FOLDER is what prepare.py wrote, OUT_FOLDER what train.py did; it gets fusion.json. Logistic regression on natural training
rows, each with the classifier's score by a fit that knew none of its sources. The curve from a sum to a confidence comes from the
harmless ordinary rows, each scored by weights that were fitted without the sources of its part. No row of the development files has a
say; what they come to is printed.

Nothing in the data says what a guard thinks, so guards have weights that were not fitted.
"""

import json
import pathlib
import sys

import numpy as np
from sklearn.linear_model import LogisticRegression

import data
import families
from evaluate import LABELS, wilson
from train import SETS, UNIT

NAMES = ["high", "medium", "low", "signs", "encoded", "data", "classifier"]
CLIP = (-4.0, 8.0)
REGULARISATION = 0.3
# What half of a guard's logits add: it was trained for the same question, and errs on the same texts.
GUARD = 0.5
# Confidences at these shares of ordinary harmless texts: high_recall, balanced and high_precision.
CURVE = [(0.01, 0.5), (0.005, 0.8), (0.001, 0.95)]


def signals(rows, scores):
    """One line of signals per row, in the order of NAMES."""
    said = [row["signals"] for row in rows]
    columns = [[one[name] for one in said] for name in NAMES[:3]]
    columns.append(np.log1p([one["signs"] for one in said]))
    columns.append([one["encoded"] for one in said])
    columns.append([row["role"] == "tool" for row in rows])
    columns.append(np.clip(scores / UNIT, *CLIP))
    return np.array(columns, float).T


def main():
    folder, out = map(pathlib.Path, sys.argv[1:3])
    rows = [row for name in SETS for row in data.read(folder, name)]
    found = np.load(out / "scores.npz")
    part = np.array([row["part"] for row in rows])
    fold = np.array([families.fold(row["source"]) for row in rows])
    label = np.array([row["label"] for row in rows])
    edge = np.array([row["source"] in families.BORDERLINE for row in rows])
    rules = np.array([(row["rules"] or 0) >= 2 for row in rows])
    natural = np.char.find(part, "train") >= 0
    natural &= fold >= 0
    weights = np.zeros(len(rows))
    weights[natural] = data.weights([row for row, use in zip(rows, natural) if use])
    lines = signals(rows, np.where(np.isnan(found["left_out"]), found["shipped"], found["left_out"]))
    fit = lambda use: LogisticRegression(C=REGULARISATION, max_iter=500).fit(
        lines[use], label[use] != "benign", sample_weight=weights[use]
    )
    sums = np.full(len(rows), np.nan)
    for k in range(families.FOLDS):
        sums[natural & (fold == k)] = fit(natural & (fold != k)).decision_function(lines[natural & (fold == k)])
    model = fit(natural)
    ordinary = natural & (label == "benign") & ~edge
    points = [(float(np.quantile(sums[ordinary], 1 - rate)), share) for rate, share in CURVE]
    low, high = points[0][0], points[-1][0]
    points = [(low - 2, 0.0), *points, (high + 3, 0.99)]
    short = lambda value: round(float(value), 3)
    shipped = {
        "version": 1,
        "bias": short(model.intercept_[0]),
        "weights": {name: short(value) for name, value in zip(NAMES, model.coef_[0])} | {"guard_a": GUARD, "guard_b": GUARD},
        "classifier_absent": short(lines[ordinary, NAMES.index("classifier")].mean()),
        "confidence": [[short(at), share] for at, share in points],
    }
    (out / "fusion.json").write_text(json.dumps(shipped, indent=2) + "\n")
    print(json.dumps(shipped))
    sums[~natural] = model.decision_function(signals(rows, found["shipped"]))[~natural]
    groups = {"ordinary": (label == "benign") & ~edge, "borderline": (label == "benign") & edge, **{x: label == x for x in LABELS}}
    for name, mask in [("sources left out", natural), *[(name, part == name) for name in SETS[2:]]]:
        for what, hit in [("rules", rules), *[(f"fused, {share}", sums >= at) for at, share in points[1:4]]]:
            said = [wilson((hit & mask & group).sum(), (mask & group).sum()) for group in groups.values()]
            print(f"| {name} | {what} | " + " | ".join(said) + " |")


if __name__ == "__main__":
    main()
