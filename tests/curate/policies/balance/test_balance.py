"""Rows of each class or cluster towards a distribution: exact counts, no row twice, and what cannot be met."""

import json
from collections import Counter
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from synthetic import kinds

import curate
from curate.policies.balance.amounts import amounts, apportioned
from curate.policies.verify import verify
from curate.tables.table import embedding_field
from scoring.errors import InputError

SIZES = {"cat": 50, "dog": 30, "emu": 8, "fox": 2}


def columns(sizes=SIZES, **more):
    label = [name for name, n in sizes.items() for _ in range(n)]
    return {"key": [f"k{i}" for i in range(len(label))], "label": label, **more}


def table(path, sizes=SIZES, **more):
    pq.write_table(pa.table(columns(sizes, **more)), path)
    return path


@pytest.fixture
def scores(tmp_path):
    return table(tmp_path / "t.parquet", kappa_a=np.arange(90.0), width=np.arange(90) % 7)


def kept(result):
    return {name: n for name, (_, n, _) in result.cells.items()}


def test_without_an_amount_every_share_is_met_exactly_and_the_limit_is_named(scores, tmp_path):
    result = curate.balance(scores, tmp_path / "o.parquet", per="label")
    assert kept(result) == dict.fromkeys(SIZES, 2)
    assert Counter(pq.read_table(result.subset)["label"].to_pylist()) == kept(result)
    assert (result.limit, result.most, result.short) == ("fox", 8, 0)
    (note,) = result.notes
    assert all(words in note for words in (": 8; ", "label fox, with 2 rows; --rows"))
    assert result.dropped_by == {"beyond the share of its cell": 82}
    named = curate.balance(scores, dry_run=True, per="label", to={"cat": 0.5, "dog": "50%"})
    assert kept(named) == {"cat": 30, "dog": 30, "emu": 0, "fox": 0}
    assert named.dropped_by == {"beyond the share of its cell": 20, "in a cell without a share": 10}


def test_a_cell_with_too_few_rows_gives_all_and_the_lack_is_reported(scores):
    result = curate.balance(scores, dry_run=True, per="label", rows=60)
    assert kept(result) == {"cat": 25, "dog": 25, "emu": 8, "fox": 2}
    assert result.short == 7 + 13
    assert result.apart == pytest.approx(20 / 60)
    assert "20 rows too few" in result.notes[0]
    assert "33.33% of the rows" in result.notes[0]


def test_a_power_of_the_sizes_is_between_uniform_and_the_dataset(scores):
    root = curate.balance(scores, dry_run=True, per="label", to="square-root", rows=20)
    assert root.cells == curate.balance(scores, dry_run=True, per="label", alpha=0.5, rows=20).cells
    weights = {name: n**0.5 for name, n in SIZES.items()}
    for name, (_, _, share) in root.cells.items():
        assert abs(share - 20 * weights[name] / sum(weights.values())) < 1
    assert kept(curate.balance(scores, dry_run=True, per="label", alpha=1, rows="50%")) == {
        "cat": 25,
        "dog": 15,
        "emu": 4,
        "fox": 1,
    }


@pytest.mark.parametrize(
    ("ending", "text"), [("csv", "class,share\ncat,30%\ndog,0.7\n"), ("json", '{"cat": 0.3, "dog": 0.7}')]
)
def test_shares_come_from_a_file_or_as_typed_and_are_kept_in_the_receipt(scores, tmp_path, ending, text):
    path = tmp_path / f"shares.{ending}"
    path.write_text(text)
    for number, to in enumerate((path, ["cat=30%", "dog=70%"])):
        result = curate.balance(scores, tmp_path / f"{number}.parquet", per="label", to=to, rows=40)
        assert kept(result) == {"cat": 12, "dog": 28, "emu": 0, "fox": 0}
    path.unlink()
    assert verify(tmp_path / "0.receipt.json").identical
    assert json.loads((tmp_path / "0.receipt.json").read_text())["cells"]["cat"] == [50, 12, 12]


