"""``curate dedup`` as typed."""

import json

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from commandline import run
from PIL import Image
from reviewed_table import act, call, queue, serving

from curate.tables.writer import TableWriter
from scoring.images.signature import signature

N = 12
NAMES = ["unique.decisions.parquet", "unique.groups.parquet", "unique.parquet", "unique.receipt.json"]


def lists(rows, width=4):
    return pa.array(rows, pa.list_(pa.field("element", pa.float32(), nullable=False), width))


def columns(prefix="k"):
    """Twelve rows: 0 to 3 have equal bytes; 4, 5 and 6 near hashes; 7 failed."""
    generator = np.random.default_rng(0)
    vectors = generator.normal(size=(N, 4)).astype("f4")
    table = {
        "key": [f"{prefix}{i}" for i in range(N)],
        "sha256": [f"{prefix}{i // 4 if i < 4 else i}" for i in range(N)],
        "phash": pa.array(
            [int(code) for code in generator.integers(2**40, 2**62, 4)]
            + [0b0, 0b1, 0b11]
            + [int(code) for code in generator.integers(2**40, 2**62, 5)],
            pa.uint64(),
        ),
        "embedding": lists(vectors.tolist()),
        "kappa_a": pa.array(np.arange(N), pa.float32()),
        "label": ["cat", "cat", "dog", None, "cat", "cat", "cat", "cat", "dog", "dog", None, "cat"],
        "status": ["ok"] * 7 + ["broken"] + ["ok"] * 4,
    }
    return table, {"kind": "scores", "model": {"digest": "a" * 64, "method": "ma"}}


def write(path, table, metadata=None):
    table = pa.table(table)
    with TableWriter(path, table.schema, metadata or {"kind": "scores"}) as writer:
        writer.write(table)
    return path


@pytest.fixture
def folder(tmp_path, monkeypatch):
    write(tmp_path / "scores.parquet", *columns())
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_end_says_what_happened_and_where_it_is(folder):
    before = (folder / "scores.parquet").read_bytes()
    result = run("dedup", "scores.parquet", "--finder", "bytes", "--finder", "hash", "-o", "unique.parquet")
    assert result.exit_code == 0, result.output
    assert result.stdout == ""
    lines = [line.split() for line in result.stderr.splitlines()]
    assert ["rows", "in", "12"] in lines
    assert ["kept", "6"] in lines
    assert ["dropped", "3", "bytes"] in lines
    assert ["dropped", "2", "hash", "<=", "2"] in lines
    assert ["failed", "1", "broken"] in lines
    assert ["groups", "2", "the", "largest", "has", "4", "rows"] in lines
    assert "carries different labels" in result.stderr
    for name in NAMES:
        assert name in result.stderr
    assert sorted(path.name for path in folder.iterdir()) == ["scores.parquet", *NAMES]
    assert (folder / "scores.parquet").read_bytes() == before


def test_a_key_decides_between_equal_files_and_certainty_between_others(folder):
    run("dedup", "scores.parquet", "--finder", "bytes", "-o", "unique.parquet")
    decisions = pl.read_parquet("unique.decisions.parquet")
    assert decisions["decision"].to_list()[:4] == ["keep", "drop", "drop", "drop"]
    assert decisions["kept_key"].to_list()[:4] == [None, "k0", "k0", "k0"]
    assert decisions["reason"][1] == "the same as k0 by bytes"
    run("dedup", "scores.parquet", "--finder", "bytes", "--keep", "max:kappa_a", "-o", "unique.parquet", "--overwrite")
    assert pl.read_parquet("unique.decisions.parquet")["decision"].to_list()[:4] == ["drop", "drop", "drop", "keep"]
    run("dedup", "scores.parquet", "--finder", "hash", "--keep", "certain", "-o", "unique.parquet", "--overwrite")
    assert pl.read_parquet("unique.decisions.parquet")["decision"].to_list()[4:7] == ["drop", "drop", "keep"]


def test_json_is_alone_on_stdout_and_adds_up(folder):
    result = run("dedup", "scores.parquet", "--finder", "hash", "--threshold", "1", "-o", "unique.parquet", "--json")
    value = json.loads(result.stdout)
    assert value["kept"] + value["dropped"] + value["failed"] == value["n_rows"] == N
    assert value["dropped_by"] == {"hash <= 1": value["dropped"]}
    assert value["subset"] == "unique.parquet"
    assert json.loads(run("info", "unique.parquet", "--json").stdout)["kind"] == "subset"
    assert json.loads(run("info", "unique.groups.parquet", "--json").stdout)["kind"] == "groups"


