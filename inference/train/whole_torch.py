"""The encoder of `minilm_whole.py`, its fit and what it says: BERT with the norms behind the sums, in half precision (bf16) where there is
an accelerator.
"""

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer

LAYERS, HEADS, WIDTH, LONGEST = 6, 12, 384, 512
# Tokens of a window beside the two marks, and how far behind it the next begins.
INSIDE = LONGEST - 2
STRIDE = 384
ROUND = 16
# Rows of a step, tokens of a step at most, and tokens that are read at once.
ROWS, TOKENS, READ = 64, 1 << 16, 1 << 17
# Rows among which those of about one length are put together.
DRAWN = 4096
EPOCHS, WARM = 2, 0.1
RATE, HEAD_RATE, DECAY, DROPOUT = 1e-4, 1e-3, 0.01, 0.1
SEED = 1
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


class Encoder:
    """The published weights, and its words."""

    def __init__(self, folder):
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.tokenizer.no_truncation()
        self.tokenizer.no_padding()
        self.begin, self.end = (self.tokenizer.token_to_id(mark) for mark in ("[CLS]", "[SEP]"))
        found = load_file(folder / "model.safetensors")
        self.weights = {name: value.float() for name, value in found.items() if value.is_floating_point() and "pooler" not in name}

    def model(self):
        """Its weights to be tuned, and a head that says nothing yet: what all roles share, and what each says by itself."""
        p = {name: value.clone().to(DEVICE) for name, value in self.weights.items()}
        p["head.weight"], p["head.bias"] = torch.zeros(2, 2 * WIDTH, device=DEVICE), torch.zeros(2, device=DEVICE)
        return {name: value.requires_grad_() for name, value in p.items()}

    def known(self):
        """Stops where the published encoder does not say what it should: that two sentences mean the same."""
        texts = Texts(self, ["A cat sits on the roof.", "On top of the house there is a cat.", "Shares fell by a third."])
        with torch.no_grad():
            ids, mask = texts.batch(np.arange(3))
            x = layers(self.model(), ids, mask, 0.0)
            mean = F.normalize((x * mask[:, :, None]).sum(1) / mask.sum(1)[:, None], dim=1)
        same, other = float(mean[0] @ mean[1]), float(mean[0] @ mean[2])
        assert same > 0.6 and other < 0.2, (same, other)


