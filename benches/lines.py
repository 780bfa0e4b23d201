#!/usr/bin/env python3
"""Lines of code that are no test's, per folder, at two commits: `benches/lines.py OLD [NEW]` (NEW: HEAD).

Counted are all lines of Rust, comments and blank ones among them, but for files of tests and `#[cfg(test)]` items. The folders are a fixed
list: `NEW_ROOMS` holds what did not exist before the house was rebuilt, `MOVED` the rooms that took in what others held, so that what
only moved counts neither as gone nor as new. A folder that is in no list ends the run: it has to be put somewhere.
"""

import subprocess
import sys

# Crates below, one line each.
CRATES = ["config", "inference", "models", "storage", "proto", "loadtest/provider", "loadtest"]
# Folders of `src` from before.
OLD = """admit api boot cli codec demo enforce exchange flow forward identity inspect json meter money observe ops record rewrite
rt wire""".split()
# What was taken out of these: the client's connection and the settling out of `flow`, reports out of the store, and so on.
MOVED = ["client", "control", "limits", "per_tenant", "process", "redaction", "reports", "settle", "lib", "main"]
# What this work was to make room for, and what lives there by now.
NEW_ROOMS = """alerts anomalies defence feed golden grpc hub ingest judge judging outbound output router upstreams""".split()
NEW_CRATES = ["models", "proto"]


def git(*words):
    return subprocess.run(["git", *words], check=True, capture_output=True, text=True).stdout


def lines_without_tests(text):
    """Lines of a formatted file outside its `#[cfg(test)]` items."""
    count, lines, at = 0, text.splitlines(), 0
    while at < len(lines):
        if lines[at].strip() != "#[cfg(test)]":
            count, at = count + 1, at + 1
            continue
        margin = lines[at][: len(lines[at]) - len(lines[at].lstrip())]
        at += 1
        # Attributes and the item's first line, up to what closes it at the same margin.
        while at < len(lines) and lines[at] != margin + "}" and not (
            lines[at].startswith(margin) and not lines[at].startswith(margin + " ") and lines[at].endswith((";", "}"))
        ):
            at += 1
        at += 1
    return count


def folder_of(path):
    for crate in CRATES:
        if path.startswith(f"{crate}/src/"):
            return crate
    if not path.startswith("src/"):
        return None
    parts = path.removeprefix("src/").split("/")
    # Since 2026-11-28 the folders of `src` stand in rooms.
    rooms = ("net", "read", "govern", "react", "gateway", "serve", "app")
    return parts[1 if parts[0] in rooms and len(parts) > 1 else 0].removesuffix(".rs")


def count(commit):
    sums = {}
    # What one process hands out: every file of the commit, its size in front.
    names = [line.split("\t") for line in git("ls-tree", "-r", commit).splitlines()]
    wanted = {}
    for about, path in names:
        parts = path.removesuffix(".rs").split("/")
        folder = folder_of(path) if path.endswith(".rs") else None
        if folder and "tests" not in parts and "testing" not in parts:
            wanted[path] = (about.split()[2], folder)
    batch = subprocess.run(
        ["git", "cat-file", "--batch"],
        input="".join(f"{blob}\n" for blob, _ in wanted.values()).encode(),
        check=True,
        capture_output=True,
    ).stdout
    for _, folder in wanted.values():
        head, _, batch = batch.partition(b"\n")
        size = int(head.split()[2])
        text, batch = batch[:size].decode(), batch[size + 1 :]
        sums[folder] = sums.get(folder, 0) + lines_without_tests(text)
    return sums


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    old, new = sys.argv[1], sys.argv[2] if len(sys.argv) == 3 else "HEAD"
    before, after = count(old), count(new)
    known = CRATES + OLD + MOVED + NEW_ROOMS
    strange = sorted((set(before) | set(after)) - set(known))
    if strange:
        sys.exit(f"no list names {', '.join(strange)}")
    rooms = set(NEW_ROOMS + NEW_CRATES)
    total = {False: [0, 0], True: [0, 0]}
    print(f"{'folder':<20}{old:>10}{new:>10}{'change':>10}")
    for folder in known:
        was, now = before.get(folder, 0), after.get(folder, 0)
        total[folder in rooms][0] += was
        total[folder in rooms][1] += now
        if was or now:
            print(f"{folder + (' (new)' if folder in rooms else ''):<20}{was:>10}{now:>10}{now - was:>+10}")
    for is_room, said in [(False, "outside new rooms"), (True, "new rooms")]:
        was, now = total[is_room]
        print(f"{'= ' + said:<20}{was:>9}{now:>10}{now - was:>+10}")


if __name__ == "__main__":
    main()
