"""From judged rows to probabilities in a table: any order, refusals, and verification."""

import csv
import hashlib
import json
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from commandline import run
from sample_verdicts import judge
from sklearn.isotonic import IsotonicRegression

import curate
from curate.calibration.fit import calibrate
from curate.calibration.verify import verify_calibration
from curate.evaluation.comparison.run import compare
from curate.policies.audit.draw import review_plan
from curate.tables.table import open_table
from curate.tables.writer import TableWriter
from scoring.errors import InputError

N = 600
MODEL = {"digest": "a" * 64, "method": "x"}
FEW = {"repeats": 20}


def made(seed=0, n=N, shift=0.0):
    """Rows of which doubtful ones are bad, and whose classes mix where they are doubtful."""
    generator = np.random.default_rng(seed)
    doubt = (generator.random(n) + shift).astype(np.float32)
    bad = generator.random(n) < doubt**2
    side = generator.random(n) < 0.5
    vectors = generator.normal(0, 0.3, (n, 8)) + np.where(side, 1, -1)[:, None]
    vectors = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    classes = np.where(side ^ (generator.random(n) < doubt / 2), "a", "b")
    return pa.table(
        {
            "key": [f"{seed}-{i:04}" for i in range(n)],
            "status": ["ok"] * (n - 2) + ["broken"] * 2,
            "unc_x": pa.array(doubt),
            "kappa_x": pa.array(1 / (doubt + 0.01)),
            "is_bad": pa.array(bad.tolist()),
            "label": classes.tolist(),
            "embedding": pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), 8),
        }
    )


def written(path, table, model=MODEL):
    with TableWriter(path, table.schema, {"kind": "scores", "model": model}) as writer:
        writer.write(table)
    return path


@pytest.fixture(scope="module")
def scored(tmp_path_factory):
    return written(tmp_path_factory.mktemp("calibrate") / "scores.parquet", made())


@pytest.fixture(scope="module")
def known(scored):
    """A calibration of unc_x, as a file."""
    out = scored.parent / "known.json"
    calibrate(scored, out, column="unc_x", bad="is_bad == true", **FEW)
    return out


def refused(table, *named, **options):
    with pytest.raises(InputError) as error:
        calibrate(table, **{**FEW, **options})
    for word in named:
        assert word in str(error.value)
    assert "\n" not in str(error.value)


def test_the_table_gets_the_probabilities_that_scikit_learn_gives(scored, tmp_path):
    result = calibrate(scored, apply=tmp_path / "c.parquet", column="kappa_x", bad="is_bad == true", **FEW)
    before, after = pq.read_table(scored), pq.read_table(tmp_path / "c.parquet")
    ok = pc.equal(before["status"], "ok").to_numpy()
    kappa, bad = (np.asarray(before[name]) for name in ("kappa_x", "is_bad"))
    other = IsotonicRegression(out_of_bounds="clip", increasing=False).fit(kappa[ok], bad[ok].astype(float))
    np.testing.assert_allclose(np.asarray(after["p_error_isotonic"]), other.predict(kappa), atol=1e-6)
    assert after.drop_columns(["p_error_isotonic", "p_error_logistic"]).equals(before)
    assert result.calibration.fitted.rows == N - 2
    described = open_table(tmp_path / "c.parquet").metadata["columns"]["p_error_isotonic"]
    assert described["higher"] == "less certain"


def test_the_order_of_rows_decides_nothing(scored, known, tmp_path):
    table = pq.read_table(scored)
    moved = written(
        tmp_path / "m.parquet", table.take(np.random.default_rng(1).permutation(N)).replace_schema_metadata()
    )
    calibrate(moved, tmp_path / "m.json", column="unc_x", bad="is_bad == true", **FEW)
    first, other = (json.loads(path.read_text()) for path in (known, tmp_path / "m.json"))
    for record in (first, other):
        record["about"]["table"].pop("path")
        record.pop("digest")
    assert first == other


