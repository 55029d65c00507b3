"""A table grows with its source: what is new is scored, every other row stays, and the order is the source's."""

import os
import shutil
from functools import partial

import numpy as np
import pyarrow as pa
import pytest
from growing import FIRST, PLAIN, draw, grow
from runs import SMALL

from curate.engines.journal import WorkFolder
from curate.engines.score import score
from curate.tables.table import open_table
from scoring.errors import InputError
from scoring.images import decoders


def rows_of(path):
    return {row["key"]: row for row in open_table(path).read().to_pylist()}


def assert_same_scores(first, second):
    """Equal rows in equal order; scores to the last digits, which the images of a batch decide."""
    first, second = open_table(first), open_table(second)
    assert first.schema == second.schema
    left, right = first.read(), second.read()
    for name in left.column_names:
        a, b = left[name].combine_chunks(), right[name].combine_chunks()
        if pa.types.is_floating(a.type):
            np.testing.assert_allclose(a.to_numpy(zero_copy_only=False), b.to_numpy(zero_copy_only=False), rtol=1e-3)
        elif name == "embedding":
            np.testing.assert_allclose(np.array(a.to_pylist()), np.array(b.to_pylist()), atol=2e-3)
        else:
            assert a.equals(b), name
    without = {"additions", "fit"}
    assert {k: v for k, v in first.metadata.items() if k not in without} == {
        k: v for k, v in second.metadata.items() if k not in without
    }


@pytest.mark.parametrize("name", ["t.parquet", "t"])
def test_a_table_that_grew_matches_the_whole_source_and_its_rows_of_before_are_untouched(
    photos, tiny_checkpoint, tmp_path, name
):
    out, said = tmp_path / name, []
    score(photos, out, model=tiny_checkpoint, **PLAIN)
    before = rows_of(out)
    grow(photos, 1, 7, 13, 19, 21, 22, 23, 24, 25, 26)
    result = score(photos, out, add=True, announce=said.append)
    assert (result.rows, result.resumed, result.statuses) == (24, 14, {"ok": 24})
    assert "24 images: 14 known, 10 new, 0 changed, 0 gone" in said
    assert {key: rows_of(out)[key] for key in before} == before
    score(photos, tmp_path / f"whole-{name}", model=tiny_checkpoint, **PLAIN)
    assert_same_scores(out, tmp_path / f"whole-{name}")
    assert open_table(out).metadata["additions"] == [{"new": 10, "changed": 0, "again": 0, "gone": 0}]
    assert [p.name for p in tmp_path.glob(".*")] == []


def test_only_new_and_changed_images_are_decoded(photos, table, monkeypatch):
    seen, real = [], decoders.decode
    monkeypatch.setattr(decoders, "decode", lambda data, *a, **k: seen.append(1) or real(data, *a, **k))
    grow(photos, 1, 4)
    draw(photos / "02.png", 77)
    before = rows_of(table)
    score(photos, table, add=True)
    after = rows_of(table)
    assert len(seen) == 3
    assert after["02.png"]["sha256"] != before["02.png"]["sha256"]
    assert {k: after[k] for k in before if k != "02.png"} == {k: before[k] for k in before if k != "02.png"}


def test_a_file_under_another_name_keeps_its_scores_and_has_the_label_of_its_new_folder(
    photos, tiny_checkpoint, tmp_path, monkeypatch
):
    for number in FIRST:
        (photos / "ab"[number % 2]).mkdir(exist_ok=True)
        (photos / f"{number:02}.png").rename(photos / "ab"[number % 2] / f"{number:02}.png")
    for name in ("copy", "copy2"):
        shutil.copy(photos / "b/11.png", photos / f"b/{name}.png")
    table = tmp_path / "s.parquet"
    score(photos, table, model=tiny_checkpoint, label_from_folder=True, **PLAIN)
    before, said, seen, real = rows_of(table), [], [], decoders.decode
    now_of = {"a/02.png": "c/new.png", "b/03.png": "b/05.png", "b/05.png": "b/03.png", "b/copy2.png": "a/00.png"}
    (photos / "a/00.png").unlink()  # another one takes its name
    (photos / "c").mkdir()
    for key, now in now_of.items():
        (photos / key).rename(photos / f"{now}.moving")
    for now in now_of.values():
        (photos / f"{now}.moving").rename(photos / now)
    (photos / "a/06.png").unlink()
    draw(photos / "a/edited.png", 66)  # 06 was renamed and changed
    monkeypatch.setattr(decoders, "decode", lambda data, *a, **k: seen.append(1) or real(data, *a, **k))
    score(photos, table, add=True, announce=said.append)
    after = rows_of(table)
    assert (len(seen), "15 images: 14 known, 4 of them renamed, 1 new, 0 changed, 1 gone" in said) == (1, True)
    for key, now in now_of.items():
        expected = before[key] | {"key": now, "uri": str(photos / now), "label": now[0]}
        assert after[now] == expected
    same = before.keys() - now_of.keys() - {"a/00.png", "a/06.png"}
    assert {key: after[key] for key in same} == {key: before[key] for key in same}
    assert sorted(after) == sorted([*same, *now_of.values(), "a/06.png", "a/edited.png"])
    assert after["a/06.png"]["status"] == "gone"
    assert open_table(table).metadata["additions"][0]["renamed"] == 4
    state = table.read_bytes()
    score(photos, table, add=True)
    assert table.read_bytes() == state
    photos.rename(tmp_path / "inside")
    photos.mkdir()
    (tmp_path / "inside").rename(photos / "inside")  # no key is as it was
    assert score(photos, table, add=True).resumed == 16
    assert len(seen) == 1


