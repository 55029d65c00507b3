"""A folder that is cleaned again applies what was decided in review."""

import shutil
from pathlib import Path

import polars as pl
import pytest
from commandline import run
from planted_photos import COPIES, clean, counts, findings, states
from reviewed_table import act, call, queue, serving

from curate.cleaning.steps import command_of

pytestmark = pytest.mark.usefixtures("few_copies")


def test_a_second_run_applies_what_was_decided_in_review_and_no_longer_when_it_is_undone(workdir):
    before = counts(clean("--json"))
    subset = pl.read_parquet("out/subset.parquet")
    with serving("out", reviewer="ann") as server:
        groups = queue(server)
        act(server, "drop", groups[0]["id"])
        (copies,) = (each for each in groups if each["words"] == "equal files")
        act(server, "keep", copies["id"])
    again = counts(clean("--json"))
    n = groups[0]["n"]
    assert (again["dropped_in_review"], again["copies"], again["kept"]) == (n, 5 - len(COPIES), 12 - n + len(COPIES))
    assert again["to_review"] < before["to_review"]
    kept = set(pl.read_parquet("out/subset.parquet")["key"])
    assert {f"{name}{end}.jpg" for name in COPIES for end in ("", "_again")} <= kept
    assert run("verify", "out/subset.receipt.json").exit_code == 0
    assert set(states(clean("--json"))) == {"up to date"}
    with serving("out", reviewer="ann") as server:
        act(server, "undo")
        act(server, "undo")
    assert counts(clean("--json"))["dropped_in_review"] is None
    assert pl.read_parquet("out/subset.parquet").equals(subset)


def test_findings_that_a_reviewer_decided_are_marked_and_no_longer_shown(workdir):
    before = counts(clean("--json"))
    assert {line["decided"] for line in findings(Path("out"))} == {""}
    with serving("out", reviewer="ann") as server:
        group = next(each for each in queue(server) if each["kind"] != "dropped-copy")
        keys = {item["key"] for item in call(server, f"group?id={group['id']}")[1]["items"]}
        act(server, "keep", group["id"])
    again, lines = counts(clean("--json")), findings(Path("out"))
    decided = {line["key"] for line in lines if line["decided"]}
    assert decided == keys
    assert {line["decided"] for line in lines} <= {"", "keep"}
    assert again["to_review"] <= before["to_review"]
    of_kind = [line for line in lines if line["kind"] == group["kind"] and not line["decided"]]
    assert any(path.name.endswith(f"-{group['kind']}.png") for path in Path("out/review").iterdir()) == bool(of_kind)


def test_what_was_decided_no_longer_counts_where_the_images_changed(workdir):
    with serving("out", reviewer="ann") as server:
        group = next(each for each in queue(server) if each["kind"] != "dropped-copy")
        keys = [item["key"] for item in call(server, f"group?id={group['id']}")[1]["items"]]
        act(server, "keep", group["id"])
    decided = counts(clean("--json"))
    for path in Path("photos").glob("*.*"):
        path.write_bytes(path.read_bytes() + b"\n")
    printed, again = clean().stdout, counts(clean("--json"))
    assert (again["changed_since"], again["to_review"] > decided["to_review"]) == (len(keys), True)
    assert f"{len(keys)} image" in next(line for line in printed.splitlines() if "no longer counts" in line)
    assert not any(line["decided"] for line in findings(Path("out")))
    with serving("out", reviewer="ann") as server:
        assert group["id"] in {each["id"] for each in queue(server)}
        assert any(str(len(keys)) in note for note in server.site.notes)


def test_the_command_that_applies_decisions_is_the_one_that_was_typed(workdir):
    typed = ["clean", "photos", "-o", "out", "--model", "m.safetensors"]
    assert command_of(Path("out")) == ["curate", *typed]
    Path("other").mkdir()
    shutil.copy("photos/brick.jpg", "other")
    typed += ["--against", "other", "--export", "csv"]
    assert run(*typed).exit_code == 0
    assert command_of(Path("out")) == ["curate", *typed]
    with Path("out/curate.toml").open("a") as file:
        file.write("# mine\n")
    assert command_of(Path("out")) is None
