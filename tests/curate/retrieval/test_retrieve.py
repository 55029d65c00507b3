"""`curate retrieve` on tables whose neighbours are known, and on images."""

import csv
import json

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commandline import run

import curate
from curate.retrieval import work
from scoring.errors import InputError

N, D, CLASSES = 240, 6, 8
pytestmark = pytest.mark.usefixtures("few_copies")
MODEL = {"model": {"digest": "a" * 64, "method": "visimsiam"}}


def write(path, *, n=N, seed=0, metadata=MODEL, **columns):
    """A scored table in classes, whose unsure rows lie far from the middle of their class; row 5 failed, 6 has none."""
    draw = np.random.default_rng(seed)
    centres = np.random.default_rng(99).normal(size=(CLASSES, D))
    label = np.arange(n) % CLASSES
    noise = draw.uniform(0.1, 0.8, n)
    rows = centres[label] / np.linalg.norm(centres[label], axis=1)[:, None] + noise[:, None] * draw.normal(
        size=(n, D)
    ) / np.sqrt(D)
    lists = [None if i == 6 else (row / np.linalg.norm(row)).astype(np.float32).tolist() for i, row in enumerate(rows)]
    values = {
        "key": pa.array([f"{seed}-{i:03}" for i in range(n)], pa.string()),
        "status": pa.array(["corrupt" if i == 5 else "ok" for i in range(n)], pa.string()),
        "embedding": pa.array(lists, pa.list_(pa.float32(), D)),
        "kappa_visimsiam": (10 / noise).astype(np.float32),
        "label": pa.array([f"c{at}" for at in label], pa.string()),
        "width": np.arange(n),
        **columns,
    }
    about = {b"curate": json.dumps(metadata).encode()}
    pq.write_table(pa.table(values).replace_schema_metadata(about), path)
    return path


@pytest.fixture
def table(tmp_path):
    return write(tmp_path / "t.parquet")


@pytest.fixture
def cosine(table):
    rows = pl.read_parquet(table)
    vectors = np.array([[0.0] * D if row is None else row for row in rows["embedding"].to_list()])
    similar = vectors @ vectors.T
    similar[:, [5, 6]] = -np.inf
    np.fill_diagonal(similar, -np.inf)
    return similar


def test_the_nearest_rows_equal_numpy_with_similarity_and_certainty(table, cosine):
    retrieval = curate.retrieve(table, ["0-000", "0-017"], top=4)
    kappa = pl.read_parquet(table)["kappa_visimsiam"].to_list()
    for at, row in enumerate((0, 17)):
        nearest = np.argsort(-cosine[row], kind="stable")[:4]
        near = retrieval.neighbours(at)
        assert [answer.key for answer in near] == [f"0-{i:03}" for i in nearest]
        assert [answer.similarity for answer in near] == pytest.approx(cosine[row][nearest], abs=1e-6)
        assert [answer.certainty for answer in near] == pytest.approx([kappa[i] for i in nearest])
    assert retrieval.recall.exact
    assert sum(retrieval.row_counts.values()) == N
    assert retrieval.row_counts["searched"] == N - 2


def test_every_query_of_another_table_is_accounted_for(table, tmp_path):
    other = write(tmp_path / "new.parquet", n=20, seed=1)
    retrieval = curate.retrieve(table, [str(other), "0-001"], top=1)
    assert retrieval.query_counts == {"answered": 19, "failed": 2}
    assert sum(retrieval.query_counts.values()) == len(retrieval) == 21
    assert "could not be scored" in retrieval.reasons[retrieval.queries.names.index("1-005")]
    assert "missing" in retrieval.reasons[retrieval.queries.names.index("1-006")]


def test_a_table_is_searched_with_its_rows_and_no_row_finds_itself(table, cosine):
    retrieval = curate.retrieve(table, str(table), top=1)
    ok = [i for i in range(N) if i not in (5, 6)]
    assert [retrieval.neighbours(i)[0].row for i in ok] == cosine[ok].argmax(1).tolist()