def test_nothing_new_leaves_the_file_alone(photos, table):
    state, said = (table.read_bytes(), table.stat()), []
    result = score(photos, table, add=True, announce=said.append)
    assert result.resumed == result.rows == len(FIRST)
    assert any("nothing new" in line for line in said)
    now = table.stat()
    assert (table.read_bytes(), now.st_ino, now.st_mtime_ns) == (state[0], state[1].st_ino, state[1].st_mtime_ns)
    assert [p.name for p in table.parent.glob(".*")] == []


def test_an_image_that_is_gone_stays_as_a_row_without_scores_where_it_stood_and_may_come_back(photos, table, tmp_path):
    before = rows_of(table)
    (photos / "05.png").rename(tmp_path / "away.png")
    (photos / "00.png").unlink()
    grow(photos, 4)
    assert score(photos, table, add=True).statuses == {"ok": 13, "gone": 2}
    after = rows_of(table)
    order = (0, 2, 3, 5, 4, 6, *FIRST[5:])  # 05 stays after 03, which it stood after
    assert list(after) == [f"{number:02}.png" for number in order]
    row = after["05.png"]
    assert (row["status"], row["sha256"], row["uri"]) == ("gone", before["05.png"]["sha256"], before["05.png"]["uri"])
    assert row["embedding"] is row["kappa_visimsiam"] is row["phash"] is row["quality_noise"] is None
    state = table.read_bytes()
    score(photos, table, add=True)
    assert table.read_bytes() == state  # gone is not gone again
    (tmp_path / "away.png").rename(photos / "05.png")
    said = []
    score(photos, table, add=True, announce=said.append)
    assert "14 images: 13 known, 0 new, 1 changed, 0 gone" in said
    back = rows_of(table)["05.png"]
    assert back["status"] == "ok"
    np.testing.assert_allclose(back["kappa_visimsiam"], before["05.png"]["kappa_visimsiam"], rtol=1e-3)
    assert score(photos, table, model=open_table(table).metadata["request"]["model"], **PLAIN).rows == 15


def test_a_file_with_another_time_and_the_same_bytes_is_known(photos, table):
    os.utime(photos / "03.png", ns=(1, 1_000_000_000))  # a clock that jumped back decades
    before, said = rows_of(table), []
    score(photos, table, add=True, announce=said.append)
    assert "14 images: 14 known, 0 new, 0 changed, 0 gone" in said
    assert rows_of(table) == {**before, "03.png": {**before["03.png"], "mtime": 1_000_000_000}}
    state = table.read_bytes()
    score(photos, table, add=True, announce=said.append)
    assert (table.read_bytes() == state, sum("comparing" in line for line in said)) == (True, 1)


def test_images_that_moved_are_known_and_the_table_gets_their_paths(photos, table):
    (photos / "05.png").unlink()
    moved, before, said = photos.rename(photos.with_name("archive")), rows_of(table), []
    grow(moved, 1)
    score(moved, table, add=True, announce=said.append)
    assert "14 images: 13 known, 1 new, 0 changed, 1 gone" in said
    after = rows_of(table)
    assert after.pop("05.png")["uri"] == before.pop("05.png")["uri"]
    assert {key: row["uri"] for key, row in after.items()} == {key: str(moved / key) for key in [*before, "01.png"]}
    assert {key: {**after[key], "uri": before[key]["uri"]} for key in before} == before
    state = table.read_bytes()
    score(moved, table, add=True)
    assert table.read_bytes() == state


def test_another_image_of_the_same_size_and_time_is_found_by_check_alone(photos, table):
    path = photos / "03.png"
    state = path.stat()
    data = bytearray(path.read_bytes())
    data[-5] ^= 255  # the checksum of the last chunk
    path.write_bytes(bytes(data))
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))
    assert score(photos, table, add=True).resumed == 14
    assert score(photos, table, add=True, check=True).resumed == 13
    assert score(photos, table, add=True, check=True).resumed == 14


