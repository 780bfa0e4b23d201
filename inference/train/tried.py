"""Tries what might make the small classifier better, on sources that were left out, and says what it bought.

    python tried.py PREPARED_FOLDER DATA_FOLDER OUT_FOLDER [VARIANT ...]

OUT_FOLDER holds what teacher.py wrote (for `taught`) and minilm_whole.py (for `tuned` and `crossed`). Each variant is fitted once for each
part of the sources that is left out, and once on all training rows for the development files; its scores stay in OUT_FOLDER
(tried-VARIANT.npz), so that the script may be run one variant at a time.
With `report` it prints what those that are there come to. Nothing here is shipped.
"""

import json
import pathlib
import sys

import numpy as np
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.preprocessing import StandardScaler

import data
import evaluate
import families
import linear
import made
import minilm_whole
import prepare
import train

# Words as they ship, with what is tried beside them.
VARIANTS = ["words", "languages", "encoded", "taught", "taught3", "taught-only", "tuned", "tuned3", "tuned-only"]
VARIANTS += ["crossed", "crossed3", "crossed-only", "cleaned", "grams"]
LENGTH = 3000
RESAMPLED = 100
SEED = 1
PARTS = [*range(families.FOLDS), None]
EVERY_ROW = 10**9
# Shares of the harmless rows and of the attacks of a role whose label looks wrong to a fit that knew none of their sources.
WRONG = (0.003, 0.05)


def base(folder):
    """The rows of `train.py`, and how many of them are those of the files."""
    rows = [row for name in train.SETS for row in data.read(folder, name)]
    count = len(rows)
    rows += data.compose([row for row in rows if "train" in row["part"]])
    return rows + data.read(folder, "made-agents"), count


def written(folder, sets):
    """Texts in other languages and in codes, as the crate reads them."""
    target = folder / "made-tried.jsonl"
    if not target.exists():
        texts = []
        for name in train.SETS[:2]:
            for line in open(sets / f"{name}.jsonl", encoding="utf-8"):
                row = json.loads(line)
                if row["lang"] == "en":
                    texts.append(row)
        rows = [
            {"text": text, "label": label, "source": "made-languages", "lang": lang, "role": "user", "tried": "languages"}
            for lang, label, text in made.languages()
        ]
        rows += [
            {"text": text, "label": row["label"], "source": row["source"], "lang": name, "role": prepare.role(row), "tried": "encoded"}
            for name, row, text in made.encoded(texts)
        ]
        prepare.show(prepare.built("prepare"), rows, target)
    return data.read(folder, "made-tried")


class Teacher:
    """Heads on what the encoder says of pieces, one for each part that is left out."""

    def __init__(self, out):
        self.pieces = [json.loads(line) for line in open(out / "pieces.jsonl", encoding="utf-8")]
        self.label = np.array([one["label"] for one in self.pieces])
        self.fold = np.array([families.fold(one["source"]) for one in self.pieces])
        role = np.array([one["role"] == "tool" for one in self.pieces], float)
        heard = np.load(out / "pieces.npy").astype(np.float32)
        heard = StandardScaler().fit_transform(heard)
        self.lines = np.concatenate([heard, 5 * role[:, None]], axis=1)
        count = {}
        keys = [(one["source"], label) for one, label in zip(self.pieces, self.label)]
        for key in keys:
            count[key] = count.get(key, 0) + 1
        self.weight = np.array([count[key] ** -0.5 for key in keys])

    def says(self, k):
        """How likely each piece is an attack, by a head that knew nothing of the sources of part `k`."""
        use = (self.label >= 0) & (self.fold != (EVERY_ROW if k is None else k))
        head = LogisticRegression(C=0.003, max_iter=300)
        head.fit(self.lines[use], self.label[use], sample_weight=self.weight[use] / self.weight[use].mean())
        return head.predict_proba(self.lines)[:, 1]


