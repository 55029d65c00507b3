"""Cuts that take the same share of every class or cluster: of which rows, what is reported, and that it repeats."""

import math
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commandline import run as curate_run

import curate
from curate.policies.filter.amounts import Groups, even_best
from scoring.errors import InputError

STRING = pa.string()
FEW = 10  # rows below which groups count as one


def slowly(values, group, n_dropped, junk, most, surely):
    """Raise the share that every group loses of its other rows until enough are lost; then one more of some groups."""
    n = len(values)
    pools: dict[int, list[int]] = {}
    for row in sorted(range(n), key=lambda row: -values[row]):
        pools.setdefault(group[row] if group.count(group[row]) >= FEW else -1, []).append(row)
    worst = {g: sum(surely[row] for row in rows) for g, rows in pools.items()}
    limit = {
        g: min(len(rows), worst[g] + math.ceil(Fraction(most * n_dropped * (len(rows) - worst[g]), n)))
        for g, rows in pools.items()
    }
    first = {g: min(sum(junk[row] for row in rows), limit[g]) for g, rows in pools.items()}
    if sum(first.values()) >= n_dropped:
        worst = sorted((row for g, rows in pools.items() for row in rows[: first[g]]), key=lambda row: -values[row])
        return [row not in worst[:n_dropped] for row in range(n)]

    def lost(share):
        return {g: min(first[g] + share * (len(rows) - first[g]), limit[g]) for g, rows in pools.items()}

    low, high = Fraction(0), Fraction(1)
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if sum(lost(middle).values()) < n_dropped else (low, middle)
    exact = {g: float(value) for g, value in lost(high).items()}
    whole = {g: math.floor(value + 1e-9) for g, value in exact.items()}
    gone = {row for g, rows in pools.items() for row in rows[: whole[g]]}
    following = [rows[whole[g]] for g, rows in pools.items() if exact[g] > whole[g] + 1e-9]
    following.sort(key=lambda row: -values[row])
    gone |= set(following[: n_dropped - len(gone)])
    return [row not in gone for row in range(n)]


@pytest.mark.parametrize("most", [Fraction(1), Fraction(5, 4), Fraction(10**6)])
@pytest.mark.parametrize("seed", range(20))
def test_every_group_loses_its_junk_and_then_the_same_share(seed, most):
    draw = np.random.default_rng(seed)
    n, groups = int(draw.integers(1, 300)), int(draw.integers(1, 12))
    codes = np.minimum(draw.geometric(0.3, n) - 1, groups - 1)
    values = draw.normal(size=n) + draw.normal(0, 2, groups)[codes]
    junk = draw.random(n) < (draw.random(groups) * draw.choice([0, 0.3, 1]))[codes]
    surely = junk & (draw.random(n) < draw.choice([0, 0.5]))
    values[junk] += 100
    values[surely] += 100
    n_dropped = int(draw.integers(0, n + 1))
    cut = even_best(
        values if seed % 2 else -values,
        np.ones(n, bool),
        lambda m: m - n_dropped,
        draw.integers(0, 2**63, n).astype(np.uint64),
        Groups("label", codes, [str(g) for g in range(groups)], junk, most, surely),
        low_is_best=bool(seed % 2),
    )
    assert cut.keep.sum() == n - n_dropped
    assert cut.keep.tolist() == slowly(values.tolist(), codes.tolist(), n_dropped, junk.tolist(), most, surely.tolist())
    assert cut.evened.junk == (junk & ~cut.keep).sum()


def table_of(tmp_path, name="label", kind=STRING, n=200, rare=40):
    """160 certain rows of one class and 40 uncertain ones of another."""
    draw = np.random.default_rng(0)
    codes = (np.arange(n) >= n - rare).astype(int)
    values = draw.uniform(0, 0.2, n) + 0.25 * codes
    groups = ["cat", "shoe"] if pa.types.is_string(kind) else [0, 1]
    table = pa.table(
        {
            "key": [f"{row:03}" for row in range(n)],
            "status": ["ok"] * n,
            "unc_fitted": pa.array(values, pa.float32()),
            name: pa.array([groups[code] for code in codes]).cast(kind),
        }
    )
    pq.write_table(table, tmp_path / "scores.parquet")
    return tmp_path / "scores.parquet"