def test_a_table_that_notes_no_times_is_compared_by_sha256(photos, table):
    import pyarrow.parquet as pq

    pq.write_table(pq.read_table(table).drop_columns(["mtime"]), table)
    before = rows_of(table)
    said = []
    grow(photos, 1)
    score(photos, table, add=True, announce=said.append)
    assert any("14 known images" in line and "sha256" in line for line in said)
    after = rows_of(table)
    assert {key: {k: v for k, v in after[key].items() if k != "mtime"} for key in before} == before
    assert after["03.png"]["mtime"] == (photos / "03.png").stat().st_mtime_ns


def test_failed_rows_are_read_again_as_in_a_repeat(photos, tiny_checkpoint, tmp_path):
    listed, out = tmp_path / "list.txt", tmp_path / "s.parquet"
    listed.write_text("".join(f"photos/{number:02}.png\n" for number in (*FIRST, 30)))
    (photos / "02.png").write_bytes(b"an error page")
    once = partial(score, listed, out, add=True)
    assert score(listed, out, model=tiny_checkpoint, **PLAIN).statuses["missing"] == 1
    assert once().resumed == 15
    grow(photos, 30)
    result = once()
    assert (result.resumed, result.statuses) == (14, {"ok": 14, "not_an_image": 1})
    said = []
    once(retry=["not_an_image"], announce=said.append)
    assert any("1 row again" in line for line in said)


def test_a_list_keeps_its_order_and_a_file_that_is_gone_is_gone_though_listed(photos, tiny_checkpoint, tmp_path):
    listed, out = tmp_path / "list.txt", tmp_path / "s.parquet"
    listed.write_text("".join(f"photos/{number:02}.png\n" for number in FIRST))
    score(listed, out, model=tiny_checkpoint, **PLAIN)
    before = rows_of(out)
    (photos / "08.png").unlink()
    grow(photos, 40)
    turned = [40, *reversed(FIRST)]
    listed.write_text("".join(f"photos/{number:02}.png\n" for number in turned))
    assert score(listed, out, add=True).statuses == {"ok": 14, "gone": 1}
    after = rows_of(out)
    assert list(after) == [f"photos/{number:02}.png" for number in turned]
    assert after["photos/08.png"]["status"] == "gone"
    same = [key for key in before if key != "photos/08.png"]
    assert {key: after[key] for key in same} == {key: before[key] for key in same}


def test_columns_of_the_user_stay_and_new_rows_have_those_of_the_source(photos, tiny_checkpoint, tmp_path):
    listed, out = tmp_path / "list.csv", tmp_path / "s.parquet"
    listed.write_text("name,file,stars\n" + "".join(f"n{n},photos/{n:02}.png,{n % 3}\n" for n in FIRST))
    score(listed, out, model=tiny_checkpoint, **PLAIN, key="name")
    table = open_table(out)
    import pyarrow.parquet as pq

    read = pq.read_table(out)
    pq.write_table(read.append_column("mine", pa.array(range(14))).replace_schema_metadata(read.schema.metadata), out)
    grow(photos, 1)
    with listed.open("a") as file:
        file.write("n1,photos/01.png,7\n")
    score(listed, out, add=True, announce=(said := []).append)  # by the key of before
    after = rows_of(out)
    assert (after["n1"]["stars"], after["n1"]["mine"], after["n0"]["mine"]) == (7, None, 0)
    assert any("mine" in line for line in said)
    assert table.metadata["request"]["key"] == "name"
    text = listed.read_text().replace("00.png,0", "00.png,5").replace("02.png,2", "02.png,")
    for stars, words in ((text, "2 of them"), (text, "nothing new")):
        listed.write_text(stars)
        score(listed, out, add=True, announce=(said := []).append)
        assert any(words in line for line in said)
        edited = {"n0": {"stars": 5}, "n2": {"stars": None}}
        assert rows_of(out) == {key: row | edited.get(key, {}) for key, row in after.items()}
    listed.write_text(text.replace("00.png,5", "00.png,many"))
    with pytest.raises(InputError, match=r"'stars' holds int64 .*string"):
        score(listed, out, add=True)
    grow(photos, 4)
    listed.write_text(text + "n4,photos/04.png,many\n")
    with pytest.raises(InputError, match="'stars' holds int64"):  # before anything is scored
        score(listed, out, add=True, report=lambda progress: pytest.fail(str(progress)))


