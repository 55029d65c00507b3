"""``curate report``: one page from a table, and one line for what cannot be."""

import datetime
import decimal
import json
import re

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from choosing import columns_of, write
from typer.testing import CliRunner

import curate
from curate.cli import app

HOSTILE = [
    "</script><script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "\u202egnp.elif",
    "x" * 300,
    "a\nb\x00c",
]


def run(*args):
    return CliRunner().invoke(app, ["report", *map(str, args)])


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    keys = [HOSTILE[row] if row < len(HOSTILE) else f"{row}.png" for row in range(60)]
    labels = [HOSTILE[row % 5] for row in range(60)]
    write(folder / "scores.parquet", columns_of(60, key=keys, label=labels, uri=[f"/none/{row}" for row in range(60)]))
    curate.filter(folder / "scores.parquet", folder / "kept.parquet", keep_top=40, column="unc_losspred")
    return folder


def test_the_page_holds_the_document_and_no_tag_of_the_users(made, tmp_path):
    out = tmp_path / "report.html"
    result = run(made / "scores.parquet", made / "kept.parquet", "-o", out, "--points", "0")
    assert result.exit_code == 0, result.output
    text = out.read_text()
    assert "<script>alert" not in text
    assert "<img src=x" not in text
    assert "Content-Security-Policy" in text
    assert "(60 missing)" in result.output
    assert re.search(r"report: .*report\.html: 60 rows listed, 0 thumbnails, [\d.]+ MB", result.output)


def test_json_is_the_document_without_thumbnails(made):
    result = run(made / "scores.parquet", made / "kept.parquet", "--json", "--quiet", "--points", "0")
    facts = json.loads(result.stdout)
    assert "thumbs" not in facts
    assert facts["rows"]["key"][0] == HOSTILE[0]
    assert facts["funnel"][0]["kept"] == 40
    assert json.loads(run(made / "scores.parquet", "--json", "--quiet", "--points", 0).stdout)["funnel"] == []


def test_nothing_is_written_over_what_is_there_unless_requested(made, tmp_path):
    out = tmp_path / "report.html"
    out.write_text("mine")
    refused = run(made / "scores.parquet", "-o", out, "--points", "0")
    assert refused.exit_code == 1
    assert "exists already" in refused.output
    assert out.read_text() == "mine"
    assert run(made / "scores.parquet", "-o", out, "--points", "0", "--overwrite", "--quiet").output == ""
    assert out.read_text() != "mine"
    assert [file.name for file in tmp_path.iterdir()] == ["report.html"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["-o", "report.pdf"], "like report.html"),
        ([], "name for the page"),
        (["-o", "/dev/null/report.html"], "not a folder"),
        (["-o", "r.html", "--column", "nothing"], "has no column 'nothing'"),
        (["-o", "r.html", "--column", "aesthetic"], "max:aesthetic"),
        (["-o", "r.html", "--label", "nothing"], "has no column 'nothing'"),
        (["-o", "r.html", "--measured", "none.json"], "none.json"),
        (["-o", "r.html", "--source", "none"], "none"),
        (["none.parquet", "-o", "r.html"], "none.parquet does not exist"),
    ],
)
def test_a_mistake_is_one_line_and_leaves_nothing(made, tmp_path, monkeypatch, words, said):
    monkeypatch.chdir(tmp_path)
    result = run(made / "scores.parquet", *words, "--points", "0")
    assert result.exit_code == 1
    assert said in result.output
    assert result.output.startswith("error: ")
    assert result.output.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_what_evaluate_wrote_is_shown_as_tables(made, tmp_path):
    evaluation = tmp_path / "worth.json"
    evaluated = CliRunner().invoke(
        app, ["evaluate", str(made / "scores.parquet"), "--label", "label", "--repeats", "20", "-o", str(evaluation)]
    )
    assert evaluated.exit_code == 0, evaluated.output
    facts = json.loads(run(made / "scores.parquet", "--json", "-q", "--points", "0", "--measured", evaluation).stdout)
    values = json.loads(evaluation.read_text())
    scores, meanings = facts["measured"]
    named = [each["name"] for each in values["measures"] if each.get("values")]
    assert scores["columns"] == ["column", *named]
    cell = next(row for row in scores["rows"] if row[0] == "unc_losspred")[1 + named.index("R-AUROC")]
    value = next(each for each in values["measures"] if each["name"] == "R-AUROC")["values"]["unc_losspred"]["value"]
    assert cell.startswith(f"{value:.3f} [")
    assert [row[0] for row in meanings["rows"]] == [each["name"] for each in values["measures"]]
    for text in ("[]", "{", '{"measures": [{"values": 3}], "columns": [], "rows": 1, "used": 1}'):
        evaluation.write_text(text)
        refused = run(made / "scores.parquet", "--json", "--points", "0", "--measured", evaluation)
        assert "curate evaluate" in refused.output


