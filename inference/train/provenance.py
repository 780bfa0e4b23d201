"""Fits what speaks for and against a call, and prints what it is worth.

    python provenance.py RUNS_FOLDER

The crate itself says what it sees of each call (examples/provenance.rs). Half of the files, by the SHA-256 of their names, are fitted;
the other half is reported. Weights go into `inference/src/provenance/weigh.rs`.
"""

import hashlib
import json
import pathlib
import subprocess
import sys

import numpy as np
from sklearn.linear_model import LogisticRegression

import prepare
from evaluate import wilson

REGULARISATION = 0.2


def read(program, files):
    """The runs, and what the crate says of their calls."""
    text = "".join(file.read_text() for file in files)
    runs = [json.loads(line) for line in text.splitlines()]
    said = subprocess.run([str(program)], input=text, text=True, capture_output=True, check=True).stdout
    return runs, [json.loads(line) for line in said.splitlines()]


def lines(calls):
    return np.array([list(call["signs"].values()) for call in calls])


def of_runs(runs, calls, scores):
    """The worst call of each run."""
    worst = {run["id"]: -1.0 for run in runs}
    for call, score in zip(calls, scores):
        worst[call["id"]] = max(worst[call["id"]], score)
    bad = np.array([run["label"] == "hijacked" for run in runs])
    return np.array([worst[run["id"]] for run in runs]), bad


def main():
    files = sorted(pathlib.Path(sys.argv[1]).glob("*.jsonl"), key=lambda file: hashlib.sha256(file.name.encode()).hexdigest())
    program = pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else prepare.built("provenance")
    half = len(files) // 2
    runs, calls = read(program, files[:half])
    names, x = list(calls[0]["signs"]), lines(calls)
    y = np.array([call["label"] == "hijacked" and call["last"] for call in calls])
    domains = np.array([call["domain"] for call in calls])
    fit = lambda use: LogisticRegression(C=REGULARISATION, max_iter=1000).fit(x[use], y[use])
    crossed = np.zeros(len(calls))
    for domain in sorted(set(domains)):
        mine = domains == domain
        crossed[mine] = fit(~mine).predict_proba(x[mine])[:, 1]
    model = fit(np.ones(len(calls), bool))
    print("bias", round(float(model.intercept_[0]), 2))
    print({name: round(float(value), 2) for name, value in zip(names, model.coef_[0])})
    print("WEIGHTS", [round(float(v), 2) for v in model.coef_[0]])
    points = (0.3, 0.4, 0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8)
    show = lambda what, worst, bad, at: print(f"| {what} | {at} | {wilson((worst[bad] >= at).sum(), bad.sum())} | {wilson((worst[~bad] >= at).sum(), (~bad).sum())} |")
    worst, bad = of_runs(runs, calls, crossed)
    for at in points:
        show("files that were fitted, each domain by a fit without it", worst, bad, at)
    runs, calls = read(program, files[half:])
    worst, bad = of_runs(runs, calls, model.predict_proba(lines(calls))[:, 1])
    if "report" in sys.argv:
        for at in points:
            show("the other half", worst, bad, at)
        said, _ = of_runs(runs, calls, [["Low", "Medium", "High"].index(call["severity"]) + 1 if call["severity"] else 0 for call in calls])
        for at, name in ((1, "Low"), (2, "Medium"), (3, "High")):
            show(f"the crate, from {name}", said, bad, at)


if __name__ == "__main__":
    main()