def test_values_that_change_after_an_addition_was_stopped_match_the_source(photos, tiny_checkpoint, tmp_path):
    listed, out = tmp_path / "list.csv", tmp_path / "s.parquet"
    text = "file,stars\n" + "".join(f"photos/{n:02}.png,{n}\n" for n in FIRST)
    listed.write_text(text)
    score(listed, out, model=tiny_checkpoint, **PLAIN)
    new = range(30, 42)
    grow(photos, *new)

    def stop(progress):
        if progress.done > 8:  # shards are finished
            raise KeyboardInterrupt

    for stars in ("1", "7", "2.5"):
        listed.write_text(text + "".join(f"photos/{n:02}.png,{stars}\n" for n in new))
        if stars != "2.5":
            with pytest.raises(KeyboardInterrupt):
                score(listed, out, add=True, report=stop)
    score(listed, out, add=True)
    assert [rows_of(out)[f"photos/{n:02}.png"]["stars"] for n in (*new, 5)] == [2.5] * 12 + [5]


def test_a_source_that_has_other_columns_later_changes_those_of_known_rows(photos, tiny_checkpoint, tmp_path):
    listed, out, said = tmp_path / "list.csv", tmp_path / "s.parquet", []
    listed.write_text("file,stars,label\n" + "".join(f"photos/{n:02}.png,{n},\n" for n in FIRST))
    score(listed, out, model=tiny_checkpoint, **PLAIN)
    before = rows_of(out)
    listed.write_text("file,stars,split\n" + "".join(f"photos/{n:02}.png,{n / 2},s{n % 2}\n" for n in FIRST[1:]))
    score(listed, out, add=True, announce=said.append)
    expected = {key: row | {"split": f"s{row['stars'] % 2}", "stars": row["stars"] / 2} for key, row in before.items()}
    gone, *kept = [row | {"mtime_ns": None} for row in rows_of(out).values()]
    assert (gone["status"], gone["stars"], gone["split"]) == ("gone", 0, None)
    assert kept == [row | {"mtime_ns": None} for row in expected.values()][1:]
    assert [any(name in line for line in said) for name in ("split", "label")] == [True, True]
    listed.write_text("file,label\n" + "".join(f"photos/{n:02}.png,l{n % 2}\n" for n in FIRST))
    assert score(listed, out, add=True).statuses == {"ok": 14}
    assert rows_of(out)["photos/03.png"] == expected["photos/03.png"] | {"label": "l1"}


def test_classes_of_folders_come_to_a_table_that_was_scored_without(photos, tiny_checkpoint, tmp_path):
    for name in "01":
        (photos / name).mkdir()
    for number in FIRST:
        (photos / f"{number:02}.png").rename(photos / str(number % 2) / f"{number:02}.png")
    out, whole, said = tmp_path / "s.parquet", tmp_path / "whole.parquet", []
    score(photos, out, model=tiny_checkpoint, **PLAIN)
    draw(photos / "1/19.png", 19)
    score(photos, out, add=True, label_from_folder=True, announce=said.append)
    score(photos, whole, model=tiny_checkpoint, **PLAIN, label_from_folder=True)
    assert any("14 known" in line and "1 new" in line for line in said)
    assert_same_scores(out, whole)
    assert {key.split("/")[0] == row["label"] for key, row in rows_of(out).items()} == {True}


def test_classes_keep_their_numbers_and_new_ones_come_last(tiny_checkpoint, tmp_path):
    for name in ("bear", "wolf"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for number in range(4):
            draw(tmp_path / "photos" / name / f"{number}.png", number)
    out = tmp_path / "s.parquet"
    score(tmp_path / "photos", out, model=tiny_checkpoint, **PLAIN, label_from_folder=True)
    (tmp_path / "photos" / "ant").mkdir()
    draw(tmp_path / "photos" / "ant" / "0.png", 9)
    score(tmp_path / "photos", out, add=True)
    assert open_table(out).metadata["classes"]["label"] == ["bear", "wolf", "ant"]
    assert rows_of(out)["ant/0.png"]["label"] == "ant"


def test_without_a_table_all_is_new(photos, tiny_checkpoint, tmp_path):
    said = []
    score(photos, tmp_path / "n.parquet", model=tiny_checkpoint, **PLAIN, add=True, announce=said.append)
    assert open_table(tmp_path / "n.parquet").n_rows == 14
    assert any("all images are new" in line for line in said)


def test_what_a_run_left_at_its_end_is_removed_where_nothing_is_new(photos, tiny_checkpoint, tmp_path, monkeypatch):
    def dies(work):
        raise KeyboardInterrupt

    out = tmp_path / "s.parquet"
    with monkeypatch.context() as patch:
        patch.setattr(WorkFolder, "remove", dies)
        with pytest.raises(KeyboardInterrupt):
            score(photos, out, model=tiny_checkpoint, **SMALL)
    assert out.exists()
    assert list(tmp_path.glob(".s.parquet.work*"))
    before = out.read_bytes()
    score(photos, out, add=True)
    assert not list(tmp_path.glob(".s.parquet.work*"))
    assert out.read_bytes() == before