def test_unsure_queries_are_rejected(table):
    retrieval = curate.retrieve(table, str(table), top=3, reject="25%")
    kappa = pl.read_parquet(table)["kappa_visimsiam"].to_numpy()
    usable = np.array([i not in (5, 6) for i in range(N)])
    ascending = np.sort(kappa[usable])
    cut = ascending[int(0.25 * 238)]
    for i in range(N):
        assert retrieval.states[i] == ("failed" if not usable[i] else "rejected" if kappa[i] < cut else "answered")
    assert retrieval.row_counts["searched"] == 238
    assert all("least certain 25%" in reason for reason in retrieval.reasons if "below" in reason)


def test_a_cut_may_be_a_value_of_the_column(table):
    retrieval = curate.retrieve(table, str(table), top=1, reject=20)
    kappa = pl.read_parquet(table)["kappa_visimsiam"].to_numpy()
    assert retrieval.query_counts["rejected"] == (kappa[[i for i in range(N) if i not in (5, 6)]] < 20).sum()
    low = curate.retrieve(table, "0-000", reject="0.5")
    assert any("50% a share" in note for note in low.notes)


@pytest.mark.parametrize("chance", [0.5, 0.9])
def test_calibrated_regions_hold_a_row_of_the_class_as_often_as_stated_and_more_rows_of_unsure_queries(
    tmp_path, chance
):
    table, new = write(tmp_path / "t.parquet", n=2400), write(tmp_path / "new.parquet", n=2400, seed=1)
    retrieval = curate.retrieve(table, str(new), credible=chance, calibrate="label")
    answered = np.array([state in ("answered", "alone") for state in retrieval.states])
    of_row = np.arange(2400) % CLASSES
    right = np.zeros(2400, bool)
    right[retrieval.links.query[of_row[retrieval.links.query] == of_row[retrieval.links.row]]] = True
    assert right[answered].mean() == pytest.approx(chance, abs=0.04)
    order = np.argsort(retrieval.certainty[answered])
    sizes = retrieval.inside[answered][order]
    assert sizes[:500].mean() > 1.5 * sizes[-500:].mean()
    assert "probability of" in retrieval.region


def test_regions_of_a_concentration_are_its_quantiles(tmp_path):
    from scipy.integrate import quad

    table = write(tmp_path / "t.parquet", metadata={})
    retrieval = curate.retrieve(table, ["0-000", "0-010"], credible=0.8)
    for bound, kappa in zip(retrieval.bounds, retrieval.certainty, strict=True):

        def density(c, kappa=kappa):
            return (1 - c * c) ** ((D - 3) / 2) * np.exp(kappa * (c - 1))

        assert quad(density, bound, 1)[0] / quad(density, -1, 1)[0] == pytest.approx(0.8, abs=1e-4)
    for answer in retrieval.neighbours(0):
        assert answer.similarity >= retrieval.bounds[0]


def test_a_region_without_rows_is_reported(tmp_path):
    table = write(tmp_path / "t.parquet", metadata={}, kappa_visimsiam=np.full(N, 1e9))
    retrieval = curate.retrieve(table, "0-000", credible=0.5)
    assert retrieval.states == ["alone"]
    assert "no row lies inside" in retrieval.reasons[0]


def test_top_bounds_what_a_region_gives_and_says_how_many_there_are(tmp_path):
    table = write(tmp_path / "t.parquet", metadata={}, kappa_visimsiam=np.full(N, 0.0))
    retrieval = curate.retrieve(table, "0-000", credible=0.5, top=3)
    assert len(retrieval.neighbours(0)) == 3
    assert retrieval.inside[0] > 50


def test_large_tables_are_searched_in_lists_with_the_recall_of_the_answers(table, monkeypatch, tmp_path):
    large = write(tmp_path / "large.parquet", n=3000)
    exact = curate.retrieve(large, str(large), top=5)
    monkeypatch.setattr(work, "EXACT_ROWS", 1000)
    monkeypatch.setattr(work, "EXACT_PAIRS", 1000)
    retrieval = curate.retrieve(large, str(large), top=5)
    pairs = [set(zip(each.links.query.tolist(), each.links.row.tolist(), strict=True)) for each in (exact, retrieval)]
    share = len(pairs[0] & pairs[1]) / len(pairs[0])
    assert not retrieval.recall.exact
    assert share > 0.95
    assert retrieval.recall.low - 0.01 <= share <= retrieval.recall.high + 0.01


