"""What another table has already."""

import json
import shutil
from functools import partial

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from made import cosines, jittered, peak_mb, plain_rows, random_signatures, same_thumbnails, signed, write_table

import curate
from curate.policies.dedup import decide as other
from curate.policies.dedup.finders import links
from curate.policies.dedup.finders.links import in_chunks
from curate.policies.dedup.finders.searches import NearHash, NearVector, SameText
from curate.policies.verify import verify
from scoring.errors import InputError

NEW, OLD = 60, 50


def outside(others, searches, open_rows):
    return other.find_outside(others, searches, open_rows)


def made(generator):
    base = random_signatures(generator, 20)
    mine, others = (jittered(generator, base[generator.integers(0, 20, n)], n, 8.0) for n in (NEW, OLD))
    codes = [generator.integers(0, 2**63, n).astype(np.uint64) for n in (NEW, OLD)]
    codes[0][:10] = codes[1][20:30] ^ np.uint64(4)
    codes[0][5:15] = codes[1][30:40] ^ np.uint64(1)
    texts = [[f"{side}{i}" for i in range(n)] for side, n in (("new", NEW), ("old", OLD))]
    texts[0][:5] = texts[1][:5] = ["a", "b", "c", "d", None]
    texts[1][5] = "a"
    sides = []
    for signatures, code, text in zip((mine, others), codes, texts, strict=True):
        rows = plain_rows(signature=signatures, phash=code, has_phash=np.ones(len(code), bool))
        rows.texts["sha256"] = pa.chunked_array([text], pa.large_string())
        rows.ok = generator.random(len(code)) < 0.9
        sides.append(rows)
    return sides


@pytest.mark.parametrize("fewest", [1, 7, 64])
@pytest.mark.parametrize("seed", range(3))
def test_each_row_belongs_to_the_most_similar_of_the_first_finder_that_finds_one(seed, fewest, monkeypatch):
    monkeypatch.setattr(links, "FIRST", fewest)
    monkeypatch.setattr(other, "in_chunks", partial(in_chunks, many=10))
    generator = np.random.default_rng(seed)
    rows, others = made(generator)
    open_rows = rows.ok & (generator.random(NEW) < 0.9)
    searches = {
        "bytes": SameText(rows.texts["sha256"]),
        "hash": NearHash(rows, 2),
        "signature": NearVector(rows.signature, 0.93, "signature"),
    }
    stars = outside(others, searches, open_rows.copy())
    texts = [each.texts["sha256"].to_pylist() for each in (rows, others)]
    cosine = cosines(np.concatenate([rows.signature, others.signature]))[:NEW, NEW:].astype(np.float32)
    n_leaks = 0
    for row in range(NEW):
        equal = [1.0 if a is not None and a == texts[0][row] else None for a in texts[1]]
        bits = [(int(code) ^ int(rows.phash[row])).bit_count() for code in others.phash]
        choices = [
            [(-1.0, others.hashes[o], o) for o in range(OLD) if others.ok[o] and equal[o]],
            [(bits[o], others.hashes[o], o) for o in range(OLD) if others.ok[o] and bits[o] <= 2],
            [(-cosine[row, o], others.hashes[o], o) for o in range(OLD) if others.ok[o] and cosine[row, o] >= 0.93],
        ]
        expected = next(((at, min(each)) for at, each in enumerate(choices) if each), None)
        if expected is None or not open_rows[row]:
            assert stars.owner[row] == stars.finder[row] == -1
        else:
            finder, (value, _, owner) = expected
            assert (stars.finder[row], stars.owner[row]) == (finder, owner)
            assert stars.similarity[row] == pytest.approx(abs(value), abs=1e-6)
            n_leaks += 1
    assert n_leaks > 15


class Asked:
    """A finder that notes who requested it what."""

    def __init__(self, search):
        self.search, self.higher, self.pairs, self.inside = search, search.higher, 0, 0

    def foreign(self, rows, among, some):
        links = self.search.foreign(rows, among, some)
        self.pairs += len(links)
        return links


def test_rows_of_the_other_table_are_never_compared_with_one_another():
    generator = np.random.default_rng(0)
    rows, others = made(generator)
    search = NearVector(rows.signature, 0.93, "signature")
    searched = []
    index = search.index.search
    search.index.search = lambda queries, among, **how: (
        searched.append((len(queries), len(among))) or index(queries, among, **how)
    )
    outside(others, {"signature": search}, rows.ok)
    assert sum(queries for queries, _ in searched) == others.ok.sum()
    assert {among for _, among in searched} == {NEW}


