"""``curate review``: groups, decisions and the file that holds them, over HTTP as the page uses it."""

import json
import os
import shutil
import stat

import polars as pl
import pytest
from reviewed_table import GOOD, GREY, RED, N, act, call, queue, serving, write_table

import curate
from curate.policies.verdicts import answer_of, read_verdicts
from scoring.errors import InputError


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("review")
    write_table(folder)
    return folder


@pytest.fixture
def table(made, tmp_path):
    shutil.copy(made / "scores.parquet", tmp_path / "scores.parquet")
    return tmp_path / "scores.parquet"


def verdicts(table):
    return table.with_name("scores.verdicts.jsonl")


def rows(server, group):
    return {item["row"] for item in call(server, f"group?id={group}")[1]["items"]}


def kept(table, **options):
    out = table.with_name("final.parquet")
    curate.filter(table, out, verdicts=verdicts(table), overwrite=True, **options)
    return pl.read_parquet(out)


def test_like_suspicions_come_in_one_group_the_largest_consequence_first(table):
    with serving(table) as server:
        groups = queue(server)
        assert [(each["kind"], each["n"]) for each in groups] == [("junk", GREY), ("junk", RED)]
        assert [each["words"][-6:] for each in groups] == ["1 of 2", "2 of 2"]
        assert rows(server, groups[0]["id"]) == set(range(GREY))
        assert call(server, "state")[1]["remaining"] == GREY + RED
    assert not verdicts(table).exists()


def test_images_taken_out_of_a_drop_come_last_and_those_taken_out_of_a_keep_first(table):
    with serving(table) as server:
        grey, red = (each["id"] for each in queue(server))
        state = act(server, "drop", grey, out=[0, 3])[1]
        assert [(each["id"], each["n"]) for each in state["queue"]] == [(red, RED), (grey, 2)]
        act(server, "undo")
        act(server, "keep", red, out=[GREY, GREY + 1])
        act(server, "drop", grey, out=list(range(3)))
        assert [(each["id"], each["n"]) for each in queue(server)] == [(red, 2), (grey, 3)]


def test_a_group_is_split_into_images_that_are_likely_junk_and_others_before_it_is_by_what_they_show(table):
    frame = pl.read_parquet(table).with_row_index("row")
    doubtful = pl.when((pl.col("row") < GREY) & (pl.col("row") % 3 == 1)).then(0.55).otherwise("p_junk")
    frame.with_columns(p_junk=doubtful.cast(pl.Float32)).drop("row").write_parquet(table)
    with serving(table) as server:
        act(server, "split", queue(server)[0]["id"])
        parts = [rows(server, each["id"]) for each in queue(server)]
    junk = {*range(GREY + RED)}
    assert {1, 4, 7, 10} in parts
    assert junk - {1, 4, 7, 10} in parts or {row for row in range(GREY) if row % 3 != 1} in parts


def test_decisions_are_on_the_disk_and_filter_applies_them_and_verify_checks_them(table):
    with serving(table, reviewer="ann") as server:
        grey, red = (each["id"] for each in queue(server))
        status, state = act(server, "drop", grey, out=[0, 3])
        assert (status, state["dropped"], state["remaining"]) == (200, GREY - 2, RED + 2)
        assert rows(server, grey) == {0, 3}
        act(server, "keep", grey)
        act(server, "relabel", red, label="dog")
        assert queue(server) == []
    lines = [json.loads(line) for line in verdicts(table).read_text().splitlines()]
    assert [line["verdict"] for line in lines] == ["begin", "drop", "keep", "relabel"]
    assert {line["reviewer"] for line in lines} == {"ann"}
    frame, final = pl.read_parquet(table), kept(table)
    gone = set(range(GREY)) - {0, 3}
    assert final["key"].to_list() == [key for row, key in enumerate(frame["key"]) if row not in gone]
    expected = ["dog" if GREY <= row < GREY + RED else label for row, label in enumerate(frame["label"])]
    assert final["label"].to_list() == [label for row, label in enumerate(expected) if row not in gone]
    assert final["source_label"].to_list() == [label for row, label in enumerate(frame["label"]) if row not in gone]
    receipt = table.with_name("final.receipt.json")
    assert curate.verify(receipt).identical
    with serving(table, reviewer="ann") as server:  # the file may grow, and not change
        act(server, "undo")
    assert curate.verify(receipt).identical
    verdicts(table).write_text(verdicts(table).read_text().replace('"dog"', '"cat"', 1))
    assert not curate.verify(receipt).identical


