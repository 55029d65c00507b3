"""From a drawn audit with answers to a filter with a promise, and one line for everything that does not fit."""

import csv
import json
from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from reviewed_table import act, call, queue, serving
from sample_verdicts import judge
from typer.testing import CliRunner

from curate.cli import app
from curate.policies.audit.draw import review_plan
from curate.policies.audit.examine import read_verdicts
from curate.policies.audit.verdicts import read_audit
from curate.policies.filter.policy import filter
from curate.policies.sampled import BLOCK, verdicts_beside
from curate.policies.verify import verify
from curate.statistics.guarantee import Sampled, fewest_verdicts, guaranteed_cut
from scoring.errors import InputError

N = 3000


def run(*line):
    return CliRunner().invoke(app, [str(word) for word in line])


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    """A table whose least certain rows are bad, mostly; all rows show one image."""
    folder = tmp_path_factory.mktemp("heap")
    rng = np.random.default_rng(0)
    doubt = rng.random(N).astype(np.float32)
    bad = rng.random(N) < np.where(doubt > 0.8, 0.7, 0.002)
    Image.new("RGB", (16, 16), (9, 99, 199)).save(folder / "one.png")
    keys = [f"k{i:04}" for i in range(N)]
    table = {
        "key": keys,
        "uri": [str(folder / "one.png")] * N,
        "status": ["ok"] * (N - 5) + ["truncated"] * 5,
        "label": ["cat" if i % 2 else "dog" for i in range(N)],
        "unc_made_up": pa.array(doubt),
        "kappa_made_up": pa.array(1 / doubt),
        "unc_tied": pa.array(np.round(doubt, 1), pa.float32()),
    }
    pq.write_table(pa.table(table), folder / "scores.parquet")
    return (
        folder / "scores.parquet",
        dict(zip(keys, bad.tolist(), strict=True)),
        dict(zip(keys, doubt.tolist(), strict=True)),
    )


VERDICTS = {"good": "keep", "bad": "drop", "?": "unsure", "": ""}


def answered(path, bad, *, change=None):
    """Judge by the truth; ``change`` may alter the lines and the answers."""
    with path.open() as file:
        lines = list(csv.DictReader(file))
    for line in lines:
        line["answer"] = "bad" if bad[line["key"]] else "good"
    if change:
        change(lines)
    out = path.with_name(f"answered_{path.name}")
    answers = [(VERDICTS[line.pop("answer")], line["key"], "", "") for line in lines]
    with out.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(lines[0]))
        writer.writeheader()
        writer.writerows(lines)
    judge(out, answers, question="image")
    return out


@pytest.fixture(scope="module")
def drawn(dataset, tmp_path_factory):
    """What `review_plan` writes, drawn once for the same options."""

    @cache
    def draw(**options):
        path = tmp_path_factory.mktemp("drawn") / "a.audit.csv"
        review_plan(dataset[0], path, **options)
        return path.read_text()

    return draw


@pytest.fixture
def audit(dataset, drawn, tmp_path):
    def make(name="a", change=None, **options):
        path = tmp_path / f"{name}.audit.csv"
        path.write_text(drawn(**{"column": "unc_made_up", "max_bad_rate": "2%", "images": 500, **options}))
        return answered(path, dataset[1], change=change)

    return make


def test_the_plan_draws_a_simple_random_sample_of_the_rows_that_could_be_kept(dataset, tmp_path):
    plan = review_plan(dataset[0], tmp_path / "a.audit.csv", "unc_made_up", max_bad_rate=0.02, keep="50%", images=300)
    with (tmp_path / "a.audit.csv").open() as file:
        lines = list(csv.DictReader(file))
    in_order = sorted(list(dataset[2].values())[: N - 5])
    assert plan.among == round((N - 5) / 2 + 0.1) == int(lines[0]["among"])
    assert any(f"curate review {dataset[0]} {plan.csv}" in line for line in plan.lines() if isinstance(line, str))
    assert len({line["key"] for line in lines}) == 300
    for line in lines:
        assert float(line["value"]) == dataset[2][line["key"]]
        assert in_order[int(line["rank"]) - 1] == dataset[2][line["key"]]
    ranks = np.array([int(line["rank"]) for line in lines])
    assert ranks.max() <= plan.among
    assert abs(ranks.mean() / plan.among - 0.5) < 4 / np.sqrt(12 * 300)
    assert abs(np.corrcoef(ranks, np.arange(300))[0, 1]) < 0.25  # images come in no order