class Tuned:
    """What a MiniLM tuned in all layers says of pieces (minilm_whole.py). `crossed`: of each piece by a fit that knew none of its sources
    either, beside those of the part that is left out; of composed pieces, which are only trained on, there is none."""

    def __init__(self, rows, out, crossed):
        self.out, self.crossed = out, crossed
        self.pieces = minilm_whole.asked(rows)
        self.fold = np.array([families.fold(one["source"]) for one in self.pieces])

    def heard(self, parts):
        return np.load(self.out / f"whole-{minilm_whole.name_of(parts)}.npz")["pieces"].astype(float)

    def says(self, k):
        """How likely each piece is an attack, by fits that knew nothing of the sources of part `k`."""
        without = set() if k is None else {k}
        out = self.heard(without)
        for j in range(families.FOLDS) if self.crossed else []:
            mine = self.fold == j
            out[mine] = self.heard(without | {j})[mine]
        return 1 / (1 + np.exp(-out))


def told(teacher):
    """The pieces as rows to train on."""
    of = lambda one: {"sources": {one["source"]}, "part": "made-taught", "label": "benign" if one["label"] < 1 else "injection"}
    return [{**one, **of(one), "decoded": [], "lang": "en", "tried": "taught"} for one in teacher.pieces]


def window_scores(fit, arrays, windows):
    full = np.zeros((2, len(arrays.names)))
    full[:, fit.kept] = fit.weights
    out = np.zeros(len(windows.owner))
    n = windows.end - windows.begin
    for role in (0, 1):
        sums = np.concatenate([[0.0], np.cumsum(full[role][arrays.ids].sum(axis=1))])
        mine = arrays.roles[windows.owner] == role
        scores = (sums[windows.end] - sums[windows.begin]) / np.sqrt(n + linear.PRIOR) + fit.biases[role]
        out[mine] = scores[mine]
    return out


def noisy(rows, scores):
    """Rows whose label looks wrong by their scores."""
    bad = np.array([row["label"] != "benign" for row in rows])
    role = np.array([row["role"] == "tool" for row in rows])
    out = np.zeros(len(rows), bool)
    for mine in (role, ~role):
        known = mine & ~np.isnan(scores)
        out |= known & ~bad & (scores > np.quantile(scores[known & ~bad], 1 - WRONG[0]))
        out |= known & bad & (scores < np.quantile(scores[known & bad], WRONG[1]))
    return out


def words(folder, sets, out, name):
    """Scores of the rows by a fit of words, with what `name` adds."""
    rows, count = base(folder)
    usual = len(rows)
    teacher = None
    if name in ("languages", "encoded"):
        rows += [row for row in written(folder, sets) if row["tried"] == name]
    elif name.startswith("taught"):
        teacher = Teacher(out)
    elif name.startswith(("tuned", "crossed")):
        teacher = Tuned(rows[:count], out, name.startswith("crossed"))
    rows += told(teacher) if teacher else []
    wrong = np.zeros(len(rows), bool)
    if name == "cleaned":
        wrong[:count] = noisy(rows[:count], np.load(out / "tried-words.npz")["left_out"])
    arrays = data.Arrays(rows)
    windows = linear.Windows(arrays)
    fold = np.array([families.fold(row["source"]) for row in rows])
    left_out = np.full(len(rows), np.nan)
    for k in PARTS:
        use = train.mask(rows, k) & ~wrong
        weight, soft = train.weigh(rows, use), np.full(len(rows), np.nan)
        if teacher:
            soft[usual:] = teacher.says(k)
            weight[usual:] *= 3 if name.endswith("3") else 1
        if name.endswith("-only"):
            # Of what the teacher has read the labels count for little.
            weight[:usual] *= 0.2
        fitted = linear.Fit(arrays, windows, k, weight, use, soft)
        scores = windows.worst(window_scores(fitted, arrays, windows), len(rows))
        if k is not None:
            left_out[fold == k] = scores[fold == k]
        print(name, "left out", k, int(use.sum()), flush=True)
    return left_out[:count], scores[:count]


