"""Sources and options that a table cannot grow by, each refused in one line that leaves the table alone."""

import pyarrow as pa
import pytest
from growing import PLAIN, draw, grow

from curate.engines.score import score
from curate.tables.keys import key_hashes
from curate.tables.table import open_table
from scoring.errors import InputError


def test_a_grown_source_is_refused_without_add_which_the_message_names(photos, table, tiny_checkpoint):
    grow(photos, 1)
    with pytest.raises(InputError, match="--add"):
        score(photos, table, model=tiny_checkpoint, **PLAIN)


@pytest.mark.parametrize(
    ("keywords", "named"),
    [
        ({"dtype": "float32"}, "embedding dtype"),
        ({"batch_size": 7}, "batch-size"),
        ({"quality": False}, "quality"),
        ({"fit": True}, "fit"),  # the default, and the table has none
        ({"limit": 3}, "--limit"),
        ({"key": "name"}, "--key"),
        ({"hidden": True}, "--hidden"),
        ({"label_from_folder": True}, "--label-from-folder"),
        ({"model": "world"}, "model"),
    ],
)
def test_what_contradicts_the_table_is_refused(photos, table, keywords, named):
    grow(photos, 1)
    state = table.read_bytes()
    with pytest.raises(InputError, match=named):
        score(photos, table, add=True, **keywords)
    assert table.read_bytes() == state


def test_another_source_is_refused(photos, table, tmp_path):
    (tmp_path / "other").mkdir()
    draw(tmp_path / "other" / "else.png", 33)
    with pytest.raises(InputError, match="no key in common"):
        score(tmp_path / "other", table, add=True)
    for path in sorted(photos.iterdir())[1:]:
        path.unlink()
    with pytest.raises(InputError, match="13 of the 14"):
        score(photos, table, add=True)


def test_repeated_keys_in_a_table_are_refused(photos, table):
    import pyarrow.parquet as pq

    read = pq.read_table(table)
    pq.write_table(pa.concat_tables([read, read.slice(0, 1)]), table)
    with pytest.raises(InputError, match="unique"):
        score(photos, table, add=True)


def test_options_of_add_need_it(photos, table):
    for keywords in ({"check": True}, {"refit": True}):
        with pytest.raises(InputError, match="--add"):
            score(photos, table, **keywords)
    with pytest.raises(InputError, match="no fitted scores"):
        score(photos, table, add=True, refit=True)


def test_a_file_that_is_no_table_is_left_alone(photos, tmp_path):
    (tmp_path / "x.parquet").write_bytes(b"mine")
    with pytest.raises(InputError, match="was not changed"):
        score(photos, tmp_path / "x.parquet", add=True)


def test_a_table_that_is_replaced_while_it_is_read_is_refused_in_one_line(photos, table, tmp_path):
    opened = open_table(table)
    grow(photos, 1)
    score(photos, table, add=True)  # another process, in the meantime
    with pytest.raises(InputError, match="changed while"):
        key_hashes(opened)
