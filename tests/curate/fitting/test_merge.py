"""Tables put together have the scores of one run over all images, and name what does not fit."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

import curate
from curate.tables.table import open_table
from scoring.errors import InputError

pytestmark = pytest.mark.usefixtures("few_copies")
SETTINGS = {"device": "cpu", "batch_size": 8, "white": 65535}
N = 64  # whole batches, in both tables


@pytest.fixture(scope="module")
def place(tmp_path_factory, tiny_checkpoint, few_copies):
    """Images in two folders and in one that holds all of them, each scored."""
    folder, draw = tmp_path_factory.mktemp("merge"), np.random.default_rng(3)
    for number in range(N):
        pixels = draw.integers(0, 255, (6, 8, 3)).repeat(4, 0).repeat(4, 1).astype(np.uint8)
        for name in ("all", "one" if number < N // 2 else "two"):
            (folder / name).mkdir(exist_ok=True)
            Image.fromarray(pixels).save(folder / name / f"{number:02}.png")
    for name in ("all", "one", "two"):
        curate.score(folder / name, folder / f"{name}.parquet", model=tiny_checkpoint, **SETTINGS)
    return folder


def changed(place, tmp_path, name, change):
    """A table of the place with another Arrow table in it, and its metadata."""
    table = pq.read_table(place / f"{name}.parquet")
    pq.write_table(change(table).replace_schema_metadata(table.schema.metadata), tmp_path / f"{name}.parquet")
    return tmp_path / f"{name}.parquet"


def test_scores_equal_one_run_over_all_images(place, tmp_path):
    result = curate.merge([place / "one.parquet", place / "two.parquet"], tmp_path / "m.parquet")
    assert (result.rows, result.fitted) == (N, True)
    names = ["key", "unc_fitted", "unc_local", "cluster", "kappa_visimsiam", "sha256"]
    assert open_table(tmp_path / "m.parquet").read(names).equals(open_table(place / "all.parquet").read(names))
    assert [path.name for path in tmp_path.iterdir()] == ["m.parquet"]
    before = (tmp_path / "m.parquet").read_bytes()
    draft = tmp_path / ".m.parquet.tmp.999999.0a1b2c3d"  # of a process that could not remove it at its end
    draft.mkdir()
    (draft / "m.parquet").write_bytes(before)
    with pytest.raises(InputError, match="--overwrite"):
        curate.merge([place / "one.parquet", place / "two.parquet"], tmp_path / "m.parquet")
    assert not draft.exists()
    curate.merge([place / "one.parquet", place / "two.parquet"], tmp_path / "m.parquet", overwrite=True)
    assert (tmp_path / "m.parquet").read_bytes() == before


def test_keys_of_two_tables_are_named_and_get_the_names_of_their_tables(place, tmp_path):
    with pytest.raises(InputError, match=r"32 keys .*'00.png'.*--prefix"):
        curate.merge([place / "one.parquet", place / "all.parquet"], tmp_path / "m.parquet")
    result = curate.merge([place / "one.parquet", place / "all.parquet"], tmp_path / "m.parquet", prefix=True)
    keys = pq.read_table(tmp_path / "m.parquet")["key"].to_pylist()
    assert keys == [f"one/{n:02}.png" for n in range(N // 2)] + [f"all/{n:02}.png" for n in range(N)]
    assert any("32 images occur" in note for note in result.notes)


def test_columns_of_one_table_are_null_in_the_rows_of_the_other(place, tmp_path):
    patients = pa.array([f"patient {n}" for n in range(N // 2)])
    path = changed(place, tmp_path, "two", lambda table: table.append_column("patient", patients))
    curate.merge([place / "one.parquet", path], tmp_path / "m.parquet")
    assert pq.read_table(tmp_path / "m.parquet")["patient"].to_pylist() == [None] * (N // 2) + patients.to_pylist()


def test_rows_of_images_that_could_not_be_read_are_kept(place, tmp_path, tiny_checkpoint):
    (tmp_path / "torn").mkdir()
    Image.effect_noise((32, 24), 99).convert("RGB").save(tmp_path / "torn" / "whole.jpg")
    torn = (tmp_path / "torn" / "whole.jpg").read_bytes()[:300]
    (tmp_path / "torn" / "torn.jpg").write_bytes(torn)
    curate.score(tmp_path / "torn", tmp_path / "t.parquet", model=tiny_checkpoint, **SETTINGS)
    curate.merge([place / "one.parquet", tmp_path / "t.parquet"], tmp_path / "m.parquet")
    rows = pq.read_table(tmp_path / "m.parquet", columns=["key", "status", "embedding"]).to_pylist()[N // 2 :]
    statuses = [(row["key"], row["status"], row["embedding"] is None) for row in rows]
    assert statuses == [("torn.jpg", "truncated", True), ("whole.jpg", "ok", False)]


def test_how_the_source_was_read_is_kept_where_it_is_the_same(place, tmp_path):
    from curate.tables.writer import TableWriter

    for name, hidden in (("one", True), ("two", True), ("two", False)):
        table = open_table(place / f"{name}.parquet")
        noted = {**table.metadata, "request": {"model": "m", "hidden": hidden}}
        with TableWriter(tmp_path / f"{name}-{hidden}.parquet", table.stored.schema, noted) as writer:
            writer.write(table.read())
    for other, expected in (("two-True", {"model": "m", "hidden": True}), ("two-False", None)):
        out = tmp_path / f"merged-{other}.parquet"
        curate.merge([tmp_path / "one-True.parquet", tmp_path / f"{other}.parquet"], out)
        assert open_table(out).metadata.get("request") == expected


def test_a_column_of_two_types_is_refused(place, tmp_path):
    numbers = changed(place, tmp_path, "one", lambda table: table.append_column("x", pa.array([1] * (N // 2))))
    texts = changed(place, tmp_path, "two", lambda table: table.append_column("x", pa.array(["a"] * (N // 2))))
    with pytest.raises(InputError, match=r"'x' is int64 .*string"):
        curate.merge([numbers, texts], tmp_path / "m.parquet")
    assert not (tmp_path / "m.parquet").exists()


def test_tables_of_other_settings_are_refused(place, tmp_path, tiny_checkpoint):
    settings = {"device": "cpu", "batch_size": 8, "white": 65535, "dtype": "float32", "fit": False}
    curate.score(place / "two", tmp_path / "other.parquet", model=tiny_checkpoint, **settings)
    with pytest.raises(InputError, match="embedding dtype"):
        curate.merge([place / "one.parquet", tmp_path / "other.parquet"], tmp_path / "m.parquet")


@pytest.mark.parametrize("order", [1, -1])
def test_of_tables_by_two_versions_the_older_is_to_be_scored_again(place, tmp_path, order):
    table = pq.read_table(place / "one.parquet")
    facts = json.loads(table.schema.metadata[b"curate"])
    del facts["settings"]["thumbnail"]
    older = table.drop_columns(["thumbnail"]).replace_schema_metadata({b"curate": json.dumps(facts)})
    pq.write_table(older, tmp_path / "older.parquet")
    with pytest.raises(InputError, match=r"thumbnail.*score .*older\.parquet again"):
        curate.merge([tmp_path / "older.parquet", place / "two.parquet"][::order], tmp_path / "m.parquet")


def test_numbers_that_mean_other_classes_are_refused(place, tmp_path):
    from curate.tables.writer import TableWriter

    for name, classes in (("one", ["bee", "cat"]), ("two", ["cat", "dog"])):
        table = open_table(place / f"{name}.parquet")
        rows = table.read().append_column("label", pa.array([0] * (N // 2)))
        metadata = {**table.metadata, "classes": {"label": classes}}
        with TableWriter(tmp_path / f"{name}.parquet", rows.schema, metadata) as writer:
            writer.write(rows)
    with pytest.raises(InputError, match="other classes"):
        curate.merge([tmp_path / "one.parquet", tmp_path / "two.parquet"], tmp_path / "m.parquet")


def test_a_table_follows_images_that_moved_and_keeps_its_fit(place, tmp_path):
    (tmp_path / "moved").mkdir()
    for path in (place / "one").iterdir():
        (tmp_path / "moved" / path.name).write_bytes(path.read_bytes())
    result = curate.merge([place / "one.parquet"], tmp_path / "m.parquet", root=str(tmp_path / "moved"))
    before, after = pq.read_table(place / "one.parquet"), pq.read_table(tmp_path / "m.parquet")
    assert result.moved == N // 2
    assert after["uri"].to_pylist() == [str(tmp_path / "moved" / key) for key in before["key"].to_pylist()]
    assert after.drop(["uri"]).equals(before.drop(["uri"]))
    assert after.schema.metadata == before.schema.metadata
    (tmp_path / "moved" / "03.png").unlink()
    with pytest.raises(InputError, match=r"'03.png' \(1 of 32"):
        curate.merge([place / "one.parquet"], tmp_path / "m2.parquet", root=str(tmp_path / "moved"))


@pytest.mark.parametrize(
    ("names", "out", "more", "match"),
    [
        (["one"], "m.parquet", {}, "--root"),
        (["one", "one"], "m.parquet", {}, "twice"),
        (["one", "two"], "m.csv", {}, "NAME.parquet"),
        (["one", "two"], "m.parquet", {"root": "."}, "one table"),
    ],
)
def test_what_cannot_be_meant_is_one_line(place, tmp_path, names, out, more, match):
    with pytest.raises(InputError, match=match):
        curate.merge([place / f"{name}.parquet" for name in names], tmp_path / out, **more)


def test_a_table_is_never_written_over_by_a_merge_of_it(place):
    before = (place / "one.parquet").read_bytes()
    with pytest.raises(InputError, match="one of the tables"):
        curate.merge([place / "one.parquet", place / "two.parquet"], place / "one.parquet", overwrite=True)
    assert (place / "one.parquet").read_bytes() == before