def test_thousands_of_copies_here_and_there_are_not_millions_of_pairs():
    generator = np.random.default_rng(0)
    base = random_signatures(generator, 1)
    n = 6000
    mine, others = (plain_rows(signature=jittered(generator, base, n, 3.0)) for _ in range(2))
    search = Asked(NearVector(mine.signature, 0.95, "signature"))
    stars, mb = peak_mb(lambda: outside(others, {"signature": search}, mine.ok))
    assert (stars.owner >= 0).all()
    assert search.pairs < n * 2 * (other.ENOUGH + 64)
    assert mb < 400
    texts = pa.chunked_array([np.repeat("same", 50_000)], pa.large_string())
    mine, others = plain_rows(n=50_000), plain_rows(n=50_000)
    others.texts["sha256"] = texts
    search = Asked(SameText(texts))
    stars, mb = peak_mb(lambda: outside(others, {"bytes": search}, mine.ok))
    assert (stars.owner == np.argmin(others.hashes)).all()
    assert search.pairs <= 64 * 50_000
    assert mb < 400


def test_a_table_without_rows_that_were_scored_has_nothing():
    generator = np.random.default_rng(0)
    rows, others = made(generator)
    others.ok[:] = False
    assert (outside(others, {"bytes": SameText(rows.texts["sha256"])}, rows.ok).owner == -1).all()


# the whole of it


@pytest.fixture
def tables(tmp_path):
    generator = np.random.default_rng(1)
    old = random_signatures(generator, 30)
    new = np.concatenate([jittered(generator, old[:10], 10, 4.0), random_signatures(generator, 20)])
    new[12:15] = jittered(generator, new[[11]], 3, 4.0)  # 11 to 14 are the same, and not in the other table
    new[15] = jittered(generator, new[[3]], 1, 2.0)[0]  # like 3, which is in the other table
    status = ["ok"] * 30
    status[4] = "unreadable"  # its old row cannot be compared
    write_table(
        tmp_path / "old.parquet",
        {"key": [f"o{i}" for i in range(30)], "signature": signed(old), "status": status, **same_thumbnails(30)},
    )
    write_table(
        tmp_path / "new.parquet", {"signature": signed(new), "group": [i % 3 for i in range(30)], **same_thumbnails(30)}
    )
    return tmp_path


def run(folder, name="out", **options):
    result = curate.dedup(folder / "new.parquet", folder / f"{name}.parquet", against=folder / "old.parquet", **options)
    return (
        result,
        pl.read_parquet(folder / f"{name}.decisions.parquet"),
        pl.read_parquet(folder / f"{name}.groups.parquet"),
    )


def test_what_the_other_table_has_goes_and_the_rest_is_deduplicated(tables):
    result, decisions, groups = run(tables)
    leaks = {i: f"o{i}" for i in range(10) if i != 4} | {15: "o3"}
    assert result.n_leaks == len(leaks)
    for at, row in enumerate(decisions.iter_rows(named=True)):
        if at in leaks:
            assert (row["decision"], row["kept_key"]) == ("drop", leaks[at])
            assert f"{leaks[at]} of old.parquet" in row["reason"]
        elif at in (11, 12, 13, 14):
            assert row["group"] == groups.filter(~pl.col("other_table"))["group"].item()
        else:
            assert row["decision"] == "keep"
            assert row["kept_key"] is None
    inside = decisions[11:15]
    assert (inside["decision"] == "keep").sum() == 1
    assert groups.filter(pl.col("other_table"))["kept_key"].sort().to_list() == sorted(set(leaks.values()))
    assert groups.filter(pl.col("kept_key") == "o3")["size"].item() == 2
    assert result.kept + result.dropped == 30
    assert len(pl.read_parquet(tables / "out.parquet")) == result.kept == 30 - len(leaks) - 3


