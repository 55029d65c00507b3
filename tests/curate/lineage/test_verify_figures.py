"""`curate verify` finds each figure of a receipt that is not what is derived again, though its digest is renewed."""

import csv
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from chained import N, dataset, resealed, write
from commandline import run as cli

import curate
from curate.commands.verify import lines_of
from curate.manifest.store_path import sha256_of
from curate.policies.filter.amounts import KeepTop
from curate.policies.filter.named import Minimum
from curate.rounds.init import round_init
from curate.rounds.next import round_next
from curate.rounds.verify import verify_rounds
from scoring.errors import InputError

NOT_DERIVED = ("environment", "curate", "digest")  # what says how it came about, not what


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("figures")
    table = pq.read_table(dataset(place))
    labels = pa.array(["cat" if row % 3 else "dog" for row in range(N)])
    table = table.append_column("label", labels)
    write(place / "scores.parquet", table)
    write(place / "other.parquet", table.slice(0, 4).drop_columns(["label"]))
    return place


POLICIES = {
    "filter": lambda table, out: curate.filter(table, out, [KeepTop("50%", "kappa_a"), Minimum(3, "unread")]),
    "dedup": lambda table, out: curate.dedup(
        table, out, {"bytes": None, "embedding": 0.999}, against=table.with_name("other.parquet"), label="label"
    ),
    "select": lambda table, out: curate.select(table, out, "k-center", 5),
    "split": lambda table, out: curate.split(table, out, train="60%", test="40%", per=["label"], exact=True),
    "balance": lambda table, out: curate.balance(table, out, per="label"),
}


def leaves(value, place=()):
    """Every place of a JSON value that holds no object or list with anything in it."""
    if isinstance(value, dict | list) and value:
        pairs = value.items() if isinstance(value, dict) else enumerate(value)
        return [leaf for name, inner in pairs for leaf in leaves(inner, (*place, name))]
    return [place]


def at(receipt, place):
    for name in place[:-1]:
        receipt = receipt[name]
    return receipt


def lie(receipt, place):
    """Change one value into another of its kind."""
    holder, name = at(receipt, place), place[-1]
    value = holder[name]
    lies = {bool: lambda: not value, int: lambda: value + 1, float: lambda: value * 2 + 1, str: lambda: value + "1"}
    holder[name] = lies.get(type(value), lambda: "1")()


def is_found(receipt):
    try:
        return not curate.verify(receipt).identical
    except InputError:
        return True


SELDOM = ("dedup", "select")  # their figures are checked the same way, and take three times as long


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name in SELDOM)) for name in POLICIES])
def test_every_figure_of_a_receipt_that_is_another_is_found(folder, name):
    receipt = POLICIES[name](folder / "scores.parquet", folder / f"{name}.parquet").receipt
    written = receipt.read_bytes()
    assert curate.verify(receipt).identical
    places = [place for place in leaves(json.loads(written)) if place[0] not in NOT_DERIVED]
    if name == "split":
        places.remove(("notes", 0))  # a sentence of the command, on the finders that it chose
    assert len(places) > 20
    unseen = []
    for place in places:
        for change in (lie, lambda value, where: at(value, where).__delitem__(where[-1])):
            resealed(receipt, lambda value, change=change, place=place: change(value, place))
            if not is_found(receipt):
                unseen.append((place, change is lie))
            receipt.write_bytes(written)
    assert not unseen, unseen


def test_a_receipt_with_other_figures_is_of_another_version(folder):
    receipt = POLICIES["filter"](folder / "scores.parquet", folder / "older.parquet").receipt
    resealed(receipt, lambda value: value.update(most=0.5))
    found = curate.verify(receipt)
    assert not found.identical
    assert any("another version" in note for note in lines_of(found)["notes"])


@pytest.mark.parametrize("column", ["size", "kept_key", "labels", "conflict"])
def test_a_table_of_groups_that_is_another_is_found(folder, column):
    result = POLICIES["dedup"](folder / "scores.parquet", folder / f"{column}.parquet")
    path = result.groups
    table = pq.read_table(path)
    value = {"size": 7, "kept_key": "elsewhere", "labels": ["fox"], "conflict": True}[column]
    number = table.schema.get_field_index(column)
    values = table[column].to_pylist()
    values[0] = (not values[0]) if column == "conflict" else value
    field = table.schema.field(column)
    pq.write_table(table.set_column(number, field, pa.array(values, field.type)), path)
    resealed(result.receipt, lambda r: r["outputs"]["groups"].update(sha256=sha256_of(path)))
    assert is_found(result.receipt)