def test_another_seed_draws_others_and_high_is_certain_for_a_kappa(dataset, tmp_path):
    first, second = (
        review_plan(
            dataset[0], tmp_path / f"{seed}.audit.csv", "kappa_made_up", max_bad_rate="2%", images=50, seed=seed
        )
        for seed in (0, 1)
    )
    drawn = [{line["key"] for line in csv.DictReader(path.csv.open())} for path in (first, second)]
    assert len(drawn[0] & drawn[1]) < 10
    best = min(csv.DictReader(first.csv.open()), key=lambda line: int(line["rank"]))
    assert float(best["value"]) == max(float(line["value"]) for line in csv.DictReader(first.csv.open()))


def test_the_filter_keeps_what_the_definition_says_and_verifies(dataset, audit, tmp_path):
    path = audit()
    result = filter(dataset[0], tmp_path / "kept.parquet", max_bad_rate="2%", audit=path)
    with path.open() as file:
        lines = list(csv.DictReader(file))
    sampled = Sampled(
        np.array([N - 5]),
        np.array([int(line["rank"]) for line in lines]),
        np.array([dataset[1][line["key"]] for line in lines], float),
    )
    assert result.kept == guaranteed_cut(sampled, 0.02, 0.95).kept
    kept = pq.read_table(tmp_path / "kept.parquet")["key"].to_pylist()
    in_order = sorted((key for key in list(dataset[2])[: N - 5]), key=dataset[2].get)
    assert set(kept) == set(in_order[: result.kept])
    assert np.mean([dataset[1][key] for key in kept]) <= 0.02
    assert result.kept > 0.7 * N
    assert verify(tmp_path / "kept.receipt.json").identical
    decisions = pq.read_table(tmp_path / "kept.decisions.parquet").to_pylist()
    gone = next(row for row in decisions if row["decision"] == "drop")
    assert "above the cut" in gone["reason"]
    assert gone["rule"] == "--max-bad-rate 2%"
    assert gone["margin"] < 0


def test_a_kappa_and_its_uncertainty_keep_the_same_rows(dataset, audit, tmp_path):
    for column in ("unc_made_up", "kappa_made_up"):
        filter(dataset[0], tmp_path / f"{column}.parquet", max_bad_rate="2%", audit=audit(column, column=column))
    kept = [
        set(pq.read_table(tmp_path / f"{name}.parquet")["key"].to_pylist()) for name in ("unc_made_up", "kappa_made_up")
    ]
    assert kept[0] == kept[1]


def test_rules_before_it_narrow_what_is_promised_and_rules_after_it_are_refused(dataset, audit, tmp_path):
    paths = [audit(images=900), audit("b", images=900, seed=1)]
    result = filter(dataset[0], tmp_path / "kept.parquet", where='label == "cat"', max_bad_rate="2%", audit=paths)
    kept = pq.read_table(tmp_path / "kept.parquet")
    assert set(kept["label"].to_pylist()) == {"cat"}
    assert 0 < result.kept < 1500
    refused = run(
        "filter",
        dataset[0],
        "--max-bad-rate",
        "2%",
        "--audit",
        paths[0],
        "--keep-top",
        "50%",
        "--column",
        "unc_made_up",
        "--dry-run",
    )
    assert refused.exit_code == 1
    assert "put it after all other rules" in refused.output


def test_dropping_the_rows_judged_bad_first_does_not_change_what_the_sample_shows(dataset, audit, tmp_path):
    path = audit()
    names = tmp_path / "bad.txt"
    names.write_text("\n".join(row.key for row in read_audit([path]).judged if row.badness))
    common = {"out": tmp_path / "kept.parquet", "max_bad_rate": "5%", "audit": path, "overwrite": True}
    plain = filter(dataset[0], **common)
    cut = max(pq.read_table(plain.subset)["unc_made_up"].to_pylist())
    for rule in ({"verdicts": verdicts_beside(path)}, {"without_keys": names}):
        result = filter(dataset[0], **common, **rule)
        kept = pq.read_table(result.subset).to_pydict()
        assert max(kept["unc_made_up"]) == cut
        bad = [row for row in read_audit([path]).judged if row.badness and row.value <= cut]
        assert result.kept == plain.kept - len(bad) > 0
        assert any(f"keeps {result.kept:,} of" in note for note in result.notes)