def test_what_was_decided_is_there_again_in_the_next_session_and_can_be_undone(table):
    with serving(table) as server:
        grey, red = (each["id"] for each in queue(server))
        act(server, "drop", red)
        act(server, "split", grey)
        parts = queue(server)
        assert sum(each["n"] for each in parts) == GREY
        assert len({each["words"] for each in parts}) == 2
    with serving(table) as server:
        assert queue(server) == parts
        act(server, "undo")
        assert [each["id"] for each in queue(server)] == [grey]
        act(server, "undo")
        assert [each["id"] for each in queue(server)] == [grey, red]
        assert call(server, "state")[1]["can_undo"] is False
    assert kept_nothing(table)


def kept_nothing(table):
    with pytest.raises(InputError, match="no verdict"):
        curate.filter(table, None, verdicts=verdicts(table), dry_run=True)
    return True


def test_a_window_that_is_behind_decides_nothing(table):
    with serving(table) as first, serving(table) as other:
        grey = queue(first)[0]["id"]
        old = call(other, "state")[1]["seq"]
        act(first, "drop", grey)
        status, said = call(other, "decide", {"seq": old, "action": "keep", "group": grey})
        assert status == 409
        assert "another window" in said["error"]
        assert call(other, "state")[1]["dropped"] == GREY
        assert call(first, "decide", {"seq": 0, "action": "keep", "group": grey})[0] == 409
    assert [line.verdict for line in read_verdicts(verdicts(table)).all] == ["begin", "drop"]


def test_a_line_that_was_cut_off_is_left_out_reported_and_overwritten(table):
    with serving(table) as server:
        grey, red = (each["id"] for each in queue(server))
        act(server, "drop", grey)
        act(server, "drop", red)
    content = verdicts(table).read_bytes()
    verdicts(table).write_bytes(content[:-30])
    result = curate.filter(table, None, verdicts=verdicts(table), dry_run=True)
    assert result.dropped == GREY
    assert any("cut off" in note for note in result.notes)
    with serving(table) as server:
        assert any("cut off" in note for note in server.site.notes)
        assert [each["id"] for each in queue(server)] == [red]
        act(server, "drop", red)
    assert curate.filter(table, None, verdicts=verdicts(table), dry_run=True).dropped == GREY + RED


def test_reviewers_who_disagree_are_listed_and_a_later_one_does_not_win_in_silence(table):
    for reviewer, action in (("ann", "drop"), ("bob", "keep")):
        with serving(table, reviewer=reviewer, verdicts=table.with_name(reviewer)) as server:
            act(server, action, queue(server)[0]["id"], out=list(range(4, GREY)))
    both = table.with_name("ann").read_text() + table.with_name("bob").read_text()
    verdicts(table).write_text(both)
    with pytest.raises(InputError, match=r"4 images.*ann .*drop, bob .*keep"):
        curate.filter(table, None, verdicts=verdicts(table), dry_run=True)
    with serving(table, reviewer="cleo") as server:
        first = queue(server)[0]
        assert (first["kind"], first["n"]) == ("reviewers-disagree", 4)
        act(server, "keep", first["id"])
        assert "reviewers-disagree" not in [each["kind"] for each in queue(server)]
    assert curate.filter(table, None, verdicts=verdicts(table), dry_run=True).dropped == 0


def test_lines_count_by_their_place_whatever_their_time(table):
    with serving(table) as server:
        act(server, "drop", queue(server)[0]["id"])
        act(server, "undo")
    lines = [json.loads(line) for line in verdicts(table).read_text().splitlines()]
    lines[-1]["when"] = "1970-01-01T00:00:00+00:00"
    verdicts(table).write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert kept_nothing(table)