class Texts:
    """Texts as tokens, in windows: `first[r]..first[r + 1]` are those of a text; all but those of a short text are full."""

    def __init__(self, encoder, texts):
        found = [one.ids for one in encoder.tokenizer.encode_batch(texts, add_special_tokens=False)]
        self.marks = encoder.begin, encoder.end
        self.length = np.array([len(one) for one in found])
        starts = np.concatenate([[0], np.cumsum(self.length)])
        self.size = int(starts[-1])
        self.ids = torch.tensor(np.concatenate([np.array(one, np.int32) for one in found]), device=DEVICE)
        count = 1 + np.maximum(0, -(-(self.length - INSIDE) // STRIDE))
        self.first = np.concatenate([[0], np.cumsum(count)])
        owner = np.repeat(np.arange(len(texts)), count)
        turn = np.arange(len(owner)) - self.first[owner]
        last = np.maximum(self.length - INSIDE, 0)
        self.begin = starts[owner] + np.minimum(turn * STRIDE, last[owner])
        self.window = np.minimum(self.length, INSIDE)[owner]
        self.count = count

    def batch(self, windows):
        """Tokens of windows, and which of them are there."""
        n = ROUND * -(-int(self.window[windows].max() + 2) // ROUND)
        begin, length = (torch.tensor(x[windows], device=DEVICE)[:, None] for x in (self.begin, self.window))
        at = torch.arange(n, device=DEVICE)[None] - 1
        ids = self.ids[(begin + at).clamp(0, max(self.size - 1, 0))].long()
        ids = torch.where((at >= 0) & (at < length), ids, 0)
        ids = torch.where(at == length, self.marks[1], ids)
        ids[:, 0] = self.marks[0]
        return ids, at <= length

    def batches(self, rows, most, tokens):
        """Rows, which are in the order of their length, in batches of so many rows and so many tokens at most."""
        width = ROUND * -(-(np.minimum(self.length[rows], INSIDE) + 2) // ROUND)
        out, mine, wide, windows = [], [], 0, 0
        for row, w in zip(rows, width):
            more = windows + self.count[row]
            if mine and (len(mine) == most or max(wide, w) * more > tokens):
                out.append(np.array(mine))
                mine, wide, more = [], 0, self.count[row]
            mine.append(row)
            wide, windows = max(wide, w), more
        return [*out, np.array(mine)]

    def windows(self, rows):
        """The windows of rows, and the place among them of the row of each."""
        found = np.concatenate([np.arange(self.first[row], self.first[row + 1]) for row in rows])
        return found, torch.tensor(np.repeat(np.arange(len(rows)), self.count[rows]), device=DEVICE)


def layers(p, ids, mask, dropout):
    drop = (lambda x: F.dropout(x, dropout)) if dropout else (lambda x: x)
    dense = lambda name, x: F.linear(x, p[f"{name}.weight"], p[f"{name}.bias"])
    norm = lambda name, x: F.layer_norm(x, (WIDTH,), p[f"{name}.weight"], p[f"{name}.bias"], 1e-12)
    table = lambda name: p[f"embeddings.{name}_embeddings.weight"]
    b, n = ids.shape
    x = F.embedding(ids, table("word")) + table("position")[:n] + table("token_type")[0]
    x = drop(norm("embeddings.LayerNorm", x))
    heads = lambda y: y.view(b, n, HEADS, WIDTH // HEADS).transpose(1, 2)
    seen = mask[:, None, None, :].expand(b, HEADS, n, n)
    for at in range(LAYERS):
        name = f"encoder.layer.{at}"
        q, k, v = (heads(dense(f"{name}.attention.self.{what}", x)) for what in ("query", "key", "value"))
        heard = F.scaled_dot_product_attention(q, k, v, attn_mask=seen).transpose(1, 2).reshape(b, n, WIDTH)
        x = norm(f"{name}.attention.output.LayerNorm", x + drop(dense(f"{name}.attention.output.dense", heard)))
        inner = F.gelu(dense(f"{name}.intermediate.dense", x))
        x = norm(f"{name}.output.LayerNorm", x + drop(dense(f"{name}.output.dense", inner)))
    return x


def logits(p, ids, mask, role, dropout=0.0):
    """Of each window: the mean and the maximum of the last layer, weighed by role."""
    with torch.autocast(DEVICE, torch.bfloat16, enabled=DEVICE == "cuda"):
        x = layers(p, ids, mask, dropout)
    kept, x = mask[:, :, None], x.float()
    mean = (x * kept).sum(1) / kept.sum(1)
    pooled = torch.cat([mean, x.masked_fill(~kept, -1e9).amax(1)], 1)
    shared, of_role = F.linear(pooled, p["head.weight"], p["head.bias"]).T
    return shared + (2 * role - 1) * of_role


def worst(p, texts, role, rows, dropout=0.0):
    """What the worst window of each row comes to."""
    windows, owner = texts.windows(rows)
    of_row = torch.tensor(role[rows], device=DEVICE)[owner]
    said = logits(p, *texts.batch(windows), of_row, dropout)
    return torch.full((len(rows),), -1e9, device=DEVICE).scatter_reduce(0, owner, said, "amax")


def fit(encoder, texts, role, label, weight, rows, epochs=EPOCHS):
    """The tuned weights, and the number of steps."""
    torch.manual_seed(SEED)
    rng = np.random.default_rng(SEED)
    p = encoder.model()
    groups = [
        {"params": [v for k, v in p.items() if k.startswith("head") == head and (v.ndim > 1) == flat], "lr": rate, "top": rate, "weight_decay": decay}
        for head, rate in ((False, RATE), (True, HEAD_RATE))
        for flat, decay in ((True, DECAY), (False, 0.0))
    ]
    step = torch.optim.AdamW(groups, fused=DEVICE == "cuda")
    plan = []
    for _ in range(epochs):
        some, drawn = rng.permutation(rows), []
        for begin in range(0, len(some), DRAWN):
            part = some[begin : begin + DRAWN]
            drawn += texts.batches(part[np.argsort(texts.length[part], kind="stable")], ROWS, TOKENS)
        plan += [drawn[at] for at in rng.permutation(len(drawn))]
    for turn, mine in enumerate(plan):
        rate = min((turn + 1) / (WARM * len(plan)), (len(plan) - turn) / ((1 - WARM) * len(plan)))
        for group in step.param_groups:
            group["lr"] = rate * group["top"]
        said = worst(p, texts, role, mine, DROPOUT)
        counts = torch.tensor(weight[mine], dtype=torch.float32, device=DEVICE)
        answers = torch.tensor(label[mine], dtype=torch.float32, device=DEVICE)
        loss = (counts * F.binary_cross_entropy_with_logits(said, answers, reduction="none")).sum() / counts.sum()
        step.zero_grad(set_to_none=True)
        loss.backward()
        step.step()
    return p, len(plan)


def save(p, path):
    """The tuned weights in half precision, by the names of the published ones, and the head."""
    save_file({name: value.detach().half().cpu().contiguous() for name, value in p.items()}, path)


@torch.no_grad()
def score(p, texts, role, rows):
    """What the model says of each row, as logits."""
    out = np.zeros(len(texts.length), np.float32)
    order = rows[np.argsort(texts.length[rows], kind="stable")]
    for mine in texts.batches(order, 1 << 30, READ):
        out[mine] = worst(p, texts, role, mine).cpu().numpy()
    return out[rows]
