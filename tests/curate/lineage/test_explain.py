"""What happened to an image is reported step by step, as the decisions note it."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from chained import N, chain, dataset
from commandline import run

import curate
from scoring.errors import InputError


@pytest.fixture
def made(tmp_path):
    dataset(tmp_path)
    return tmp_path, *chain(tmp_path)


def test_every_row_is_reported_as_the_decisions_of_each_step_note_it(made):
    folder, first, best = made
    keys = [f"{number:03}.png" for number in range(N)]
    stories = curate.explain(best.subset, keys)
    assert [each.key for each in stories] == keys
    noted = [{row["key"]: row for row in pq.read_table(run.decisions).to_pylist()} for run in (first, best)]
    scored = {row["key"]: row for row in pq.read_table(folder / "scores.parquet").to_pylist()}
    for story in stories:
        assert story.row == {name: value for name, value in scored[story.key].items() if name != "embedding"}
        assert [event.policy for event in story.events] == ["dedup", "filter"]
        lost = None
        for number, (event, rows) in enumerate(zip(story.events, noted, strict=True)):
            row = rows.get(story.key)
            assert event.decision == (row["decision"] if row else "absent")
            if row:
                assert (event.reason, event.rule or None) == (row["reason"], row["rule"])
                assert event.noted.get("score") == row["score"]
                lost = number if lost is None and row["decision"] != "keep" else lost
        assert story.lost == lost
    kept = {row["key"] for row in pq.read_table(best.subset, columns=["key"]).to_pylist()}
    assert {each.key for each in stories if each.lost is None} == kept


def test_a_copy_is_reported_with_the_row_that_is_kept_instead(made):
    _folder, first, best = made
    dropped = next(row for row in pq.read_table(first.decisions).to_pylist() if row["decision"] == "drop")
    (story,) = curate.explain(best.decisions, dropped["key"])
    assert story.in_its_place == dropped["kept_key"]
    assert story.events[1].decision == "absent"
    keep = json.loads(first.receipt.read_text())["policy"][0]["keep"]
    assert story.events[0].noted["kept_by"] == f"{keep}, then the shorter key"
    done = run("explain", best.receipt, dropped["key"])
    assert done.exit_code == 0
    lines = done.stdout.splitlines()
    assert lines[0].startswith(f"{dropped['key']}: dropped by step 1, dedup: ")
    assert lines[1].startswith(f"{dropped['kept_key']}, instead: ")
    assert "what it read" in done.stdout
    (noted,) = json.loads(run("explain", best.receipt, dropped["key"], "--json").stdout)
    assert (noted["lost"], noted["in_its_place"]) == (0, dropped["kept_key"])


def test_of_the_scored_table_every_step_next_to_it_is_reported(made):
    folder, _first, _best = made
    curate.filter(folder / "scores.parquet", folder / "another.parquet", keep_top="10%", column="kappa_a")
    (story,) = curate.explain(folder / "scores.parquet", "001.png")
    assert sorted(event.receipt for event in story.events) == sorted(
        str(folder / f"{n}.receipt.json") for n in ("another", "best", "unique")
    )
    names = [event.policy for event in story.events]
    assert names.index("dedup") < names.index("filter", names.index("dedup"))
    assert run("explain", folder / "scores.parquet", "001.png").exit_code == 0


def test_a_margin_of_a_row_at_the_cut_is_no_negative_zero(tmp_path):
    dataset(tmp_path)
    kept = curate.filter(tmp_path / "scores.parquet", tmp_path / "kept.parquet", max=0, column="kappa_a")
    (story,) = curate.explain(kept.subset, "000.png")
    assert str(story.events[0].noted["margin"]) == "0.0"


def test_values_that_json_cannot_hold_are_null_there(tmp_path):
    pq.write_table(pa.table({"key": ["a"], "x": [float("inf")], "y": [float("nan")]}), tmp_path / "s.parquet")
    (story,) = json.loads(run("explain", tmp_path / "s.parquet", "a", "--json").stdout, parse_constant=pytest.fail)
    assert story["row"] == {"key": "a", "x": None, "y": None}


def test_a_table_without_a_step_is_reported_as_scored(tmp_path):
    dataset(tmp_path)
    (story,) = curate.explain(tmp_path / "scores.parquet", "000.png")
    assert (story.events, story.lost) == ([], None)
    assert "no step next" in run("explain", tmp_path / "scores.parquet", "000.png").stdout


def test_what_cannot_be_explained_is_one_line(made):
    folder, first, best = made
    with pytest.raises(InputError, match=r"the key 'x'.*'000\.png'"):
        curate.explain(best.subset, ["000.png", "x"])
    for typed, nearest in {"001.jpg": "001.png", "002.pnh": "002.png"}.items():
        with pytest.raises(InputError, match=f"did you mean '{nearest}'"):
            curate.explain(best.subset, typed)
    with pytest.raises(InputError, match="key in UTF-8"):
        curate.explain(best.subset, "\udcff")
    with pytest.raises(InputError, match="1 to 1,000 keys"):
        curate.explain(best.subset, [])
    with pytest.raises(InputError, match="look like"):
        curate.explain(best.subset, "")
    first.decisions.unlink()
    with pytest.raises(InputError, match=r"unique\.decisions\.parquet.* no longer"):
        curate.explain(best.subset, "000.png")
    (folder / "scores.parquet").rename(folder / "elsewhere.parquet")
    with pytest.raises(InputError, match="no longer"):
        curate.explain(best.subset, "000.png")