def test_with_report_only_leaks_are_kept_and_reported(tables):
    result, decisions, groups = run(tables, report_only=True)
    leaks = {i: f"o{i}" for i in range(10) if i != 4} | {15: "o3"}
    twice = decisions[[3, 15]].filter(pl.col("decision") == "drop")  # 3 and 15 are the same, and both leak
    assert twice["reason"].item().endswith("; old.parquet has it too")
    assert twice["kept_key"].item() in ("k3", "k15")
    assert twice["kept_key"].item() != twice["key"].item()
    stay = decisions.filter(pl.col("reason").str.contains("but stays"))
    assert (stay["decision"] == "keep").all()
    assert dict(stay.select("key", "kept_key").iter_rows()) == {
        f"k{i}": key for i, key in leaks.items() if f"k{i}" != twice["key"].item()
    }
    assert result.n_leaks == 10
    assert result.dropped == 1 + 3
    assert groups.filter(pl.col("kept_key") == "o3").select("size", "other_table").row(0) == (2, True)
    assert decisions[[3, 15]]["group"].n_unique() == 1
    receipt = json.loads((tables / "out.receipt.json").read_text())
    assert receipt["policy"][0]["against"]["path"].endswith("old.parquet")
    assert verify(tables / "out.receipt.json").identical


def test_with_report_only_the_table_itself_is_deduplicated_as_without_another(tables):
    _, reported, _ = run(tables, "reported", report_only=True)
    alone = curate.dedup(tables / "new.parquet", tables / "alone.parquet")
    plain = pl.read_parquet(alone.decisions)
    assert reported["decision"].to_list() == plain["decision"].to_list()


def test_protected_rows_are_kept_although_the_other_table_has_them(tables):
    result, decisions, _ = run(tables, protect="group = 0")
    assert result.n_leaks == 10 - 4 - 0 - (15 % 3 == 0)
    protected = decisions.filter(pl.col("reason") == "protected")
    assert len(protected) == 10
    assert (protected["decision"] == "keep").all()
    reported, _, _ = run(tables, "reported", protect="group = 0", report_only=True)
    assert reported.n_leaks == 10


def test_the_other_table_is_not_changed_and_its_order_does_not_matter(tables):
    before = (tables / "old.parquet").read_bytes()
    _, first, _ = run(tables)
    assert (tables / "old.parquet").read_bytes() == before
    table = pa.parquet.read_table(tables / "old.parquet")
    shuffled = table.take(np.random.default_rng(0).permutation(30))
    pa.parquet.write_table(shuffled, tables / "old.parquet")
    _, second, _ = run(tables, overwrite=True)
    assert second.equals(first)


def test_a_copy_of_a_table_has_all_of_it_and_the_table_itself_is_refused(tables):
    shutil.copy(tables / "new.parquet", tables / "copy.parquet")
    result = curate.dedup(tables / "new.parquet", against=tables / "copy.parquet", dry_run=True)
    assert (result.n_leaks, result.kept) == (30, 0)
    (tables / "link.parquet").symlink_to(tables / "new.parquet")
    for same in ("new.parquet", "link.parquet"):
        with pytest.raises(InputError, match="pass another table"):
            curate.dedup(tables / "new.parquet", against=tables / same, dry_run=True)


@pytest.mark.parametrize("finder", [[], {}])
def test_no_finder_at_all_is_refused(tables, finder):
    with pytest.raises(InputError, match="expected a finder"):
        curate.dedup(tables / "new.parquet", finder=finder, dry_run=True)


def test_report_only_needs_another_table(tables):
    with pytest.raises(InputError, match="pass that as --against"):
        curate.dedup(tables / "new.parquet", dry_run=True, report_only=True)


def test_the_other_table_needs_the_columns_that_are_compared(tables):
    write_table(tables / "bare.parquet", {"sha256": ["a"]})
    with pytest.raises(InputError, match="no column 'signature'"):
        curate.dedup(tables / "new.parquet", against=tables / "bare.parquet", dry_run=True)


def test_signatures_of_which_one_table_alone_has_colours_are_refused_both_ways(tables):
    stored = np.concatenate([random_signatures(np.random.default_rng(1), 5), np.ones((5, 32), np.int8)], 1)
    write_table(tables / "coloured.parquet", {"signature": signed(stored)})
    for names in (("coloured", "new"), ("new", "coloured")):
        table, other = (tables / f"{name}.parquet" for name in names)
        with pytest.raises(InputError, match="signatures with colours"):
            curate.dedup(table, against=other, dry_run=True)


