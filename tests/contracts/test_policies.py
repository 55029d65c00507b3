"""What every policy promises, whichever it is: the table decides what is tested, and a policy from outside joins it."""

import errno
import json
import os
import time
from collections import Counter
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from every_policy import ASKED, OWN, N, columns_of, decided, keys_of, run, write, written

from curate.policies.contract import POLICIES, apply
from curate.policies.decided import OUTCOMES
from curate.policies.receipts import state_of
from curate.policies.select.policy import Select
from curate.policies.verify import verify
from curate.tables.table import open_table
from scoring.errors import InputError

pytestmark = pytest.mark.usefixtures("table_with_a_policy_from_outside")


def names_in(folder):
    return sorted(path.name for path in folder.iterdir())


def test_every_policy_of_the_table_is_tested_and_is_the_one_that_its_receipt_names():
    assert set(ASKED) == set(POLICIES)
    for name, policy in ASKED.items():
        assert POLICIES[name] is type(policy)


def test_counts_decisions_and_subset_agree_and_the_table_is_not_changed(policy, scores, tmp_path):
    before = scores.read_bytes()
    result = run(policy, scores, tmp_path / "out.parquet")
    assert scores.read_bytes() == before
    counts = Counter(decided(result.decisions).values())
    assert (result.kept, result.dropped, result.undecided, result.failed) == tuple(counts[name] for name in OUTCOMES)
    assert sum(counts.values()) == result.n_rows == N
    assert 0 < result.kept < N
    assert sum(result.dropped_by.values()) == result.dropped
    assert sum(result.undecided_by.values()) == result.undecided
    assert result.failed_by == {"truncated": 3}
    assert list(decided(result.decisions)) == columns_of()["key"].to_pylist()
    kept = {key for key, decision in decided(result.decisions).items() if decision == "keep"}
    assert sorted(keys_of(result.subset)) == sorted(kept)
    if not isinstance(policy, Select):  # a choice is in the order of its ranks
        assert keys_of(result.subset) == [key for key in columns_of()["key"].to_pylist() if key in kept]
    reasons = {row["key"]: row["reason"] for row in pq.read_table(result.decisions).to_pylist()}
    assert result.examples
    assert all(each["why"] and each["reason"] == reasons[each["key"]] for each in result.examples)
    assert json.loads(json.dumps(result.to_json()))["kept"] == result.kept


def test_kept_rows_have_all_their_columns_and_the_metadata_of_the_table(policy, scores, tmp_path):
    result = run(policy, scores, tmp_path / "out.parquet")
    by_key = {row["key"]: row for row in pq.read_table(scores).to_pylist()}
    before, after = pq.read_schema(scores), pq.read_schema(result.subset)
    assert list(after)[: len(before)] == list(before)
    for row in pq.read_table(result.subset).to_pylist():
        assert {name: row[name] for name in by_key[row["key"]]} == by_key[row["key"]]
    first, second = open_table(result.subset).metadata, json.loads(result.receipt.read_text())
    assert (first["kind"], first["model"]["digest"]) == ("subset", "d")
    assert first["policy"] == second["policy"] == open_table(result.decisions).metadata["policy"]
    again = run(ASKED[OWN], result.subset, tmp_path / "again.parquet")
    assert open_table(again.subset).metadata["policy"] == [*first["policy"], {"rule": OWN, "n": 3}]


def test_the_receipt_says_what_went_in_and_what_came_out(policy, scores, tmp_path):
    result = run(policy, scores, tmp_path / "out.parquet")
    receipt = json.loads(result.receipt.read_text())
    assert receipt["input"]["digest"] == result.input_digest
    assert receipt["counts"] == {
        name: getattr(result, name) for name in ("n_rows", "kept", "dropped", "undecided", "failed")
    }
    assert {name: getattr(result, name) for name in ("dropped_by", "failed_by")}.items() <= receipt.items()
    assert receipt["outputs"]["subset"]["n_rows"] == result.kept
    assert receipt["environment"]["packages"]["pyarrow"] == pa.__version__


def test_a_dry_run_says_the_same_and_writes_nothing(policy, scores, tmp_path):
    dry = run(policy, scores, dry_run=True)
    assert names_in(tmp_path) == ["scores.parquet"]
    assert written(dry) == {}
    wet = run(policy, scores, tmp_path / "out.parquet")
    assert replace(wet, **dict.fromkeys(wet.paths()), classes=dry.classes) == dry
    classes = dict(zip(columns_of()["key"].to_pylist(), columns_of()["label"].to_pylist(), strict=True))
    kept = Counter(classes[key] for key in keys_of(wet.subset))
    assert dry.classes == {name: (20, kept[name]) for name in ("cat", "dog")}


def test_two_runs_write_the_same_bytes(policy, scores, tmp_path):
    made = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        result = run(policy, scores, tmp_path / name / "out.parquet")
        made.append({name: path.read_bytes() for name, path in written(result).items()})
    assert made[0] == made[1]


def test_ties_use_the_hash_of_the_key_whatever_the_order_or_the_parts_of_the_table(policy, scores, tmp_path):
    first = run(policy, scores, tmp_path / "a.parquet")
    complete = pq.read_table(scores).take(np.random.default_rng(0).permutation(N))
    (tmp_path / "parts").mkdir()
    for number, (start, stop) in enumerate([(0, 1), (1, 1), (1, 40), (40, N)]):
        write(tmp_path / "parts" / f"part-{number:05}.parquet", complete.slice(start, stop - start))
    second = run(policy, tmp_path / "parts", tmp_path / "b.parquet")
    assert decided(first.decisions) == decided(second.decisions)
    assert set(keys_of(first.subset)) == set(keys_of(second.subset))
    assert first.input_digest == second.input_digest
    with pytest.raises(InputError, match="never overwritten"):
        run(policy, tmp_path / "parts", tmp_path / "parts" / "out.parquet")


