"""What every policy promises, whichever it is: the table decides what is tested, and a policy from outside joins it."""

import errno
import json
import os
import time
from collections import Counter
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from curate.commands.verify_words import lines_of
from curate.policies.apply import apply
from curate.policies.balance.policy import Balance
from curate.policies.balance.request import BalanceRequest
from curate.policies.contract import POLICIES, WHERE
from curate.policies.decided import Decided
from curate.policies.dedup.policy import Dedup
from curate.policies.dedup.request import DedupRequest
from curate.policies.filter.amounts import KeepTop
from curate.policies.filter.condition import Where
from curate.policies.filter.policy import Filter
from curate.policies.issues.policy import Issues
from curate.policies.labels.policy import Labels
from curate.policies.labels.request import LabelsRequest
from curate.policies.outcomes import DECISION_SCHEMA, DROP, FAILED, KEEP, OUTCOMES
from curate.policies.outputs import Files
from curate.policies.result import Result
from curate.policies.seal import sealed
from curate.policies.select.policy import Select
from curate.policies.select.request import SelectRequest
from curate.policies.split.policy import Split
from curate.policies.split.request import SplitRequest
from curate.policies.verify import verify
from curate.tables.needs import Needs
from curate.tables.rows import read_rows
from curate.tables.table import embedding_field, open_table
from curate.tables.typed_json import from_json
from scoring.errors import InputError

N = 60
OWN = "every-nth"


@dataclass(frozen=True)
class EveryNth:
    """A policy that the package knows nothing of: it keeps one row in n, by the hash of its key."""

    n: int
    files: ClassVar[Files] = Files(texts={"note": "note.txt"})

    @classmethod
    def from_receipt(cls, rules):
        return from_json(cls, rules[0], what="the rule of the receipt", ignored=("rule",))

    def decide(self, table, *, write):
        rows = read_rows(table, Needs())
        outcome = np.where(rows.ok, np.where(rows.hashes % self.n == 0, KEEP, DROP), FAILED).astype(np.uint8)

        def words(start, keys, status, error):
            names = pa.array(OUTCOMES).take(pa.array(outcome[start : start + len(keys)]))
            none = pa.nulls(len(keys), pa.float64())
            return pa.RecordBatch.from_arrays([keys, names, names, names, none, none, none], schema=DECISION_SCHEMA)

        return Decided(
            table=table,
            policy=[{"rule": OWN, "n": self.n}],
            outcome=outcome,
            hashes=rows.hashes,
            digest=rows.digest,
            words=words,
            schema=DECISION_SCHEMA,
            meanings={},
            result=OwnResult(dropped_by={"others": int((outcome == DROP).sum())}),
            texts=lambda paths: {"note": f"next to {paths['note'].name}".encode()},
        )


@dataclass(frozen=True)
class OwnResult(Result):
    note: os.PathLike | None = None

    FILES: ClassVar = (*Result.FILES, "note")


ASKED = {
    "filter": Filter((Where("width >= 13"), KeepTop("50%", "kappa_a", "label"))),
    "dedup": Dedup(DedupRequest({"bytes": 1.0}, protect="width == 20", label="label")),
    "select": Select(SelectRequest("score", "7", score="unc_b", labelled_where="width < 12")),
    "balance": Balance(BalanceRequest("label", rows="50%", within="certain", column="unc_b")),
    "split": Split(SplitRequest({"train": "70%", "rest": "0.3"}, ("label",), thresholds={"bytes": 1.0})),
    "issues": Issues(only=("dark",)),
    "labels": Labels(LabelsRequest(("label",), drop=True, below=0.3)),
    OWN: EveryNth(3),
}


@pytest.fixture(autouse=True)
def table_with_a_policy_from_outside(monkeypatch):
    monkeypatch.setitem(WHERE, OWN, f"{__name__}:EveryNth")


@pytest.fixture(params=ASKED)
def policy(request):
    return ASKED[request.param]


def columns_of(n=N, **changed):
    """Rows of every kind: failed, without a value, equal to others, tied."""
    values = {
        "key": pa.array([f"img/{i:03}.jpg" for i in range(n)]),
        "label": pa.array([("cat", "dog", None)[i % 3] for i in range(n)]),
        "width": pa.array([10 + i % 17 for i in range(n)], pa.int32()),
        "status": pa.array(["truncated" if i % 20 == 7 else "ok" for i in range(n)]),
        "error": pa.array(["cut short" if i % 20 == 7 else None for i in range(n)]),
        "sha256": pa.array([f"s{i % 23}" for i in range(n)]),
        "quality_highlight": pa.array([None if i % 30 == 11 else i % 8 / 8 for i in range(n)], pa.float32()),
        "kappa_a": pa.array([None if i % 30 == 4 else i * 7 % 5 for i in range(n)], pa.float32()),
        "unc_b": pa.array([None if i % 30 == 9 else i % 4 for i in range(n)], pa.float32()),
    }
    vectors = pa.array(np.arange(3 * n, dtype=np.float16))
    values["embedding"] = pa.FixedSizeListArray.from_arrays(vectors, type=embedding_field(3).type)
    return {**values, **changed}