def test_a_row_without_a_score_has_no_probability(known, tmp_path):
    table = made(seed=3)
    values = table["unc_x"].to_pylist()
    values[:4] = [None, float("nan"), float("inf"), -1.0]
    table = table.set_column(2, "unc_x", pa.array(values, pa.float32()))
    calibration = calibrate(written(tmp_path / "t.parquet", table), fitted=known, apply=tmp_path / "c.parquet").applied
    p = pq.read_table(tmp_path / "c.parquet")["p_error_logistic"].to_pylist()
    assert p[:3] == [None, None, None]
    assert p[3] == min(p[3:])
    low = np.sort(pq.read_table(known.parent / "scores.parquet")["unc_x"].to_numpy()[: N - 2])[0]
    assert (calibration.without, calibration.outside.below) == (3, sum(v < low for v in np.float32(values[3:])))


def test_two_runs_write_the_same_bytes_and_none_is_there_without_its_receipt(scored, known, tmp_path):
    for name in ("a", "b"):
        calibrate(scored, fitted=known, apply=tmp_path / name / "c.parquet") if (tmp_path / name).mkdir() is None else 0
    assert (tmp_path / "a/c.parquet").read_bytes() == (tmp_path / "b/c.parquet").read_bytes()
    receipt = json.loads((tmp_path / "a/c.receipt.json").read_text())
    assert receipt["counts"] == {"n_rows": N, "without_score": 0, "outside": {"rows": N, "below": 0, "above": 0}}
    refused(scored, "exists already", "--overwrite", fitted=known, apply=tmp_path / "a/c.parquet")


def test_an_audit_weighs_as_it_was_drawn(scored, tmp_path):
    """Two audits, of all rows and of the most certain half, which is drawn three times as densely."""
    truth = dict(zip(*(pq.read_table(scored)[name].to_pylist() for name in ("key", "is_bad")), strict=True))
    files = []
    for name, keep, images in (("all", "100%", 150), ("half", "50%", 150)):
        path = tmp_path / f"{name}.audit.csv"
        review_plan(scored, path, "unc_x", max_bad_rate="20%", keep=keep, images=images, seed=7)
        with path.open() as file:
            keys = [line["key"] for line in csv.DictReader(file)]
        judge(path, [("drop" if truth[key] else "keep", key, "", "") for key in keys], question="image")
        files.append(path)
    result = calibrate(scored, tmp_path / "a.json", audit=files, **FEW)
    judged = {}
    for path in files:
        with path.open() as file:
            judged |= {line["key"]: int(line["rank"]) for line in csv.DictReader(file)}
    among = int(next(csv.DictReader(files[1].open()))["among"])
    strata = [[truth[key] for key, rank in judged.items() if (rank <= among) == inner] for inner in (True, False)]
    expected = (among * np.mean(strata[0]) + (N - 2 - among) * np.mean(strata[1])) / (N - 2)
    assert result.calibration.rate == pytest.approx(expected)
    assert verify_calibration(tmp_path / "a.json").identical
    judge(files[0], [("drop", next(iter(judged)), "", "")], question="image", reviewer="bob")
    assert not verify_calibration(tmp_path / "a.json").identical
    refused(scored, "unc_x", "--column", audit=files, column="kappa_x")


def test_a_file_of_keys_and_answers_is_as_good_as_a_condition(scored, tmp_path):
    table = pq.read_table(scored).slice(0, 300)
    words = ["bad" if bad else "good" for bad in table["is_bad"].to_pylist()]
    pq.write_table(pa.table({"key": table["key"], "answer": words}), tmp_path / "answers.parquet")
    first = calibrate(scored, column="unc_x", audit=tmp_path / "answers.parquet", **FEW).calibration
    some = written(tmp_path / "some.parquet", table.replace_schema_metadata())
    other = calibrate(some, column="unc_x", bad="is_bad == true", **FEW).calibration
    assert first.to_json()["maps"] == other.to_json()["maps"]


@pytest.mark.parametrize("truth", [{"bad": "is_bad == true"}, {"label": "label"}])
def test_copies_count_once(tmp_path, truth):
    once = made().append_column("sha256", pa.array([f"{i:064x}" for i in range(N)]))
    copied = once.slice(0, 200).set_column(0, "key", pa.array([f"copy-{i:04}" for i in range(200)]))
    alone, both = (
        written(tmp_path / name, table) for name, table in (("a", once), ("b", pa.concat_tables([once, copied])))
    )
    expected, seen = (calibrate(path, column="unc_x", **truth, **FEW) for path in (alone, both))
    assert seen.calibration.fitted.rows == expected.calibration.fitted.rows
    assert seen.calibration.rate == expected.calibration.rate
    assert sum("200 rows as copies" in line for line in seen.lines() if isinstance(line, str)) == 1