def test_rows_of_equal_score_stay_or_go_together(dataset, audit, tmp_path):
    filter(dataset[0], tmp_path / "kept.parquet", max_bad_rate="5%", audit=audit(column="unc_tied", max_bad_rate="5%"))
    kept = pq.read_table(tmp_path / "kept.parquet")["unc_tied"].to_pylist()
    everything = pq.read_table(dataset[0])["unc_tied"].to_pylist()[: N - 5]
    assert len(kept) == sum(value <= max(kept) for value in everything)


def test_judges_are_joined_as_asked(dataset, audit, tmp_path):
    def opposite(lines):
        for line in lines:
            if int(line["rank"]) % 10 == 0:
                line["answer"] = {"good": "bad", "bad": "good"}[line["answer"]]

    first, second = audit("a"), audit("b", change=opposite)
    kept = {
        judges: read_audit([first, second], judges=judges).badness().sum() for judges in ("any", "majority", "share")
    }
    alone = read_audit([first]).badness().sum()
    assert kept["any"] > kept["share"] > alone
    assert kept["any"] == kept["majority"]  # of two, one is half
    assert read_audit([first, second, first], judges="majority").badness().sum() == alone


def test_unsure_counts_as_bad_and_an_unfinished_block_as_not_drawn(audit):
    def doubtful(lines):
        lines[0]["answer"], lines[2 * BLOCK + 1]["answer"] = "?", ""

    verdicts = read_audit([audit(change=doubtful)])
    assert verdicts.blank == 500 - 2 * BLOCK
    assert verdicts.counts()["between"] == 1
    assert len(verdicts.judged) == 2 * BLOCK
    assert verdicts.judged[0].badness == 1


def test_verdicts_on_a_part_of_the_first_block_are_refused_with_their_number(audit):
    def begun(lines):
        for line in lines[10:]:
            line["answer"] = ""

    with pytest.raises(InputError, match=rf"got on 10 of an unfinished block of {BLOCK}"):
        read_audit([audit("begun", change=begun)])


def test_a_second_audit_of_a_stricter_zone_adds_to_the_first(dataset, audit, tmp_path):
    files = [audit("all", images=500), audit("some", images=400, keep="70%", seed=5)]
    verdicts = read_audit(files)
    assert [zone.among for zone in verdicts.zones] == [int(np.ceil(0.7 * (N - 5))), N - 5]
    result = filter(dataset[0], None, max_bad_rate="2%", audit=files, dry_run=True)
    assert result.kept > 0.6 * N


def test_label_studio_brings_verdicts_back(dataset, audit, tmp_path):
    path = tmp_path / "asked.audit.csv"
    review_plan(dataset[0], path, "unc_made_up", max_bad_rate="2%", images=200)
    keys = [line["key"] for line in csv.DictReader(path.open())]
    assert run("filter", dataset[0], "--keys", path, "-o", tmp_path / "asked.parquet").exit_code == 0
    exported = run(
        "export",
        tmp_path / "asked.parquet",
        "--to",
        "label-studio",
        "-o",
        tmp_path / "tasks.json",
    )
    assert exported.exit_code == 0, exported.output
    tasks = json.loads((tmp_path / "tasks.json").read_text())
    assert len(tasks) == 200
    for number, task in enumerate(tasks):
        verdict = "bad" if dataset[1][task["data"]["curate_key"]] else "good"
        result = [{"from_name": "label", "to_name": "image", "type": "choices", "value": {"choices": [verdict]}}]
        task["annotations"] = [{"id": number, "completed_by": 1, "result": result}]
    (tmp_path / "done.json").write_text(json.dumps(tasks))
    verdicts = read_audit([path, tmp_path / "done.json"])
    assert {each.key: each.badness for each in verdicts.judged} == {key: float(dataset[1][key]) for key in keys}