def write(path, table):
    card = {b"curate": json.dumps({"kind": "scores", "model": {"name": "m", "digest": "d"}}).encode()}
    pq.write_table((pa.table(table) if isinstance(table, dict) else table).replace_schema_metadata(card), path)
    return path


@pytest.fixture
def scores(tmp_path):
    return write(tmp_path / "scores.parquet", columns_of())


def run(policy, path, out=None, **how):
    return apply(policy, open_table(path, require=["key"]), out, **how)


def names_in(folder):
    return sorted(path.name for path in folder.iterdir())


def written(result):
    return {name: path for name, path in result.paths().items() if path is not None}


def decided(path):
    table = pq.read_table(path)
    return dict(zip(table["key"].to_pylist(), table["decision"].to_pylist(), strict=True))


def keys_of(path):
    return pq.read_table(path)["key"].to_pylist()


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


def test_ties_go_by_the_hash_of_the_key_whatever_the_order_or_the_parts_of_the_table(policy, scores, tmp_path):
    first = run(policy, scores, tmp_path / "a.parquet")
    complete = pq.read_table(scores).take(np.random.default_rng(0).permutation(N))
    (tmp_path / "parts").mkdir()
    for number, (start, stop) in enumerate([(0, 1), (1, 1), (1, 40), (40, N)]):
        write(tmp_path / "parts" / f"part-{number:05}.parquet", complete.slice(start, stop - start))
    second = run(policy, tmp_path / "parts", tmp_path / "b.parquet")
    assert decided(first.decisions) == decided(second.decisions)
    assert set(keys_of(first.subset)) == set(keys_of(second.subset))
    assert first.input_digest == second.input_digest
    with pytest.raises(InputError, match=r"is part of .*, which is never changed"):
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
        with pytest.raises(InputError, match=r"is part of .*, which is never changed"):
            run(policy, scores, out, overwrite=True)
    assert scores.read_bytes() == before