@pytest.mark.parametrize("columns", [[], ["embedding"]])
def test_an_image_that_only_looks_like_another_is_no_copy(tmp_path, columns):
    """A blurred version has the hash and the signature of the image, but another embedding, and may be bad."""
    table, other = made(n=100), made(n=100, seed=1)
    opposite = pc.multiply(table["embedding"].combine_chunks().flatten(), -1)
    at = other.schema.get_field_index("embedding")
    other = other.set_column(at, "embedding", pa.FixedSizeListArray.from_arrays(opposite.cast(pa.float32()), 8))
    table = pa.concat_tables([table, other])
    looks = np.random.default_rng(2).integers(0, 127, (100, 287)).astype(np.int8)
    hashes = np.random.default_rng(3).integers(0, 2**63, 100, np.uint64)
    table = table.append_column("phash", pa.array([*hashes, *hashes]))
    table = table.append_column("signature", pa.array([row.tobytes() for row in [*looks, *looks]], pa.binary(287)))
    path = written(tmp_path / "s.parquet", table.drop_columns(columns))
    result = calibrate(path, column="unc_x", bad="is_bad == true", **FEW)
    assert result.calibration.fitted.rows == 196  # of 200, 4 are broken


def test_a_neighbour_of_another_class_is_found_by_all_cosines(scored):
    result = calibrate(scored, column="unc_x", label="label", **FEW)
    table = pq.read_table(scored).slice(0, N - 2)
    vectors = np.stack(table["embedding"].to_pylist())
    cosine = vectors.astype(np.float64) @ vectors.T
    np.fill_diagonal(cosine, -np.inf)
    classes = np.array(table["label"].to_pylist())
    assert result.calibration.rate == pytest.approx((classes != classes[cosine.argmax(1)]).mean())
    assert result.calibration.target == "neighbour"


@pytest.mark.parametrize(
    ("words", "options"),
    [
        (("--bad", "--audit", "--label", "none"), {}),
        (("--bad", "--label"), {"bad": "is_bad == true", "label": "label"}),
        (("at least 5", "bad", "got 0"), {"bad": "unc_x > 2"}),
        (("at least 5", "good", "got 0"), {"bad": "unc_x < 2"}),
        (("at least 5", "bad", "got 0"), {"label": "status"}),
        (("no column 'unc_y'",), {"bad": "is_bad == true", "column": "unc_y"}),
        (("numbers", "label"), {"bad": "is_bad == true", "column": "label"}),
        (("--judges",), {"bad": "is_bad == true", "judges": "majority"}),
        (("--repeats",), {"bad": "is_bad == true", "repeats": 0}),
        (("--embedding", "--label"), {"bad": "is_bad == true", "embedding": "embedding"}),
        (("NAME.json",), {"bad": "is_bad == true", "out": "x.parquet"}),
    ],
)
def test_what_nothing_can_be_fitted_on_is_one_line(scored, words, options):
    refused(scored, *words, **options)


def test_rows_without_information_are_one_line(tmp_path):
    table = made(n=200)
    alike = table.set_column(2, "unc_x", pa.array([0.5] * 200, pa.float32()))
    refused(written(tmp_path / "alike.parquet", alike), "0.5 on all", column="unc_x", bad="is_bad == true")
    none = table.set_column(2, "unc_x", pa.array([float("nan")] * 200, pa.float32()))
    refused(
        written(tmp_path / "none.parquet", none), "at least 50", "got 0", "unc_x", column="unc_x", bad="is_bad == true"
    )
    few = written(tmp_path / "few.parquet", table.slice(0, 49))
    refused(few, "at least 50", "got 49", column="unc_x", bad="is_bad == true")
    refused(written(tmp_path / "empty.parquet", table.slice(0, 0)), "got 0", column="unc_x", bad="is_bad == true")


