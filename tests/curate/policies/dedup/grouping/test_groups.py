"""The groups table against brute force over the groups that the decisions show."""

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from made import cosines, embedded, jittered, random_signatures, signed, write_table

import curate
from curate.tables.digests import tie_breaks


def table_of(path, generator, order=None):
    """Sixty rows: groups of several sizes, near in signature or equal in bytes, with labels that sometimes differ."""
    base = random_signatures(generator, 12)
    home = np.concatenate([np.full(n, at) for at, n in enumerate([16, 9, 9, 6, 5, 4, 3, 2, 2, 2, 1, 1])])
    signatures = np.concatenate([jittered(generator, base[[at]], 1, 9.0) for at in home])
    n = len(home)
    columns = {
        "key": [f"k{i}" for i in range(n)],
        "signature": signatures,
        "sha256": [f"s{at}" if at in (3, 9) else f"own{i}" for i, at in enumerate(home)],
        "label": [None if i % 7 == 0 else f"l{at if at != 1 else i % 3}" for i, at in enumerate(home)],
        "phash": generator.integers(0, 2**63, n).astype(np.uint64),
    }
    order = np.arange(n) if order is None else order
    table = {name: [values[i] for i in order] for name, values in columns.items()}
    table["signature"] = signed(np.array(table["signature"]))
    table["phash"] = pa.array(table["phash"], pa.uint64())
    write_table(path, table)
    return path


@pytest.fixture
def made(tmp_path):
    generator = np.random.default_rng(5)
    path = table_of(tmp_path / "scores.parquet", generator)
    curate.dedup(path, tmp_path / "out.parquet", {"bytes": None, "signature": 0.93})
    decisions = pl.read_parquet(tmp_path / "out.decisions.parquet")
    return pl.read_parquet(path), decisions, pl.read_parquet(tmp_path / "out.groups.parquet")


def test_each_group_says_its_size_its_first_row_and_its_finders(made):
    _, decisions, groups = made
    assert groups["group"].to_list() == list(range(len(groups)))
    assert len(groups) >= 10
    for group in groups.iter_rows(named=True):
        members = decisions.filter(pl.col("group") == group["group"])
        kept, dropped = members.filter(pl.col("decision") == "keep"), members.filter(pl.col("decision") == "drop")
        assert group["size"] == len(members) > 1
        assert kept["key"].to_list() == [group["kept_key"]]
        assert set(dropped["kept_key"]) == {group["kept_key"]}
        assert set(group["finders"]) == {rule.split()[0] for rule in dropped["rule"]}
        assert not group["other_table"]
    grouped = decisions.filter(pl.col("group").is_not_null())
    assert len(grouped) == groups["size"].sum()
    assert (decisions.filter(pl.col("group").is_null())["decision"] == "keep").all()


def test_larger_groups_have_lower_numbers(made):
    sizes = made[2]["size"].to_list()
    assert sizes == sorted(sizes, reverse=True)


def test_the_smallest_similarity_is_over_all_pairs_of_the_group(made):
    table, decisions, groups = made
    signatures = np.frombuffer(b"".join(table["signature"]), np.int8).reshape(len(table), 255)
    cosine = cosines(signatures)
    content = table["sha256"].to_numpy()
    cosine[content[:, None] == content] = 1
    for group in groups.iter_rows(named=True):
        rows = np.flatnonzero((decisions["group"] == group["group"]).fill_null(False).to_numpy())
        assert group["smallest_similarity"] == pytest.approx(cosine[np.ix_(rows, rows)].min(), abs=1e-6)
        assert group["measure"] == "signature"


def test_the_margin_belongs_to_the_most_doubtful_row(made):
    _, decisions, groups = made
    for group in groups.iter_rows(named=True):
        dropped = decisions.filter((pl.col("group") == group["group"]) & (pl.col("decision") == "drop"))
        room = [
            (score - 0.93) / 0.07 if rule.startswith("signature") else 1.0
            for score, rule in dropped.select("score", "rule").iter_rows()
        ]
        assert group["margin"] == pytest.approx(min(room), abs=1e-5)


def test_labels_of_a_group_are_listed_and_two_of_them_are_a_conflict(made):
    table, decisions, groups = made
    labels = dict(zip(table["key"], table["label"], strict=True))
    conflicts = 0
    for group in groups.iter_rows(named=True):
        keys = decisions.filter(pl.col("group") == group["group"])["key"]
        expected = {labels[key] for key in keys} - {None}
        assert len(group["labels"]) == len(expected)
        assert set(group["labels"]) == expected
        assert group["conflict"] == (len(expected) > 1)
        conflicts += len(expected) > 1
    assert conflicts >= 1


def test_numbers_of_groups_do_not_depend_on_the_order_of_the_rows(tmp_path):
    outs = []
    for run in range(3):
        order = np.random.default_rng(run).permutation(60)
        path = table_of(tmp_path / f"{run}.parquet", np.random.default_rng(5), order if run else None)
        curate.dedup(path, tmp_path / f"out{run}.parquet", {"bytes": None, "signature": 0.93})
        decisions = pl.read_parquet(tmp_path / f"out{run}.decisions.parquet").sort("key")
        outs.append((decisions, pl.read_parquet(tmp_path / f"out{run}.groups.parquet")))
    for decisions, groups in outs[1:]:
        assert decisions.equals(outs[0][0])
        assert groups.equals(outs[0][1])