@pytest.mark.parametrize(
    ("out", "words"),
    [
        (None, "expected a name for the subset"),
        ("out", r"expected a name like kept\.parquet"),
        ("out.csv", r"expected a name like kept\.parquet"),
        (".parquet", r"expected a name like kept\.parquet"),
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
        (["a", None, *"cdefghij"], r"expected a key in every row of .*\.parquet, got none in row 1 "),
        ([*"abcdefghi", "a"], "expected unique keys .* such as 'a'"),
        ([*range(9), 0.5], "`key` column of text or whole numbers in .*, got double"),
        ([], "no column 'key'"),
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
    with pytest.raises(InputError, match=r"scores\.parquet changed while it was being read"):
        apply(policy, table, tmp_path / "out.parquet")
    assert names_in(tmp_path) == ["scores.parquet"]


@pytest.mark.parametrize("error", [InputError("no more room"), KeyboardInterrupt(), SystemExit(143)])
def test_a_run_that_ends_before_the_files_have_their_names_leaves_none(policy, scores, tmp_path, monkeypatch, error):
    def end(*files):
        raise error

    monkeypatch.setattr("curate.manifest.file_set.commit_together", end)
    with pytest.raises(type(error)):
        run(policy, scores, tmp_path / "out.parquet")
    assert names_in(tmp_path) == ["scores.parquet"]


@pytest.mark.parametrize("name", ["select", "split", "labels"])
def test_a_full_folder_for_what_waits_is_named_and_nothing_is_written(name, scores, tmp_path, monkeypatch):
    class Full:
        def write_batch(self, batch):
            raise OSError(errno.ENOSPC, "Error writing bytes to file")

        def close(self):
            pass

    monkeypatch.setattr("curate.policies.arranged.pa.ipc.new_file", lambda path, schema: Full())
    with pytest.raises(InputError, match=r"has no room for .* \(No space left on device\); .* TMPDIR"):
        run(ASKED[name], scores, tmp_path / "out.parquet")
    assert names_in(tmp_path) == ["scores.parquet"]


def test_accounts_that_do_not_balance_stop_the_files_from_appearing(policy, scores, tmp_path, monkeypatch):
    from curate.policies import outputs

    stream = outputs._stream
    monkeypatch.setattr(outputs, "_stream", lambda *args: stream(*args) + np.array([1, 0, 0, 0]))
    with pytest.raises(RuntimeError, match="do not add up"):
        run(policy, scores, tmp_path / "out.parquet")
    assert names_in(tmp_path) == ["scores.parquet"]


def test_verify_says_identical_and_does_not_mind_the_order_or_the_place(policy, scores, tmp_path):
    result = run(policy, scores, tmp_path / "out.parquet")
    verification = verify(result.receipt)
    assert (verification.identical, verification.n_rows, verification.n_different) == (True, N, 0)
    (tmp_path / "away").mkdir()
    shuffled = pq.read_table(scores).take(np.random.default_rng(0).permutation(N))
    moved = write(tmp_path / "away" / "moved.parquet", shuffled)
    scores.unlink()
    with pytest.raises(InputError, match="no longer there; name where it is now with --table"):
        verify(result.receipt)
    assert verify(result.receipt, moved).identical
    moved.rename(tmp_path / "scores.parquet")
    for path in [*written(result).values(), tmp_path / "scores.parquet"]:
        path.rename(tmp_path / "away" / path.name)
    assert verify(tmp_path / "away" / result.receipt.name).identical


def test_verify_notices_any_table_that_was_edited_or_is_gone(policy, scores, tmp_path):
    result = run(policy, scores, tmp_path / "out.parquet")
    for name in json.loads(result.receipt.read_text())["outputs"]:
        path = result.paths()[name]
        content = path.read_bytes()
        if path.suffix == ".parquet":
            pq.write_table(pq.read_table(path).slice(1), path)
        else:
            path.write_bytes(content + b" ")
        verification = verify(result.receipt)
        assert not verification.identical
        assert any(f"{path.name} is not the file that was written" in note for note in lines_of(verification)["notes"])
        path.unlink()
        if name in ("subset", "decisions"):
            with pytest.raises(InputError, match=f"{path.name} does not exist"):
                verify(result.receipt)
        else:
            assert any(f"{path.name} is no longer there" in note for note in lines_of(verify(result.receipt))["notes"])
        path.write_bytes(content)
    assert verify(result.receipt).identical


def test_verify_names_rows_that_were_edited(policy, scores, tmp_path):
    result = run(policy, scores, tmp_path / "out.parquet")
    kept, decisions = pq.read_table(result.subset), pq.read_table(result.decisions)
    last = kept["key"][-1].as_py()
    pq.write_table(kept.slice(0, kept.num_rows - 1), result.subset)
    assert f"{last}: kept, but not in the subset" in lines_of(verify(result.receipt))["different"]
    pq.write_table(pa.concat_tables([kept, kept.slice(kept.num_rows - 1)]), result.subset)
    assert "the subset holds some rows more than once" in lines_of(verify(result.receipt))["notes"]
    pq.write_table(kept, result.subset)
    flipped = ["drop" if key == last else decision for key, decision in decided(result.decisions).items()]
    pq.write_table(decisions.set_column(1, decisions.schema.field(1), pa.array(flipped)), result.decisions)
    assert lines_of(verify(result.receipt))["different"] == [f"{last}: now keep, then drop"]


def test_verify_names_a_row_whose_unread_column_changed_and_rows_that_came_and_went(policy, scores, tmp_path):
    result = run(policy, scores, tmp_path / "out.parquet")
    key = keys_of(result.subset)[2]
    errors = dict(zip(columns_of()["key"].to_pylist(), columns_of()["error"].to_pylist(), strict=True))
    error = ["edited" if each == key else was for each, was in errors.items()]
    again = verify(result.receipt, write(tmp_path / "other.parquet", columns_of(error=pa.array(error))))
    assert [line.split(" differs from")[0] for line in lines_of(again)["different"]] == [f"{key}: column 'error'"]
    fewer = pq.read_table(scores).filter(pa.array([each != key for each in columns_of()["key"].to_pylist()]))
    again = verify(result.receipt, write(tmp_path / "fewer.parquet", fewer))
    assert f"{key}: decided then, but no longer in the input" in lines_of(again)["different"]
    assert any("the input is not the one that was read then" in note for note in lines_of(again)["notes"])


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (lambda r: "not json", "is not JSON"),
        (lambda r: "[" * 100_000, "is not JSON"),
        (lambda r: {**r, "kind": "scores"}, "is not a receipt"),
        (lambda r: {**r, "policy": None}, "is incomplete"),
        (lambda r: {**r, "outputs": {}}, "is incomplete"),
        (lambda r: {**r, "policy": []}, "at least one rule"),
        (lambda r: {**r, "policy": [3]}, "as a JSON object, got 3"),
        (lambda r: {**r, "policy": [{"rule": "rm"}]}, "unknown rule 'rm'"),
        (lambda r: {**r, "policy": [{**r["policy"][0], "extra": 1}]}, "'extra', which this version does not know"),
        (
            lambda r: {**r, "outputs": {**r["outputs"], "subset": {"file": "../../etc/passwd", "sha256": ""}}},
            "outside its own folder",
        ),
    ],
)
def test_a_receipt_that_was_tampered_with_is_refused_in_one_line(policy, scores, tmp_path, edit, words):
    path = run(policy, scores, tmp_path / "out.parquet").receipt
    edited = edit(json.loads(path.read_text()))
    path.write_bytes(edited.encode() if isinstance(edited, str) else sealed(edited))
    with pytest.raises(InputError, match=words) as error:
        verify(path)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", [name for name in ASKED if name != "filter"])
def test_a_policy_of_one_rule_is_refused_with_two(name, scores, tmp_path):
    path = run(ASKED[name], scores, tmp_path / "out.parquet").receipt
    receipt = json.loads(path.read_text())
    path.write_bytes(sealed({**receipt, "policy": receipt["policy"] * 2}))
    with pytest.raises(InputError, match=rf"one rule .*{name}, got 2"):
        verify(path)