def test_answers_that_cannot_be_used_are_one_line(scored, tmp_path):
    keys = pq.read_table(scored)["key"].to_pylist()
    path = tmp_path / "answers.csv"

    def answers(lines, *words):
        path.write_text("key,answer\n" + "".join(f"{key},{answer}\n" for key, answer in lines))
        refused(scored, *words, column="unc_x", audit=path)

    answers([(key, "good") for key in [*keys[:60], "stranger"]], "not in", "stranger")
    answers([(keys[0], "good"), (keys[0], "bad")], "'good' and 'bad'", keys[0])
    answers([(keys[0], "lovely")], "good, bad or unsure", "lovely")
    answers([(key, "") for key in keys[:60]], "got none")
    path.write_text("key,verdict\na,good\n")
    refused(scored, "no column 'answer'", column="unc_x", audit=path)
    refused(scored, "does not exist", column="unc_x", audit=tmp_path / "gone.csv")


def test_a_table_of_another_model_is_refused(known, tmp_path):
    for model in ({"digest": "b" * 64}, {}):
        other = written(tmp_path / f"{len(model)}.parquet", made(seed=1), model)
        refused(other, "the model aaaaaaaaaaaa...", fitted=known, apply=tmp_path / "c.parquet")
    assert not (tmp_path / "c.parquet").exists()


def of_an_earlier_version(record):
    del record["dataset"], record["digest"]
    record["digest"] = hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda record: record["maps"]["isotonic"]["p"].__setitem__(0, 1.0), ("digest",)),
        (lambda record: record.pop("digest"), ("digest",)),
        (of_an_earlier_version, ("earlier version", "calibrate again")),
        (lambda record: record.update(kind="receipt"), ("not a calibration",)),
    ],
)
def test_a_calibration_that_was_changed_is_refused(scored, known, tmp_path, change, words):
    record = json.loads(known.read_text())
    change(record)
    (tmp_path / "changed.json").write_text(json.dumps(record))
    refused(scored, *words, fitted=tmp_path / "changed.json", apply=tmp_path / "c.parquet")


@pytest.mark.parametrize("text", ["", "[]", "{", "[" * 100_000])
def test_a_file_that_is_no_calibration_is_refused(scored, tmp_path, text):
    (tmp_path / "no.json").write_text(text)
    refused(scored, "calibration", fitted=tmp_path / "no.json", apply=tmp_path / "c.parquet")


def test_what_was_fitted_is_not_fitted_again(scored, known, tmp_path):
    refused(scored, "--bad", fitted=known, bad="is_bad == true", apply=tmp_path / "c.parquet")
    refused(scored, "--apply", fitted=known)


def test_a_batch_that_leaves_the_range_raises_an_alarm(scored, known, tmp_path):
    alike = calibrate(written(tmp_path / "alike.parquet", made(seed=4)), fitted=known, apply=tmp_path / "a.parquet")
    assert "more than chance" not in str(alike).replace("no more than chance", "")
    far = calibrate(
        written(tmp_path / "far.parquet", made(seed=5, shift=0.3)), fitted=known, apply=tmp_path / "f.parquet"
    )
    high = pq.read_table(scored)["unc_x"].to_numpy()[: N - 2].max()
    above = int((pq.read_table(tmp_path / "far.parquet")["unc_x"].to_numpy() > high).sum())
    assert far.applied.outside.above == above > 100
    assert "more than chance (p" in str(far)
    comparison = compare(tmp_path / "a.parquet", tmp_path / "far.parquet", column="unc_x", repeats=19)
    assert [(each.table, each.outside.above) for each in comparison.left_range] == [
        (0, alike.applied.outside.above),
        (1, above),
    ]
    assert comparison.left_range[1].p < 1e-6 < comparison.left_range[0].p
    assert "far: " in str(comparison)
    assert comparison.to_json()["left_range"][1]["outside"]["above"] == above


def test_verify_reports_what_was_changed(scored, known, tmp_path):
    assert verify_calibration(known).identical
    calibrate(scored, fitted=known, apply=tmp_path / "c.parquet")
    receipt = tmp_path / "c.receipt.json"
    assert verify_calibration(receipt).identical
    table = pq.read_table(scored).replace_schema_metadata()
    values = table["unc_x"].to_pylist()
    other = table.set_column(2, "unc_x", pa.array([values[0] / 2, *values[1:]], pa.float32()))
    moved = written(tmp_path / "scores.parquet", other)
    for path, words in ((known, "fitted to"), (receipt, "applied to")):
        problems = verify_calibration(path, moved).problems
        assert any(words in each for each in problems)
    (tmp_path / "c.parquet").unlink()
    assert "no longer exists" in str(verify_calibration(receipt).problems)