def test_what_verdicts_show_without_the_table(dataset, audit):
    read = read_verdicts([audit(images=600)])
    truth = np.mean(list(dataset[1].values())[: N - 5])
    assert read.bad.low < truth < read.bad.high
    assert list(read.kept) == [0.01, 0.02, 0.05, 0.1]
    assert sorted(read.kept.values()) == list(read.kept.values())
    assert "at most bad" in str(read)


def test_a_range_without_a_verdict_leaves_the_share_unknown(dataset, audit, drawn, tmp_path):
    blank = tmp_path / "blank.audit.csv"
    blank.write_text(drawn(column="unc_made_up", max_bad_rate="2%", images=100, seed=2))
    read = read_verdicts([audit(keep="50%", images=200), blank])
    assert read.to_json()["bad"]["value"] is None
    assert 0 <= read.bad.low < read.bad.high
    assert "nan" not in str(read)
    assert "unknown" in str(read)


def test_on_average_is_another_promise(dataset, audit):
    path = audit(images=200)
    average = filter(dataset[0], None, max_bad_rate="2%", audit=path, promise="average", dry_run=True)
    sure = filter(dataset[0], None, max_bad_rate="5%", audit=path, dry_run=True)
    assert average.kept > 0
    assert sure.kept > 0


def refused(*line):
    result = run(*line)
    assert result.exit_code == 1, result.output
    assert result.output.count("\n") == 1
    return result.output


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
    assert "no number of verdicts like these would suffice" in text


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda lines: lines[0].update(key="stranger"), "not in the table: 'stranger'"),
        (lambda lines: lines[0].update(value="0.5"), "was 0.5 when it was drawn"),
        (lambda lines: lines[0].update(rank="x"), "expected a number in column 'rank'"),
        (lambda lines: lines[0].update(rank="9999"), "expected a rank from 1 to"),
        (lambda lines: lines[0].update(image=lines[1]["image"]), "occurs twice"),
        (lambda lines: lines[0].update(key=lines[1]["key"]), "expected each key once"),
        (lambda lines: lines.pop(), "pass the file as it was drawn"),
        (lambda lines: [line.update(answer="") for line in lines], "expected verdicts on the 500 images"),
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
        (("--max-bad-rate", "2%"), "draw one with curate review plan"),
        (("--max-bad-rate", "0", "--audit", "AUDIT"), "a share above 0 and below 1"),
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
        (("--max-bad-rate", "2%", "--expected", "3%"), "no number of images shows"),
        (("--max-bad-rate", "0.1%"), "would have to be judged"),
        (("--max-bad-rate", "2%", "--images", "0"), "--images takes 1 to 1,000"),
        (("--max-bad-rate", "2%", "-o", "kept.csv"), "expected a name such as kept.audit.csv"),
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


def test_a_drawn_sample_is_judged_on_the_page_and_what_is_taken_out_is_the_contrary(dataset, tmp_path):
    path = tmp_path / "a.audit.csv"
    review_plan(dataset[0], path, "unc_made_up", max_bad_rate="2%", images=60)
    keys = [line["key"] for line in csv.DictReader(path.open())]
    with serving(dataset[0], results=[path], reviewer="ann") as server:
        shown = []
        while groups := queue(server):
            items = call(server, f"group?id={groups[0]['id']}")[1]["items"]
            assert {item["why"] for item in items} == {""}  # no score is shown
            shown += [item["key"] for item in items]
            bad = [item["row"] for item in items if dataset[1][item["key"]]]
            act(server, "keep", groups[0]["id"], out=bad)
        act(server, "undo")
        assert queue(server)[0]["n"] == len(bad)
        act(server, "drop", queue(server)[0]["id"])
    assert shown == keys
    judged = {verdict.key: verdict.badness for verdict in read_audit([path]).judged}
    assert judged == {key: float(dataset[1][key]) for key in keys}


def test_pairs_and_pictures_are_told_apart(dataset, audit, tmp_path):
    shown = run("review", "verdicts", audit())
    assert shown.exit_code == 0
    assert "500 drawn" in shown.output
    assert "--target-precision is for pairs" in refused("review", "verdicts", audit("b"), "--target-precision", "0.9")
    (tmp_path / "pairs.csv").write_text("pair,key_a\n")
    assert "key_b" in refused("review", "verdicts", tmp_path / "pairs.csv")