def test_verdicts_of_another_table_are_refused_and_those_on_images_that_are_gone_or_changed_are_counted(table):
    with serving(table) as server:
        act(server, "drop", queue(server)[0]["id"])
    frame = pl.read_parquet(table)
    other = table.with_name("other.parquet")
    frame.with_columns(sha256=pl.lit("0" * 64)).write_parquet(other)
    with pytest.raises(InputError, match="another table"):
        curate.filter(other, None, verdicts=verdicts(table), dry_run=True)
    with pytest.raises(InputError, match="another table"):
        curate.review(other, verdicts=verdicts(table))
    changed = pl.when(pl.col("key") == "img/001.png").then(pl.lit("0" * 64)).otherwise("sha256")
    frame[1:].with_columns(sha256=changed).write_parquet(other)
    result = curate.filter(other, None, verdicts=verdicts(table), dry_run=True)
    assert result.dropped == GREY - 2
    said = " ".join(note for note in result.notes)
    assert "table does not have" in said
    assert "images that changed" in said


def test_a_column_that_the_table_does_not_have_is_refused_at_the_start(table):
    with pytest.raises(InputError, match="'nope'"):
        curate.review(table, column="nope")


@pytest.mark.parametrize("text", ["no json", "[1]", '{"session": 1}', "{}", '{"verdict": "burn"}'])
def test_what_is_no_verdict_is_named_by_its_line(table, text):
    verdicts(table).write_text(text + "\n")
    for use in (lambda: curate.review(table), lambda: curate.filter(table, None, verdicts=verdicts(table))):
        with pytest.raises(InputError, match=r"line 1 of .*scores\.verdicts\.jsonl"):
            use()


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="a user whom folders refuse")
def test_a_folder_that_is_read_only_is_refused_at_the_start_and_can_be_browsed(table):
    table.parent.chmod(stat.S_IRUSR | stat.S_IXUSR)
    try:
        with pytest.raises(InputError, match="permission denied"):
            curate.review(table)
        curate.review(table, browse=True, points=0).server_close()
    finally:
        table.parent.chmod(stat.S_IRWXU)


def test_a_random_sample_bounds_the_share_of_bad_images_that_are_kept(table):
    with serving(table) as server:
        act(server, "drop", queue(server)[0]["id"])
        shown = [item["row"] for item in call(server, "sample")[1]["items"]]
        assert set(shown) == set(range(GREY, N))
        bad = [row for row in shown if row < GREY + 3]
        good = [row for row in shown[:30] if row not in bad]
        seq = call(server, "state")[1]["seq"]
        status, state = call(server, "judge", {"seq": seq, "good": good, "bad": bad})
        assert (status, state["dropped"]) == (200, GREY + len(bad))
        audit = state["audit"]
        assert (audit["n"], audit["bad"], audit["of"]) == (len(good) + len(bad), len(bad), RED + GOOD)
        unseen = RED + GOOD - audit["n"]
        assert len(bad) / audit["of"] <= audit["at_most"] <= (len(bad) + unseen) / audit["of"]
        assert call(server, "judge", {"seq": state["seq"], "good": [0], "bad": []})[0] == 409


@pytest.mark.parametrize(
    ("sent", "headers", "status"),
    [
        ({"seq": 0, "action": "burn", "group": "x"}, {}, 409),
        ({"seq": "0", "action": "keep", "group": "x"}, {}, 409),
        ({"seq": 0, "action": "keep", "group": "no such group"}, {}, 409),
        ({"seq": 0, "action": "keep", "group": "x", "out": ["1"]}, {}, 409),
        ([], {}, 409),
        ({"seq": 0, "action": "undo"}, {"Origin": "http://example.org"}, 403),
        ({"seq": 0, "action": "undo"}, {"Content-Type": "text/plain"}, 403),
        ({"seq": 0, "action": "undo"}, {"Host": "example.org"}, 403),
        ({"seq": 0, "action": "undo"}, {"Content-Length": "99999999"}, 413),
    ],
)
def test_what_is_no_decision_of_this_page_writes_nothing(table, sent, headers, status):
    with serving(table) as server:
        assert call(server, "decide", sent, **headers)[0] == status
    assert not verdicts(table).exists()