def test_the_most_certain_stay_in_each_cell_and_a_row_without_a_score_is_undecided(tmp_path):
    score = [None if i in (3, 60) else float(i % 31) for i in range(90)]
    path = table(tmp_path / "t.parquet", unc_b=score, mine=np.arange(90.0))
    result = curate.balance(path, tmp_path / "o.parquet", per="label", within="certain", rows=12)
    assert (result.undecided, result.undecided_by) == (2, {"unc_b has no value (null, NaN or infinite)": 2})
    label, stays = columns()["label"], set(pq.read_table(result.subset)["key"].to_pylist())
    for name in SIZES:
        mine = [i for i in range(90) if label[i] == name and score[i] is not None]
        worst = max((score[i] for i in mine if f"k{i}" in stays), default=None)
        assert all(score[i] >= worst for i in mine if f"k{i}" not in stays)
    high = curate.balance(path, tmp_path / "h.parquet", per="label", within="certain", column="max:mine")
    assert {"k49", "k48"} <= set(pq.read_table(high.subset)["key"].to_pylist())


def test_draws_use_the_hash_of_the_key_and_a_larger_amount_adds_to_a_smaller_one(scores, tmp_path):
    stays = []
    for number, (rows, seed) in enumerate(((12, 0), (30, 0), (12, 1))):
        result = curate.balance(scores, tmp_path / f"{number}.parquet", per="label", rows=rows, seed=seed)
        stays.append(set(pq.read_table(result.subset)["key"].to_pylist()))
    assert stays[0] < stays[1]
    assert stays[0] != stays[2]


@pytest.fixture
def embedded(tmp_path):
    vectors, kind = kinds(300, n_kinds=5)
    lists = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), type=embedding_field(24).type)
    rows = {"key": [f"k{i}" for i in range(300)], "label": kind, "embedding": lists}
    pq.write_table(pa.table(rows), tmp_path / "e.parquet")
    return tmp_path / "e.parquet"


def test_clusters_are_cells_and_the_typical_rows_of_each_have_the_nearest_neighbours(embedded, tmp_path):
    result = curate.balance(embedded, tmp_path / "o.parquet", per="clusters", clusters=12, within="typical", rows=60)
    assert result.kept == 60
    assert len(result.cells) <= 12
    assert max(kept(result).values()) - min(n for _, n, _ in result.cells.values() if n) <= 60
    decisions = pq.read_table(result.decisions).to_pylist()
    for cell in result.cells:
        mine = [row for row in decisions if row["cell"] == cell]
        stay = [row["score"] for row in mine if row["decision"] == "keep"]
        assert min(stay, default=np.inf) >= max((row["score"] for row in mine if row["decision"] == "drop"), default=0)
    assert verify(result.receipt).identical
    shuffled = pq.read_table(embedded).take(np.random.default_rng(0).permutation(300))
    pq.write_table(shuffled, tmp_path / "s.parquet")
    assert verify(result.receipt, tmp_path / "s.parquet").identical
    assert len(curate.balance(embedded, dry_run=True, per="clusters").cells) <= 30


def test_a_column_of_the_name_clusters_is_a_column_unless_they_are_counted(tmp_path):
    path = table(tmp_path / "t.parquet", clusters=np.arange(90) % 3)
    assert list(curate.balance(path, dry_run=True, per="clusters").cells) == ["0", "1", "2"]
    with pytest.raises(InputError, match="--per clusters uses embeddings"):
        curate.balance(path, dry_run=True, per="clusters", clusters=3)