def test_missing_folders_are_made_for_what_is_written_and_for_nothing_else(policy, scores, tmp_path):
    broken = write(tmp_path / "b.parquet", columns_of(10, key=pa.array(["a"] * 10)))
    with pytest.raises(InputError, match="unique"):
        run(policy, broken, tmp_path / "new" / "dir" / "out.parquet")
    assert names_in(tmp_path) == ["b.parquet", "scores.parquet"]
    result = run(policy, scores, tmp_path / "new" / "dir" / "out.parquet")
    assert {path.parent for path in written(result).values()} == {tmp_path / "new" / "dir"}
    assert verify(result.receipt).identical


def test_an_output_that_exists_is_refused_before_any_work_until_overwrite(policy, scores, tmp_path):
    for path in written(run(policy, scores, tmp_path / "out.parquet")).values():
        for other in tmp_path.glob("out.*"):
            other.unlink()
        path.write_text("mine")
        with pytest.raises(InputError, match=rf"{path.name} exists already; .*--overwrite"):
            run(policy, scores, tmp_path / "out.parquet")
        assert path.read_text() == "mine"
    assert verify(run(policy, scores, tmp_path / "out.parquet", overwrite=True).receipt).identical


def test_the_table_itself_is_never_an_output(policy, scores, tmp_path):
    before = scores.read_bytes()
    (tmp_path / "link.parquet").symlink_to(scores)
    for out in (scores, tmp_path / "link.parquet", tmp_path / "." / "scores.parquet"):
        with pytest.raises(InputError, match="parquet is an input"):
            run(policy, scores, out, overwrite=True)
    assert scores.read_bytes() == before


@pytest.mark.parametrize(
    ("out", "words"),
    [
        (None, "name for the subset"),
        ("out", r"like kept\.parquet"),
        ("out.csv", r"like kept\.parquet"),
        (".parquet", r"like kept\.parquet"),
        ("scores.parquet/out.parquet", "not a folder"),
    ],
)
def test_a_name_that_cannot_be_written_is_refused(policy, scores, tmp_path, out, words):
    with pytest.raises(InputError, match=words):
        run(policy, scores, None if out is None else tmp_path / out)
    assert names_in(tmp_path) == ["scores.parquet"]


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        (["a", None, *"cdefghij"], "got none in row 1"),
        ([*"abcdefghi", "a"], "unique keys .* such as 'a'"),
        ([*range(9), 0.5], "got double"),
        ([], "curate score"),
    ],
)
def test_keys_must_be_there_and_differ(policy, tmp_path, keys, words):
    columns = columns_of(10, key=pa.array(keys)) if keys else {"x": pa.array([1])}
    with pytest.raises(InputError, match=words) as error:
        run(policy, write(tmp_path / "t.parquet", columns), tmp_path / "out.parquet")
    assert "\n" not in str(error.value)
    assert names_in(tmp_path) == ["t.parquet"]


def test_a_table_that_changes_meanwhile_is_noticed_and_nothing_is_written(policy, scores, tmp_path):
    table = open_table(scores)
    batches = table.batches

    def touched(*args, **how):
        os.utime(scores, ns=(time.time_ns(), time.time_ns() + 10**9))
        return batches(*args, **how)

    table.batches = touched
    with pytest.raises(InputError, match=r"scores\.parquet changed"):
        apply(policy, table, tmp_path / "out.parquet")
    assert names_in(tmp_path) == ["scores.parquet"]
    before = state_of(table)
    scores.unlink()
    assert state_of(table) != before


@pytest.mark.parametrize("error", [InputError("no more room"), KeyboardInterrupt(), SystemExit(143)])
def test_a_run_that_ends_before_the_files_have_their_names_leaves_none(policy, scores, tmp_path, monkeypatch, error):
    def end(*files):
        raise error

    monkeypatch.setattr("curate.manifest.file_set.commit_together", end)
    with pytest.raises(type(error)):
        run(policy, scores, tmp_path / "out.parquet")
    assert names_in(tmp_path) == ["scores.parquet"]


def test_a_full_folder_for_what_waits_is_named_and_nothing_is_written(scores, tmp_path, monkeypatch):
    class Full:
        def write_batch(self, batch):
            raise OSError(errno.ENOSPC, "Error writing bytes to file")

        def close(self):
            pass

    monkeypatch.setattr("curate.policies.arranged.pa.ipc.new_file", lambda path, schema: Full())
    with pytest.raises(InputError, match=r"No space left.* TMPDIR"):
        run(ASKED["select"], scores, tmp_path / "out.parquet")
    assert names_in(tmp_path) == ["scores.parquet"]


@pytest.mark.parametrize("name", ["split", "labels"])
def test_rows_in_the_order_of_the_table_wait_in_no_folder(name, scores, tmp_path, monkeypatch):
    monkeypatch.setattr("curate.policies.arranged.pa.ipc.new_file", lambda *_: pytest.fail("rows wait"))
    run(ASKED[name], scores, tmp_path / "out.parquet")


def test_accounts_that_do_not_balance_stop_the_files_from_appearing(policy, scores, tmp_path, monkeypatch):
    from curate.policies import outputs

    stream = outputs._stream
    monkeypatch.setattr(outputs, "_stream", lambda *args: stream(*args) + np.array([1, 0, 0, 0]))
    with pytest.raises(RuntimeError, match="do not add up"):
        run(policy, scores, tmp_path / "out.parquet")
    assert names_in(tmp_path) == ["scores.parquet"]
