"""What docs/interchange.md says of the formats is what they do."""

import re
from pathlib import Path

from curate.exporting.table import TOOLS
from curate.manifest.text import MOST_BYTES, MOST_VALUES

TEXT = (Path(__file__).parents[2] / "docs" / "interchange.md").read_text("utf-8")


def test_the_table_has_a_row_for_every_format_in_the_words_of_the_code():
    rows = [line for line in TEXT.split("\n") if re.match(r"\| `[a-z-]+` \|", line)]
    assert rows == [f"| `{name}` | {one.back} |" for name, one in TOOLS.items()]


def test_the_bounds_match_the_code():
    assert (MOST_BYTES, MOST_VALUES) == (1 << 30, 20_000_000)
    assert "At most 1 GiB and 20 million values" in TEXT


def test_the_example_runs_and_prints_what_is_shown(tmp_path, monkeypatch, capsys):
    code = re.search(r"```python\n(.*?)```", TEXT, re.DOTALL)[1]
    printed = re.search(r"```text\n(.*?)```", TEXT, re.DOTALL)[1]
    monkeypatch.chdir(tmp_path)
    exec(code, {})
    assert capsys.readouterr().out == printed
    assert sorted(path.name for path in tmp_path.iterdir()) == ["batch.json", "batch.xml", "labels.csv"]