def test_a_list_of_leaks_that_is_another_is_found(folder):
    result = POLICIES["dedup"](folder / "scores.parquet", folder / "leaking.parquet")
    path = folder / "leaking.leaks.csv"
    path.write_bytes(path.read_bytes().replace(b"000.png", b"009.png"))
    resealed(result.receipt, lambda r: r["outputs"]["leaks"].update(sha256=sha256_of(path)))
    assert is_found(result.receipt)


def rotated(path):
    """Give every row of a CSV file the image of the next one."""
    with path.open(newline="", encoding="utf-8-sig") as file:
        rows = list(csv.DictReader(file))
    uris = [row["uri"] for row in rows]
    for row, uri in zip(rows, uris[1:] + uris[:1], strict=True):
        row["uri"] = uri
    rewritten(path, rows)


def rewritten(path, rows, delimiter=","):
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]), delimiter=delimiter)
        writer.writeheader()
        writer.writerows(rows)


@pytest.fixture
def round_one(folder, tmp_path):
    round_init(tmp_path / "r", folder / "scores.parquet", batch=6, holdout="0")
    return round_next(tmp_path / "r").export


def test_an_export_that_shows_other_images_than_its_batch_is_found(round_one):
    folder = round_one.parents[2]
    assert verify_rounds(folder).identical
    rotated(round_one)
    check = verify_rounds(folder).rounds[0]
    assert not check.identical
    assert "export.csv" in check.problems[0]


@pytest.mark.parametrize("delimiter", [",", ";"])
def test_an_export_that_annotators_filled_in_and_sorted_is_as_it_was(round_one, delimiter):
    with round_one.open(newline="", encoding="utf-8-sig") as file:
        rows = [{**row, "label": "cat", "annotator": "anna", "why": "fur"} for row in csv.DictReader(file)]
    rewritten(round_one, rows[::-1], delimiter)
    assert verify_rounds(round_one.parents[2]).identical


@pytest.mark.parametrize("change", [lambda rows: rows[1:], lambda rows: [*rows, {**rows[0], "key": "another.png"}]])
def test_an_export_with_other_rows_is_found(round_one, change):
    with round_one.open(newline="", encoding="utf-8-sig") as file:
        rows = list(csv.DictReader(file))
    rewritten(round_one, change(rows))
    assert not verify_rounds(round_one.parents[2]).identical


def test_tasks_of_a_tool_that_changed_are_found(folder, tmp_path):
    round_init(tmp_path / "r", folder / "scores.parquet", batch=6, holdout="0", format="coco", classes=["cat", "dog"])
    export = round_next(tmp_path / "r").export
    assert verify_rounds(tmp_path / "r").identical
    export.write_bytes(export.read_bytes().replace(b".png", b".jpg", 1))
    assert not verify_rounds(tmp_path / "r").identical


def test_figures_of_a_calibration_and_of_a_pipeline_that_are_others_are_found(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    dataset(tmp_path, 80)
    bad = "kappa_a < 10 or unread > 30"
    curate.calibrate("scores.parquet", apply="judged.parquet", column="kappa_a", bad=bad, repeats=5)
    receipt = tmp_path / "judged.receipt.json"
    (tmp_path / "curate.toml").write_text(
        '[best]\nrun = "filter"\ntable = "scores.parquet"\nkeep-top = "50%"\ncolumn = "kappa_a"\n'
    )
    curate.run("curate.toml")
    pipeline = tmp_path / "curated" / "pipeline.receipt.json"
    for path, places in (
        (
            receipt,
            [("counts", "n_rows"), ("counts", "without_score"), ("model", "method"), ("outputs", "table", "n_rows")],
        ),
        (pipeline, [("steps", 0, "rows_in"), ("steps", 0, "rows_out"), ("steps", 0, "lost", "--keep-top 50%")]),
    ):
        written = path.read_bytes()
        assert cli("verify", path).exit_code == 0, cli("verify", path).output
        for place in places:
            resealed(path, lambda value, place=place: lie(value, place))
            assert cli("verify", path).exit_code == 1, place
            path.write_bytes(written)