def test_undecided_rows_are_a_group_and_those_that_are_kept_stay_in_the_next_filter(table):
    frame = pl.read_parquet(table).with_row_index("row")
    score = pl.when(pl.col("row") >= N - 3).then(None).otherwise(pl.lit(0.2)).cast(pl.Float32)
    frame.with_columns(unc_x=score, p_junk=pl.lit(0.1, pl.Float32)).drop("row").write_parquet(table)
    curate.filter(table, table.with_name("kept.parquet"), max=0.5, column="unc_x")
    with serving(table, results=[table.with_name("kept.parquet")]) as server:
        groups = queue(server)
        assert [(each["kind"], each["n"]) for each in groups] == [("undecided", 3)]
        act(server, "keep", groups[0]["id"], out=[N - 1])
    assert len(kept(table, max=0.5, column="unc_x")) == N - 1


@pytest.fixture
def near_copies(table):
    """A cleaned folder that lists a pair of images, of which the first may be a copy."""
    folder = table.parent / "cleaned"
    (folder / "steps").mkdir(parents=True)
    (folder / "review").mkdir()
    shutil.copy(table, folder / "steps/score.parquet")
    (folder / "curate.toml").write_text("[score]\n")
    curate.filter(folder / "steps/score.parquet", folder / "subset.parquet", max=0.95, column="p_junk")
    list_pair(folder, "img/030.png", "img/031.png")
    return folder


def list_pair(folder, key, like):
    lines = ["kind,key,value,finding,like,decided", f"near-copy,{key},0.97,like {like},{like},"]
    lines += [f"near-copy,{like},0.97,like {key},,"]
    (folder / "review/findings.csv").write_text("\n".join(lines) + "\n")


def test_a_judged_pair_is_not_shown_again_where_the_other_image_is_the_copy(near_copies):
    def near(server):
        return [each["id"] for each in queue(server) if each["kind"] == "near-copy"]

    with serving(near_copies) as server:
        act(server, "keep", near(server)[0])
    pair = "img/031.png", "img/030.png"
    list_pair(near_copies, *pair)
    decisions = read_verdicts(near_copies / "subset.verdicts.jsonl").decisions()
    assert [answer_of(decisions, "copy", *each) for each in (pair, pair[::-1], ("img/031.png", ""))] == [
        "keep",
        "keep",
        "",
    ]
    with serving(near_copies) as server:
        assert not near(server)
        act(server, "undo")
        assert near(server)


def test_near_copies_that_a_cleaning_listed_are_shown_next_to_the_image_they_are_like(table, near_copies):
    folder = near_copies
    with serving(folder) as server:
        near = next(each for each in queue(server) if each["kind"] == "near-copy")
        assert (near["n"], near["question"]) == (1, "copy")
        item = call(server, f"group?id={near['id']}")[1]["items"][0]
        assert (item["key"], item["beside"]["key"]) == ("img/030.png", "img/031.png")
        act(server, "drop", near["id"])
    assert (folder / "subset.verdicts.jsonl").is_file()
    final = folder / "final.parquet"
    curate.filter(folder / "subset.parquet", final, verdicts=folder / "subset.verdicts.jsonl")
    assert set(pl.read_parquet(table)["key"]) - set(pl.read_parquet(final)["key"]) == {"img/030.png"}


def test_a_file_of_another_kind_is_no_damaged_file_of_verdicts(tmp_path):
    (tmp_path / "findings.csv").write_text("key,kind\na.jpg,junk\n")
    with pytest.raises(InputError, match=r"line 1 .*verdicts\.jsonl"):
        read_verdicts(tmp_path / "findings.csv")
