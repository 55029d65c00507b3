"""Which rows are kept, tested on and left out; and subsets that cannot be judged."""

import hashlib

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from curate.evaluation.options import EvaluateOptions
from curate.evaluation.run import evaluate
from curate.evaluation.subset.pool import read_pool
from curate.evaluation.subset.request import TestSide, parse_test
from curate.evaluation.subset.run import _without_copies
from curate.evaluation.subset.sides import draw_sides
from curate.policies.filter.policy import filter
from curate.tables.table import open_table
from scoring.errors import InputError
from tests.curate.evaluation.subset.labelled_tables import keys, made, write


def read(path, subset, test=None, **changes):
    table = open_table(path)
    return read_pool(
        table, parse_test(test, table), EvaluateOptions(path, subset=subset, **{"label": "label", **changes})
    )


def as_keys(pool, rows):
    table = pool.tables[0]
    return set(table.take(pool.row[rows], ["key"]).column(0).to_pylist())


@pytest.fixture
def columns():
    return made(300)


@pytest.fixture
def table(tmp_path, columns):
    return write(tmp_path / "s.parquet", columns)


@pytest.fixture
def half(tmp_path, columns):
    return keys(tmp_path / "half.parquet", columns, np.arange(300) < 150)


def test_a_fifth_of_each_class_is_held_out_whatever_the_order_and_whatever_is_kept(tmp_path, columns, table, half):
    pool = read(table, half)
    names = np.array(columns["label"])
    expected = {name: round(0.2 * n) for name, n in zip(*np.unique(names, return_counts=True), strict=True)}
    held = np.array(pool.classes)[pool.label[pool.tests]]
    assert {name: int((held == name).sum()) for name in pool.classes} == pytest.approx(expected, abs=1)
    order = np.random.default_rng(0).permutation(300)
    shuffled = {
        name: values[order] if name == "embedding" else [values[i] for i in order] for name, values in columns.items()
    }
    again = read(write(tmp_path / "t.parquet", shuffled), keys(tmp_path / "k.parquet", columns, np.arange(300) > 200))
    assert as_keys(again, again.tests) == as_keys(pool, pool.tests)
    assert pool.kept[pool.tests].any()
    assert not pool.kept[pool.tests].all()


def test_sides_hold_no_test_row_and_draws_are_as_large(table, half):
    pool = read(table, half)
    sides = draw_sides(pool, seeds=4, seed=0)
    tests = set(pool.tests.tolist())
    assert len(sides.subset) + int(pool.kept[pool.tests].sum()) == 150
    assert set(sides.subset.tolist()) < set(sides.all_rows.tolist())
    counts = np.bincount(pool.label[sides.subset])
    for drawn in [*sides.random, *sides.by_class]:
        assert len(np.unique(drawn)) == len(sides.subset)
        assert not tests & set(drawn.tolist())
    assert len({tuple(each) for each in [*sides.random, *sides.by_class]}) == 8
    assert all(np.array_equal(np.bincount(pool.label[drawn]), counts) for drawn in sides.by_class)


def test_a_subset_its_decisions_and_a_list_of_keys_are_the_same(tmp_path, columns):
    table = write(tmp_path / "s.parquet", {**columns, "kappa_x": np.random.default_rng(0).random(300)})
    filter(table, out=tmp_path / "k.parquet", keep_top="40%", column="kappa_x")
    kept = set(pq.read_table(tmp_path / "k.parquet")["key"].to_pylist())
    (tmp_path / "k.csv").write_text("key\n" + "\n".join(kept) + "\n")
    for name in ("k.parquet", "k.decisions.parquet", "k.csv"):
        pool = read(table, tmp_path / name)
        assert as_keys(pool, np.flatnonzero(pool.kept)) == kept
        assert pool.rows_in_subset == 120


def test_rows_that_cannot_be_used_are_counted(tmp_path, columns):
    columns["status"][:7] = ["unreadable"] * 7
    columns["label"][7:12] = [None] * 5
    columns["label"][12:14] = [""] * 2
    columns["embedding"][14:17] = np.nan
    columns["embedding"][17] = 0
    pool = read(write(tmp_path / "s.parquet", columns), keys(tmp_path / "k.parquet", columns, np.arange(300) < 100))
    assert pool.left_out == {"status is not ok": 7, "without a label": 7, "without an embedding": 4}
    assert len(pool.row) == 282
    assert np.allclose(np.linalg.norm(pool.vectors, axis=1), 1, atol=1e-3)