def test_a_chain_leads_through_the_calibrated_table(scored, known, tmp_path):
    table = tmp_path / "scores.parquet"
    shutil.copy(scored, table)
    calibrate(table, fitted=known, apply=tmp_path / "calibrated.parquet")
    kept = curate.filter(tmp_path / "calibrated.parquet", tmp_path / "kept.parquet", column="p_error_isotonic", max=0.1)
    proof = curate.verify(kept.subset, chain=True)
    assert proof.identical
    assert [(step.policy, step.verification.n_rows) for step in proof.earlier] == [("calibrate", N)]
    assert proof.origin["table"] == str(table)
    written = pq.read_table(table)
    other = written.append_column("more", pa.array(range(N)))  # which no step reads
    pq.write_table(other.replace_schema_metadata(written.schema.metadata), table)
    proof = curate.verify(kept.subset, chain=True)
    assert not proof.identical
    assert "bytes have changed" in proof.earlier[0].verification.notes[0].what
    done = run("verify", kept.subset, "--chain")
    assert done.exit_code == 1
    assert "calibrated.receipt.json: " in done.stdout
    receipt = tmp_path / "calibrated.receipt.json"
    receipt.write_text(receipt.read_text().replace(" ", "  ", 1))
    with pytest.raises(InputError, match="was changed since"):
        curate.verify(kept.subset, chain=True)


def test_a_pipeline_a_report_and_a_signature_take_probabilities_as_a_step(scored, known, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = f"""
[calibrate]
table = "{scored}"
fitted = "{known}"

[kept]
run = "filter"
column = "p_error_isotonic"
max = 0.1
"""
    (tmp_path / "curate.toml").write_text(text)
    assert run("run", "curate.toml").exit_code == 0
    assert run("verify", "curated").exit_code == 0
    receipt = tmp_path / "curated/calibrate.receipt.json"
    assert f"{N:,}" in run("info", receipt).stdout
    reported = run("report", scored, "curated", "-o", "report.html")
    assert reported.exit_code == 0, reported.output
    with pytest.raises(InputError, match="receipt of a calibration"):
        curate.report(scored, receipt, out="other.html")
    with (tmp_path / "curated/calibrate.parquet").open("r+b") as file:
        file.seek(100)
        file.write(b"x")
    assert run("verify", "curated").exit_code == 1


def test_the_command_draws_verifies_and_filters(scored, tmp_path):
    out, table, picture = tmp_path / "good.json", tmp_path / "c.parquet", tmp_path / "c.svg"
    line = ("calibrate", scored, "--column", "unc_x", "--bad", "is_bad == true")
    done = run(*line, "-o", out, "--apply", table, "--plot", picture)
    assert done.exit_code == 0, done.output
    for word in ("isotonic", "logistic", "constant", "ECE", "calibration:", "table:", "image:"):
        assert word in done.output
    assert "<svg" in picture.read_text()
    assert run("verify", out).exit_code == run("verify", tmp_path / "c.receipt.json").exit_code == 0
    assert json.loads(run(*line, "--json", "-q").stdout)["path"] is None
    kept = run("filter", table, "--column", "p_error_isotonic", "--max", 0.1, "-o", tmp_path / "kept.parquet")
    assert kept.exit_code == 0, kept.output
    p = pq.read_table(tmp_path / "kept.parquet")["p_error_isotonic"].to_numpy()
    assert len(p) > 50
    assert p.max() <= np.float32(0.1)
    assert run("calibrate", table, "--fitted", out, "--plot", "x.svg").exit_code == 1
    line = ("plot", table, "reliability", "--right", "is_bad", "--column", "p_error_isotonic")
    drawn = run(*line, "-o", tmp_path / "r.svg")
    assert drawn.exit_code == 0, drawn.output
    assert "ECE" in (tmp_path / "r.svg").read_text()
