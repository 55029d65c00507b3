"""A choice from a table: what is written, and that it is the same whatever the order of the rows."""

import json

import numpy as np
import pyarrow.parquet as pq
import pytest
from choosing import columns_of, csv, table, write

import curate
from curate.policies.verify import verify
from curate.selectors.table import SELECTORS
from scoring.errors import InputError

# what a strategy needs in addition to the table and labels
MORE = {"score": {"score": "unc_losspred"}}
LABELLED = "key like 'img/00%'"  # ten rows, two of each class


def batch_of(result):
    return pq.read_table(result.subset)


def decisions_of(result):
    return {row["key"]: row for row in pq.read_table(result.decisions).to_pylist()}


@pytest.fixture
def scores(tmp_path):
    return table(tmp_path / "s.parquet", 60, empty=[None, ""] * 30)


@pytest.mark.parametrize("name", SELECTORS)
def test_every_strategy_picks_exactly_the_budget_and_is_verified(scores, tmp_path, name):
    result = curate.select(
        scores, tmp_path / "b.parquet", name, 12, labelled_where=LABELLED, label="label", **MORE.get(name, {})
    )
    batch = batch_of(result)
    keys = batch["key"].to_pylist()
    assert len(set(keys)) == len(keys) == result.kept == 12
    assert not {key for key in keys if key.startswith("img/00")}
    assert batch["rank"].to_pylist() == list(range(1, 13))
    assert {row["decision"] for row in decisions_of(result).values()} == {"keep", "drop"}
    assert verify(result.receipt).identical


@pytest.mark.parametrize("name", SELECTORS)
def test_a_shuffled_table_gives_the_same_bytes(tmp_path, name):
    columns = columns_of(60)
    made = []
    for number, order in enumerate([None, np.random.default_rng(3).permutation(60)]):
        folder = tmp_path / str(number)
        folder.mkdir()
        source = write(folder / "s.parquet", columns, order)
        result = curate.select(
            source, folder / "b.parquet", name, 15, labelled_where=LABELLED, label="label", seed=4, **MORE.get(name, {})
        )
        made.append(result.subset.read_bytes())
    assert made[0] == made[1]


def test_the_batch_holds_all_columns_and_what_the_choice_says(scores, tmp_path):
    result = curate.select(scores, tmp_path / "b.parquet", "margin", 9, labelled_where=LABELLED, label="label")
    batch, table = batch_of(result), pq.read_table(scores)
    assert batch.schema.names[: len(table.schema.names)] == table.schema.names
    assert batch.schema.names[len(table.schema.names) :] == ["rank", "gain", "predicted", "probability"]
    by_key = {row["key"]: row for row in table.to_pylist()}
    for row in batch.to_pylist():
        assert {name: row[name] for name in table.schema.names} == by_key[row["key"]]
    gains = batch["gain"].to_numpy()
    assert (np.diff(gains) <= 1e-12).all()
    assert set(batch["predicted"].to_pylist()) <= {f"class {c}" for c in range(5)}
    assert batch["probability"].to_numpy().min() >= 0.2 - 1e-6  # the likeliest of five
    metadata = json.loads(pq.read_schema(result.subset).metadata[b"curate"])
    assert metadata["kind"] == "subset"
    assert metadata["columns"]["rank"]["meaning"] == "place among the picks, from 1"
    assert metadata["policy"][-1]["rule"] == "select"