def test_a_dry_run_shows_what_would_go_and_writes_nothing(folder):
    result = run("dedup", "scores.parquet", "--finder", "bytes", "--dry-run")
    assert result.exit_code == 0
    assert "k1: the same as k0" in result.stdout
    assert "nothing was written" in result.stderr
    assert [path.name for path in folder.iterdir()] == ["scores.parquet"]


def test_rows_of_the_other_table_are_dropped_or_reported(folder):
    table, metadata = columns("o")
    table["sha256"] = ["k4", "k4", "k9", *(f"o{i}" for i in range(9))]
    write(folder / "old.parquet", table, metadata)
    args = ("dedup", "scores.parquet", "--finder", "bytes", "--against", "old.parquet", "-o", "unique.parquet")
    result = run(*args)
    assert result.exit_code == 0, result.output
    assert ["leaks", "2", "also", "in", "old.parquet"] in [line.split() for line in result.stderr.splitlines()]
    decisions = pl.read_parquet("unique.decisions.parquet")
    assert decisions.filter(pl.col("reason").str.contains("old.parquet"))["key"].to_list() == ["k4", "k9"]
    assert decisions["decision"][9] == "drop"
    said = run(*args, "--overwrite", "--report-only")
    assert said.exit_code == 0
    assert [line.split(":")[1].strip() for line in said.stderr.splitlines() if line.startswith("leak: ")] == [
        "k4",
        "k9",
    ]
    tried = run(*args[:-2], "--report-only", "--dry-run").stdout
    assert [line.split(":")[1].strip() for line in tried.splitlines() if line.startswith("leak: ")] == ["k4", "k9"]
    decisions = pl.read_parquet("unique.decisions.parquet")
    assert decisions["decision"][9] == "keep"
    assert decisions["reason"][9].endswith("but stays")


@pytest.fixture
def bad_tables(folder):
    """Tables that cannot be used, or only in part."""
    write(folder / "bare.parquet", {"key": ["a", "b"], "note": ["x", "y"]})
    write(folder / "no-embedding.parquet", {"key": ["a", "b"], "sha256": ["x", "y"]})
    return folder


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["bare.parquet"], "bare.parquet has nothing"),
        (["no-embedding.parquet", "--finder", "embedding"], "the column embedding"),
        (["no-embedding.parquet", "--finder", "embedding"], "use --finder bytes"),
        (["scores.parquet", "--against", "none.parquet"], "none.parquet does not exist"),
        (["scores.parquet", "--finder", "embedding", "--threshold", "high"], "got 'high'"),
        (["scores.parquet", "--threshold", "3"], "--threshold 3"),
        (["scores.parquet", "--finder", "hash", "--threshold", "3", "--threshold", "4"], "has two thresholds"),
        (["scores.parquet", "--finder", "hash", "--finder", "hash"], "--finder hash was given"),
        (["scores.parquet", "--finder", "hsah"], "did you mean 'hash'"),
        (["scores.parquet", "--mirrored"], "need the finder signature"),
        (["scores.parquet", "--keep", " , "], "--keep takes"),
        (["scores.parquet", "--protect", " "], "--protect needs a condition"),
        (["scores.parquet", "--audit", "3", "--source", "x", "--seed", "-1"], "--seed must be"),
        (["scores.parquet", "--protect", "lable = 'x'"], "a column 'lable'"),
        (["scores.parquet", "--label", "lable"], "did you mean 'label'"),
    ],
)
def test_a_mistake_is_one_line_with_exit_1_and_writes_nothing(bad_tables, args, words):
    before = sorted(path.name for path in bad_tables.iterdir())
    result = run("dedup", *args, *([] if "-o" in args else ["-o", "unique.parquet"]))
    assert result.exit_code == 1
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    assert words in result.stderr
    assert sorted(path.name for path in bad_tables.iterdir()) == before


def test_a_finder_without_its_column_where_there_is_no_other_says_to_score_again(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "bare.parquet", {"key": ["a", "b"], "kappa_a": [1.0, 2.0]})
    said = run("dedup", "bare.parquet", "--finder", "hash", "--dry-run").stderr
    assert said.rstrip().endswith("score the images again")
    assert "none" not in said


