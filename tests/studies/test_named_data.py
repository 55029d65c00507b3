"""Studies read the documented layout or your own data by name; what is wrong is one line."""

import argparse
import io
import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from named_data import add_data, open_data

pytestmark = pytest.mark.study

ROOT = Path(__file__).parents[2]


def image(level):
    out = io.BytesIO()
    Image.new("RGB", (48, 40), (level, 255 - level, 90)).save(out, "JPEG")
    return out.getvalue()


@pytest.fixture
def mine(tmp_path):
    """Twelve images with a class as text, in a struct as exports of other tools have them."""
    rows = [{"bytes": image(20 * at), "path": f"{at}.jpg"} for at in range(12)]
    table = pa.table({"image": rows, "species": ["owl", "ant", "cat"] * 4, "note": list(range(12))})
    pq.write_table(table, tmp_path / "mine.parquet")
    return tmp_path / "mine.parquet"


def refused(match, given, files=("pacs_160", "caltech_subset"), **options):
    with pytest.raises(SystemExit, match=match) as found:
        open_data(given, files, **options).need(*files)
    assert str(found.value).startswith("error: ")
    assert "\n" not in str(found.value)


def test_a_folder_of_the_layout_is_read_as_it_is(tmp_path):
    (tmp_path / "pacs_160.parquet").touch()
    assert open_data([str(tmp_path)], ["pacs_160", "skin_200"]).need("pacs_160") == tmp_path
    assert open_data(None, ["pacs_160"]).folder == Path("data")


def test_a_set_of_yours_gets_the_columns_of_the_layout(mine):
    data = open_data([f"birds={mine}:species"], ["pacs_160"], sets=True)
    assert data.added == ("birds",)
    table = pq.read_table(data.need("birds") / "birds.parquet")
    assert table["label"].to_pylist() == [2, 0, 1] * 4  # ant, cat, owl
    assert table["id"].to_pylist() == list(range(12))
    assert table["image"].to_pylist() == [image(20 * at) for at in range(12)]
    assert table["note"].to_pylist() == list(range(12))
    assert (data.folder / "birds.parquet").stat().st_mtime_ns == mine.stat().st_mtime_ns


def test_a_file_of_the_layout_is_replaced_and_the_others_stay(mine, tmp_path):
    (tmp_path / "layout").mkdir()
    (tmp_path / "layout" / "pacs_160.parquet").write_bytes(b"as it is")
    data = open_data([str(tmp_path / "layout"), f"caltech_subset={mine}:species"], ["pacs_160", "caltech_subset"])
    assert data.replaced == ("caltech_subset",)
    folder = data.need("pacs_160", "caltech_subset")
    assert (folder / "pacs_160.parquet").read_bytes() == b"as it is"
    assert pq.read_table(folder / "caltech_subset.parquet").num_rows == 12


def test_a_folder_of_classes_is_a_set(tmp_path):
    for at, name in enumerate(("cat/a.png", "ant/b.jpg", "cat/notes.txt")):
        (tmp_path / "pets" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "pets" / name).write_bytes(image(at))
    data = open_data([f"pets={tmp_path / 'pets'}"], (), sets=True)
    assert pq.read_table(data.folder / "pets.parquet")["label"].to_pylist() == [0, 1]


def test_what_is_wrong_is_one_line(mine, tmp_path):
    refused("pacs=.*reads pacs_160, caltech_subset, and no", [f"pacs={mine}"])
    refused(r"\.\./up", [f"../up={mine}"], sets=True)
    refused(r"none\.parquet does not exist", ["pacs_160=none.parquet:label"])
    refused("no column 'label' among image, species, note; name its column", [f"pacs_160={mine}"])
    refused("no column 'kind' among", [f"pacs_160={mine}:kind"])
    refused(r"pacs_160\.parquet is missing.*--data pacs_160=PATH", [str(tmp_path)])
    refused("one folder", [str(tmp_path), "other"])
    rows = pq.read_table(mine)
    labels = pa.array(["owl", None] * (rows.num_rows // 2))
    pq.write_table(rows.append_column("gaps", labels), tmp_path / "gaps.parquet")
    refused("6 of 12 rows have no label", [f"pacs_160={tmp_path / 'gaps.parquet'}:gaps"])
    (tmp_path / "text.parquet").write_text("text")
    refused("expected a Parquet file", [f"pacs_160={tmp_path / 'text.parquet'}"])
    (tmp_path / "empty").mkdir()
    refused("CLASS/IMAGE", [f"pacs_160={tmp_path / 'empty'}"])


def test_every_study_with_data_takes_it_by_name(mine):
    parser = argparse.ArgumentParser()
    add_data(parser)
    assert parser.parse_args(["--data", "a", "--data", "b=c"]).data == ["a", "b=c"]
    scripts = [path for room in ("benchmarks", "examples") for path in (ROOT / room).glob("*.py")]
    typed = [path for path in scripts if '"--data"' in path.read_text()]
    assert [path.name for path in typed] == ["named_data.py"]


def test_a_study_runs_on_a_set_of_yours(mine, tmp_path):
    script = [sys.executable, str(ROOT / "benchmarks" / "quality.py"), "--data", f"birds={mine}:species"]
    options = ["--clean", "4", "--each", "1", "--json", str(tmp_path / "found.json")]
    done = subprocess.run([*script, *options], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "found.json").read_text())
    assert list(found) == ["birds"]
    assert list(found["birds"]["planted"].values()).count("") == 4
