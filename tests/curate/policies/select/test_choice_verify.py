"""`curate verify` on a choice: identical, or what differs."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from choosing import columns_of, csv, write

import curate
from curate.commands.verify import lines_of
from curate.policies.receipts import sealed
from curate.policies.verify import verify


@pytest.fixture
def made(tmp_path):
    """A table, its columns, and a choice from it."""
    columns = columns_of(60)
    source = write(tmp_path / "s.parquet", columns)
    labels = csv(tmp_path / "l.csv", [(f"img/{i:03}.png", f"c{i % 3}") for i in range(9)])
    result = curate.select(source, tmp_path / "b.parquet", budget=10, labelled=labels, noise_guard=True)
    return columns, source, labels, result


def rewrite(path, change):
    table = pq.read_table(path)
    pq.write_table(change(table), path)


def replaced(table, name, values):
    return table.set_column(table.schema.names.index(name), table.schema.field(name), pa.array(values))


def test_other_labels_are_another_choice(made):
    _, _, labels, result = made
    csv(labels, [(f"img/{i:03}.png", f"c{i % 2}") for i in range(9)])
    verification = verify(result.receipt)
    assert not verification.identical
    assert any("l.csv has changed" in note for note in lines_of(verification)["notes"])


@pytest.mark.parametrize("option", ["labelled", "exclude"])
def test_a_file_given_by_a_relative_path_is_the_same_from_elsewhere(made, tmp_path, monkeypatch, option):
    monkeypatch.chdir(tmp_path)
    result = curate.select("s.parquet", "relative.parquet", budget=10, **{option: "l.csv"})
    assert verify(result.receipt).identical
    monkeypatch.chdir(tmp_path.parent)
    assert verify(tmp_path / result.receipt).identical


def test_labels_that_moved_to_the_receipt_are_found(made, tmp_path):
    _, _, labels, result = made
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for path in [*result.paths().values(), labels]:
        path.rename(elsewhere / path.name)
    assert verify(elsewhere / result.receipt.name).identical


def test_another_score_in_the_table_is_named_by_row(made):
    columns, source, _, result = made
    first = pq.read_table(result.subset)["key"][0].as_py()
    row = columns["key"].index(first)
    columns["kappa_mcinfonce"][row] = 0.001  # the worst of all: the gate leaves it out now
    write(source, columns)
    verification = verify(result.receipt)
    assert any(f"{first}: now drop, then keep" in line for line in lines_of(verification)["different"])
    assert any("input has changed" in note for note in lines_of(verification)["notes"])


def test_a_column_that_the_choice_did_not_read_is_compared_too(made):
    columns, source, _, result = made
    key = pq.read_table(result.subset)["key"][3].as_py()
    columns["aesthetic"][columns["key"].index(key)] += 1
    write(source, columns)
    verification = verify(result.receipt)
    assert lines_of(verification)["different"] == [f"{key}: column 'aesthetic' differs from the batch"]
    assert verification.n_different == 1


def test_ranks_that_were_swapped_are_named(made):
    _, _, _, result = made
    order = [1, 0, *range(2, 10)]
    rewrite(result.subset, lambda table: table.take(pa.array(order)))
    verification = verify(result.receipt)
    assert any("bytes differ" in note for note in lines_of(verification)["notes"])
    keys = pq.read_table(result.subset)["key"].to_pylist()
    assert f"{keys[0]}: now number 2, then number 1" in lines_of(verification)["different"]


def test_gains_that_were_changed_are_named(made):
    _, _, _, result = made
    rewrite(result.subset, lambda table: replaced(table, "gain", [9.0, *table["gain"].to_pylist()[1:]]))
    verification = verify(result.receipt)
    key = pq.read_table(result.subset)["key"][0].as_py()
    assert f"{key}: column 'gain' differs from the batch" in lines_of(verification)["different"]


def test_a_column_taken_out_of_the_batch_is_reported(made):
    _, _, _, result = made
    rewrite(result.subset, lambda table: table.drop_columns(["predicted"]))
    verification = verify(result.receipt)
    assert any("columns or types" in note for note in lines_of(verification)["notes"])


def test_a_row_that_is_missing_or_there_twice_is_no_other_column(made):
    _, _, _, result = made
    table = pq.read_table(result.subset)
    keys = table["key"].to_pylist()
    pq.write_table(table.slice(0, 9), result.subset)
    verification = verify(result.receipt)
    assert lines_of(verification)["different"] == [f"{keys[9]}: kept, but not in the subset"]
    pq.write_table(pa.concat_tables([table, table.slice(9)]), result.subset)
    verification = verify(result.receipt)
    assert lines_of(verification)["different"] == [f"{keys[9]}: now number 10, then number 11"]
    assert "more than once" in str(lines_of(verification)["notes"])


def test_a_receipt_that_was_tampered_with_is_one_line(made):
    from scoring.errors import InputError

    _, _, _, result = made
    receipt = json.loads(result.receipt.read_text())
    for change, said in (
        ({"settings": "x"}, "settings of the rule"),
        ({"strategy": "nothing"}, "unknown strategy 'nothing'"),
        ({"budget": "many"}, "--budget takes"),
        ({"gate": "x"}, "a number as gate"),
        ({"seed": None}, "as seed"),
    ):
        other = json.loads(json.dumps(receipt))
        other["policy"][0].update(change)
        result.receipt.write_bytes(sealed(other))
        with pytest.raises(InputError, match=said) as caught:
            verify(result.receipt)
        assert "next to the receipt" not in str(caught.value)  # no file has moved