def test_every_row_has_a_decision_with_its_reason(tmp_path):
    status = ["ok"] * 30
    status[20] = "damaged"
    kappa = np.linspace(1, 30, 30).astype(np.float32)
    kappa[21] = np.nan
    vectors = [*columns_of(30)["embedding"]]
    vectors[22] = np.zeros(8)
    source = table(
        tmp_path / "s.parquet", 30, status=status, kappa_mcinfonce=kappa, embedding=vectors, unc_losspred=None
    )
    labels = csv(tmp_path / "l.csv", [(f"img/{i:03}.png", "a" if i % 2 else "b") for i in range(3)])
    out = csv(tmp_path / "x.csv", [("img/010.png",), ("img/000.png",), ("elsewhere.png",)], header="key")
    result = curate.select(source, tmp_path / "b.parquet", budget=5, labelled=labels, exclude=out, noise_guard=True)
    lines = decisions_of(result)
    assert len(lines) == 30
    assert [lines[f"img/{i:03}.png"]["reason"] for i in (0, 1, 2)] == ["labelled already"] * 3
    assert lines["img/010.png"]["reason"] == "excluded"
    assert lines["img/010.png"]["rule"].endswith("x.csv")
    assert (lines["img/020.png"]["decision"], lines["img/020.png"]["reason"]) == ("failed", "not scored: damaged")
    assert lines["img/021.png"]["decision"] == lines["img/022.png"]["decision"] == "undecided"
    assert lines["img/021.png"]["reason"] == "kappa_mcinfonce has no value (null, NaN or infinite)"
    assert lines["img/022.png"]["reason"] == "has an embedding of zeros, which auto uses"
    # 24 candidates and 3 labelled rows are ranked; the lowest fifth, places below 5.4, goes: kappa 4 to 6 are left
    gated = sorted(key for key, row in lines.items() if row["rule"] == "--noise-guard")
    assert gated == ["img/003.png", "img/004.png"]
    kept = {key: row for key, row in lines.items() if row["decision"] == "keep"}
    assert sorted(row["rank"] for row in kept.values()) == [1, 2, 3, 4, 5]
    assert all(row["score"] == row["gain"] for row in kept.values())
    others = [row for row in lines.values() if row["reason"] == "not among the 5 that auto picked"]
    assert len(others) == 30 - 3 - 1 - 1 - 2 - 2 - 5
    assert result.dropped_by == {
        "labelled already": 3,
        "excluded": 1,
        "left out by the gate": 2,
        "not picked": len(others),
    }
    assert (result.undecided, result.failed, result.failed_by) == (2, 1, {"damaged": 1})
    assert any("2 of 3 keys" in note for note in result.notes)
    assert verify(result.receipt).identical


def test_labels_come_from_the_file_else_from_the_table(scores, tmp_path):
    keys = [f"img/{i:03}.png" for i in range(10)]
    labels_file = csv(tmp_path / "own.csv", [(key, f"x{i % 2}") for i, key in enumerate(keys)])
    none = csv(tmp_path / "none.csv", [(key,) for key in keys], header="key")
    by_file = curate.select(scores, tmp_path / "a.parquet", "margin", 4, labelled=labels_file)
    assert set(batch_of(by_file)["predicted"].to_pylist()) <= {"x0", "x1"}
    by_table = curate.select(scores, tmp_path / "b.parquet", "margin", 4, labelled=none)
    by_where = curate.select(scores, tmp_path / "c.parquet", "margin", 4, labelled_where=LABELLED)
    assert batch_of(by_table)["key"].to_pylist() == batch_of(by_where)["key"].to_pylist()
    assert by_table.model["classes"] == 5


def test_labelled_rows_without_classes_count_for_diversity_alone(scores, tmp_path):
    keys = csv(tmp_path / "l.csv", [(f"img/{i:03}.png",) for i in range(10)], header="key")
    result = curate.select(scores, dry_run=True, budget=5, labelled=keys, label=None)
    assert result.model["rows"] == 10  # the table has a column `label`
    bare = table(tmp_path / "bare.parquet", 60, label=None)
    result = curate.select(bare, dry_run=True, budget=5, labelled=keys)
    assert result.model == {}
    assert any("only count for diversity" in note for note in result.notes)


