"""Fits what speaks for and against a call, and prints what it is worth.

    python provenance.py RUNS_FOLDER

The crate itself says what it sees of each call (examples/provenance.rs). All runs are fitted; reported is what a fit without the files
of a domain says of that domain. Weights go into `inference/src/provenance/weigh.rs`.
"""

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


def gated(calls):
    """Calls of users who asked for what was read to be used, where nothing speaks to a reader: Low at most (`Weighed::severity`)."""
    sign = lambda call, name: call["signs"][name] > 0
    asked = lambda call: sign(call, "delegated") or sign(call, "asked") and sign(call, "target_ours")
    return np.array([asked(call) and not sign(call, "reader_near") for call in calls])


def main():
    files = sorted(pathlib.Path(sys.argv[1]).glob("*.jsonl"))
    program = pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else prepare.built("provenance")
    runs, calls = read(program, files)
    names, x = list(calls[0]["signs"]), lines(calls)
    y = np.array([call["label"] == "hijacked" and call["last"] for call in calls])
    # What stands in mail.jsonl and mail2.jsonl is one domain.
    file_of = {run["id"]: file.stem.rstrip("0123456789") for file in files for run in map(json.loads, file.read_text().splitlines())}
    domains = np.array([file_of[call["id"]] for call in calls])
    fit = lambda use: LogisticRegression(C=REGULARISATION, max_iter=1000).fit(x[use], y[use])
    crossed = np.zeros(len(calls))
    for domain in sorted(set(domains)):
        mine = domains == domain
        crossed[mine] = fit(~mine).predict_proba(x[mine])[:, 1]
    model = fit(np.ones(len(calls), bool))
    print("const BIAS: f64 =", round(float(model.intercept_[0]), 2))
    for name, value in zip(names, model.coef_[0]):
        print(f'    ("{name}", {round(float(value), 2)}),')
    print("| at | hijacked | honest |\n|---|---|---|")
    worst, bad = of_runs(runs, calls, np.where(gated(calls), 0.0, crossed))
    for at in (0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9):
        print(f"| Medium, {at} | {wilson((worst[bad] >= at).sum(), bad.sum())} | {wilson((worst[~bad] >= at).sum(), (~bad).sum())} |")
    worst, bad = of_runs(runs, calls, crossed)
    for at in (0.3, 0.4):
        print(f"| Low, {at} | {wilson((worst[bad] >= at).sum(), bad.sum())} | {wilson((worst[~bad] >= at).sum(), (~bad).sum())} |")


if __name__ == "__main__":
    main()