def test_tables_of_no_rows_of_failures_alone_and_of_a_hundred_thousand_classes_have_a_report(tmp_path):
    schema = {"key": pl.String, "status": pl.String, "label": pl.String, "unc_a": pl.Float32}
    pl.DataFrame(schema=schema).write_parquet(tmp_path / "none.parquet")
    failed = {"key": ["a", "b"], "status": ["missing", "truncated"], "label": ["x", None], "unc_a": [None, None]}
    pl.DataFrame(failed, schema=schema).write_parquet(tmp_path / "failed.parquet")
    n = 100_000
    many = {"key": map(str, range(n)), "status": ["ok"] * n, "label": map(str, range(n)), "unc_a": range(n)}
    pl.DataFrame({name: list(values) for name, values in many.items()}).cast(schema).write_parquet(
        tmp_path / "many.parquet"
    )  # type: ignore[arg-type]
    for name, rows in (("none", 0), ("failed", 2), ("many", n)):
        out = tmp_path / f"{name}.html"
        result = run(tmp_path / f"{name}.parquet", "-o", out, "--points", "0", "--thumbs", "0", "--sample", "100")
        assert result.exit_code == 0, result.output
        facts = json.loads(run(tmp_path / f"{name}.parquet", "--json", "-q", "--points", "0", "--sample", "100").stdout)
        assert facts["n_rows"] == rows
    assert facts["overview"]["classes"]["n_classes"] == n
    assert len(facts["overview"]["classes"]["shown"]) == 50
    assert facts["overview"]["classes"]["others"] == n - 50
    assert out.stat().st_size < 5_000_000


def test_a_disk_that_is_full_leaves_no_page(made, tmp_path, monkeypatch):
    from scoring import atomic

    def full(self, data):
        with atomic.place_errors(self.path):
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(atomic.AtomicFile, "write", full)
    result = run(made / "scores.parquet", "-o", tmp_path / "report.html", "--points", "0")
    assert result.exit_code == 1
    assert "the disk is full" in result.output
    assert list(tmp_path.iterdir()) == []


def test_columns_of_every_kind_are_shown_as_what_they_are_or_left_out(tmp_path):
    n = 12
    day = datetime.date(2020, 1, 2)
    columns = {
        "key": pa.array(range(n), pa.int64()),
        "when": pa.array([datetime.datetime(2020, 1, 2, tzinfo=datetime.UTC)] * n),
        "day": pa.array([day] * n),
        "money": pa.array([decimal.Decimal("1.50")] * n),
        "large": pa.array([2**63 - 1] * n),
        "half": pa.array(np.arange(n, dtype=np.float16)),
        "odd": pa.array([float("inf"), float("nan"), None, 0.5] * 3),
        "single": pa.array([0.1] * n, pa.float32()),
        "kind": pa.array(["a", "b"] * 6).dictionary_encode(),
        "flag": pa.array([True, None] * 6),
        "nothing": pa.nulls(n),
        "list": pa.array([[1, 2]] * n),
        "bytes": pa.array([b"x"] * n),
        "row": pa.array(["mine"] * n),
        "long": pa.array(["x" * 10_000] * n),
    }
    pq.write_table(pa.table(columns), tmp_path / "odd.parquet")
    facts = json.loads(run(tmp_path / "odd.parquet", "--json", "-q", "--points", "0", "--label", "kind").stdout)
    rows = {name: values[:4] for name, values in facts["rows"].items() if name != "n"}
    assert rows["key"] == ["0", "1", "2", "3"]
    assert rows["when"][0].startswith("2020-01-02 00:00:00")
    assert (rows["day"][0], rows["money"][0], rows["large"][0]) == ("2020-01-02", 1.5, str(2**63 - 1))
    assert (rows["half"], rows["odd"], rows["single"][0]) == ([0.0, 1.0, 2.0, 3.0], [None, None, None, 0.5], 0.1)
    assert (rows["kind"], rows["flag"], rows["nothing"]) == (["a", "b"] * 2, ["true", None] * 2, [None] * 4)
    assert (rows["u:row"][0], len(rows["long"][0])) == ("mine", 200)
    assert not {"list", "bytes"} & set(rows)
    assert facts["overview"]["classes"]["shown"] == [["a", 6], ["b", 6]]
    assert facts["default_score"] is None
    assert any("has no score" in note for note in facts["overview"]["notes"])


def test_a_page_in_its_folder_of_findings_is_refused_before_the_work(made, tmp_path):
    refused = run(made / "scores.parquet", "--findings", tmp_path / "f", "-o", tmp_path / "f" / "report.html")
    assert refused.exit_code == 1
    assert "another place" in refused.output
    assert not (tmp_path / "f").exists()
