"""A table whose least certain rows are bad, audits drawn from it, and commands on them."""

import csv

from sample_verdicts import judge
from typer.testing import CliRunner

from curate.cli import app

N = 3000
VERDICTS = {"good": "keep", "bad": "drop", "?": "unsure", "": ""}


def run(*line):
    return CliRunner().invoke(app, [str(word) for word in line])


def refused(*line):
    result = run(*line)
    assert result.exit_code == 1, result.output
    assert result.output.count("\n") == 1
    return result.output


def answered(path, bad, *, change=None):
    """Judge by the truth; ``change`` may alter the lines and the answers."""
    with path.open() as file:
        lines = list(csv.DictReader(file))
    for line in lines:
        line["answer"] = "bad" if bad[line["key"]] else "good"
    if change:
        change(lines)
    out = path.with_name(f"answered_{path.name}")
    answers = [(VERDICTS[line.pop("answer")], line["key"], "", "") for line in lines]
    with out.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(lines[0]))
        writer.writeheader()
        writer.writerows(lines)
    judge(out, answers, question="image")
    return out