def test_ten_thousand_classes_and_fewer_rows_than_classes(tmp_path):
    label = np.repeat(np.arange(10_000), 3)
    pq.write_table(pa.table({"key": np.arange(30_000), "label": label}), tmp_path / "t.parquet")
    result = curate.balance(tmp_path / "t.parquet", dry_run=True, per="label", rows=700)
    assert (result.kept, max(kept(result).values())) == (700, 1)
    assert result.notes == ["9,300 cells of 10,000 get no row: fewer rows are kept than there are cells"]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"to": ["cat=60%", "dog=40%"], "rows": 80}, "2 too few .*75 rows"),
        ({"to": ["emu=50%", "dog=50%"], "rows": 30}, "7 too few"),
        ({"to": ["cat=60%", "dog=30%"]}, "10% is missing"),
        ({"to": ["cats=60%", "dog=40%"]}, "did you mean 'cat'"),
        ({"to": ["cat=60", "dog=40"]}, "to 100%, got '60'"),
        ({"to": ["cat=50%", "cat=50%"]}, "two shares of 'cat'"),
        ({"to": "unifrom"}, "did you mean 'uniform'"),
        ({"to": "none.csv"}, r"none\.csv"),
        ({"to": "uniform", "alpha": 0.5}, "--alpha and --to both"),
        ({"alpha": 2}, "--alpha must be"),
        ({"rows": 91}, "90 rows .*got 91"),
        ({"rows": "x"}, "--rows takes"),
        ({"per": "labl"}, "did you mean 'label'"),
        ({"per": "lists"}, "column 'lists'"),
        ({"per": "empty"}, "whose row empty"),
        ({"per": "clusters"}, "no column 'embedding'"),
        ({"within": "typical"}, "--within typical uses embeddings"),
        ({"within": "certain"}, "no kappa column"),
        ({"within": "best"}, "'best'"),
        ({"column": "width"}, "--column width is for"),
        ({"clusters": 3}, "--clusters 3 is for"),
        ({"nearest": True}, "--nearest is for shares"),
    ],
)
def test_what_cannot_be_balanced_is_one_line_and_nothing_is_written(tmp_path, given, words):
    path = table(tmp_path / "t.parquet", empty=pa.nulls(90, pa.string()), lists=[[1]] * 90, width=np.arange(90))
    with pytest.raises(InputError, match=words) as error:
        curate.balance(path, tmp_path / "o.parquet", **{"per": "label", **given})
    assert "\n" not in str(error.value)
    assert [each.name for each in tmp_path.iterdir()] == ["t.parquet"]


def test_named_shares_that_cannot_be_met_are_met_as_nearly_as_rows_allow_where_that_is_asked(scores):
    result = curate.balance(scores, dry_run=True, per="label", to=["emu=50%", "dog=50%"], rows=30, nearest=True)
    assert kept(result) == {"cat": 0, "dog": 22, "emu": 8, "fox": 0}


def test_a_table_without_rows_is_reported(tmp_path):
    pq.write_table(
        pa.table({"key": pa.array([], pa.string()), "label": pa.array([], pa.string())}), tmp_path / "t.parquet"
    )
    with pytest.raises(InputError, match="rows to balance"):
        curate.balance(tmp_path / "t.parquet", dry_run=True, per="label")


def one_at_a_time(sizes, shares, total):
    """The level at which cells that give what they have, or their part, give the total: by halving, slowly."""
    low, high = Fraction(0), Fraction(10**9)
    for _ in range(200):
        level = (low + high) / 2
        if sum(min(Fraction(n), level * share) for n, share in zip(sizes, shares, strict=True)) < total:
            low = level
        else:
            high = level
    return [float(min(Fraction(n), high * share)) for n, share in zip(sizes, shares, strict=True)]


def test_amounts_are_the_nearest_whole_numbers_to_a_common_level_never_more_than_there_are():
    generator = np.random.default_rng(0)
    for _ in range(40):
        sizes = generator.integers(1, 60, 7)
        weights = [Fraction(int(n)) for n in generator.integers(0, 9, 7) + (np.arange(7) == 0)]
        shares = [weight / sum(weights) for weight in weights]
        total = int(generator.integers(1, sum(n for n, share in zip(sizes, shares, strict=True) if share) + 1))
        plan = amounts(sizes, np.array([float(share) for share in shares]), total)
        assert plan.taken.sum() == total == plan.quota.sum()
        assert (plan.taken <= sizes).all()
        assert (np.abs(plan.taken - one_at_a_time(sizes.tolist(), shares, total)) < 1 + 1e-6).all()
        everything = amounts(sizes, np.array([float(share) for share in shares]))
        assert everything.most == everything.taken.sum()
        assert not everything.short.any()
        bound = min(Fraction(int(n)) / share for n, share in zip(sizes, shares, strict=True) if share)
        assert bound - 1 < everything.most <= bound


def test_the_largest_remainders_get_the_rest_and_equal_ones_the_earlier_cell():
    assert apportioned(np.array([2.4, 2.4, 1.2]), 6).tolist() == [3, 2, 1]
    assert apportioned(np.full(3, 10 / 3), 10).tolist() == [4, 3, 3]