def test_a_column_or_another_table_says_what_is_tested_on(tmp_path, columns, table, half):
    by_column = read(table, half, "camera=old")
    assert as_keys(by_column, by_column.tests) == {
        key for key, camera in zip(columns["key"], columns["camera"], strict=True) if camera == "old"
    }
    other = {**made(90, seed=5), "label": [*made(90, seed=5)["true"][:80], *["stranger"] * 10]}
    pool = read(table, half, str(write(tmp_path / "other.parquet", other)))
    assert len(pool.tests) == 80
    assert len(pool.trainable) == 300
    assert pool.left_out == {"of a class that the table lacks, in other.parquet": 10}
    names = np.array(pool.classes)[pool.label[pool.tests]]
    place = dict(zip(other["key"], other["label"], strict=True))
    reference = pool.tables[1].take(pool.row[pool.tests], ["key"]).column(0).to_pylist()
    assert [place[key] for key in reference] == names.tolist()


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string()), pa.binary()])
def test_rows_with_the_bytes_of_one_to_train_on_are_not_tested_on(tmp_path, columns, half, kind):
    digest = [hashlib.sha256(key.encode()).hexdigest() for key in columns["key"]]
    digest[:9] = [None, "", " "] * 3  # of no image: alike, and still no copies
    with_digests = {**columns, "sha256": pa.array(digest, pa.string()).cast(kind)}
    if kind == pa.binary():
        with_digests["sha256"] = pa.array(
            [text and text.encode() if text and text.strip() else None for text in digest], kind
        )
    other = made(90, seed=5)
    other["sha256"] = [None, "", " ", *digest[200:230], *(f"{i:064x}" for i in range(57))]
    table, path = write(tmp_path / "sha.parquet", with_digests), write(tmp_path / "other.parquet", other)
    pool = read(table, half, str(path))
    rows = pool.row[pool.tests]
    assert set(rows[pool.same_bytes()].tolist()) == set(range(3, 33))
    left = _without_copies(pool)[0]
    assert left.left_out == {"of the test side that may also be trained on": 30}
    assert not set(left.row[left.tests].tolist()) & set(range(3, 33))
    del other["sha256"]
    pool = read(table, half, str(write(tmp_path / "plain.parquet", other)))
    assert not pool.same_bytes().any()
    digest[100:200] = digest[:100]  # images that are there twice, under other keys and with other vectors
    pool = read(write(tmp_path / "twice.parquet", {**columns, "sha256": digest}), half)
    shas = np.array(digest, object)[pool.row]
    trained = {sha for sha in shas[pool.trainable] if sha and sha.strip()}
    assert pool.same_bytes().tolist() == [sha in trained for sha in shas[pool.tests]]
    assert pool.same_bytes().any()


def test_a_table_of_the_same_images_in_another_precision_is_nothing_to_test_on(tmp_path, columns, half):
    digest = [hashlib.sha256(key.encode()).hexdigest() for key in columns["key"]]
    table = write(tmp_path / "sha.parquet", {**columns, "sha256": digest})
    shaken = columns["embedding"] + np.random.default_rng(0).normal(0, 0.002, (300, 8)).astype(np.float16)
    again = {**columns, "key": [f"again/{i}" for i in range(300)], "embedding": shaken, "sha256": digest}
    path = write(tmp_path / "again.parquet", again)
    with pytest.raises(InputError, match=r"got 0 .*300 of the test side"):
        judged(table, half, test=str(path))


def test_a_column_without_classes_is_reported(tmp_path, columns, half):
    table = write(tmp_path / "s.parquet", columns)
    reason = r"got 0 .*: none.*; 300 classes, of which 300 have one row, cannot be both trained and tested on"
    for sample in (None, 100):
        with pytest.raises(InputError, match=reason) as error:
            judged(table, half, label="key", sample=sample)
        assert "larger share" not in str(error.value)
    nearly = {**columns, "name": [*columns["key"][:270], *(f"of three {i // 3}" for i in range(30))]}
    with pytest.raises(InputError, match=r"280 classes, .*270"):
        judged(write(tmp_path / "n.parquet", nearly), half, label="name")
    pairs = write(tmp_path / "p.parquet", {**columns, "name": [f"pair {i // 2}" for i in range(300)]})
    with pytest.raises(InputError, match="--test: a larger share"):
        judged(pairs, half, label="name", sample=100)


def test_a_sample_makes_all_sides_smaller_alike(table, half):
    pool = read(table, half, sample=100)
    assert len(pool.trainable) == 100
    assert pool.share == pytest.approx(100 / 240, abs=0.01)
    assert 30 < len(pool.subset) < 70


