"""``--embedding COLUMN``: what is decided by a column of one's own is what the same column named embedding decides."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import curate
from curate.cli import app
from curate.policies.receipts import sealed
from curate.policies.verify import verify
from scoring.errors import InputError

N, D, CLASSES = 240, 8, 4
SCALE = np.random.default_rng(9).uniform(0.1, 40, N)[:, None]  # so that no row has unit length


ROUNDED = {"reason", "score", "margin", "gain"}


def vectors():
    """Clusters with a few copies; some rows say what they are not."""
    rng = np.random.default_rng(0)
    points = 3 * np.eye(D)[np.arange(N) % CLASSES] + 0.5 * rng.normal(size=(N, D))
    points[200:220] = points[100:120] + 0.001 * rng.normal(size=(20, D))
    return points / np.linalg.norm(points, axis=1)[:, None]


def columns(**embeddings):
    labels = np.arange(N) % CLASSES
    labels[::17] = (labels[::17] + 1) % CLASSES
    ok = [i % 40 != 7 for i in range(N)]
    return {
        "key": [f"img/{i:03}.jpg" for i in range(N)],
        "label": [f"class {code}" for code in labels],
        "status": ["ok" if each else "truncated" for each in ok],
        "sha256": [f"s{i}" for i in range(N)],
        "kappa_a": pa.array(np.random.default_rng(1).uniform(1, 9, N), pa.float32()),
        **{
            name: pa.array([[*row] if each else None for row, each in zip(values, ok, strict=True)], kind)
            for name, (values, kind) in embeddings.items()
        },
    }


def write(path, table, digest="d"):
    card = {b"curate": json.dumps({"kind": "scores", "model": {"digest": digest}}).encode()}
    pq.write_table(pa.table(table).replace_schema_metadata(card), path)
    return path


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """The same embeddings as ``embedding``, under another name next to others, under it alone, and of any length."""
    folder = tmp_path_factory.mktemp("tables")
    fixed = pa.list_(pa.field("element", pa.float32(), nullable=False), D)
    decoy = np.random.default_rng(5).normal(size=(N, D))
    named = (vectors(), fixed)
    return {
        "plain": write(folder / "plain.parquet", columns(embedding=named)),
        "beside": write(folder / "beside.parquet", columns(embedding=(decoy, fixed), clip=named)),
        "alone": write(folder / "alone.parquet", columns(clip=named)),
        "long": write(folder / "long.parquet", columns(clip=(SCALE * vectors(), pa.large_list(pa.float64())))),
        "decoy": write(folder / "decoy.parquet", columns(embedding=(decoy, fixed))),
    }


POLICIES = {
    "dedup": lambda table, out, **how: curate.dedup(table, out, "embedding", **how),
    "select": lambda table, out, **how: curate.select(table, out, "k-center", 20, **how),
    "balance": lambda table, out, **how: curate.balance(table, out, per="clusters", clusters=4, rows=80, **how),
    "labels": lambda table, out, **how: curate.labels(table, out, "label", drop_suspected=True, **how),
    "filter like": lambda table, out, **how: curate.filter(table, out, like="img/004.jpg", **how),
    "filter unlike": lambda table, out, **how: curate.filter(table, out, unlike="img/004.jpg=0.9", **how),
    "split": lambda table, out, **how: curate.split(table, out, train=0.7, test=0.3, finder="embedding", **how),
}


def rows_of(path, names):
    table = pq.read_table(path)
    assert set(names) <= set(table.column_names)
    return {row["key"]: tuple(row[name] for name in names) for row in table.select(["key", *names]).to_pylist()}


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", ["beside", "alone", "long"])
def test_every_policy_decides_as_by_a_column_named_embedding(tables, tmp_path, policy, name):
    plain = POLICIES[policy](tables["plain"], tmp_path / "plain.parquet")
    by_name = POLICIES[policy](tables[name], tmp_path / "own.parquet", embedding="clip")
    decided = [each for each in pq.read_schema(by_name.decisions).names if name != "long" or each not in ROUNDED]
    assert rows_of(by_name.decisions, decided) == rows_of(plain.decisions, decided)
    assert [row[0] for row in rows_of(by_name.subset, ["label"]).items()] == list(rows_of(plain.subset, ["label"]))
    if policy != "labels":  # whose classes are plain enough to be found in other vectors
        other = POLICIES[policy](tables["decoy"], tmp_path / "other.parquet")
        assert rows_of(other.decisions, decided) != rows_of(by_name.decisions, decided)


@pytest.mark.parametrize("policy", POLICIES)
def test_what_is_written_has_the_columns_of_the_table_as_they_were(tables, tmp_path, policy):
    result = POLICIES[policy](tables["long"], tmp_path / "own.parquet", embedding="clip")
    before, after = pq.read_table(tables["long"]), pq.read_table(result.subset)
    assert after.schema.names[: len(before.schema.names)] == before.schema.names
    assert after.schema.field("clip").type == before.schema.field("clip").type
    place = {key: row for row, key in enumerate(before["key"].to_pylist())}
    kept = before.take([place[key] for key in after["key"].to_pylist()])
    assert after.select(before.column_names).to_pylist() == kept.to_pylist()


@pytest.mark.parametrize("policy", POLICIES)
def test_the_receipt_names_the_column_and_verify_derives_the_same_by_it(tables, tmp_path, policy):
    source = pq.read_table(tables["beside"])
    path = tmp_path / "t.parquet"
    pq.write_table(source, path)
    result = POLICIES[policy](path, tmp_path / "own.parquet", embedding="clip")
    receipt = json.loads(result.receipt.read_text())
    assert receipt["input"]["embedding"] == "clip"
    assert verify(result.receipt).identical
    result.receipt.write_bytes(sealed({**receipt, "input": {**receipt["input"], "embedding": 3}}))
    with pytest.raises(InputError, match="is incomplete"):
        verify(result.receipt)
    result.receipt.write_bytes(sealed({**receipt, "input": {**receipt["input"], "embedding": "clap"}}))
    with pytest.raises(InputError, match="did you mean 'clip'"):
        verify(result.receipt)
    result.receipt.write_bytes(sealed(receipt))
    at = source.schema.get_field_index("clip")
    changed = pa.array(np.roll(vectors(), 1, 0).tolist(), source.schema.field("clip").type)
    pq.write_table(source.set_column(at, source.schema.field(at), changed), path)
    assert not verify(result.receipt).identical
    plain = POLICIES[policy](tables["plain"], tmp_path / "plain.parquet")
    assert "embedding" not in json.loads(plain.receipt.read_text())["input"]


def test_another_table_is_read_by_the_same_column_whatever_model_scored_either(tables, tmp_path):
    new = pq.read_table(tables["beside"]).slice(100, 60)
    against = write(tmp_path / "new.parquet", new, digest="another")
    result = curate.dedup(tables["beside"], tmp_path / "own.parquet", "embedding", against=against, embedding="clip")
    plain = write(tmp_path / "p.parquet", pq.read_table(tables["plain"]).slice(100, 60))
    expected = curate.dedup(tables["plain"], tmp_path / "plain.parquet", "embedding", against=plain)
    assert rows_of(result.decisions, ["decision", "kept_key"]) == rows_of(expected.decisions, ["decision", "kept_key"])
    assert result.n_leaks > 60
    assert verify(result.receipt).identical
    with pytest.raises(InputError, match="no column 'clip'"):
        curate.dedup(tables["beside"], None, "embedding", against=tables["plain"], embedding="clip", dry_run=True)


@pytest.mark.parametrize("name", ["beside", "alone", "long"])
def test_a_score_is_fitted_to_it(tables, tmp_path, name):
    written = []
    for which, how in (("plain", {}), (name, {"embedding": "clip"})):
        out = tmp_path / f"{which}.fitted.parquet"
        curate.fit(tables[which], apply=out, label="label", **how)
        written.append(pq.read_table(out))
    for column in ("unc_fitted", "unc_local", "unc_class"):
        first, second = (table[column].to_numpy() for table in written)
        assert np.allclose(first, second, atol=2e-3, equal_nan=True)
    assert written[1].column_names[: len(pq.read_schema(tables[name]).names)] == pq.read_schema(tables[name]).names
    about = json.loads(written[1].schema.metadata[b"curate"])["fit"]
    assert about["embedding"] == "clip"


def test_tables_are_compared_and_scores_measured_by_it(tables, tmp_path):
    half = {name: pq.read_table(path).slice(0, 150) for name, path in tables.items()}
    other = {name: write(tmp_path / f"{name}.parquet", table) for name, table in half.items()}
    options = {"repeats": 49, "clusters": 3}
    plain = curate.compare(tables["plain"], other["plain"], **options)
    for name in ("beside", "alone", "long"):
        by_name = curate.compare(tables[name], other[name], embedding="clip", **options)
        assert by_name.embedding.auroc.value == pytest.approx(plain.embedding.auroc.value, abs=1e-6)
        assert by_name.embedding.mmd == pytest.approx(plain.embedding.mmd, abs=1e-6)
        measured = curate.evaluate(tables[name], label="label", embedding="clip", repeats=20)
        expected = curate.evaluate(tables["plain"], label="label", repeats=20)
        for measure, two in zip(measured.measures, expected.measures, strict=True):
            assert {k: v.value for k, v in measure.values.items()} == pytest.approx(
                {k: v.value for k, v in two.values.items()}, nan_ok=True, abs=1e-6
            )


REFUSED = {
    "dedup": (lambda table, **how: curate.dedup(table, **how, dry_run=True), "with --finder embedding, crop, near-dup"),
    "split": (lambda table, **how: curate.split(table, train=0.5, test=0.5, **how, dry_run=True), "with --finder"),
    "balance": (
        lambda table, **how: curate.balance(table, **how, dry_run=True),
        "with --per clusters and --within typ",
    ),
    "filter": (lambda table, **how: curate.filter(table, keep_top=3, **how, dry_run=True), "with --like and --unlike"),
    "select": (
        lambda table, **how: curate.select(table, None, "score", 3, score="kappa_a", **how, dry_run=True),
        "strategies that use them, which score does not",
    ),
    "compare": (
        lambda table, **how: curate.compare(table, table.with_name("alone.parquet"), column="label", **how),
        "needs --column embedding",
    ),
    "evaluate": (
        lambda table, **how: curate.evaluate(table, against=table, **how),
        "measures against labels; add --label",
    ),
    "model": (lambda table, **how: curate.fit(table, "m.safetensors", **how), "-o m.safetensors is a model"),
    "recall": (
        lambda table, **how: curate.dedup(table, None, "embedding", estimate_recall=9, dry_run=True, **how),
        "--estimate-recall embeds edited images",
    ),
    "image": (lambda table, **how: curate.filter(table, like=__file__, dry_run=True, **how), "pass the key of a row"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_where_it_would_change_nothing_or_a_model_is_wanted_it_is_refused(tables, name):
    call, words = REFUSED[name]
    with pytest.raises(InputError, match=words) as error:
        call(tables["beside"], embedding="clip")
    assert "\n" not in str(error.value)


def test_rows_without_a_vector_are_counted_and_reported(tables, tmp_path):
    rows = pq.read_table(tables["alone"]).to_pylist()
    for row, wrong in ((0, None), (1, [0.0] * D), (2, [float("nan")] * D)):
        rows[row]["clip"] = wrong
    path = write(tmp_path / "t.parquet", pa.Table.from_pylist(rows, pq.read_schema(tables["alone"])))
    result = curate.balance(path, tmp_path / "b.parquet", per="clusters", clusters=4, embedding="clip")
    assert result.undecided == 3
    reasons = rows_of(result.decisions, ["reason"])
    assert "missing, NaN or infinite" in reasons["img/000.jpg"][0]
    assert "zeros" in reasons["img/001.jpg"][0]


def test_a_step_of_a_pipeline_takes_it(tables, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "curate.toml").write_text(
        f"[best]\nrun = 'filter'\ntable = '{tables['beside']}'\nunlike = 'img/004.jpg'\nembedding = 'clip'\n\n"
        "[dedup]\nfinder = 'embedding'\nembedding = 'clip'\n\n[split]\ntrain = '50%'\ntest = '50%'\n"
    )
    done = CliRunner().invoke(app, ["run", "curate.toml"])
    assert done.exit_code == 0, done.output
    expected = curate.filter(tables["plain"], tmp_path / "p.parquet", unlike="img/004.jpg")
    unique = curate.dedup(expected.subset, tmp_path / "q.parquet", "embedding")
    assert pq.read_table("curated/dedup.parquet")["key"].to_pylist() == pq.read_table(unique.subset)["key"].to_pylist()
    assert json.loads((tmp_path / "curated/dedup.receipt.json").read_text())["input"]["embedding"] == "clip"
    assert CliRunner().invoke(app, ["verify", "curated/dedup.receipt.json"]).exit_code == 0