def test_groups_of_one_size_are_numbered_by_the_hash_of_the_key_that_stays(made):
    groups = made[2]
    for size in set(groups["size"]):
        keys = groups.filter(pl.col("size") == size)["kept_key"].to_list()
        ties = tie_breaks([key.encode() for key in keys]).tolist()
        assert ties == sorted(ties)


def test_a_large_group_is_measured_with_its_first_row_and_at_many_pairs(tmp_path):
    generator = np.random.default_rng(0)
    n = 500
    signatures = jittered(generator, random_signatures(generator, 1), n, 3.0)
    keys = [f"k{i}" for i in range(n)]
    last = int(np.argmax(tie_breaks([key.encode() for key in keys])))
    signatures[last] = jittered(generator, signatures[[0]], 1, 9.0)[0]  # the least alike comes last in the order
    path = write_table(tmp_path / "scores.parquet", {"signature": signed(signatures)})
    curate.dedup(path, tmp_path / "out.parquet", {"signature": 0.9})
    groups = pl.read_parquet(tmp_path / "out.groups.parquet")
    (kept,) = groups["kept_key"]
    cosine = cosines(signatures)
    first = cosine[int(kept[1:])].min()
    assert groups["size"].to_list() == [n]
    assert cosine.min() - 1e-6 <= groups["smallest_similarity"][0] <= first + 1e-6


@pytest.mark.parametrize("finder", ["bytes", "hash", "embedding"])
def test_the_similarity_inside_a_group_is_measured_by_a_finder_in_use(tmp_path, finder):
    columns = {
        "sha256": ["a", "a", "b"],
        "phash": pa.array([0, 1, 2**40 - 1], pa.uint64()),
        "embedding": embedded([[1.0, 0.0], [2.0, 0.02], [0.0, 1.0]]),
    }
    path = write_table(tmp_path / "scores.parquet", columns)
    curate.dedup(path, tmp_path / "out.parquet", [finder])
    (group,) = pl.read_parquet(tmp_path / "out.groups.parquet").iter_rows(named=True)
    expected = {"bytes": 1.0, "hash": 1.0, "embedding": 1 / np.hypot(1, 0.01)}[finder]
    assert group["measure"] == finder
    assert group["smallest_similarity"] == pytest.approx(expected, abs=1e-6)
    assert group["labels"] is None
    assert not group["conflict"]


def test_numbers_and_truths_are_labels_too(tmp_path):
    for number, values in enumerate((pa.array([1, 2, 1]), pa.array([True, False, True]), pa.array([None, 0.5, 0.5]))):
        path = write_table(tmp_path / f"{number}.parquet", {"sha256": ["a"] * 3, "class": values})
        result = curate.dedup(path, label="class", dry_run=True, finder=["bytes"])
        assert result.n_conflicts == (number < 2)


def test_a_table_without_groups_has_an_empty_groups_table(tmp_path):
    path = write_table(tmp_path / "scores.parquet", {"sha256": ["a", "b"], "label": ["x", "y"]})
    result = curate.dedup(path, tmp_path / "out.parquet", ["bytes"])
    assert (result.n_groups, result.largest, result.kept) == (0, 0, 2)
    assert len(pl.read_parquet(tmp_path / "out.groups.parquet")) == 0


def test_equal_bytes_are_as_alike_as_can_be_where_the_signature_sees_nothing(tmp_path):
    flat = np.zeros((4, 255), np.int8)
    flat[2:] = random_signatures(np.random.default_rng(0), 1)
    columns = {"sha256": ["a", "a", "b", "b"], "signature": signed(flat)}
    result = curate.dedup(write_table(tmp_path / "s.parquet", columns), tmp_path / "out.parquet")
    groups = pl.read_parquet(result.groups)
    assert groups["measure"].to_list() == ["signature", "signature"]
    assert groups["smallest_similarity"].to_list() == [1.0, 1.0]


@pytest.mark.parametrize(
    ("labels", "different"),
    [
        (["cat", "", None, " "], ["cat"]),
        ([1.0, float("nan"), None, 1.0], ["1"]),
        (["", "", "", ""], []),
        (["cat", "dog", "", None], ["cat", "dog"]),
        ([0, 1, 0, None], ["0", "1"]),
        ([False, None, None, None], ["false"]),
    ],
)
def test_an_empty_label_is_missing_so_it_neither_conflicts_nor_is_kept(tmp_path, labels, different):
    columns = {"sha256": ["same"] * 4, "label": labels}
    path = write_table(tmp_path / "s.parquet", columns)
    result = curate.dedup(path, tmp_path / "out.parquet", {"bytes": None}, keep="labelled")
    groups = pl.read_parquet(result.groups)
    assert sorted(groups["labels"][0].to_list()) == different
    assert groups["conflict"].to_list() == [len(different) > 1]
    kept = int(groups["kept_key"].item()[1:])
    assert not different or labels[kept] not in (None, "", " ")
    assert not different or labels[kept] == labels[kept]


def test_an_empty_digest_is_not_the_same_as_another(tmp_path):
    path = write_table(tmp_path / "s.parquet", {"sha256": ["", "", None, "a", "a"]})
    assert curate.dedup(path, finder={"bytes": None}, dry_run=True).dropped == 1