def grams(folder, *_):
    """Runs of four letters of whole texts, hashed, and a linear fit."""
    rows, count = base(folder)
    of = HashingVectorizer(analyzer="char_wb", ngram_range=(4, 4), n_features=1 << 18, alternate_sign=False, dtype=np.float32)
    lines = of.transform([" ".join([row["folded"], *row["decoded"][:2]])[:LENGTH] for row in rows])
    lines.data = np.sqrt(lines.data)
    label = np.array([row["label"] != "benign" for row in rows], int)
    fold = np.array([families.fold(row["source"]) for row in rows])
    left_out = np.full(len(rows), np.nan)
    for k in PARTS:
        use = np.where(train.mask(rows, k))[0]
        model = SGDClassifier(loss="log_loss", alpha=1e-5, max_iter=4, tol=None, average=True, random_state=SEED)
        model.fit(lines[use], label[use], sample_weight=data.weights([rows[at] for at in use]))
        scores = model.decision_function(lines)
        if k is not None:
            left_out[fold == k] = scores[fold == k]
        print("grams left out", k, flush=True)
    return left_out[:count], scores[:count]


# === What they come to


class Rows:
    def __init__(self, folder):
        self.rows = [row for name in train.SETS for row in data.read(folder, name)]
        column = lambda get: np.array([get(row) for row in self.rows])
        self.label, self.source, self.part = (column(lambda row: row[key]) for key in ("label", "source", "part"))
        self.bad = self.label != "benign"
        self.role = column(lambda row: int(row["role"] == "tool"))
        self.lang = column(lambda row: row["lang"])
        self.silent = column(lambda row: -1 if row["rules"] is None else row["rules"]) <= train.HINT
        self.ordinary = ~self.bad & ~column(lambda row: row["source"] in families.BORDERLINE)
        self.fold = column(lambda row: families.fold(row["source"]))
        said = column(lambda row: [row["signals"]["low"], np.log1p(row["signals"]["signs"]), row["signals"]["encoded"]])
        length = np.log(1 + column(lambda row: len(row["folded"])))
        self.signals = np.concatenate([said.astype(float), self.role[:, None], length[:, None]], axis=1)


def figures(of, scores):
    """AUC, recall at 1 % of all and by label, of other languages; and where the rules are silent, beside them, at 0.05 and 1 %."""

    def say(at):
        s, bad, label = scores[at], of.bad[at], of.label[at]
        out = [evaluate.auc(s, bad.astype(int))]
        hit = s > np.quantile(s[~bad], 0.99)
        out += [100 * hit[bad].mean(), *[100 * hit[label == x].mean() for x in evaluate.LABELS]]
        foreign = bad & (of.lang[at] != "en")
        out.append(100 * hit[foreign].mean() if foreign.any() else np.nan)
        for rate in (0.0005, 0.01):
            found = np.zeros(len(at), bool)
            for role in (0, 1):
                quiet = of.silent[at] & (of.role[at] == role)
                least = np.quantile(s[quiet & of.ordinary[at]], 1 - rate) if (quiet & of.ordinary[at]).any() else np.inf
                found |= quiet & (s > least)
            out.append(100 * found[bad].mean())
        return np.array(out)

    return say


NAMES = ["AUC", "1 %: all", "injection", "jailbreak", "indirect", "other languages", "beside rules at 0.05 %", "at 1 %"]


def compared(of, known, mask, clusters):
    """Each variant, and how far it is from `words`, which comes first, on the same draws."""
    at = np.where(mask)[0]
    source = of.source[at]
    groups = [at[source == x] for x in sorted(set(source))] if clusters else [np.array([k]) for k in at]
    figure = {name: figures(of, scores) for name, scores in known.items()}

    def every(rows):
        said = np.array([one(rows) for one in figure.values()])
        return np.stack([said, said - said[0]])

    found, low, high = evaluate.interval(every, groups)
    print("| | " + " | ".join(NAMES) + " |")
    for at, name in enumerate(figure):
        for less, what, sign in [(0, name, ""), (1, "less `words`", "+")][: 2 if at else 1]:
            line = list(zip(found[less, at], low[less, at], high[less, at]))
            said = [f"{line[0][0]:{sign}.3f} ({line[0][1]:{sign}.3f}–{line[0][2]:{sign}.3f})"]
            said += [f"{a:{sign}.1f} ({b:{sign}.1f}–{c:{sign}.1f})" for a, b, c in line[1:]]
            print(f"| {what} | " + " | ".join(said) + " |", flush=True)


