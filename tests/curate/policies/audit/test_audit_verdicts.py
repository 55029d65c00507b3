"""The verdicts on a drawn audit: how they are read, joined and given on a page."""

import csv
import json

import numpy as np
import pytest
from audited_tables import N, run
from reviewed_table import act, call, queue, serving

from curate.policies.audit.draw import review_plan
from curate.policies.audit.examine import read_verdicts
from curate.policies.audit.verdicts import read_audit
from curate.policies.filter.policy import filter
from curate.policies.sampled import BLOCK
from scoring.errors import InputError


def test_judges_are_joined_as_requested(dataset, audit, tmp_path):
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

    with pytest.raises(InputError, match=f"10 of .* {BLOCK}"):
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
    exported = run("export", tmp_path / "asked.parquet", "--to", "label-studio", "-o", tmp_path / "tasks.json")
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
