"""Small models that are sums of weights of words, pairs of words and runs of four letters: features, fit, and the file that
`inference/src/grams/` reads. Integers only where a text is scored, so that both say the same.

A word is a run of letters and digits (digits all read as one, capitals as small letters) or of bytes beyond ASCII, at most 24
bytes long, or one of the signs that quote or ask.
"""

import math
import struct

import numpy as np
import scipy.sparse as sparse
from numba import njit
from sklearn.linear_model import LogisticRegression

BITS = 16
BLOCK = 32
WORD_BYTES = 24
SEED = 0x811C9DC5
PRIME = 0x01000193
SIGNS = np.frombuffer(b"?!\"'`:", np.uint8).astype(np.int64)


@njit(cache=True)
def _mix(tag, a, b, bits):
    x = (tag * 0x9E3779B1 + a) & 0xFFFFFFFF
    x = ((x ^ (x >> 15)) * 0x85EBCA6B + b) & 0xFFFFFFFF
    x = ((x ^ (x >> 13)) * 0xC2B2AE35) & 0xFFFFFFFF
    return (x ^ (x >> 16)) >> (32 - bits)


@njit(cache=True)
def _read(b):
    if 48 <= b <= 57:
        return 48
    if 65 <= b <= 90:
        return b + 32
    if 97 <= b <= 122 or b >= 0x80:
        return b
    return 0


@njit(cache=True)
def _words(text, bits, signs, out, firsts):
    """Fills the places of all features, and where those of each word begin. Returns the number of words."""
    n, at, last, words, count = len(text), 0, 0, 0, 0
    letters = np.zeros(WORD_BYTES + 2, np.int64)
    while at < n:
        b = text[at]
        is_sign = False
        for sign in signs:
            is_sign = is_sign or b == sign
        if _read(b) == 0 and not is_sign:
            at += 1
            continue
        firsts[words] = count
        h, used = SEED, 0
        letters[0] = 32
        if _read(b) == 0:
            h = ((h ^ b) * PRIME) & 0xFFFFFFFF
            used = 1
            at += 1
        else:
            while at < n and used < WORD_BYTES:
                letter = _read(text[at])
                if letter == 0:
                    break
                h = ((h ^ letter) * PRIME) & 0xFFFFFFFF
                used += 1
                letters[used] = letter
                at += 1
            letters[used + 1] = 32
        out[count] = _mix(1, h, 0, bits)
        out[count + 1] = _mix(2, h, last, bits)
        count += 2
        if used > 1:
            for start in range(used + 2 - 4 + 1):
                run = SEED
                for k in range(4):
                    run = ((run ^ letters[start + k]) * PRIME) & 0xFFFFFFFF
                out[count] = _mix(3, run, 0, bits)
                count += 1
        last = h
        words += 1
    firsts[words] = count
    return words


def of(text, bits=BITS):
    """The places of all features of `text`, and where those of each word begin, with the end behind."""
    data = np.frombuffer(text.encode(), dtype=np.uint8).astype(np.int64)
    out, firsts = np.empty(4 * len(data) + 8, np.int32), np.empty(len(data) + 1, np.int64)
    words = _words(data, bits, SIGNS, out, firsts)
    return out[: firsts[words]].copy() if words else out[:0], firsts[: words + 1].copy()


def windows(words):
    """Where the windows of a text of so many words begin and end."""
    stops = [*range(BLOCK, words, BLOCK), words] if words else []
    return [(max(0, BLOCK * ((stop - 1) // BLOCK - 1)), stop) for stop in stops]


def matrix(texts, bits=BITS):
    """One line per window of each text, and which text it is of."""
    values, places, bounds, owner = [], [], [0], []
    for at, text in enumerate(texts):
        found, firsts = of(text, bits)
        for begin, end in windows(len(firsts) - 1):
            part = found[firsts[begin] : firsts[end]]
            places.append(part)
            values.append(np.full(len(part), 1 / math.sqrt(end - begin), np.float32))
            bounds.append(bounds[-1] + len(part))
            owner.append(at)
    shape = (len(owner), 1 << bits)
    made = sparse.csr_matrix((np.concatenate(values), np.concatenate(places), np.array(bounds)), shape=shape)
    made.sum_duplicates()
    return made, np.array(owner)


class Model:
    """A fit in whole numbers."""

    def __init__(self, coef, bias, bits=BITS):
        # A few weights are cut, so that the others keep their differences.
        self.unit = float(np.quantile(np.abs(coef[coef != 0]), 0.9995)) / 127
        self.weights = np.clip(np.round(coef / self.unit), -127, 127).astype(np.int8)
        self.bias = int(round(bias / self.unit))
        self.bits = bits

    def score(self, text):
        found, firsts = of(text, self.bits)
        worst = None
        for begin, end in windows(len(firsts) - 1):
            total = int(self.weights[found[firsts[begin] : firsts[end]]].astype(np.int64).sum())
            score = (total * math.isqrt((1 << 24) // (end - begin)) >> 12) + self.bias
            worst = score if worst is None else max(worst, score)
        return 0 if worst is None else worst

    def scores(self, texts):
        return np.array([self.score(text) for text in texts])

    def bytes(self, curve, known):
        out = b"weirgm01" + struct.pack("<I", self.bits) + self.weights.tobytes() + struct.pack("<i", self.bias)
        out += struct.pack("<I", len(curve))
        for at, share in curve:
            out += struct.pack("<iH", at, min(65535, int(round(share * 65536))))
        out += struct.pack("<I", len(known))
        for text in known:
            out += struct.pack("<I", len(text.encode())) + text.encode() + struct.pack("<i", self.score(text))
        return out


def fit(texts, labels, weights, c=1.0, bits=BITS):
    """Logistic regression over windows; of a text of several the label is that of each."""
    made, owner = matrix(texts, bits)
    model = LogisticRegression(C=c, solver="liblinear", max_iter=200, random_state=1)
    model.fit(made, np.asarray(labels)[owner], sample_weight=np.asarray(weights)[owner])
    return Model(model.coef_[0], float(model.intercept_[0]), bits)


def platt(scores, labels, weights, points=17):
    """The curve from a score to a probability: a logistic one, fitted on scores of texts the fits did not know."""
    model = LogisticRegression(C=1e6, max_iter=1000)
    scale = float(np.std(scores)) or 1.0
    model.fit((scores / scale)[:, None], labels, sample_weight=weights)
    slope, at = float(model.coef_[0][0]) / scale, float(model.intercept_[0])
    curve = []
    for share in np.linspace(-5.5, 5.5, points):
        score = int(round((share - at) / slope))
        if not curve or score > curve[-1][0]:
            curve.append((score, 1 / (1 + math.exp(-share))))
    return curve


def auc(scores, labels):
    order = np.argsort(scores, kind="stable")
    rank = np.empty(len(scores))
    _, same, counts = np.unique(scores[order], return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    rank[order] = (ends - (counts - 1) / 2)[same]
    bad = labels == 1
    return (rank[bad].sum() - bad.sum() * (bad.sum() + 1) / 2) / (bad.sum() * (~bad).sum())