def kept_of_rare(subset):
    return sum(key >= "160" for key in pq.read_table(subset)["key"].to_pylist())


@pytest.mark.parametrize("name", ["label", "cluster"])
@pytest.mark.parametrize("kind", [pa.string(), pa.int32(), pa.bool_()])
@pytest.mark.parametrize("amount", [{"keep_top": "80%"}, {"drop_bottom": "20%"}])
def test_a_rare_class_is_not_emptied(tmp_path, name, kind, amount):
    path, out = table_of(tmp_path, name, kind), tmp_path / "kept.parquet"
    plain = curate.filter(path, out, **amount, allow_uneven=True)
    assert (plain.kept, kept_of_rare(out), plain.evened) == (160, 0, {})
    even = curate.filter(path, out, **amount, overwrite=True)
    assert (even.kept, kept_of_rare(out)) == (160, 32)  # 20% of 40 go
    (evened,) = even.evened.values()
    assert [(each["rows"], each["plain"], each["dropped"]) for each in evened["limited"]] == [(40, 40, 8)]
    assert curate.verify(even.receipt).identical


def test_the_reason_of_a_count_does_not_give_it_to_each_class(tmp_path):
    curate.filter(table_of(tmp_path), tmp_path / "kept.parquet", drop_bottom=10)
    reasons = set(pq.read_table(tmp_path / "kept.decisions.parquet")["reason"].to_pylist())
    assert any("share, here 'shoe'" in reason for reason in reasons)
    assert not any("rows of label" in reason for reason in reasons)


def test_the_loss_is_reported_with_and_without_it(tmp_path):
    path = table_of(tmp_path, kind=pa.int64())
    shown = curate_run("filter", path, "-o", tmp_path / "a.parquet", "--keep-top", "80%").stderr
    assert "--allow-uneven" in shown
    plain = curate_run("filter", path, "-o", tmp_path / "b.parquet", "--keep-top", "80%", "--allow-uneven").stderr
    assert "of class 1\n" in plain


def test_any_column_is_named_by_label(tmp_path):
    path, out = table_of(tmp_path, "species"), tmp_path / "kept.parquet"
    assert curate.filter(path, out, keep_top="80%").evened == {}
    curate.filter(path, out, keep_top="80%", label="species", overwrite=True)
    assert kept_of_rare(out) == 32
    with pytest.raises(InputError, match="spcies"):
        curate.filter(path, out, keep_top="80%", label="spcies", overwrite=True)
    with pytest.raises(InputError, match="allow-uneven"):
        curate.filter(path, out, keep_top="80%", label="species", allow_uneven=True, overwrite=True)
    with pytest.raises(InputError, match="keep-top"):
        curate.filter(path, out, max=0.3, label="species", overwrite=True)


def test_a_condition_that_empties_a_cluster_is_reported(tmp_path):
    path = table_of(tmp_path, "cluster", pa.int32())
    assert "cluster 1 loses 100%" in curate_run("filter", path, "--max", "0.2", "-o", tmp_path / "o.parquet").stderr


def test_as_many_classes_as_rows(tmp_path):
    n = 20_000
    table = pa.table(
        {
            "key": [f"{row:05}" for row in range(n)],
            "unc_fitted": pa.array(np.random.default_rng(0).random(n), pa.float32()),
            "label": [f"class {row}" for row in range(n)],
        }
    )
    pq.write_table(table, tmp_path / "many.parquet")
    done = curate_run("filter", tmp_path / "many.parquet", "-o", tmp_path / "o.parquet", "--keep-top", "80%")
    assert pq.read_metadata(tmp_path / "o.parquet").num_rows == 16_000
    assert len(done.stderr) < 2000
