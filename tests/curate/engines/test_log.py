"""--log: what a run did, as lines that another program reads."""

import json
import threading
from collections import Counter
from datetime import UTC, datetime, timedelta

import pyarrow.parquet as pq
import pytest
from commandline import run
from PIL import Image

from curate.engines.log import RunLog
from scoring.errors import InputError


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture
def photos(tmp_path):
    folder = tmp_path / "photos"
    folder.mkdir()
    for i in range(5):
        Image.new("RGB", (40, 40), (50 * i, 0, 99)).save(folder / f"{i}.png")
    (folder / "5.png").write_bytes(b"not an image")
    return folder


def score(photos, tiny_checkpoint, *more):
    out, log = photos.parent / "s.parquet", photos.parent / "run.jsonl"
    done = run("score", photos, "-o", out, "--model", tiny_checkpoint, "--shard-size", "2", "--log", log, *more)
    return done, out, log


def test_a_line_a_shard_adds_up_to_the_table(photos, tiny_checkpoint):
    done, out, log = score(photos, tiny_checkpoint)
    assert done.exit_code == 0, done.output
    first, begin, *shards, last = lines(log)
    assert (first["event"], begin["event"], last["event"]) == ("start", "begin", "end")
    assert [line["shard"] for line in shards] == [0, 1, 2]
    assert [line["done"] for line in shards] == [2, 4, 6]
    statuses = Counter()
    for line in shards:
        statuses.update(line["statuses"])
    assert statuses == Counter(pq.read_table(out)["status"].to_pylist()) == Counter(last["statuses"])
    assert sum(line["failed"] for line in shards) == 1
    times = [datetime.fromisoformat(line["time"]) for line in lines(log)]
    assert times == sorted(times)
    assert abs(datetime.now(UTC) - times[-1]) < timedelta(minutes=5)
    assert len({line["run"] for line in lines(log)}) == 1


def test_a_second_run_goes_on_below_the_first_also_below_a_line_that_was_cut_off(photos, tiny_checkpoint):
    _, _, log = score(photos, tiny_checkpoint)
    before = log.read_bytes()
    log.write_bytes(before + b'{"time": "2026')
    score(photos, tiny_checkpoint)
    assert log.read_bytes().startswith(before + b'{"time": "2026\n{')
    after = [json.loads(line) for line in log.read_bytes()[len(before) :].splitlines()[1:]]
    assert [line["event"] for line in after] == ["start", "end"]
    assert after[-1]["resumed"] == 6


def test_a_mistake_is_a_line_of_the_log_too(photos, tiny_checkpoint):
    done, _, log = score(photos, tiny_checkpoint, "--device", "cuda:77")
    assert done.exit_code == 1
    last = lines(log)[-1]
    assert (last["event"], last["kind"]) == ("error", "InputError")
    assert done.stderr.strip().endswith(last["message"])


@pytest.mark.parametrize("text", ["hello\n", "[1, 2]\n", '{"a": 1}\n', '{"time": 1'])
def test_a_file_that_is_no_log_is_left_alone(tmp_path, text):
    (tmp_path / "mine").write_text(text)
    with pytest.raises(InputError, match="something else"), RunLog(tmp_path / "mine"):
        pass
    assert (tmp_path / "mine").read_text() == text


def test_a_folder_and_a_place_that_is_not_there_are_refused(tmp_path):
    (tmp_path / "none").touch()
    for place in (tmp_path, tmp_path / "none" / "log"):
        with pytest.raises(InputError, match="--log"), RunLog(place):
            pass


def test_the_table_is_no_log(photos, tiny_checkpoint):
    out = photos.parent / "s.parquet"
    done = run("score", photos, "-o", out, "--model", tiny_checkpoint, "--log", out)
    assert done.exit_code == 1
    assert not out.exists()


def test_lines_of_threads_stay_whole(tmp_path):
    with RunLog(tmp_path / "log") as log:
        threads = [
            threading.Thread(target=lambda i=i: [log.write("part", i=i, text="x" * 5000) for _ in range(50)])
            for i in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert Counter(line.get("i") for line in lines(tmp_path / "log")) == {0: 50, 1: 50, 2: 50, 3: 50, None: 2}


def test_an_interrupt_is_reported(tmp_path):
    with pytest.raises(KeyboardInterrupt), RunLog(tmp_path / "log", command="score"):
        raise KeyboardInterrupt
    assert [line["event"] for line in lines(tmp_path / "log")] == ["start", "interrupted"]


def test_an_export_has_a_line_a_part(photos, tiny_checkpoint):
    _, out, log = score(photos, tiny_checkpoint)
    log.unlink()
    done = run("export", out, "--to", "folder", "-o", photos.parent / "out", "--log", log)
    assert done.exit_code == 0, done.output
    assert [line["event"] for line in lines(log)] == ["start", "part", "end"]
    assert lines(log)[1]["done"] == lines(log)[2]["rows"] == 5
