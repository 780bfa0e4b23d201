"""Trains the small model of toxic answers, and prints what it is worth.

    python toxicity.py DATA OUT

`DATA` holds `toxicity.jsonl`, and `prompts-train.jsonl`, `prompts-train-2.jsonl`, `prompts-dev.jsonl`, `prompts-dev-2.jsonl`, whose harmless rows
are ordinary texts. Writes `toxic.bin` and `toxic-sample.jsonl`. Every figure is of texts the fit did not know: five parts of the
labelled rows in turn, whole sources in turn, and the ordinary texts of the development files. The curve from a score to a
confidence is fitted on the five parts' scores; the threshold is the setting's default, not chosen here.
"""

import json
import pathlib
import sys
import zlib

import numpy as np

import grams

PARTS = 5
THRESHOLDS = (("high_recall", 0.5), ("balanced", 0.7), ("high_precision", 0.95))
# Ordinary texts the fit sees, and what one counts for beside a labelled row.
ORDINARY, ORDINARY_WEIGHT = 4000, 0.5
# So many harmless texts to a toxic one are taken for granted in the curve.
PRIOR = 3.0
KNOWN = [
    "You are a stupid worthless idiot and everybody hates you.",
    "Thank you for your help, have a nice day.",
    "The quick brown fox jumps over 13 lazy dogs.",
    "Go to hell, you pathetic piece of trash!",
    "Здравствуйте, как дела?",
]


def read(folder, name):
    return [json.loads(line) for line in open(folder / f"{name}.jsonl", encoding="utf-8")]


def ordinary(folder, name):
    rows = [row for row in read(folder, name) if row["label"] == "benign" and not row["source"].startswith("synth-")]
    return [row["text"][:2000] for row in rows]


def wilson(hits, n):
    z, p = 1.96, hits / n
    middle, half = p + z * z / (2 * n), z * np.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    return f"{100 * p:.1f} ({100 * (middle - half) / (1 + z * z / n):.1f}–{100 * (middle + half) / (1 + z * z / n):.1f})"


def confidence(curve, scores):
    return np.interp(scores, [at for at, _ in curve], [share for _, share in curve])


def main():
    folder, out = map(pathlib.Path, sys.argv[1:3])
    out.mkdir(parents=True, exist_ok=True)
    rows = read(folder, "toxicity")
    texts, labels = [row["text"] for row in rows], np.array([int(row["label"] == "toxic") for row in rows])
    sources = np.array([row["source"] for row in rows])
    plain = ordinary(folder, "prompts-train") + ordinary(folder, "prompts-train-2")
    plain = [plain[at] for at in np.random.default_rng(1).permutation(len(plain))[:ORDINARY]]
    # No source may outweigh the others by its size alone.
    size = {source: (sources == source).sum() for source in set(sources)}
    weights = np.array([min(1.0, (800 / size[source]) ** 0.5) for source in sources])

    def fit(mask):
        known = [text for text, use in zip(texts, mask) if use]
        all_labels = np.concatenate([labels[mask], np.zeros(len(plain), int)])
        all_weights = np.concatenate([weights[mask], np.full(len(plain), ORDINARY_WEIGHT)])
        return grams.fit(known + plain, all_labels, all_weights, c=0.3)

    part = np.array([zlib.crc32(row["id"].encode()) % PARTS for row in rows])
    shipped = fit(np.ones(len(rows), bool))
    unit = shipped.unit
    scores = np.zeros(len(rows))
    for k in range(PARTS):
        model = fit(part != k)
        # In the units of the fit that ships.
        scores[part == k] = model.scores([t for t, p in zip(texts, part) if p == k]) * model.unit / unit
    balance = np.where(labels == 1, 1.0, PRIOR * labels.sum() / (labels == 0).sum()) * weights
    curve = grams.platt(scores, labels, balance)
    sure = confidence(curve, scores)
    print(f"five parts: {len(rows)} rows, {labels.sum()} toxic, AUC {grams.auc(scores, labels):.3f}")
    dev = {name: ordinary(folder, name) for name in ("prompts-dev", "prompts-dev-2")}
    said = {name: confidence(curve, shipped.scores(dev[name])) for name in dev}
    print("| point | found | false among labelled | F1 | " + " | ".join(f"ordinary, {name} ({len(dev[name])})" for name in dev) + " |")
    for point, least in THRESHOLDS:
        hit = sure >= least
        tp, fp = (hit & (labels == 1)).sum(), (hit & (labels == 0)).sum()
        plainly = " | ".join(wilson((said[name] >= least).sum(), len(said[name])) for name in dev)
        print(f"| {point} | {wilson(tp, labels.sum())} | {wilson(fp, (labels == 0).sum())} | "
              f"{2 * tp / (tp + fp + labels.sum()):.3f} | {plainly} |")
    for source in sorted(set(sources)):
        m = sources == source
        model = fit(~m)
        alone = model.scores([t for t, use in zip(texts, m) if use]) * model.unit / unit
        hit = confidence(curve, alone) >= 0.7
        toxic = labels[m] == 1
        print(f"left out {source}: {m.sum()} rows, AUC {grams.auc(alone, labels[m]):.3f}, at 0.7 found {wilson(hit[toxic].sum(), toxic.sum())} "
              f"false {wilson(hit[~toxic].sum(), (~toxic).sum())}; in parts AUC {grams.auc(scores[m], labels[m]):.3f}, at 0.7 found "
              f"{wilson((sure[m] >= 0.7)[toxic].sum(), toxic.sum())} false {wilson((sure[m] >= 0.7)[~toxic].sum(), (~toxic).sum())}")
    for name in dev:
        for at in np.argsort(-said[name])[:3]:
            print("  surest of", name, round(float(said[name][at]), 3), repr(dev[name][at][:100]))
    (out / "toxic.bin").write_bytes(shipped.bytes(curve, KNOWN))
    with open(out / "toxic-sample.jsonl", "w", encoding="utf-8") as sink:
        for text in [dev["prompts-dev"][at] for at in range(0, len(dev["prompts-dev"]), 150)]:
            sink.write(json.dumps({"text": text, "score": shipped.score(text)}, ensure_ascii=False) + "\n")
    print("curve", [(at, round(share, 3)) for at, share in curve], "bytes", (out / "toxic.bin").stat().st_size)


if __name__ == "__main__":
    main()
