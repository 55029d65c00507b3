"""A filter reports which classes lose far more than all together."""

import pyarrow as pa
import pyarrow.parquet as pq
from typer.testing import CliRunner

from curate.cli import app
from curate.policies.filter.policy import filter


def test_a_class_that_loses_twice_what_all_lose_is_named(tmp_path):
    labels = ["common"] * 80 + ["rare"] * 20 + [None] * 4
    values = [0.1] * 80 + [0.9] * 15 + [0.1] * 5 + [0.1] * 4
    table = pa.table({"key": [f"k{i}" for i in range(104)], "label": labels, "unc_x": pa.array(values, pa.float32())})
    pq.write_table(table, tmp_path / "s.parquet")
    line = ["filter", str(tmp_path / "s.parquet"), "--max", "0.5", "-o", str(tmp_path / "k.parquet")]
    result = CliRunner().invoke(app, line)
    assert result.exit_code == 0, result.output
    assert "class rare loses 75%" in result.stderr
    assert "class common" not in result.stderr
    again = filter(tmp_path / "s.parquet", tmp_path / "j.parquet", max=0.5)
    assert again.classes == {"common": (80, 80), "rare": (20, 5)}


def test_images_that_are_gone_from_the_source_are_lost_to_no_policy(tmp_path):
    labels, status = ["a"] * 20 + ["b"] * 20 + ["c"], ["ok"] * 20 + ["gone"] * 12 + ["truncated"] * 2 + ["ok"] * 6
    columns = {
        "key": [f"k{row}" for row in range(41)],
        "label": labels,
        "status": [*status, "gone"],
        "unc_x": [0.1] * 41,
    }
    pq.write_table(pa.table(columns), tmp_path / "s.parquet")
    result = filter(tmp_path / "s.parquet", tmp_path / "k.parquet", max=0.5)
    assert result.classes == {"a": (20, 20), "b": (8, 6)}
