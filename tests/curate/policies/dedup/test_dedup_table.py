"""A deduplication as a whole: what it reads, decides and leaves behind."""

import json
import shutil
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from made import by_definition, cosines, embedded, jittered, random_signatures, same_thumbnails, signed, write_table

import curate
from curate.commands.verify import lines_of
from curate.policies.dedup.decide import decide_duplicates
from curate.policies.dedup.grouping.keep import DEFAULT, keep_order, parse_keep
from curate.policies.receipts import sealed
from curate.policies.verify import verify
from curate.tables.keys import key_ranks
from curate.tables.needs import Needs
from curate.tables.rows import read_rows
from curate.tables.table import open_table
from scoring.errors import InputError

FINDERS = {"bytes": None, "hash": 2, "signature": 0.93, "embedding": 0.95}
N = 200


def columns(generator):
    """Two hundred rows of about seventy images: equal, near by one finder or another, failed."""
    home = generator.integers(0, 70, N)
    base = random_signatures(generator, 70)
    codes = generator.integers(0, 2**62, 70).astype(np.uint64)[home]
    far = generator.random(N) < 0.5
    codes = np.where(far, generator.integers(0, 2**62, N).astype(np.uint64), codes ^ np.uint64(1 << 9))
    means = generator.normal(size=(70, 12))
    return {
        "key": [f"k{i}" for i in range(N)],
        "sha256": [f"s{home[i]}" if generator.random() < 0.2 else f"own{i}" for i in range(N)],
        "phash": pa.array([None if i % 11 == 0 else int(code) for i, code in enumerate(codes)], pa.uint64()),
        "signature": signed(np.concatenate([jittered(generator, base[[at]], 1, 12.0) for at in home])),
        "embedding": embedded((means[home] + generator.normal(0, 0.25, (N, 12))).astype("f4").tolist()),
        "status": ["broken" if i % 17 == 0 else "ok" for i in range(N)],
        "error": ["it is broken" if i % 17 == 0 else None for i in range(N)],
        "width": pa.array(generator.integers(10, 13, N), pa.int32()),
        "height": pa.array(generator.integers(10, 13, N), pa.int32()),
        "n_bytes": pa.array(generator.integers(100, 120, N), pa.int64()),
        "kappa_a": pa.array(generator.uniform(1, 9, N), pa.float32()),
        "label": [None if i % 5 == 0 else f"l{home[i] % 9}" for i in range(N)],
        "mine": pa.array([[i, i + 1] for i in range(N)]),
    }


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dedup")
    path = write_table(folder / "scores.parquet", columns(np.random.default_rng(0)), model="a" * 64, signature="x")
    before = path.read_bytes()
    result = curate.dedup(path, folder / "out.parquet", FINDERS)
    assert path.read_bytes() == before
    return folder, result


def linked_by(table):
    """What each finder links, from all pairs."""
    ok = np.array([status == "ok" for status in table["status"]])
    text = np.array(table["sha256"])
    codes = [None if code is None else int(code) for code in table["phash"]]
    bits = np.array([[99 if None in (a, b) else (a ^ b).bit_count() for a in codes] for b in codes])
    signatures = np.frombuffer(b"".join(table["signature"]), np.int8).reshape(N, 255)
    near = cosines(signatures), cosines(np.array(table["embedding"].to_list()))
    parts = [text == text[:, None], bits <= 2, near[0] >= 0.93, near[1] >= 0.95]
    return [part & ok & ok[:, None] & ~np.eye(N, dtype=bool) for part in parts], ok, (bits, *near)


