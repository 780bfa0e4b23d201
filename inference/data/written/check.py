#!/usr/bin/env python3
"""Checks the hand-written rows under this folder.

    check.py [--rows N] [--jaccard 0.5] [--only HAND] [held_out.jsonl ...]

Reads every */*.jsonl next to this script, checks their form, reports counts, near-duplicates
(5-word shingles, Jaccard above the limit) and six-word sequences standing in more than five rows.
Further files (each line a JSON object with a "text" field) are compared with the rows; their
near-duplicates are listed. Exit status 1 when the form is wrong or a duplicate or overused sequence was found.
"""
import argparse
import collections
import glob
import json
import os
import re
import sys
import unicodedata

LABELS = {"attack", "harmless"}
KINDS = {"direct", "extraction", "jailbreak", "indirect", "tool_poisoning", "exfiltration", "benign_dev"}
ROLES = {"user", "tool", "tool_definition", "system"}
VOICES = {"polite", "urgent", "official", "casual", "indirect", "no_imperative"}
ROW_FIELDS = {"text", "label", "kind", "role", "domain", "language", "voice"}
BRIEF_FIELDS = {"brief", "hand", "kind", "language"}
LANG = re.compile(r"^[a-z]{2,3}(-[A-Za-z0-9]{2,8})*$")
NAME = re.compile(r"^(?P<hand>[a-z0-9]+)-(?P<num>\d+)-(?P<kind>[a-z_]+)-(?P<lang>[A-Za-z-]+)\.jsonl$")
# Scripts written without spaces: one character counts as one word.
CJK = re.compile(r"[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\u0e00-\u0e7f]")


def words(text):
    text = unicodedata.normalize("NFKC", text).casefold()
    text = CJK.sub(lambda m: " " + m.group(0) + " ", text)
    return re.findall(r"\w+", text)


def shingles(ws, n):
    if len(ws) < n:
        return {tuple(ws)} if ws else set()
    return {tuple(ws[i:i + n]) for i in range(len(ws) - n + 1)}


def load(path, errors):
    """The brief (or None) and the rows of one file, as (line number, row)."""
    short = os.path.join(os.path.basename(os.path.dirname(path)), os.path.basename(path))
    brief, rows = None, []
    m = NAME.match(os.path.basename(path))
    if not m:
        errors.append(f"{short}: name is not <hand>-<number>-<kind>-<language>.jsonl")
    with open(path, encoding="utf-8") as f:
        for no, line in enumerate(f, 1):
            where = f"{short}:{no}"
            if not line.strip():
                errors.append(f"{where}: empty line")
                continue
            try:
                row = json.loads(line)
            except ValueError as e:
                errors.append(f"{where}: {e}")
                continue
            if not isinstance(row, dict):
                errors.append(f"{where}: not an object")
                continue
            if no == 1:
                if set(row) != BRIEF_FIELDS:
                    errors.append(f"{where}: first line is no brief: fields {sorted(row)}")
                    if "text" not in row:
                        continue
                else:
                    brief = row
                    if m and (row["hand"] != m["hand"] or row["kind"] != m["kind"] or row["language"] != m["lang"]):
                        errors.append(f"{where}: brief does not agree with the file's name")
                    continue
            if set(row) != ROW_FIELDS:
                errors.append(f"{where}: fields missing {sorted(ROW_FIELDS - set(row))} extra {sorted(set(row) - ROW_FIELDS)}")
                continue
            if not all(isinstance(v, str) and v.strip() for v in row.values()):
                errors.append(f"{where}: a value is empty or no string")
                continue
            for field, allowed in (("label", LABELS), ("kind", KINDS), ("role", ROLES), ("voice", VOICES)):
                if row[field] not in allowed:
                    errors.append(f"{where}: {field} {row[field]!r} not allowed")
            if not LANG.match(row["language"]):
                errors.append(f"{where}: language {row['language']!r}")
            if row["kind"] == "benign_dev" and row["label"] == "attack":
                errors.append(f"{where}: benign_dev cannot be an attack")
            rows.append((where, row))
    if not rows:
        errors.append(f"{short}: no rows")
    elif not 35 <= len(rows) <= 60:
        errors.append(f"{short}: {len(rows)} rows (35 to 60 wanted)")
    share = sum(r["label"] == "attack" for _, r in rows) / max(1, len(rows))
    # Files of developers' harmless texts hold no attacks on purpose.
    if rows and not (m and m["kind"] == "benign_dev") and not 0.5 <= share <= 0.7:
        errors.append(f"{short}: {share:.0%} attacks (about 60 % wanted)")
    return brief, rows


