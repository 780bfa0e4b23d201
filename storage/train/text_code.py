#!/usr/bin/env python3
"""Fits the fixed codes for stored texts (storage/src/encode/text_code.rs, short_code.rs) to texts and writes their tables.

    storage/train/text_code.py OUT FILE...           JSON lines with a "text", or any other text
    storage/train/text_code.py --short OUT FILE...   the code for short texts
    storage/train/text_code.py --check TABLE FILE    how many bytes of code one byte of FILE takes

The code of a byte depends on the two bytes before it. The pairs met most often have a code of their own; after all others it is that
of the last byte's class. The code for short texts is of classes alone. Standard library only; the same files give the same table.

The tables that ship are part of the file format: they may get successors, and never change.
"""

import collections
import heapq
import json
import pathlib
import sys

PAIRS = 1000
CLASSES = 136
# Longest code in bits. Four codes and seven left-over bits fit a 64-bit accumulator.
LEN_MAX = 12
# What stands before the first byte.
START = b"\n\n"


def text_of(path):
    if not path.endswith(".jsonl"):
        return pathlib.Path(path).read_bytes()
    with open(path, encoding="utf-8", errors="replace") as lines:
        return "\n".join(json.loads(line).get("text", "") for line in lines).encode()


def last_byte_class(byte):
    return byte if byte < 128 else 128 + (byte >> 4 & 7)


def lengths(counts):
    """Lengths of a complete prefix code for all 256 bytes, none longer than LEN_MAX."""
    least = sum(counts) / (1 << (LEN_MAX + 2)) or 1
    while True:
        heap = [(max(count, least), at, (at,)) for at, count in enumerate(counts)]
        heapq.heapify(heap)
        taken, label = [0] * len(counts), len(counts)
        while len(heap) > 1:
            one, other = heapq.heappop(heap), heapq.heappop(heap)
            for at in one[2] + other[2]:
                taken[at] += 1
            heapq.heappush(heap, (one[0] + other[0], label, one[2] + other[2]))
            label += 1
        if max(taken) <= LEN_MAX:
            return taken
        least *= 1.25


def fit(texts, own_pairs):
    triples, pairs = collections.Counter(), collections.Counter()
    for text in texts:
        text = START + text
        triples.update(zip(text, text[1:], text[2:]))
        pairs.update(zip(text, text[1:]))
    own = sorted(pairs, key=lambda pair: (-pairs[pair], pair))[:own_pairs]
    place = {pair: at for at, pair in enumerate(own)}
    counts = [[0] * 256 for _ in range(own_pairs + CLASSES)]
    for (first, second, byte), number in triples.items():
        at = place.get((first, second), own_pairs + last_byte_class(second))
        counts[at][byte] += number
    return own, [lengths(row) for row in counts]


def packed(own, rows):
    nibbles = bytes(low | high << 4 for row in rows for low, high in zip(row[::2], row[1::2]))
    return bytes(byte for pair in own for byte in pair) + nibbles


def check(table, path):
    plain = pathlib.Path(table).read_bytes()
    own_pairs = (len(plain) - CLASSES * 128) // 130
    pairs = plain[: 2 * own_pairs]
    place = {pair: at for at, pair in enumerate(zip(pairs[::2], pairs[1::2]))}
    nibbles = plain[2 * own_pairs :]
    text = START + text_of(path)
    bits = 0
    for first, second, byte in zip(text, text[1:], text[2:]):
        at = place.get((first, second), own_pairs + last_byte_class(second)) * 128 + byte // 2
        bits += nibbles[at] >> 4 * (byte & 1) & 15
    print(f"{path}: {bits / 8 / (len(text) - 2):.3f}")


def main():
    if sys.argv[1] == "--check":
        check(sys.argv[2], sys.argv[3])
        return
    own_pairs = 0 if sys.argv[1] == "--short" else PAIRS
    out, *paths = [argument for argument in sys.argv[1:] if argument != "--short"]
    pathlib.Path(out).write_bytes(packed(*fit(map(text_of, paths), own_pairs)))


if __name__ == "__main__":
    main()