def test_notes_are_printed(folder):
    write(folder / "odd.parquet", {"key": ["a", "b"], "embedding": lists([[1, 0, 0, 0], [0, 0, 0, 0]])})
    result = run("dedup", "odd.parquet", "-o", "unique.parquet")
    assert result.exit_code == 0
    assert "embedding of zeros" in result.stderr
    assert "only embeddings are compared" in result.stderr


@pytest.mark.parametrize("options", [["--estimate-recall", "2"], ["--sheet", "s.png"]])
def test_images_that_cannot_be_had_are_found_out_before_anything_is_written(folder, options):
    result = run("dedup", "scores.parquet", "-o", "unique.parquet", *options)
    assert result.exit_code == 1
    assert "as --source" in result.stderr
    assert [path.name for path in folder.iterdir()] == ["scores.parquet"]


def test_a_folder_that_cannot_be_is_found_out_before_the_work(folder, monkeypatch):
    monkeypatch.setattr("curate.policies.dedup.policy.decide_duplicates", None)
    for options in (["-o", "scores.parquet/u.parquet"], ["-o", "unique.parquet", "--sheet", "scores.parquet/s.png"]):
        result = run("dedup", "scores.parquet", *options)
        assert result.exit_code == 1
        assert "not a folder" in result.stderr


@pytest.fixture
def pictures(tmp_path, monkeypatch):
    """Six images and a near copy of each, as files and as a table with their signatures."""
    generator = np.random.default_rng(0)
    keys, paths, signatures = [], [], []
    for at in range(6):
        picture = Image.fromarray(generator.integers(0, 256, (32, 32, 3)).astype(np.uint8)).resize((64, 64))
        for side, shown in (("a", picture), ("b", picture.point(lambda value: value * 9 // 10))):
            keys.append(f"{side}{at}")
            paths.append(str(tmp_path / f"{side}{at}.png"))
            shown.save(paths[-1])
            signatures.append(signature(np.asarray(shown.resize((32, 32), Image.Resampling.BOX))))
    write(
        tmp_path / "scores.parquet",
        {"key": keys, "uri": paths, "signature": pa.array([each.tobytes() for each in signatures], pa.binary(255))},
    )
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_an_audit_is_written_judged_in_review_and_read_back(pictures):
    result = run("dedup", "scores.parquet", "--audit", "4", "-o", "unique.parquet")
    assert result.exit_code == 0, result.output
    assert sorted(path.name for path in pictures.glob("unique.*")) == ["unique.audit.csv", *NAMES]
    lines = (pictures / "unique.audit.csv").read_text().splitlines()
    assert len(lines) == 5
    for line in lines[1:]:
        _, a, b, *_ = line.split(",")
        assert {a[0], b[0]} == {"a", "b"}
        assert a[1:] == b[1:]
    with serving("scores.parquet", results=["unique.audit.csv"]) as server:
        (group,) = queue(server)
        assert (group["kind"], group["n"]) == ("sample", 4)
        shown = call(server, f"group?id={group['id']}")[1]["items"]
        assert {item["key"][0] + item["beside"]["key"][0] for item in shown} <= {"ab", "ba"}
        rows = [item["row"] for item in shown]
        act(server, "unsure", group["id"], out=rows[1:])
        act(server, "drop", group["id"], out=rows[1:2])
        assert queue(server) == []
    result = run("review", "verdicts", "unique.audit.csv")
    assert "4 pairs drawn: 2 same, 1 different, 1 unsure" in result.stdout
    again = run("dedup", "scores.parquet", "--audit", "4", "-o", "unique.parquet", "--overwrite")
    assert again.exit_code == 1
    assert "holds verdicts" in again.stderr
    assert run("dedup", "scores.parquet", "-o", "unique.parquet", "--overwrite").exit_code == 0


def test_an_audit_that_cannot_be_written_leaves_nothing(pictures, monkeypatch):
    def full(*_args, **_how):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("curate.policies.dedup.policy.audit_text", full)
    before = sorted(path.name for path in pictures.iterdir())
    result = run("dedup", "scores.parquet", "--audit", "4", "-o", "unique.parquet")
    assert result.exit_code == 1
    assert sorted(path.name for path in pictures.iterdir()) == before


def test_an_empty_name_is_no_output(bad_tables):
    before = sorted(path.name for path in bad_tables.iterdir())
    result = run("dedup", "scores.parquet", "-o", "")
    assert result.exit_code == 2
    assert "got an empty text" in " ".join(result.output.split())
    assert sorted(path.name for path in bad_tables.iterdir()) == before
