"""``curate fit``: a model and a table from embeddings, and one line for what cannot be fitted."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import timm
import torch
from PIL import Image
from safetensors.torch import save_file
from synthetic import kinds
from typer.testing import CliRunner

import curate
from curate.cli import app
from curate.fitting.fit import fit
from curate.fitting.verify import verify_fit
from curate.tables.needs import default_column
from curate.tables.table import embedding_field, open_table
from curate.tables.writer import TableWriter
from scoring.cards import read_header
from scoring.checkpoint import read_checkpoint, write_checkpoint
from scoring.errors import InputError
from scoring.published import load_published
from scoring.relative.columns import COPIES, JUNK, LOCAL, PER_IMAGE

pytestmark = pytest.mark.usefixtures("few_copies")
WITHOUT_JUNK = [name for name in PER_IMAGE if name != JUNK]  # of a table without images


def write(path, rows, digest, *, labels=None, order=None, dtype="float16", **columns):
    """Write a scored table of embeddings; null where a row is None."""
    order = np.arange(len(rows)) if order is None else order
    field = embedding_field(len(rows[0]), dtype)
    values = pa.FixedSizeListArray.from_arrays(
        pa.array(np.stack([rows[i] for i in order]).astype(dtype).reshape(-1)), type=field.type
    )
    arrays = {"key": pa.array([f"k{i}" for i in order]), "status": pa.array(["ok"] * len(rows)), "embedding": values}
    if labels is not None:
        arrays["label"] = pa.array([None if labels[i] is None else f"c{labels[i]}" for i in order], pa.string())
    arrays |= {name: pa.array(np.asarray(column, np.float32)[order]) for name, column in columns.items()}
    table = pa.table(
        arrays,
        schema=pa.schema([field if name == "embedding" else (name, array.type) for name, array in arrays.items()]),
    )
    metadata = {"kind": "scores", "model": {"method": "visimsiam", "digest": digest}}
    with TableWriter(path, table.schema, metadata, overwrite=True) as writer:
        writer.write(table)
    return path


@pytest.fixture
def digest(tiny_checkpoint):
    return read_header(tiny_checkpoint)["digest"]


@pytest.fixture
def table(tmp_path, digest):
    rows, kind = kinds(n=150)
    return write(tmp_path / "scores.parquet", rows, digest, labels=kind)


def columns_of(path):
    rows = open_table(path).read(["key", *WITHOUT_JUNK]).to_pylist()
    return {row["key"]: [-1 if row[name] is None else row[name] for name in WITHOUT_JUNK] for row in rows}


def test_a_table_gets_its_columns_and_a_model_gives_the_same(table, tmp_path, tiny_checkpoint):
    result = fit(table, tmp_path / "f.safetensors", apply=tmp_path / "a.parquet", model=tiny_checkpoint)
    fit(table, apply=tmp_path / "b.parquet", fitted=tmp_path / "f.safetensors")
    assert open_table(tmp_path / "a.parquet").schema.names == [*open_table(table).schema.names, *WITHOUT_JUNK, COPIES]
    fitted, given_by_model = columns_of(tmp_path / "a.parquet"), columns_of(tmp_path / "b.parquet")
    for values in (*fitted.values(), *given_by_model.values()):
        values.pop(WITHOUT_JUNK.index(LOCAL))  # a model judges each row on its own; here it depends on all
    assert all(fitted[key] == pytest.approx(given_by_model[key], abs=0.02) for key in fitted)
    assert (result.rows, result.references, result.kind) == (150, 150, "class")
    assert sum(share.taken for share in result.shares) == 45
    assert result.outside <= 0.02
    about = read_header(tmp_path / "f.safetensors")["fit"]
    assert about["digest"] == result.digest == open_table(tmp_path / "a.parquet").metadata["fit"]["digest"]
    assert about["table"]["rows"] == 150


def test_the_order_of_the_table_changes_nothing(table, tmp_path, tiny_checkpoint, digest):
    rows, kind = kinds(n=150)
    order = np.random.default_rng(1).permutation(150)
    moved = write(tmp_path / "moved.parquet", rows, digest, labels=kind, order=order)
    first = fit(table, apply=tmp_path / "a.parquet")
    moved_fit = fit(moved, apply=tmp_path / "b.parquet")
    assert first.digest == moved_fit.digest
    assert columns_of(tmp_path / "a.parquet") == columns_of(tmp_path / "b.parquet")


def test_columns_that_are_there_are_written_again(table, tmp_path):
    fit(table, apply=tmp_path / "a.parquet")
    fit(tmp_path / "a.parquet", apply=tmp_path / "b.parquet")
    assert open_table(tmp_path / "a.parquet").schema == open_table(tmp_path / "b.parquet").schema
    assert columns_of(tmp_path / "a.parquet") == columns_of(tmp_path / "b.parquet")


def test_the_shares_of_classes_match_the_cut(table, tmp_path):
    result = fit(table, apply=tmp_path / "a.parquet")
    rows = open_table(tmp_path / "a.parquet").read(["label", LOCAL]).to_pylist()
    gone = sorted(rows, key=lambda row: row[LOCAL])[105:]
    for share in result.shares:
        assert share.rows == sum(row["label"] == share.name for row in rows)
        assert share.taken == sum(row["label"] == share.name for row in gone)


def test_without_classes_it_reports_clusters(tmp_path, digest):
    path = write(tmp_path / "s.parquet", kinds(n=100)[0], digest)
    result = fit(path, apply=tmp_path / "a.parquet")
    assert result.kind == "cluster"
    assert sum(share.rows for share in result.shares) == 100
    assert sum(share.taken for share in result.shares) == 30


def test_rows_without_an_embedding_stay_and_get_no_score(tmp_path, digest):
    rows = kinds(n=80)[0].copy()
    rows[3], rows[4] = np.nan, 0
    result = fit(write(tmp_path / "s.parquet", rows, digest), apply=tmp_path / "a.parquet")
    columns = columns_of(tmp_path / "a.parquet")
    assert columns["k3"] == columns["k4"] == [-1] * len(WITHOUT_JUNK)
    assert result.rows == 78
    assert sum(result.without.values()) == 2


def test_a_small_dataset_is_fitted_with_a_warning(tmp_path, digest):
    path = write(tmp_path / "s.parquet", kinds(n=30)[0], digest)
    result = CliRunner().invoke(app, ["fit", str(path), "--apply", str(tmp_path / "a.parquet")])
    assert "fewer than 50" in result.stderr


def test_rows_of_another_dataset_are_reported_as_far_away(tmp_path, digest, tiny_checkpoint):
    near = write(tmp_path / "s.parquet", kinds(n=200, spread=0.2)[0], digest)
    far = write(tmp_path / "t.parquet", kinds(n=80, seed=9)[0], digest)
    fit(near, tmp_path / "f.safetensors", model=tiny_checkpoint)
    line = ["fit", far, "--apply", tmp_path / "a.parquet", "--fitted", tmp_path / "f.safetensors", "--json"]
    assert json.loads(CliRunner().invoke(app, [str(word) for word in line]).stdout)["outside"] > 0.5
    lines = CliRunner().invoke(app, [*(str(word) for word in line[:-1]), "--overwrite"]).stderr
    assert "99 % of its images" in lines


MISTAKES = {
    "at least 20 different images": lambda rows: rows[:10],
    "copies of one image": lambda rows: np.tile(rows[:1], (60, 1)),
    "no row with an embedding .*60 with an embedding that is missing, NaN": lambda rows: np.full((60, 24), np.nan),
}


@pytest.mark.parametrize("says", MISTAKES)
def test_what_cannot_be_fitted_is_one_line_and_nothing_is_written(tmp_path, digest, says):
    path = write(tmp_path / "s.parquet", MISTAKES[says](kinds(n=60)[0]), digest)
    with pytest.raises(InputError, match=says) as caught:
        fit(path, apply=tmp_path / "a.parquet")
    assert "\n" not in str(caught.value)
    assert [each.name for each in tmp_path.iterdir()] == ["s.parquet"]


def test_a_table_without_embeddings_is_refused(tmp_path):
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"key": ["a", "b"], "kappa_a": [1.0, 2.0]}), tmp_path / "s.parquet")
    with pytest.raises(InputError, match=r"no column 'embedding'.*--no-embedding"):
        fit(tmp_path / "s.parquet", apply=tmp_path / "a.parquet")


def test_a_model_of_another_backbone_is_refused(table, tmp_path, tiny_checkpoint, digest):
    other = write(tmp_path / "other.parquet", kinds(n=60)[0], "f" * 64)
    fit(table, tmp_path / "f.safetensors", model=tiny_checkpoint)
    for wrong in ({"fitted": tmp_path / "f.safetensors"}, {"model": tiny_checkpoint}):
        with pytest.raises(InputError, match=f"ffffffffffff.*{digest[:12]}"):
            fit(other, apply=tmp_path / "a.parquet", **wrong)
    with pytest.raises(InputError, match="as --model"):
        fit(other, tmp_path / "g.safetensors")


def test_a_model_for_embeddings_of_another_width_is_refused(table, tmp_path, tiny_checkpoint, digest):
    fit(table, tmp_path / "f.safetensors", model=tiny_checkpoint)
    wide = write(tmp_path / "wide.parquet", kinds(n=60, width=30)[0], digest)
    with pytest.raises(InputError, match=r"24 numbers .*got 30"):
        fit(wide, apply=tmp_path / "a.parquet", fitted=tmp_path / "f.safetensors")


REFUSED = [
    ({}, "-o NAME.safetensors.*--apply NAME.parquet"),
    ({"out": "m.parquet"}, "expected -o NAME.safetensors"),
    ({"apply": "t.csv"}, "expected --apply NAME.parquet"),
    ({"apply": "scores.parquet"}, "the table itself"),
    ({"out": "m.safetensors", "fitted": "f.safetensors"}, "leave out -o"),
    ({"apply": "t.parquet", "fitted": "tiny.safetensors"}, "was not fitted"),
]


@pytest.mark.parametrize(("options", "says"), REFUSED)
def test_places_that_cannot_be_are_refused_before_any_work(
    table, tmp_path, monkeypatch, tiny_checkpoint, options, says
):
    monkeypatch.chdir(tmp_path)
    Path("tiny.safetensors").write_bytes(tiny_checkpoint.read_bytes())
    with pytest.raises(InputError, match=says):
        fit(table, **options)


def test_nothing_is_replaced_unless_requested(table, tmp_path):
    (tmp_path / "a.parquet").write_text("mine")
    with pytest.raises(InputError, match="exists"):
        fit(table, apply=tmp_path / "a.parquet")
    assert (tmp_path / "a.parquet").read_text() == "mine"
    fit(table, apply=tmp_path / "a.parquet", overwrite=True)
    assert open_table(tmp_path / "a.parquet").n_rows == 150


def test_the_command_reports_what_a_cut_would_take(table, tmp_path, tiny_checkpoint):
    line = ["fit", str(table), "-o", str(tmp_path / "f.safetensors"), "--model", str(tiny_checkpoint)]
    result = CliRunner().invoke(app, line)
    assert result.exit_code == 0, result.output
    assert "--keep-top 70% --allow-uneven" in result.stderr
    assert "150 rows" in result.stderr
    assert result.stdout == ""
    report = json.loads(CliRunner().invoke(app, [*line, "--overwrite", "--json"]).stdout)
    assert report["rows"] == 150
    assert report["shares"][0].keys() == {"name", "rows", "taken"}


def test_one_row_outside_of_a_few_is_no_reason_to_warn(tmp_path, digest, tiny_checkpoint):
    rows = kinds(n=200, spread=0.2)[0]
    few = np.concatenate([rows[:9], kinds(n=1, seed=9)[0]])
    fit(write(tmp_path / "s.parquet", rows, digest), tmp_path / "f.safetensors", model=tiny_checkpoint)
    line = ["fit", write(tmp_path / "t.parquet", few, digest), "--apply", tmp_path / "a.parquet"]
    shown = CliRunner().invoke(app, [str(word) for word in (*line, "--fitted", tmp_path / "f.safetensors")])
    assert shown.exit_code == 0
    assert "farther" not in shown.stderr


def test_few_labels_and_classes_of_one_row_are_not_reported_as_classes(tmp_path, digest):
    rows, kind = kinds(n=100)
    few = [k if i < 12 else None for i, k in enumerate(kind)]
    distinct = list(range(100))
    for number, labels in enumerate((few, distinct)):
        path = write(tmp_path / f"{number}.parquet", rows, digest, labels=labels)
        result = fit(path, apply=tmp_path / f"a{number}.parquet")
        assert (result.kind, sum(share.rows for share in result.shares)) == ("cluster", 100)


def test_a_dataset_too_small_for_clusters_has_no_reported_share(tmp_path, digest):
    path = write(tmp_path / "s.parquet", kinds(n=60)[0], digest)
    lines = CliRunner().invoke(app, ["fit", str(path), "--apply", str(tmp_path / "a.parquet")]).stderr
    assert "keeping the most certain" not in lines


def test_a_dataset_scored_by_a_model_of_timms_is_fitted_into_a_model_that_scores_more(tmp_path):
    torch.manual_seed(5)
    save_file(timm.create_model("resnet10t.c3_in1k").state_dict(), tmp_path / "one.safetensors")
    named = f"timm:resnet10t.c3_in1k@{tmp_path / 'one.safetensors'}"
    table = write(tmp_path / "s.parquet", kinds(n=60, width=512)[0], load_published(named)[1]["digest"])
    with pytest.raises(InputError, match="as --model"):
        fit(table, tmp_path / "f.safetensors")
    fit(table, tmp_path / "f.safetensors", model=named)
    (tmp_path / "photos").mkdir()
    for i in range(3):
        Image.new("RGB", (48, 40), (80 * i, 255 - 80 * i, 90)).save(tmp_path / "photos" / f"{i}.png")
    for name, model in (("a", named), ("b", tmp_path / "f.safetensors")):
        curate.score(tmp_path / "photos", tmp_path / f"{name}.parquet", model=model, device="cpu")
    fitted, scored = (open_table(tmp_path / f"{name}.parquet") for name in "ab")
    assert fitted.read(["embedding"]).equals(scored.read(["embedding"]))
    assert set(WITHOUT_JUNK) <= set(scored.schema.names)
    assert fitted.metadata["model"]["digest"] == scored.metadata["model"]["digest"]
    other_table = write(tmp_path / "t.parquet", kinds(n=60, width=512)[0], "f" * 64)
    with pytest.raises(InputError, match="model that scored"):
        fit(other_table, tmp_path / "g.safetensors", model=named)


def test_a_table_of_embeddings_alone_needs_a_fit(tmp_path, digest):
    table = open_table(write(tmp_path / "s.parquet", kinds(n=60)[0], digest))
    with pytest.raises(InputError, match=r"no kappa column .*no unc column"):
        default_column(table)


@pytest.mark.parametrize(
    ("name", "forged"),
    [
        ("seed", -5),
        ("seed", "0"),
        ("labels", {"column": 3}),
        ("labels", ["label"]),
        ("applied", {"file": 5}),
        ("table", {"path": 7, "digest": "x"}),
    ],
)
def test_a_card_that_does_not_say_what_was_fitted_to_is_one_line(table, tiny_checkpoint, tmp_path, name, forged):
    out = tmp_path / "fitted.safetensors"
    fit(table, out, model=tiny_checkpoint)
    card, tensors = read_checkpoint(out)
    card["fit"][name] = forged
    write_checkpoint(out, tensors, card, overwrite=True)
    with pytest.raises(InputError, match=r"fitted to .*again"):
        verify_fit(out)