def test_files_have_a_line_for_every_answer_and_every_query_without_one(table, tmp_path):
    typed = ["retrieve", table, "0-000", "0-001", table, "--reject", "50%", "--top", "2", "-q"]
    for name in ("a.parquet", "a.csv", "a.jsonl"):
        assert run(*typed, "-o", tmp_path / name).exit_code == 0
    columns = pl.read_parquet(tmp_path / "a.parquet")
    with (tmp_path / "a.csv").open(newline="") as file:
        cells = list(csv.DictReader(file))
    lines = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    assert len(cells) == len(lines) == len(columns)
    assert columns["number"].n_unique() == N + 2
    assert lines == columns.to_dicts()
    assert [cell["key"] or None for cell in cells] == columns["key"].to_list()
    empty = columns.filter(pl.col("rank").is_null())
    assert set(empty["state"]) == {"rejected", "failed"}
    assert empty["reason"].null_count() == 0
    about = json.loads(pq.read_schema(tmp_path / "a.parquet").metadata[b"curate"])
    assert about["kind"] == "answers"
    assert sum(about["rows"].values()) == N


def test_nothing_that_is_read_is_written_over(table, tmp_path, full_table, folder, tiny_checkpoint):
    other = write(tmp_path / "o.parquet", n=20, seed=1)
    before = table.read_bytes(), other.read_bytes()
    for path in (table, other):
        assert "would be overwritten" in run("retrieve", table, other, "-o", path, "--overwrite").stderr
    assert (table.read_bytes(), other.read_bytes()) == before
    image = tmp_path / "query.png"
    image.write_bytes((folder / "03.png").read_bytes())
    typed = ["retrieve", full_table, image, "--model", tiny_checkpoint, "--sheet", image, "--overwrite", "-q"]
    assert "would be overwritten" in run(*typed).stderr
    assert image.read_bytes() == (folder / "03.png").read_bytes()


def test_json_and_terminal_say_the_same(table):
    printed_json = json.loads(run("retrieve", table, "0-000", "--top", 2, "--json").stdout)
    printed = run("retrieve", table, "0-000", "--top", 2).stdout
    for answer in printed_json["queries"][0]["neighbours"]:
        assert answer["key"] in printed
        assert f"{answer['similarity']:.4f}" in printed
    assert "recall 1" in printed


