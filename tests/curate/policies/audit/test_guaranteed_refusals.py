"""One line for everything that does not fit a filter with a promise, its plan or its verdicts."""

import pytest
from audited_tables import N, refused, run

from curate.statistics.guarantee import fewest_verdicts


def test_infeasible_says_how_many_more(dataset, audit, tmp_path):
    text = refused(
        "filter", dataset[0], "--max-bad-rate", "1%", "--audit", audit(images=100), "-o", tmp_path / "k.parquet"
    )
    assert "infeasible with these verdicts" in text
    assert f"about {fewest_verdicts(N - 5, 0.01, 0.95) - 100} more" in text
    assert not (tmp_path / "k.parquet").exists()

    def all_bad(lines):
        for line in lines:
            line["answer"] = "bad"

    text = refused("filter", dataset[0], "--max-bad-rate", "1%", "--audit", audit("b", change=all_bad), "--dry-run")
    assert "number of verdicts" in text


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda lines: lines[0].update(key="stranger"), "'stranger'"),
        (lambda lines: lines[0].update(value="0.5"), "was 0.5"),
        (lambda lines: lines[0].update(rank="x"), "column 'rank'"),
        (lambda lines: lines[0].update(rank="9999"), "rank from 1"),
        (lambda lines: lines[0].update(image=lines[1]["image"]), "occurs twice"),
        (lambda lines: lines[0].update(key=lines[1]["key"]), "expected each key once"),
        (lambda lines: lines.pop(), "as it was drawn"),
        (lambda lines: [line.update(answer="") for line in lines], "the 500 images"),
        (
            lambda lines: [line.update(among="2000") for line in lines if line.update(rank="1") is None],
            "and the table has",
        ),
    ],
)
def test_verdicts_that_do_not_fit_are_one_line(dataset, audit, change, words):
    assert words in refused("filter", dataset[0], "--max-bad-rate", "2%", "--audit", audit(change=change), "--dry-run")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (("--max-bad-rate", "2%"), "curate review plan"),
        (("--max-bad-rate", "0", "--audit", "AUDIT"), "above 0 and below"),
        (("--max-bad-rate", "2%", "--audit", "AUDIT", "--confidence", "100%"), "--confidence takes a share"),
        (("--max-bad-rate", "2%", "--audit", "AUDIT", "--promise", "surely"), "promise"),
        (("--max-bad-rate", "2%", "--audit", "AUDIT", "--judges", "all"), "judges"),
        (("--max-bad-rate", "2%", "--audit", "AUDIT", "--column", "kappa_made_up"), "leave --column out"),
        (("--max-bad-rate", "2%", "--max-bad-rate", "3%", "--audit", "AUDIT"), "pass it once"),
        (("--keep-top", "5", "--column", "unc_made_up", "--audit", "AUDIT"), "needs --max-bad-rate"),
        (("--max-bad-rate", "2%", "--audit", "nowhere.csv"), "nowhere.csv"),
    ],
)
def test_a_line_that_cannot_be_meant_is_one_line(dataset, audit, line, words):
    path = str(audit(images=200))
    assert words in refused("filter", dataset[0], *(path if word == "AUDIT" else word for word in line), "--dry-run")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (("--max-bad-rate", "2%", "--keep", "0%"), "--keep takes"),
        (("--max-bad-rate", "2%", "--expected", "3%"), "no number of images"),
        (("--max-bad-rate", "0.1%"), "to be judged"),
        (("--max-bad-rate", "2%", "--images", "0"), "--images takes 1"),
        (("--max-bad-rate", "2%", "-o", "kept.csv"), "kept.audit.csv"),
        (("--max-bad-rate", "2%", "--column", "label"), "label"),
        (("--max-bad-rate", "2%", "--column", "nothing"), "nothing"),
    ],
)
def test_a_plan_that_cannot_be_is_one_line(dataset, line, words, tmp_path):
    line = [str(tmp_path / word) if word == "kept.csv" else word for word in line]
    column = () if "--column" in line else ("--column", "unc_made_up")
    assert words in refused("review", "plan", dataset[0], *column, *line)


def test_answers_are_never_replaced(dataset, audit):
    path = audit()
    text = refused(
        "review", "plan", dataset[0], "--column", "unc_made_up", "--max-bad-rate", "2%", "--overwrite", "-o", path
    )
    assert "holds verdicts" in text


def test_pairs_and_images_are_distinguished(dataset, audit, tmp_path):
    shown = run("review", "verdicts", audit())
    assert shown.exit_code == 0
    assert "500 drawn" in shown.output
    assert "--target-precision is for pairs" in refused("review", "verdicts", audit("b"), "--target-precision", "0.9")
    (tmp_path / "pairs.csv").write_text("pair,key_a\n")
    assert "key_b" in refused("review", "verdicts", tmp_path / "pairs.csv")