def test_every_decision_is_the_one_of_the_definition(made):
    folder, result = made
    table = pl.read_parquet(folder / "scores.parquet")
    decisions = pl.read_parquet(folder / "out.decisions.parquet")
    parts, ok, measured = linked_by(table)
    opened = open_table(folder / "scores.parquet")
    criteria = parse_keep(DEFAULT, opened, label="label")
    numbers = tuple(dict.fromkeys(name for each in criteria for name in each.numbers))
    order = keep_order(read_rows(opened, Needs(numbers=numbers, present=("label",))), criteria, key_ranks(opened))
    owner = by_definition(order, np.any(parts, axis=0), ok, np.zeros(N, bool))
    keys = table["key"].to_list()
    assert decisions["key"].to_list() == keys
    names = list(FINDERS)
    for row, line in enumerate(decisions.iter_rows(named=True)):
        if not ok[row]:
            assert (line["decision"], line["reason"]) == ("failed", "not scored: broken (it is broken)")
            continue
        assert line["decision"] == ("keep" if owner[row] == row else "drop")
        if owner[row] == row:
            assert (line["kept_key"], line["rule"], line["score"], line["margin"]) == (None, None, None, None)
            continue
        assert line["kept_key"] == keys[owner[row]]
        number = next(i for i, part in enumerate(parts) if part[owner[row], row])
        score = 1.0 if not number else measured[number - 1][owner[row], row]
        assert line["rule"].split()[0] == names[number]
        assert line["score"] == pytest.approx(score, abs=2e-6)
        threshold = FINDERS[names[number]] or 1.0
        assert line["threshold"] == threshold
        assert line["margin"] == pytest.approx((threshold - score) if number == 1 else (score - threshold), abs=2e-6)
        assert line["margin"] >= 0
        assert f"the same as {keys[owner[row]]} by {names[number]}" in line["reason"]
    by = {name: int(sum(decisions["rule"].drop_nulls().str.starts_with(name))) for name in names}
    assert {name.split()[0]: n for name, n in result.dropped_by.items()} == by
    assert min(by.values()) > 0


def test_the_receipt_holds_the_threshold_of_every_finder(made):
    folder, _ = made
    receipt = json.loads((folder / "out.receipt.json").read_text())
    assert receipt["policy"][0]["thresholds"] == {**FINDERS, "bytes": 1.0}


def test_nothing_that_was_kept_is_the_same_as_another(made):
    folder, _ = made
    again = curate.dedup(folder / "out.parquet", finder=FINDERS, dry_run=True)
    assert (again.dropped, again.n_groups) == (0, 0)


def test_shuffled_rows_are_decided_alike(made, tmp_path):
    folder, _ = made
    table = pq.read_table(folder / "scores.parquet")
    pq.write_table(table.take(np.random.default_rng(0).permutation(N)), tmp_path / "shuffled.parquet")
    tables, digests = [], []
    for number, path in enumerate((folder / "scores.parquet", tmp_path / "shuffled.parquet")):
        result = curate.dedup(path, tmp_path / f"{number}.parquet", FINDERS)
        digests.append(result.input_digest)
        groups_table = pl.read_parquet(tmp_path / f"{number}.groups.parquet")
        tables.append((pl.read_parquet(tmp_path / f"{number}.decisions.parquet").sort("key"), groups_table))
    assert tables[0][0].equals(tables[1][0])
    assert tables[0][1].equals(tables[1][1])
    assert digests[0] == digests[1]


def test_the_best_row_is_kept_and_a_protected_one_too(tmp_path):
    same = {"sha256": ["a"] * 4, "kappa_a": pa.array([1.0, 3.0, 2.0, None]), "year": [1, 2, 3, 4]}
    path = write_table(tmp_path / "scores.parquet", same)
    for options, kept in (
        ({}, ["k0"]),  # scores of equal files differ in their last digits alone
        ({"keep": "min:kappa_a"}, ["k0"]),
        ({"keep": "max:year"}, ["k3"]),
        ({"protect": "year = 1"}, ["k0"]),
        ({"protect": "year <= 2", "keep": "max:year"}, ["k0", "k1"]),
        ({"protect": "year > 0"}, ["k0", "k1", "k2", "k3"]),
    ):
        curate.dedup(path, tmp_path / "out.parquet", ["bytes"], overwrite=True, **options)
        assert pl.read_parquet(tmp_path / "out.parquet")["key"].to_list() == kept
        decisions = pl.read_parquet(tmp_path / "out.decisions.parquet")
        assert set(decisions["kept_key"].drop_nulls()) <= set(kept)


# tables that are small, empty or odd