MISTAKES = {
    "nobody": (["nobody"], "no key 'nobody'"),
    "an empty text": ([""], "no key ''"),
    "a probability of 0": (["0-000", "--credible", "0"], "above 0 and below 1"),
    "a probability of 1": (["0-000", "--credible", "1"], "above 0 and below 1"),
    "a probability that is NaN": (["0-000", "--credible", "nan"], "above 0 and below 1"),
    "no concentration": (["0-000", "--credible", "0.9"], "add --calibrate"),
    "calibrated without a region": (["0-000", "--calibrate", "label"], "--calibrate needs --credible"),
    "calibrated on what never repeats": (["0-000", "--credible", "0.9", "--calibrate", "key"], "share their value"),
    "no such class": (["0-000", "--credible", "0.9", "--calibrate", "labl"], "did you mean 'label'"),
    "no certainty": (["0-000", "--certainty", "width"], "--certainty max:width"),
    "no such column": (["0-000", "--certainty", "kapa_visimsiam"], "no column"),
    "text for a certainty": (["0-000", "--certainty", "max:label"], "expected numbers"),
    "a share of everything": (["0-000", "--reject", "100%"], "below 100%"),
    "no share": (["0-000", "--reject", "ten"], "such as 10%"),
    "a share of too many digits": (["0-000", "--reject", "1e999999999%"], "such as 10%"),
    "a NaN cut": (["0-000", "--reject", "nan"], "such as 10%"),
    "no row": (["0-000", "--top", "0"], "at least 1"),
    "a row without an embedding": (["0-006"], "missing, NaN or infinite"),
    "a row that failed": (["0-005"], "could not be scored"),
    "an unknown kind of file": (["0-000", "-o", "a.txt"], "ends in .parquet, .csv, .jsonl"),
    "a sheet that is no image": (["0-000", "--sheet", "a.svg"], "ends in .png"),
    "a sheet without images": (["0-000", "--sheet", "a.png"], "--source"),
    "a bad seed": (["0-000", "--seed", "-1"], "--seed"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_one_line(table, tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    line, words = MISTAKES[name]
    result = run("retrieve", table, *line)
    assert result.exit_code == 1
    assert words in result.stderr.splitlines()[-1]
    assert [text for text in result.stderr.splitlines() if text.startswith("error: ")] == result.stderr.splitlines()[
        -1:
    ]
    assert result.stdout == ""


def test_what_is_a_key_and_a_file_is_refused_unless_it_is_that_image(tmp_path, monkeypatch):
    import hashlib

    monkeypatch.chdir(tmp_path)
    (tmp_path / "0-001").write_bytes(b"the image")
    (tmp_path / "0-002").write_bytes(b"another")
    digests = [hashlib.sha256(b"the image").hexdigest()] * N
    table = write(tmp_path / "t.parquet", sha256=digests)
    assert run("retrieve", table, "0-001").exit_code == 0
    result = run("retrieve", table, "0-002")
    assert "both a key" in result.stderr
    assert "./0-002" in result.stderr
    (tmp_path / "0-003").mkdir()
    assert "both a key" in run("retrieve", table, "0-003").stderr


def test_tables_that_cannot_be_searched_are_one_line(tmp_path):
    empty = write(tmp_path / "empty.parquet", n=0)
    twice = write(tmp_path / "twice.parquet", key=["a"] * N)
    plain = tmp_path / "plain.parquet"
    pq.write_table(pa.table({"key": ["a"]}), plain)
    for path, query, words in (
        (empty, str(write(tmp_path / "o.parquet", n=8)), "the table is empty"),
        (twice, "a", "more than once"),
        (plain, "a", "no column 'embedding'"),
    ):
        with pytest.raises(InputError, match=words):
            curate.retrieve(path, query)


def test_a_table_of_another_model_or_without_rows_is_refused(table, tmp_path):
    other = write(tmp_path / "o.parquet", n=8, metadata={"model": {"digest": "b" * 64, "method": "x"}})
    with pytest.raises(InputError, match="embeddings of one model"):
        curate.retrieve(table, str(other))
    with pytest.raises(InputError, match="for a query"):
        curate.retrieve(table, str(write(tmp_path / "e.parquet", n=0)))


def test_a_row_without_certainty_is_undecided_as_a_query(tmp_path):
    kappa = np.linspace(1, 9, N)
    kappa[3] = np.nan
    table = write(tmp_path / "t.parquet", kappa_visimsiam=kappa)
    retrieval = curate.retrieve(table, "0-003", reject="10%")
    assert retrieval.states == ["undecided"]
    assert curate.retrieve(table, "0-003").states == ["answered"]


def test_a_request_for_too_many_rows_is_reported_and_all_are_given(tmp_path):
    table = write(tmp_path / "t.parquet", n=9)
    retrieval = curate.retrieve(table, "0-000", top=50)
    assert len(retrieval.neighbours(0)) == 6  # 9 less its own, one that failed and one without embedding
    assert any("--top 50" in note for note in retrieval.notes)


def test_a_table_without_certainty_is_searched_all_the_same(tmp_path):
    table = write(tmp_path / "t.parquet", kappa_visimsiam=["x"] * N)
    pq.write_table(pq.read_table(table).drop_columns(["kappa_visimsiam"]), table)
    retrieval = curate.retrieve(table, "0-000", top=2)
    assert len(retrieval.neighbours(0)) == 2
    assert any("certainty is not available" in note for note in retrieval.notes)
    with pytest.raises(InputError, match="no kappa column"):
        curate.retrieve(table, "0-000", reject="10%")