def is_conversation(path):
    """Whether the file holds whole conversations ("messages") and not rows; such files are another matter."""
    with open(path, encoding="utf-8") as f:
        try:
            first = json.loads(f.readline())
        except ValueError:
            return False
    return isinstance(first, dict) and "messages" in first and "text" not in first


def near(sets_a, sets_b, limit, same):
    """Pairs (i, j, jaccard) above the limit, found through shared shingles."""
    index = collections.defaultdict(list)
    for j, s in enumerate(sets_b):
        for g in s:
            index[g].append(j)
    for i, s in enumerate(sets_a):
        hits = collections.Counter()
        for g in s:
            for j in index.get(g, ()):
                if not same or j > i:
                    hits[j] += 1
        for j, shared in hits.items():
            jac = shared / (len(s) + len(sets_b[j]) - shared)
            if jac > limit:
                yield i, j, jac


def cut(text, n=90):
    text = " ".join(text.split())
    return text if len(text) <= n else text[:n - 1] + "…"


def main():
    p = argparse.ArgumentParser(description="Checks the hand-written rows.")
    p.add_argument("compare", nargs="*", help="further JSON Lines files with a text field")
    p.add_argument("--jaccard", type=float, default=0.5)
    p.add_argument("--rows", type=int, default=40, help="how many findings of a sort to print")
    p.add_argument("--only", help="read only this hand's folder")
    a = p.parse_args()
    base = os.path.dirname(os.path.abspath(__file__))
    paths = sorted(glob.glob(os.path.join(base, a.only or "*", "*.jsonl")))
    skipped = [p for p in paths if is_conversation(p)]
    paths = [p for p in paths if p not in skipped]
    errors, rows, attacks_by_hand = [], [], collections.Counter()
    counts = {k: collections.Counter() for k in ("hand", "kind", "language", "domain", "label", "role", "voice")}
    lengths = collections.Counter()
    for path in paths:
        _, got = load(path, errors)
        hand = os.path.basename(os.path.dirname(path))
        for where, row in got:
            rows.append((where, row))
            counts["hand"][hand] += 1
            attacks_by_hand[hand] += row["label"] == "attack"
            for k in counts:
                if k != "hand":
                    counts[k][row[k]] += 1
            n = len(words(row["text"]))
            lengths["under 12" if n < 12 else "12 to 60" if n <= 60 else "over 60"] += 1

    print(f"{len(paths)} files, {len(rows)} rows")
    if skipped:
        print("left out (conversations, no rows): " + ", ".join(os.path.relpath(p, base) for p in skipped))
    for k, c in counts.items():
        print(f"{k}: " + ", ".join(f"{v} {n}" for v, n in c.most_common()))
    print("attack share: " + ", ".join(f"{h} {attacks_by_hand[h] / n:.0%}" for h, n in counts["hand"].items()))
    print("words: " + ", ".join(f"{k} {n}" for k, n in lengths.items()))

    ws = [words(r["text"]) for _, r in rows]
    five = [shingles(w, 5) for w in ws]
    dups = sorted(near(five, five, a.jaccard, True), key=lambda d: -d[2])
    print(f"near-duplicates: {len(dups)}")
    for i, j, jac in dups[:a.rows]:
        print(f"  {jac:.2f} {rows[i][0]} ({rows[i][1]['label']}) {cut(rows[i][1]['text'])}\n"
              f"       {rows[j][0]} ({rows[j][1]['label']}) {cut(rows[j][1]['text'])}")

    seen = collections.Counter()
    for w in ws:
        if len(w) >= 6:
            seen.update(shingles(w, 6))
    often = [(g, n) for g, n in seen.most_common() if n > 5]
    print(f"six-word sequences in more than five rows: {len(often)}")
    for g, n in often[:a.rows]:
        print(f"  {n} {' '.join(g)}")

    clash = 0
    for path in a.compare:
        other = []
        with open(path, encoding="utf-8") as f:
            for no, line in enumerate(f, 1):
                try:
                    row = json.loads(line)
                except ValueError:
                    continue
                if isinstance(row, dict) and isinstance(row.get("text"), str):
                    other.append((f"{path}:{no}", row["text"]))
        o5 = [shingles(words(t), 5) for _, t in other]
        found = sorted(near(five, o5, a.jaccard, False), key=lambda d: -d[2])
        clash += len(found)
        print(f"{path}: {len(other)} texts, near-duplicates of the rows: {len(found)}")
        for i, j, jac in found[:a.rows]:
            print(f"  {jac:.2f} {rows[i][0]} = {other[j][0]} {cut(other[j][1])}")

    print(f"form errors: {len(errors)}")
    for e in errors[:a.rows]:
        print("  " + e)
    return 1 if errors or dups or often or clash else 0


if __name__ == "__main__":
    sys.exit(main())
