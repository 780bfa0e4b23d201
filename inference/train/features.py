"""Words and the names of their features. Integers only: `inference/src/learned/words.rs` reads them the same way.

A word is a run of letters and digits (digits all read as one, capitals as small letters), at most 24 bytes long; of
scripts without spaces, one character, or four of those of South Asia. Each word has two features: itself, and itself
after the word before. A word that stood behind the same word a moment ago counts for nothing.
"""

import numpy as np
from numba import njit

PER_WORD = 2
WORD_BYTES = 24
CLUSTER_BYTES = 12
SEED = 0x811C9DC5
PRIME = 0x01000193
REMEMBERED = 64
PLACES = 256


@njit(cache=True)
def _mix(tag, a, b):
    x = (tag * 0x9E3779B1 + a) & 0xFFFFFFFF
    x = ((x ^ (x >> 15)) * 0x85EBCA6B + b) & 0xFFFFFFFF
    x = ((x ^ (x >> 13)) * 0xC2B2AE35) & 0xFFFFFFFF
    return x ^ (x >> 16)


@njit(cache=True)
def _words(text, out):
    """Fills the names of the features of each word of `text` (bytes) that was not said a moment ago. Returns their number."""
    n, count, at, last, read = len(text), 0, 0, 0, 0
    pairs, when = np.zeros(PLACES, np.int64), np.zeros(PLACES, np.int64)
    while at < n:
        b = text[at]
        if b < 0x80 and not ((48 <= b <= 57) or (65 <= b <= 90) or (97 <= b <= 122)):
            at += 1
            continue
        h, used = SEED, 0
        if b >= 0xE1:
            # One character is a word.
            end = min(at + (4 if b >= 0xF0 else 3), n)
            while at < end:
                h = ((h ^ text[at]) * PRIME) & 0xFFFFFFFF
                at += 1
        elif b >= 0x80:
            # A word of letters of two bytes, or up to four of three bytes.
            most = CLUSTER_BYTES if b == 0xE0 else WORD_BYTES
            while at < n and used < most and 0x80 <= text[at] < 0xE1:
                h = ((h ^ text[at]) * PRIME) & 0xFFFFFFFF
                used += 1
                at += 1
        else:
            while at < n and used < WORD_BYTES:
                b = text[at]
                if 48 <= b <= 57:
                    b = 48
                elif 65 <= b <= 90:
                    b = b + 32
                elif not (97 <= b <= 122):
                    break
                h = ((h ^ b) * PRIME) & 0xFFFFFFFF
                used += 1
                at += 1
        pair = _mix(2, h, last)
        last = h
        read += 1
        place = pair % PLACES
        again = when[place] > 0 and pairs[place] == pair and read - when[place] <= REMEMBERED
        pairs[place] = pair
        when[place] = read
        if not again:
            out[count, 0] = _mix(1, h, 0)
            out[count, 1] = pair
            count += 1
    return count


def of(text):
    """The names of all features of `text` (bytes), one row per word."""
    data = np.frombuffer(text, dtype=np.uint8).astype(np.int64)
    out = np.empty((len(data), PER_WORD), np.uint32)
    return out[: _words(data, out)].copy()
