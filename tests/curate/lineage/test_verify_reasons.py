"""`curate verify` says which rows differ and why, and finds what has moved."""

import json
import shutil

import numpy as np
import pyarrow.parquet as pq
import pytest
from chained import MODEL, chain, changed, dataset, resealed, write
from commandline import run

import curate
from curate.commands.verify import lines_of
from curate.policies.filter.amounts import KeepTop
from scoring.errors import InputError


@pytest.fixture
def made(tmp_path):
    dataset(tmp_path)
    return tmp_path, *chain(tmp_path)


def notes(receipt, *table, **how):
    checked = curate.verify(receipt, *table, **how)
    assert checked.to_json()["identical"] is checked.identical
    return checked, " | ".join(lines_of(checked)["notes"])


def test_a_score_that_changed_and_changes_no_decision_is_named(made):
    folder, first, _ = made
    best = curate.filter(first.subset, folder / "most.parquet", [KeepTop("90%", "kappa_a")])
    rows = pq.read_table(first.subset)
    row = int(np.argmax(rows["kappa_a"].to_numpy()))
    changed(first.subset, "kappa_a", row, 999.0)
    verification, said = notes(best.receipt)
    key = rows["key"][row].as_py()
    assert f"{key}: its score is 999 now, 39 then; with the same decision" in lines_of(verification)["different"]
    assert "input has changed" in said


def test_a_decision_that_the_rules_do_not_give_is_named_though_all_digests_were_forged(made):
    _, _, best = made
    rows = pq.read_table(best.decisions).to_pylist()
    keep, drop = (next(n for n, row in enumerate(rows) if row["decision"] == word) for word in ("keep", "drop"))
    changed(best.decisions, "decision", drop, "keep")
    changed(best.decisions, "reason", keep, "because I say so")
    from curate.manifest.store_path import sha256_of

    resealed(best.receipt, lambda r: r["outputs"]["decisions"].update(sha256=sha256_of(best.decisions)))
    verification, said = notes(best.receipt)
    lines = lines_of(verification)["different"]
    assert lines[0] == f"{rows[drop]['key']}: now drop, then keep"
    assert any(line.startswith(f"{rows[keep]['key']}: its reason is") and "because I say so" in line for line in lines)
    assert "its rules decide differently" in said
    assert verification.n_different == 2


def test_other_weights_and_another_version_are_reported(made):
    folder, first, _ = made
    write(folder / "scores.parquet", pq.read_table(folder / "scores.parquet"), {**MODEL, "digest": "e" * 64})
    verification, said = notes(first.receipt)
    assert not verification.identical
    assert "scored by other weights: eeeeeeeeeeeeeeee... now, dddddddddddddddd... then" in said
    write(folder / "scores.parquet", pq.read_table(folder / "scores.parquet"))
    resealed(first.receipt, lambda r: r.update(curate="0.0.9"))
    verification, said = notes(first.receipt)
    assert verification.identical
    assert "this is 0.1.0" in said


def test_a_receipt_of_another_format_is_refused(made):
    _, _, best = made
    old = json.loads(best.receipt.read_text())
    best.receipt.write_text(json.dumps({**old, "format": 99}))
    with pytest.raises(InputError, match="format 99"):
        curate.verify(best.receipt)
    for policy, command in (([{"rule": "keep-top"}], "keep-top"), ([{"rule": "dedup"}], "dedup"), (None, "policy")):
        best.receipt.write_text(json.dumps({**old, "format": 1, "curate": "0.0.9", "policy": policy}))
        with pytest.raises(InputError, match=rf"format 1,.*0\.0\.9.*again.*{command}") as refused:
            curate.verify(best.receipt)
        assert "changed" not in str(refused.value)
    del old["format"], old["digest"]
    best.receipt.write_text(json.dumps({**old, "curate": "0.0.9"}))
    with pytest.raises(InputError, match="was changed since"):
        curate.verify(best.receipt)


def test_a_column_that_no_rule_read_is_found_by_the_bytes_unless_another_table_is_named(made):
    folder, first, _ = made
    dropped = [row["decision"] for row in pq.read_table(first.decisions).to_pylist()].index("drop")
    changed(folder / "scores.parquet", "unread", dropped, 4711, folder / "other.parquet")
    verification, said = notes(first.receipt, folder / "other.parquet")
    assert verification.identical
    assert "has the same rows" in said
    (folder / "other.parquet").replace(folder / "scores.parquet")
    verification, said = notes(first.receipt)
    assert (verification.identical, verification.n_different) == (False, 0)
    assert "the rules read" in said


def test_an_input_that_moved_is_found_by_its_digest_below_a_root_and_nothing_else_is_read(made):
    folder, first, best = made
    archive = folder / "archive" / "deep"
    archive.mkdir(parents=True)
    (folder / "scores.parquet").rename(archive / "renamed.parquet")
    shutil.copy(best.subset, archive / "scores.parquet")  # the name is right, and the bytes are not
    with pytest.raises(InputError, match=r"--table or .*--root"):
        curate.verify(first.receipt)
    verification, said = notes(first.receipt, root=folder / "archive")
    assert verification.identical
    assert f"is now {archive / 'renamed.parquet'}" in said
    (folder / "empty").mkdir()
    with pytest.raises(InputError, match=r"nor below .*empty"):
        curate.verify(first.receipt, root=[folder / "empty"])
    with pytest.raises(InputError, match=r"folder .*--root"):
        curate.verify(first.receipt, root=folder / "none")


def test_with_a_root_no_path_or_link_leads_out_of_it(made, tmp_path):
    folder, first, _ = made
    away = tmp_path / "away"
    away.mkdir()
    for path in filter(None, first.paths().values()):
        shutil.copy(path, away)
    with pytest.raises(InputError, match="nor below"):  # though it is where the receipt says
        curate.verify(away / first.receipt.name, root=away)
    (away / "scores.parquet").symlink_to(folder / "scores.parquet")
    with pytest.raises(InputError, match="nor below"):
        curate.verify(away / first.receipt.name, root=away)
    (away / "scores.parquet").unlink()
    shutil.copy(folder / "scores.parquet", away)
    assert curate.verify(away / first.receipt.name, root=away).identical
    (away / "unique.parquet").unlink()
    (away / "unique.parquet").symlink_to(first.subset)
    with pytest.raises(InputError, match="outside of --root"):
        curate.verify(away / first.receipt.name, root=away)


def test_parts_of_a_folder_are_found_together(made):
    folder, *_ = made
    parts = folder / "parts"
    parts.mkdir()
    table = pq.read_table(folder / "scores.parquet")
    for number in range(2):
        write(parts / f"part-{number:05}.parquet", table.slice(20 * number, 20))
    result = curate.filter(parts, folder / "p.parquet", [KeepTop("50%", "kappa_a")])
    (folder / "archive").mkdir()
    parts.rename(folder / "archive" / "elsewhere")
    assert curate.verify(result.receipt, root=folder / "archive").identical


def test_the_command_says_one_line_a_reason_and_exits_1(made):
    folder, first, _ = made
    changed(folder / "scores.parquet", "kappa_a", 3, 7.5)
    done = run("verify", first.receipt)
    assert done.exit_code == 1
    assert all(line.strip() for line in done.stdout.splitlines())
    (folder / "scores.parquet").unlink()
    gone = run("verify", first.subset)
    assert (gone.exit_code, gone.stderr.count("\n")) == (1, 1)