@pytest.mark.parametrize(
    ("text", "side"),
    [
        (None, TestSide(0.2)),
        ("0.5", TestSide(0.5)),
        ("30%", TestSide(0.3)),
        ("camera=old", TestSide(0.0, "camera", "old")),
        ("camera==old", TestSide(0.0, "camera", "old")),
    ],
)
def test_a_test_side_is_a_share_or_a_value(table, text, side):
    assert parse_test(text, open_table(table)) == side


def judged(table, subset, **options):
    return evaluate(table, subset=subset, **{"label": "label", "seeds": 2, **options})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"test": "1.5"}, "between 0 and 1"),
        ({"test": "old"}, "COLUMN=VALUE or a table"),
        ({"test": "camra=old"}, "no column 'camra'"),
        ({"test": "camera=older"}, "'older' in column 'camera'"),
        ({"test": "key=0001.jpg"}, "20 labelled .*got 1"),
        ({"test": "gone.parquet"}, "gone.parquet does not exist"),
        ({"label": None, "test": "0.3"}, "add --label"),
        ({"label": None, "network": 5}, "--network is for models"),
        ({"label": "labl"}, "no column 'labl'"),
        ({"group": "camra"}, "no column 'camra'"),
        ({"group": "embedding"}, "column 'embedding'"),
        ({"seeds": 1}, "--seeds must be"),
        ({"sample": 5}, "--sample must be"),
        ({"seed": -1}, "--seed must be between"),
        ({"votes": "camera"}, "expected no --votes here"),
        ({"column": "camera"}, "expected no --column here"),
        ({"degrade": 30}, "expected no --degrade here"),
        ({"embedding": "camera"}, "camera"),
        ({"labelled": "none.csv"}, "none.csv"),
    ],
)
def test_what_does_not_fit_is_one_line(table, half, options, message):
    with pytest.raises(InputError, match=message) as error:
        judged(table, half, **options)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("option", [{"test": "0.2"}, {"seeds": 4}, {"group": "camera"}, {"network": 10}])
def test_options_of_a_subset_are_refused_without_one(table, option):
    with pytest.raises(InputError, match=f"--{next(iter(option))} .*needs --subset"):
        evaluate(table, label="label", **option)


def test_subsets_without_information_are_refused(tmp_path, columns, table):
    label = np.array(columns["label"])
    for name, kept, message in (
        ("empty", np.zeros(300, bool), "kept rows"),
        ("whole", np.ones(300, bool), "got all"),
        ("alone", label == "class 1", "'class 1' alone"),
    ):
        with pytest.raises(InputError, match=message):
            judged(table, keys(tmp_path / f"{name}.parquet", columns, kept))
    pq.write_table(pa.table({"key": ["0001.jpg", "x.jpg", "y.jpg"]}), tmp_path / "x.parquet")
    with pytest.raises(InputError, match=r"2 keys .*of 3"):
        judged(table, tmp_path / "x.parquet")
    pq.write_table(pa.table({"key": ["0001.jpg", "0001.jpg"]}), tmp_path / "y.parquet")
    with pytest.raises(InputError, match="more than once"):
        judged(table, tmp_path / "y.parquet")
    pq.write_table(pa.table({"kez": ["0001.jpg"]}), tmp_path / "z.parquet")
    with pytest.raises(InputError, match="no column 'key'"):
        judged(table, tmp_path / "z.parquet")
    only_tested = np.array([camera == "old" for camera in columns["camera"]])
    with pytest.raises(InputError, match="rows to train on"):
        judged(table, keys(tmp_path / "t.parquet", columns, only_tested), test="camera=old")


def test_tables_that_nothing_can_be_trained_on_are_refused(tmp_path, columns, half):
    plain = write(tmp_path / "p.parquet", {name: values for name, values in columns.items() if name != "embedding"})
    with pytest.raises(InputError, match="has no column 'embedding'"):
        judged(plain, half)
    unlabelled = write(tmp_path / "u.parquet", {**columns, "label": pa.nulls(300, pa.string())})
    with pytest.raises(InputError, match=r"20 labelled.* got 0"):
        judged(unlabelled, half)
    single_class = write(tmp_path / "o.parquet", {**columns, "label": ["x"] * 300})
    with pytest.raises(InputError, match="at least two classes"):
        judged(single_class, half)
    path = write(tmp_path / "w.parquet", {**made(90, width=5), "key": [f"w{i}" for i in range(90)]})
    table = write(tmp_path / "s.parquet", columns)
    with pytest.raises(InputError, match="embeddings of 8"):
        judged(table, half, test=str(path))
    strangers = write(tmp_path / "n.parquet", {**made(90), "label": ["zebra"] * 90})
    with pytest.raises(InputError, match="classes such as 'class 0'"):
        judged(table, half, test=str(strangers))