def test_with_only_against_no_row_is_dropped_for_one_of_the_same_table(tables):
    result, decisions, groups = run(tables, only_against=True)
    leaks = {i for i in range(10) if i != 4} | {15}
    assert set(np.flatnonzero(decisions["decision"] == "drop")) == leaks
    assert groups["other_table"].all()
    assert result.n_leaks == result.dropped == len(leaks)
    assert verify(tables / "out.receipt.json").identical
    reported, decisions, _ = run(tables, "told", only_against=True, report_only=True)
    assert (reported.n_leaks, reported.kept) == (len(leaks), 30)
    assert [each["key"] for each in reported.examples if each["why"] == "leak"] == [f"k{i}" for i in sorted(leaks)]


@pytest.mark.parametrize("asked", [{}, {"report_only": True}, {"only_against": True}])
def test_every_leak_is_a_line_of_csv_with_its_row_of_the_other_table(tables, asked):
    result, _, _ = run(tables, **asked)
    leaks = {i: f"o{i}" for i in range(10) if i != 4} | {15: "o3"}
    lines = pl.read_csv(result.leaks)
    assert dict(lines.select("key", "other_key").iter_rows()) == {f"k{i}": key for i, key in leaks.items()}
    assert set(lines["table"]) == {str(tables / "new.parquet")}
    assert set(lines["other_table"]) == {str(tables / "old.parquet")}
    assert set(lines["finder"]) == {"signature"}
    assert (lines["similarity"] >= 0.95).all()
    assert lines["how"].str.starts_with("signature (cosine ").all()


def test_without_leaks_the_csv_has_a_header_alone_and_text_is_guarded(tmp_path, monkeypatch):
    write_table(tmp_path / "new.parquet", {"key": ["=cmd()", "b"], "sha256": ["x", "y"]})
    write_table(tmp_path / "old.parquet", {"key": ["ü"], "sha256": ["x"]})
    write_table(tmp_path / "none.parquet", {"key": ["o"], "sha256": ["z"]})
    result = curate.dedup(tmp_path / "new.parquet", tmp_path / "a.parquet", "bytes", against=tmp_path / "old.parquet")
    text = result.leaks.read_bytes().decode("utf-8-sig")
    assert "\n=cmd" not in text
    assert ",=cmd" not in text
    assert "=cmd()" in text
    assert "ü" in text
    monkeypatch.chdir(tmp_path)
    assert verify(curate.dedup("new.parquet", "near.parquet", "bytes", against="old.parquet").receipt).identical
    none = curate.dedup(tmp_path / "new.parquet", tmp_path / "b.parquet", "bytes", against=tmp_path / "none.parquet")
    assert none.leaks.read_text().splitlines() == ["table,key,other_table,other_key,finder,similarity,how"]


def test_only_against_refuses_what_is_about_pairs_inside(tables):
    write_table(tables / "mine.parquet", {"embedding": np.eye(30, dtype=np.float32).tolist(), "uri": ["x"] * 30})
    with pytest.raises(InputError, match=r"--audit .*inside a table"):
        curate.dedup(
            tables / "mine.parquet",
            tables / "o.parquet",
            "embedding",
            audit=5,
            against=tables / "old.parquet",
            only_against=True,
        )
    with pytest.raises(InputError, match=r"--only-against .* --against"):
        curate.dedup(tables / "mine.parquet", dry_run=True, finder="embedding", only_against=True)


def test_the_gate_exits_3_where_there_are_leaks_and_everything_is_written(tables):
    from commandline import run as typed

    typed_line = ["dedup", tables / "new.parquet", "--only-against", "--fail-on-leaks"]
    gate = typed(*typed_line, "--against", tables / "old.parquet", "-o", tables / "g.parquet")
    assert gate.exit_code == 3
    assert "leak: k0: the same as o0" in gate.stderr
    assert "failed: 10 rows are in" in gate.stderr
    assert (tables / "g.leaks.csv").is_file()
    assert (tables / "g.receipt.json").is_file()
    dry = typed(*typed_line, "--against", tables / "old.parquet", "--dry-run", "--json")
    assert dry.exit_code == 3
    assert json.loads(dry.stdout)["n_leaks"] == 10
    write_table(tables / "other.parquet", {"signature": signed(random_signatures(np.random.default_rng(77), 5))})
    assert typed(*typed_line, "--against", tables / "other.parquet", "--dry-run").exit_code == 0
    assert typed(*typed_line, "--dry-run").exit_code == 1
