"""From a drawn audit with answers to a filter with a promise."""

import csv

import numpy as np
import pyarrow.parquet as pq
from audited_tables import N, run

from curate.policies.audit.draw import review_plan
from curate.policies.audit.verdicts import read_audit
from curate.policies.filter.policy import filter
from curate.policies.sampled import verdicts_beside
from curate.policies.verify import verify
from curate.statistics.guarantee import Sampled, guaranteed_cut


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


def test_the_filter_keeps_what_the_definition_gives_and_verifies(dataset, audit, tmp_path):
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
    assert "after all other rules" in refused.output


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


def test_on_average_is_another_promise(dataset, audit):
    path = audit(images=200)
    average = filter(dataset[0], None, max_bad_rate="2%", audit=path, promise="average", dry_run=True)
    sure = filter(dataset[0], None, max_bad_rate="5%", audit=path, dry_run=True)
    assert average.kept > 0
    assert sure.kept > 0