def test_per_and_balance_are_exact_and_null_is_a_separate_group(scores, tmp_path):
    per = curate.select(scores, tmp_path / "a.parquet", budget=3, per="photographer")
    who = batch_of(per)["photographer"].to_pylist()
    assert {name: who.count(name) for name in set(who)} == {"ann": 3, "bob": 3, None: 3}
    balance = curate.select(scores, tmp_path / "b.parquet", budget=11, balance="photographer")
    who = batch_of(balance)["photographer"].to_pylist()
    assert sorted(who.count(name) for name in set(who)) == [3, 4, 4]
    assert sum(balance.groups.values()) == 11
    assert verify(balance.receipt).identical
    assert verify(per.receipt).identical


def test_ranking_by_a_column_goes_the_way_of_the_column(scores, tmp_path):
    rows = {row["key"]: row for row in pq.read_table(scores).to_pylist()}
    for typed, key in (
        ("unc_losspred", lambda row: -row["unc_losspred"]),
        ("kappa_mcinfonce", lambda row: row["kappa_mcinfonce"]),
        ("max:aesthetic", lambda row: -row["aesthetic"]),
        ("min:aesthetic", lambda row: row["aesthetic"]),
    ):
        result = curate.select(scores, tmp_path / "b.parquet", "score", 7, score=typed, overwrite=True)
        expected = sorted(rows, key=lambda name, key=key: key(rows[name]))[:7]
        assert batch_of(result)["key"].to_pylist() == expected


def test_ties_go_to_the_lower_hash_of_the_key(tmp_path):
    from curate.tables.digests import tie_breaks

    source = table(tmp_path / "s.parquet", 30, unc_losspred=np.ones(30, np.float32))
    result = curate.select(source, tmp_path / "b.parquet", "score", 10, score="unc_losspred")
    keys = [f"img/{i:03}.png" for i in range(30)]
    hashes = tie_breaks([key.encode() for key in keys])
    assert batch_of(result)["key"].to_pylist() == [keys[i] for i in np.argsort(hashes)[:10]]


def test_all_embeddings_equal_still_gives_the_exact_budget(tmp_path):
    same = [np.eye(8)[0].astype(np.float32)] * 30
    source = table(tmp_path / "s.parquet", 30, embedding=same)
    for name in ("auto", "k-center", "typiclust", "k-means"):
        result = curate.select(source, tmp_path / "b.parquet", name, 7, overwrite=True)
        assert len(set(batch_of(result)["key"].to_pylist())) == 7
    stopped = curate.select(source, tmp_path / "b.parquet", "auto", 7, min_distance=0.1, overwrite=True)
    assert (stopped.kept, stopped.requested) == (1, 7)
    assert verify(stopped.receipt).identical


def test_no_pick_far_enough_is_an_empty_batch(scores, tmp_path):
    result = curate.select(scores, tmp_path / "b.parquet", budget=5, labelled_where=LABELLED, min_distance=2.0)
    assert (result.kept, result.requested) == (0, 5)
    assert batch_of(result).num_rows == 0
    assert "rank" in batch_of(result).schema.names
    assert verify(result.receipt).identical


def test_the_first_picks_are_named_in_their_order(scores, tmp_path):
    result = curate.select(scores, tmp_path / "b.parquet", budget=6)
    assert [each["key"] for each in result.first] == batch_of(result)["key"].to_pylist()[:5]


def test_a_gain_that_nothing_measures_is_null_in_json(scores):
    result = curate.select(scores, dry_run=True, strategy="k-center", budget=3)
    assert result.gains[0] is None
    assert "Infinity" not in json.dumps(result.to_json())


def test_a_batch_can_be_chosen_from_again_and_keeps_the_earlier_ranks(scores, tmp_path):
    first = curate.select(scores, tmp_path / "a.parquet", budget=20)
    second = curate.select(first.subset, tmp_path / "b.parquet", "random", 5)
    batch = batch_of(second)
    by_key = dict(zip(batch_of(first)["key"].to_pylist(), batch_of(first)["rank"].to_pylist(), strict=True))
    assert batch["source_rank"].to_pylist() == [by_key[key] for key in batch["key"].to_pylist()]
    assert verify(second.receipt).identical
    with pytest.raises(InputError, match=r"both .*'source_rank'"):
        curate.select(second.subset, tmp_path / "c.parquet", "random", 2)