def everything(n, *, same=False):
    generator = np.random.default_rng(0)
    single = random_signatures(generator, 1)
    return {
        "key": pa.array([f"k{i}" for i in range(n)], pa.string()),
        "sha256": pa.array(["a" if same else f"s{i}" for i in range(n)], pa.string()),
        "phash": pa.array([7 if same else i * 0x0F0F0F0F for i in range(n)], pa.uint64()),
        "signature": signed(np.repeat(single, n, 0) if same else random_signatures(generator, n)),
        **same_thumbnails(n),
        "embedding": pa.array([[1.0, 0.0] if same else [1.0, float(i)] for i in range(n)], pa.list_(pa.float32(), 2)),
    }


@pytest.mark.parametrize("n", [0, 1, 2])
def test_tables_of_no_row_one_row_and_two(tmp_path, n):
    path = write_table(tmp_path / "scores.parquet", everything(n))
    result = curate.dedup(path, tmp_path / "out.parquet", list(FINDERS))
    assert (result.n_rows, result.kept, result.n_groups) == (n, n, 0)
    for name, rows in (("out", n), ("out.decisions", n), ("out.groups", 0)):
        assert pq.read_metadata(tmp_path / f"{name}.parquet").num_rows == rows
    copy = shutil.copy(path, path.with_name("copy.parquet"))
    against = curate.dedup(path, finder=list(FINDERS), against=copy, dry_run=True)
    assert against.n_leaks == n


@pytest.mark.parametrize("finder", FINDERS)
def test_rows_that_are_all_identical_leave_one(tmp_path, finder):
    path = write_table(tmp_path / "scores.parquet", everything(1500, same=True))
    result = curate.dedup(path, finder=[finder], dry_run=True, mirrored=finder == "signature")
    assert (result.kept, result.dropped, result.n_groups, result.largest) == (1, 1499, 1, 1500)


def test_zero_nan_and_missing_embeddings_are_counted_and_compared_with_nothing(tmp_path):
    rows = [[1.0, 0.0], [0.0, 0.0], [0.0, 0.0], [float("nan"), 1.0], [float("inf"), 1.0], None, [2.0, 0.0]]
    path = write_table(tmp_path / "scores.parquet", {"embedding": embedded(rows)})
    result = curate.dedup(path, tmp_path / "out.parquet", ["embedding"])
    assert (result.kept, result.dropped) == (6, 1)
    notes = result.notes
    assert "3 rows have an embedding that is missing" in str(notes)
    assert "2 rows have an embedding of zeros" in str(notes)


def test_a_table_of_zeros_alone_keeps_everything(tmp_path):
    for number, rows in enumerate(([[0.0, 0.0]] * 3, [[float("nan")] * 2] * 3)):
        path = write_table(tmp_path / f"{number}.parquet", {"embedding": embedded(rows)})
        assert curate.dedup(path, finder=["embedding"], dry_run=True).kept == 3
    path = tmp_path / "null.parquet"
    pq.write_table(pa.table({"key": ["a", "b"], "embedding": pa.array([None, None], pa.list_(pa.float32()))}), path)
    assert curate.dedup(path, finder=["embedding"], dry_run=True).kept == 2


@pytest.mark.parametrize("kind", [pa.float16(), pa.float32(), pa.float64()])
def test_embeddings_that_others_wrote_are_read(tmp_path, kind):
    rows = np.array([[1.0, 0.0], [1.0, 0.01], [0.0, 1.0]]).astype(kind.to_pandas_dtype())
    lists = pa.array([None, *rows.tolist()], pa.list_(pa.float64())).cast(pa.list_(kind))
    pq.write_table(pa.table({"key": [0, 1, 2, 3], "embedding": lists}), tmp_path / "user.parquet", row_group_size=1)
    result = curate.dedup(tmp_path / "user.parquet", tmp_path / "out.parquet")
    assert (result.kept, result.dropped) == (3, 1)
    assert any("only embeddings are compared" in note for note in result.notes)