def ensembles(of, known):
    """Sums in units of their spread, and words weighed together with the rules' weak signals, by fits that knew none of the sources."""
    natural = ~np.isnan(known["words"][0])
    unit = lambda pair: [s / np.nanstd(s[~of.bad & m]) for s, m in zip(pair, (natural, ~np.isnan(pair[1])))]
    out = {}
    if "grams" in known:
        out["words + grams"] = [a + b for a, b in zip(unit(known["words"]), unit(known["grams"]))]
    for name, scores in [("signals", ["words"]), ("signals + grams", ["words", "grams"])]:
        if not all(one in known for one in scores):
            continue
        lines = [np.concatenate([np.clip(np.array([known[one][which] for one in scores]).T, -8, 8), of.signals], axis=1) for which in (0, 1)]
        fit = lambda use: LogisticRegression(C=0.3, max_iter=500).fit(lines[0][use], of.bad[use], sample_weight=data.weights([of.rows[at] for at in np.where(use)[0]]))
        left_out = np.full(len(of.rows), np.nan)
        quiet = natural & of.silent
        for k in range(families.FOLDS):
            left_out[natural & (of.fold == k)] = fit(quiet & (of.fold != k)).decision_function(lines[0][natural & (of.fold == k)])
        out[f"words + {name}"] = [left_out, fit(quiet).decision_function(lines[1])]
    return out


def teacher_itself(out, folder):
    """The teacher and words on the same pieces whose label is known, sources left out."""
    teacher = Teacher(out)
    said = np.full(len(teacher.pieces), np.nan)
    for k in range(families.FOLDS):
        said[teacher.fold == k] = teacher.says(k)[teacher.fold == k]
    rows, _ = base(folder)
    usual = len(rows)
    rows += told(teacher)
    arrays = data.Arrays(rows)
    windows = linear.Windows(arrays)
    ours = np.full(len(teacher.pieces), np.nan)
    for k in range(families.FOLDS):
        use = train.mask(rows, k)
        use[usual:] = False
        fitted = linear.Fit(arrays, windows, k, train.weigh(rows, use), use)
        scores = windows.worst(window_scores(fitted, arrays, windows), len(rows))[usual:]
        ours[teacher.fold == k] = scores[teacher.fold == k]
    use = (teacher.label >= 0) & (teacher.fold >= 0)
    source = np.array([one["source"] for one in teacher.pieces])[use]
    groups = [np.where(source == x)[0] for x in sorted(set(source))]
    label = teacher.label[use]
    logit = np.log(said[use] / (1 - said[use]))
    print(f"pieces of known label, sources left out: {int((label == 0).sum())} harmless, {int(label.sum())} attacks")
    unit = lambda s: s / s[label == 0].std()
    for name, s in [("words", ours[use]), ("teacher", logit), ("sum of both", unit(ours[use]) + unit(logit))]:
        figure = lambda at: np.array([evaluate.auc(s[at], label[at]), 100 * (s[at] > np.quantile(s[at][label[at] == 0], 0.99))[label[at] == 1].mean()])
        found, low, high = evaluate.interval(figure, groups)
        print(f"| {name} | {found[0]:.3f} ({low[0]:.3f}–{high[0]:.3f}) | {found[1]:.1f} ({low[1]:.1f}–{high[1]:.1f}) |", flush=True)


def report(folder, out):
    evaluate.RESAMPLED = RESAMPLED
    of = Rows(folder)
    known = {}
    for name in VARIANTS:
        if (out / f"tried-{name}.npz").exists():
            found = np.load(out / f"tried-{name}.npz")
            known[name] = [found["left_out"], found["all"]]
    known |= ensembles(of, known)
    print("\n## Sources left out")
    compared(of, {name: pair[0] for name, pair in known.items()}, ~np.isnan(known["words"][0]), True)
    for part in train.SETS[2:]:
        print(f"\n## {part}")
        compared(of, {name: pair[1] for name, pair in known.items()}, of.part == part, False)


def main():
    folder, sets, out = map(pathlib.Path, sys.argv[1:4])
    for name in sys.argv[4:]:
        if name == "report":
            report(folder, out)
        elif name == "teacher":
            teacher_itself(out, folder)
        else:
            left_out, scores = grams(folder) if name == "grams" else words(folder, sets, out, name)
            np.savez_compressed(out / f"tried-{name}.npz", left_out=left_out, all=scores)


if __name__ == "__main__":
    main()