def test_the_last_batch_as_labelled_is_never_picked_again(scores, tmp_path):
    first = curate.select(scores, tmp_path / "a.parquet", budget=20)
    second = curate.select(scores, tmp_path / "b.parquet", budget=20, labelled=first.subset)
    assert not set(batch_of(first)["key"].to_pylist()) & set(batch_of(second)["key"].to_pylist())


def test_more_rows_than_a_chunk_come_in_order(tmp_path, monkeypatch):
    monkeypatch.setattr("curate.policies.arranged.CHUNK_ROWS", 7)
    monkeypatch.setattr("curate.policies.outputs.STREAM_ROWS", 11)
    source = table(tmp_path / "s.parquet", 60)
    result = curate.select(source, tmp_path / "b.parquet", "score", 50, score="max:aesthetic")
    values = batch_of(result)["aesthetic"].to_numpy()
    assert len(values) == 50
    assert (np.diff(values) <= 0).all()


def test_the_waiting_rows_leave_no_file_behind(tmp_path, monkeypatch):
    import tempfile

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "waiting"))
    (tmp_path / "waiting").mkdir()
    source = table(tmp_path / "s.parquet", 60)
    curate.select(source, tmp_path / "b.parquet", "random", 9)
    assert list((tmp_path / "waiting").iterdir()) == []


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"budget": 61}, "got 61"),
        ({"budget": 55, "labelled_where": LABELLED}, "got 55"),
        ({"budget": 1, "labelled_where": "key like 'img%'"}, "60 rows 60 labelled"),
        ({"strategy": "margin"}, "margin needs .*--labelled"),
        ({"strategy": "margin", "labelled_where": LABELLED, "label": "empty"}, "10 rows without"),
        ({"strategy": "entropy"}, "entropy needs"),
        ({"strategy": "stratified", "set": {"by": "given"}, "label": "empty"}, ("column 'empty'")),
        ({"strategy": "stratified"}, "stratified needs"),
        ({"strategy": "score"}, "needs --score COLUMN"),
        ({"strategy": "score", "score": "aesthetic"}, "--score min:aesthetic"),
        ({"strategy": "score", "score": "kappa_mcinfonc"}, "did you mean 'kappa_mcinfonce'"),
        ({"score": "unc_losspred"}, "auto has its own"),
        ({"quality": "unc_losspred"}, "--quality unc_losspred is for"),
        ({"discount": True, "quality": "aesthetic"}, "--quality max:aesthetic"),
        ({"noise_guard": True, "gate": 0.1}, "--gate and --discount"),
        ({"per": "label", "balance": "label"}, "one of them out"),
        ({"per": "no"}, "has no column 'no'"),
        ({"labelled_where": LABELLED, "label": "spcies"}, "has no column 'spcies'"),
        ({"labelled_where": "nothing = 1"}, "--labelled-where .*nothing"),
    ],
)
def test_an_impossible_request_is_one_line_and_writes_nothing(scores, tmp_path, given, said):
    before = sorted(tmp_path.iterdir())
    with pytest.raises(InputError, match=said) as error:
        curate.select(scores, tmp_path / "b.parquet", **given)
    assert "\n" not in str(error.value)
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize("shares", ["proportional", "equal"])
def test_stratified_by_given_classes_takes_its_share_of_each(tmp_path, shares):
    """Four of every five rows are of one class: 8 of 10 picks, or as many as of each other class."""
    species = ["cat" if i % 5 else ("dog", "emu")[i // 5 % 2] for i in range(60)]
    source = table(tmp_path / "s.parquet", 60, label=None, species=species)
    options = {"set": {"by": "given", "shares": shares}, "label": "species"}
    result = curate.select(source, tmp_path / "b.parquet", "stratified", 10, **options)
    counts = [batch_of(result)["species"].to_pylist().count(name) for name in ("cat", "dog", "emu")]
    assert counts == [8, 1, 1] if shares == "proportional" else sorted(counts) == [3, 3, 4]
    assert verify(result.receipt).identical
    labels = csv(tmp_path / "l.csv", [("img/000.png", "dog"), ("img/001.png", "yak")], header="key,species")
    result = curate.select(source, tmp_path / "c.parquet", "stratified", 9, labelled=labels, **options)
    counts = [batch_of(result)["species"].to_pylist().count(name) for name in ("cat", "dog", "emu")]
    assert sum(counts) == 9
    if shares == "equal":
        assert sorted([counts[0], counts[1] + 1, counts[2]]) == [3, 3, 4]  # one dog is labelled already
    with pytest.raises(InputError, match=r"stratified .*'label'"):
        curate.select(source, None, "stratified", 3, set={"by": "given"}, dry_run=True)


def test_rows_without_a_given_class_are_reported_and_count_as_a_class(tmp_path):
    source = table(tmp_path / "s.parquet", 60, label=[("a", None, "b")[i % 3] for i in range(60)])
    result = curate.select(source, tmp_path / "b.parquet", "stratified", 30, set={"by": "given"})
    assert [batch_of(result)["label"].to_pylist().count(name) for name in ("a", "b", None)] == [10, 10, 10]
    assert "20 of 60 candidates" in str(result.notes)


def test_nothing_that_is_labelled_is_a_note_for_it_may_be_the_first_batch(scores, tmp_path):
    labels = csv(tmp_path / "l.csv", [])
    result = curate.select(scores, None, budget=3, labelled=labels, dry_run=True)
    assert result.notes == [f"--labelled {labels} holds no key: no row counts as labelled"]
    result = curate.select(scores, None, budget=3, labelled_where="label = 'no'", dry_run=True)
    assert result.notes == ["no row meets --labelled-where \"label = 'no'\": no row counts as labelled"]


def test_labelled_keys_that_are_not_in_the_table_are_counted_and_named(scores, tmp_path):
    labels = csv(tmp_path / "l.csv", [("img/001.png", "a"), ("typo.png", "b")])
    with pytest.raises(InputError, match=r"1 of 2 .*'typo"):
        curate.select(scores, tmp_path / "b.parquet", budget=3, labelled=labels)


def test_a_missing_embedding_column_is_reported_with_what_to_do(tmp_path):
    source = table(tmp_path / "s.parquet", 9, embedding=None)
    with pytest.raises(InputError, match=r"no 'embedding' .*--score COLUMN"):
        curate.select(source, tmp_path / "b.parquet", budget=3)
    by_column = curate.select(source, tmp_path / "b.parquet", "score", 3, score="unc_losspred")
    assert by_column.kept == 3


@pytest.mark.parametrize("flag", ["labelled", "exclude"])
def test_a_file_that_is_read_is_never_written_over(scores, tmp_path, flag):
    keys = curate.select(scores, tmp_path / "k.parquet", "random", 3).subset
    before = keys.read_bytes()
    with pytest.raises(InputError, match=f"read by --{flag}"):
        curate.select(scores, keys, budget=3, overwrite=True, **{flag: keys})
    assert keys.read_bytes() == before


def test_embeddings_of_two_models_are_refused(tmp_path):
    folder = tmp_path / "s"
    folder.mkdir()
    for number, digest in enumerate(("aa", "bb")):
        columns = columns_of(10, seed=number)
        columns["key"] = [f"{number}/{key}" for key in columns["key"]]
        path = write(folder / f"part-{number}.parquet", columns)
        table = pq.read_table(path)
        text = json.dumps({"model": {"digest": digest, "method": f"m{number}"}})
        pq.write_table(table.replace_schema_metadata({"curate": text}), path)
    with pytest.raises(InputError, match="embeddings of two models"):
        curate.select(folder, tmp_path / "b.parquet", budget=3)
    assert curate.select(folder, tmp_path / "b.parquet", "random", 3).kept == 3