def test_lengths_beyond_the_range_of_float32_do_not_matter(tmp_path):
    rows = pa.array([[1e300, 2e300], [1e-300, 2e-300], [-1.0, 1.0]], pa.list_(pa.float64()))
    pq.write_table(pa.table({"key": ["a", "b", "c"], "embedding": rows}), tmp_path / "user.parquet")
    assert curate.dedup(tmp_path / "user.parquet", dry_run=True).dropped == 1


def test_the_other_table_may_hold_its_embeddings_in_another_type_but_not_of_another_length(tmp_path):
    for name, kind, rows in (
        ("mine", pa.float16(), [[1.0, 0.0], [0.0, 1.0]]),
        ("theirs", pa.float32(), [[3e9, 0.0]]),
        ("longer", pa.float32(), [[1.0, 0.0, 0.0]]),
    ):
        lists = pa.array(rows, pa.list_(pa.float64())).cast(pa.list_(kind))
        pq.write_table(
            pa.table({"key": [f"k{i}" for i in range(len(rows))], "embedding": lists}), tmp_path / f"{name}.parquet"
        )
    assert curate.dedup(tmp_path / "mine.parquet", against=tmp_path / "theirs.parquet", dry_run=True).n_leaks == 1
    with pytest.raises(InputError, match=r"2 numbers .*got 3"):
        curate.dedup(tmp_path / "mine.parquet", against=tmp_path / "longer.parquet", dry_run=True)


@pytest.mark.parametrize(
    ("label", "asked"),
    [(pa.array([[1], [2]]), None), (pa.array([b"\xff", b"a"]), None), (pa.array([{"a": 1}] * 2), None)],
    ids=["lists", "bytes", "structs"],
)
def test_a_label_column_that_is_no_text_is_left_alone_unless_it_is_named(tmp_path, label, asked):
    path = write_table(tmp_path / "scores.parquet", {"sha256": ["a", "a"], "label": label})
    assert curate.dedup(path, finder=["bytes"], dry_run=True).kept == 1
    with pytest.raises(InputError, match="text in column 'label'"):
        curate.dedup(path, finder=["bytes"], label="label", dry_run=True)


def test_large_vectors_live_in_a_file_that_is_gone_afterwards(made, monkeypatch):
    folder, result = made
    monkeypatch.setattr("scoring.arrays.IN_MEMORY", 100)
    again = curate.dedup(folder / "scores.parquet", finder=FINDERS, dry_run=True)
    assert (again.kept, again.dropped_by) == (result.kept, result.dropped_by)


@pytest.fixture
def done(tmp_path):
    """A deduplication of five rows against a table of two."""
    for name, texts in (("new", ["a", "a", "b", "c", "d"]), ("old", ["d", "e"])):
        write_table(tmp_path / f"{name}.parquet", {"sha256": texts, "phash": pa.array([1] * len(texts), pa.uint64())})
    curate.dedup(tmp_path / "new.parquet", tmp_path / "out.parquet", {"bytes": None}, against=tmp_path / "old.parquet")
    assert verify(tmp_path / "out.receipt.json").identical
    return tmp_path


def test_verify_sees_that_the_other_table_changed(done):
    write_table(done / "other.parquet", {"sha256": ["d", "f"], "phash": pa.array([1, 1], pa.uint64())})
    (done / "other.parquet").replace(done / "old.parquet")
    changed = verify(done / "out.receipt.json")
    assert not changed.identical
    assert any("old.parquet has changed" in note for note in lines_of(changed)["notes"])


def test_verify_finds_the_other_table_next_to_the_receipt(done, tmp_path_factory):
    moved = tmp_path_factory.mktemp("moved")
    for path in done.glob("out.*"):
        path.replace(moved / path.name)
    (done / "old.parquet").replace(moved / "old.parquet")
    assert verify(moved / "out.receipt.json").identical
    (moved / "old.parquet").unlink()
    with pytest.raises(InputError, match=r"old\.parquet does not exist"):
        verify(moved / "out.receipt.json")


