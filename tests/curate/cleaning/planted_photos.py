"""A small folder of photographs with copies, blank and broken images, and how a test cleans it."""

import csv
import json

from commandline import run

COPIES, SMALLER = ("astronaut", "brick", "coffee"), ("china", "chelsea")
UNREADABLE = {"short.jpg": "truncated", "text.jpg": "not_an_image"}


def clean(*args):
    return run("clean", "photos", "-o", "out", "--model", "m.safetensors", *args)


def counts(result):
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def states(result):
    return [step["state"] for step in counts(result)["steps"]]


def findings(folder):
    with (folder / "review/findings.csv").open(newline="", encoding="utf-8-sig") as file:
        return list(csv.DictReader(file))


def refused(result, *words):
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1), result.output
    assert result.stderr.startswith("error: ")
    assert all(word in result.stderr for word in words), result.stderr
