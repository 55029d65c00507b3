"""What `curate verify` says of every policy: that its receipt can be repeated, and what was edited."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from every_policy import ASKED, N, columns_of, decided, keys_of, run, write, written

from curate.commands.verify import lines_of
from curate.policies.receipts import sealed
from curate.policies.verify import verify
from scoring.errors import InputError

pytestmark = pytest.mark.usefixtures("table_with_a_policy_from_outside")


def test_verify_says_identical_and_does_not_mind_the_order_or_the_place(policy, scores, tmp_path):
    result = run(policy, scores, tmp_path / "out.parquet")
    verification = verify(result.receipt)
    assert (verification.identical, verification.n_rows, verification.n_different) == (True, N, 0)
    (tmp_path / "away").mkdir()
    shuffled = pq.read_table(scores).take(np.random.default_rng(0).permutation(N))
    moved = write(tmp_path / "away" / "moved.parquet", shuffled)
    scores.unlink()
    with pytest.raises(InputError, match=r"no longer exists.*--table"):
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
        assert any(f"{path.name} was changed after it was written" in note for note in lines_of(verification)["notes"])
        path.unlink()
        if name in ("subset", "decisions"):
            with pytest.raises(InputError, match=f"{path.name} does not exist"):
                verify(result.receipt)
        else:
            assert any(f"{path.name} no longer exists" in note for note in lines_of(verify(result.receipt))["notes"])
        path.write_bytes(content)
    assert verify(result.receipt).identical


def test_verify_names_rows_that_were_edited(policy, scores, tmp_path):
    result = run(policy, scores, tmp_path / "out.parquet")
    kept, decisions = pq.read_table(result.subset), pq.read_table(result.decisions)
    last = kept["key"][-1].as_py()
    pq.write_table(kept.slice(0, kept.num_rows - 1), result.subset)
    assert f"{last}: kept, but not in the subset" in lines_of(verify(result.receipt))["different"]
    pq.write_table(pa.concat_tables([kept, kept.slice(kept.num_rows - 1)]), result.subset)
    assert "more than once" in str(lines_of(verify(result.receipt))["notes"])
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
    assert any("input has changed" in note for note in lines_of(again)["notes"])


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (lambda r: "not json", "is not JSON"),
        (lambda r: "[" * 100_000, "is not JSON"),
        (lambda r: {**r, "kind": "scores"}, "is not a receipt"),
        (lambda r: {**r, "policy": None}, "is incomplete"),
        (lambda r: {**r, "outputs": {}}, "is incomplete"),
        (lambda r: {**r, "policy": []}, "at least one rule"),
        (lambda r: {**r, "policy": [3]}, "JSON object, got 3"),
        (lambda r: {**r, "policy": [{"rule": "rm"}]}, "unknown rule 'rm'"),
        (lambda r: {**r, "policy": [{**r["policy"][0], "extra": 1}]}, "'extra', which"),
        (
            lambda r: {**r, "outputs": {**r["outputs"], "subset": {"file": "../../etc/passwd", "sha256": ""}}},
            "outside its folder",
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
    with pytest.raises(InputError, match=rf"{name}, got 2"):
        verify(path)