def test_a_copied_folder_is_verified_by_its_files_unless_the_original_alone_has_the_digest(done, tmp_path):
    def rewrite(path, texts):
        path.unlink()
        write_table(path, {"sha256": list(texts), "phash": pa.array([1] * len(texts), pa.uint64())})

    copied = tmp_path / "copied"
    shutil.copytree(done, copied, ignore=shutil.ignore_patterns("copied"))
    shutil.copy(done / "new.parquet", done / "original.parquet")
    rewrite(done / "new.parquet", "abcde")
    rewrite(done / "old.parquet", "x")
    again = verify(copied / "out.receipt.json")
    assert (again.identical, Path(again.input)) == (True, copied / "new.parquet")
    rewrite(copied / "new.parquet", "abcdd")
    neither = verify(copied / "out.receipt.json")
    assert (neither.identical, Path(neither.input)) == (False, copied / "new.parquet")
    (note,) = [note for note in lines_of(neither)["notes"] if "--table" in note]
    assert all(str(folder / "new.parquet") in note for folder in (copied, done))
    (done / "original.parquet").replace(done / "new.parquet")
    shutil.copy(done / "out.receipt.json", done / "kept")
    for folder_was_copied in (True, False):  # else it is another file of that name
        original = verify(copied / "out.receipt.json")
        assert (original.identical, Path(original.input)) == (not folder_was_copied, done / "new.parquet")
        assert [note for note in lines_of(original)["notes"] if str(copied / "new.parquet") in note]
        (done / "out.receipt.json").unlink(missing_ok=True)
    (done / "kept").replace(done / "out.receipt.json")
    shutil.copy(done / "new.parquet", copied / "new.parquet")
    shutil.copy(copied / "old.parquet", done / "old.parquet")
    assert verify(copied / "out.receipt.json").identical
    rewrite(copied / "old.parquet", "y")
    assert not verify(copied / "out.receipt.json").identical
    assert verify(done / "out.receipt.json").identical


@pytest.mark.parametrize("name", ["new", "old"])
def test_a_file_that_changed_in_its_place_is_found_whatever_path_leads_to_the_receipt(done, name, monkeypatch):
    shutil.copytree(done, done / done.name)  # such as a backup, which has the bytes of then
    write_table(done / f"{name}er.parquet", {"sha256": ["a", "f"], "phash": pa.array([1, 1], pa.uint64())})
    (done / f"{name}er.parquet").replace(done / f"{name}.parquet")
    monkeypatch.chdir(done.parent)
    (done / "link").symlink_to(done)
    for folder in (done, Path(done.name), Path(done.name, "link")):
        changed = verify(folder / "out.receipt.json")
        assert not changed.identical
        assert [note for note in lines_of(changed)["notes"] if f"{name}.parquet" in note]


@pytest.mark.parametrize(
    "lie",
    [
        {"keep": 5},
        {"protect": 7},
        {"label": ["a"]},
        {"mirrored": "yes"},
        {"groups": []},
        {"source": [1]},
        {"against": {}},
        {"against": {"path": 5}},
        {"against": "old.parquet"},
        {"thresholds": {"hash": "x"}},
        {"thresholds": {"hash": True}},
    ],
)
def test_a_false_receipt_is_refused_in_one_line(done, lie):
    receipt = json.loads((done / "out.receipt.json").read_text())
    receipt["policy"][0].update(lie)
    (done / "out.receipt.json").write_bytes(sealed(receipt))
    with pytest.raises(InputError, match=r"out\.receipt\.json: ") as error:
        verify(done / "out.receipt.json")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["new", "old"])
def test_a_table_that_is_replaced_meanwhile_is_reported_and_nothing_is_written(done, monkeypatch, name):
    def replaced(*args, **how):
        duplicates = decide_duplicates(*args, **how)
        write_table(done / "short.parquet", {"sha256": ["x"], "phash": pa.array([1], pa.uint64())})
        (done / "short.parquet").replace(done / f"{name}.parquet")
        return duplicates

    monkeypatch.setattr("curate.policies.dedup.policy.decide_duplicates", replaced)
    before = sorted(path.name for path in done.iterdir())
    with pytest.raises(InputError, match=rf"{name}\.parquet changed"):
        curate.dedup(done / "new.parquet", done / "2.parquet", {"bytes": None}, against=done / "old.parquet")
    assert sorted(path.name for path in done.iterdir()) == before
