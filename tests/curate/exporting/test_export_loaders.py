"""What loaders make of an export: order, keys, labels and bytes, by the packages that annotators train with."""

import hashlib
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from exporting import KEYS, picture
from PIL import Image

import curate
from curate.exporting.sides import Shard
from curate.exporting.table import FORMATS
from scoring.errors import InputError

LABELS = ["cat", "a/b", "..", "CON", "Dog", "dog", "x" * 300, "🦊 fox", "", None]
N = len(KEYS)


def label(row):
    return LABELS[row % len(LABELS)]


@pytest.fixture
def workdir(tmp_path, monkeypatch):
    """A scored table over files with their own names, the second row of which could not be scored."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "i").mkdir()
    for number in range(N):
        (tmp_path / "i" / f"{number:03}.png").write_bytes(picture(number))
    embedding = np.arange(2 * N, dtype=np.float16).reshape(N, 2)
    columns = {
        "key": KEYS,
        "uri": [str(tmp_path / "i" / f"{number:03}.png") for number in range(N)],
        "label": [label(row) for row in range(N)],
        "n_bytes": [len(picture(number)) for number in range(N)],
        "sha256": [hashlib.sha256(picture(number)).hexdigest() for number in range(N)],
        "width": pa.array([8 + number for number in range(N)], pa.int32()),
        "height": pa.array([8] * N, pa.int32()),
        "kappa_x": pa.array([float("nan"), *np.linspace(1, 2, N - 1)], pa.float32()),
        "votes": pa.array([None, *range(N - 1)], pa.int64()),
        "status": ["ok", "missing"] + ["ok"] * (N - 2),
        "embedding": pa.FixedSizeListArray.from_arrays(pa.array(embedding.ravel()), 2),
        "thumbnail": pa.array([bytes([number]) * 4 for number in range(N)], pa.binary(4)),
    }
    pq.write_table(pa.table(columns), "t.parquet")
    return tmp_path


ROWS = [row for row in range(N) if row != 1]


def offline(code, *arguments):
    """Run code in its own process, offline, and return what it printed as JSON."""
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_webdataset_reads_every_sample_in_order_whatever_dots_its_key_has(workdir):
    webdataset = pytest.importorskip("webdataset")
    result = curate.export("t.parquet", "out", to="webdataset", shard="10", take="*")
    shards = sorted(str(path) for path in Path("out").glob("*.tar"))
    assert [Path(each).name for each in shards] == [f"shard-{n:06d}.tar" for n in range(3)]
    samples = list(webdataset.WebDataset(shards, shardshuffle=False))
    records = [json.loads(sample["json"]) for sample in samples]
    assert [record["key"] for record in records] == [KEYS[row] for row in ROWS]
    assert [record["label"] for record in records] == [label(row) or None for row in ROWS]
    assert [sample["png"] for sample in samples] == [picture(row) for row in ROWS]
    assert records[0]["kappa_x"] is None
    assert records[1]["embedding"] == [4.0, 5.0]
    assert [sample["__key__"] for sample in samples] == [f"{n:09d}" for n in range(len(ROWS))]
    assert result.rows == len(ROWS)
    first = next(iter(webdataset.WebDataset(shards, shardshuffle=False).decode("pil")))
    assert first["png"].size == (8, 8)


def test_a_shard_has_at_most_the_bytes_requested(workdir):
    sizes = [len(picture(row)) for row in ROWS]
    curate.export("t.parquet", "out", to="webdataset", shard="1KB")
    rows = []
    for path in sorted(Path("out").glob("*.tar")):
        tar = subprocess.run(["tar", "tf", path], capture_output=True, text=True, check=True).stdout.split()
        rows.append([int(name.split(".")[0]) for name in tar if name.endswith(".png")])
    assert [row for each in rows for row in each] == list(range(len(ROWS)))
    held = [sum(sizes[row] for row in each) for each in rows]
    assert all(size <= 1000 or len(each) == 1 for size, each in zip(held, rows, strict=True))
    following = [sizes[each[0]] for each in rows[1:]]
    assert all(size + more > 1000 for size, more in zip(held, following, strict=False))  # none is smaller than need be


def test_datasets_loads_parquet_with_the_images_and_every_column_in_order(workdir):
    curate.export("t.parquet", "out", to="parquet", shard="10", take="*")
    names = sorted(path.name for path in Path("out/data").iterdir())
    assert names == [f"train-{n:05d}-of-00003.parquet" for n in range(3)]
    code = """
import hashlib, json, sys
from datasets import Image, load_dataset
loaded = load_dataset(sys.argv[1], cache_dir=sys.argv[2])["train"]
raw = loaded.cast_column("image", Image(decode=False))
names = [None if n is None else loaded.features["label"].int2str(n) for n in loaded["label"]]
rows = [[r["key"], name, r["image"].size[0], r["embedding"]] for r, name in zip(loaded, names)]
print(json.dumps([str(loaded.features["image"]), rows, [hashlib.sha256(r["image"]["bytes"]).hexdigest() for r in raw]]))
"""
    kind, rows, digests = offline(code, workdir / "out", workdir / "cache")
    assert kind.startswith("Image(")
    assert rows == [[KEYS[row], label(row) or None, 8 + row, [2.0 * row, 2.0 * row + 1]] for row in ROWS]
    assert digests == [hashlib.sha256(picture(row)).hexdigest() for row in ROWS]


def test_torchvision_reads_folders_of_classes_and_datasets_their_metadata(workdir):
    torchvision = pytest.importorskip("torchvision")
    curate.export("t.parquet", "out", to="folder", per="label")
    lines = [json.loads(line) for line in Path("out/metadata.jsonl").read_text("utf-8").split("\n") if line]
    assert [(line["curate_key"], line["label"]) for line in lines] == [(KEYS[row], label(row) or None) for row in ROWS]
    assert [Path("out", line["file_name"]).read_bytes() for line in lines] == [picture(row) for row in ROWS]
    read = torchvision.datasets.ImageFolder("out")
    folder = {line["label"]: line["file_name"].split("/")[0] for line in lines}
    assert sorted(folder.values()) == read.classes
    assert len({name.casefold() for name in folder.values()}) == len(folder) == 9
    assert (folder["cat"], folder["🦊 fox"], folder[None]) == ("cat", "🦊 fox", "_none")
    assert len(read) == len(ROWS)
    assert {path.parent for path in Path("out").rglob("*.png")} == {Path("out") / name for name in folder.values()}


def test_yolo_has_a_folder_a_side_and_a_class(workdir):
    yaml = pytest.importorskip("yaml")
    rows = pq.read_table("t.parquet").filter(pa.array([label(row) not in (None, "") for row in range(N)]))
    sides = pa.array([("train", "valid", "test")[row % 3] for row in range(rows.num_rows)])
    pq.write_table(rows.append_column("split", sides), "s.parquet")
    curate.export("s.parquet", "out", to="yolo", per="split")
    data = yaml.safe_load(Path("out/data.yaml").read_text("utf-8"))
    assert set(data["names"].values()) == {name for name in LABELS if name}
    assert {path.name for path in Path("out").iterdir() if path.is_dir()} == {"train", "val", "test"}
    assert len({path.parent.name for path in Path("out").glob("*/*/*")}) == len(data["names"])
    usable = [row for row in ROWS if label(row)]
    assert sorted(path.read_bytes() for path in Path("out").glob("*/*/*")) == sorted(map(picture, usable))
    with pytest.raises(InputError, match=r"yolo: .*class"):
        curate.export("t.parquet", "other", to="yolo")
    with pytest.raises(InputError, match="--per sha256"):
        curate.export("s.parquet", "other", to="yolo", per="sha256")


def test_json_lines_and_paths_say_the_same(workdir):
    for to in ("jsonl", "paths"):
        curate.export("t.parquet", f"out{FORMATS[to].suffix}", to=to, null=to == "paths")
    lines = pl.read_ndjson("out.jsonl")
    assert lines["key"].to_list() == [KEYS[row] for row in ROWS]
    assert lines["embedding"].to_list()[3] == [8.0, 9.0]
    listed = subprocess.run("xargs -0 -n 1 basename < out.txt", shell=True, capture_output=True, text=True, check=True)
    assert listed.stdout.split() == [f"{row:03}.png" for row in ROWS]


def test_a_path_that_would_be_two_lines_is_refused_unless_each_ends_in_a_nul(workdir):
    broken_path = workdir / "two\nlines.png"
    broken_path.write_bytes(picture(1))
    pq.write_table(pa.table({"key": ["a"], "uri": [str(broken_path)]}), "odd.parquet")
    with pytest.raises(InputError, match="by --null"):
        curate.export("odd.parquet", "odd.txt", to="paths")
    (line,) = curate.export("odd.parquet", "odd.txt", to="paths", null=True).load
    exec(line, loaded := {})
    assert loaded["data"] == [str(broken_path)]
    assert Path("odd.txt").read_bytes() == os.fsencode(broken_path) + b"\0"
    assert not Path("odd.txt.part").exists()


@pytest.mark.parametrize("to", ["folder", "imagefolder", "webdataset", "parquet"])
def test_images_are_made_smaller_and_encoded_again_only_where_that_is_needed(workdir, to):
    big = io.BytesIO()
    Image.new("RGB", (300, 100), "red").save(big, "PNG")
    Path("i/big.png").write_bytes(big.getvalue())
    uris = [str(workdir / "i/big.png"), str(workdir / "i/000.png")]
    columns = {"key": ["big.png", "small.png"], "uri": uris, "width": [300, 8], "height": [100, 8]}
    pq.write_table(pa.table(columns), "two.parquet")
    images = {}
    for name, options in {"kept": {"resize": 50}, "anew": {"resize": 50, "encode": "webp:80"}}.items():
        curate.export("two.parquet", name, to=to, take="width,height", **options)
        images[name] = [*images_in(name, to)]
    (size, kind, data), (small, _, untouched) = images["kept"]
    assert (size, kind, small) == ((150, 50), "PNG", (8, 8))
    assert untouched == picture(0)  # bytes are left alone where nothing is requested of them
    assert [(size, kind) for size, kind, _ in images["anew"]] == [((150, 50), "WEBP"), ((8, 8), "WEBP")]
    assert data != big.getvalue()
    if to in ("folder", "imagefolder"):
        line = json.loads(next(Path("anew").rglob("metadata.jsonl")).read_text().split("\n")[0])
        assert (line["curate_width"], line["curate_height"]) == (150, 50)
        assert line["file_name"] == "big.png.webp"


def bytes_inside(folder):
    """What the shards of Parquet hold, in order."""
    shards = sorted(Path(folder).rglob("*.parquet"))
    return [row["bytes"] for shard in shards for row in pq.read_table(shard)["image"].to_pylist()]


def images_in(folder, to):
    """Size, format and bytes of each image of an export, in order."""
    if to == "parquet":
        encoded = bytes_inside(folder)
    elif to == "webdataset":
        import tarfile

        with tarfile.open(f"{folder}/shard-000000.tar") as tar:
            encoded = [tar.extractfile(name).read() for name in tar.getnames() if not name.endswith("json")]
    else:
        encoded = [path.read_bytes() for path in sorted(Path(folder).rglob("*.*")) if path.suffix in (".png", ".webp")]
    for data in encoded:
        with Image.open(io.BytesIO(data)) as image:
            yield image.size, image.format, data


@pytest.mark.parametrize("order", [1, -1])
def test_images_inside_a_table_are_found_by_key_in_whatever_order(workdir, order):
    pictures = {"key": KEYS[::order], "image": [picture(row) for row in range(N)][::order]}
    pq.write_table(pa.table(pictures), "photos.parquet", row_group_size=5)
    pq.write_table(pq.read_table("t.parquet").drop_columns(["uri"]), "no.parquet")
    curate.export("no.parquet", "out", to="parquet", source="photos.parquet")
    assert bytes_inside("out") == [picture(row) for row in ROWS]
    fewer = {name: values[3:] for name, values in pictures.items()}
    pq.write_table(pa.table(fewer), "fewer.parquet")
    with pytest.raises(InputError, match=r"of [23] of 25 rows"):
        curate.export("no.parquet", "less", to="parquet", source="fewer.parquet")
    result = curate.export("no.parquet", "less", to="parquet", source="fewer.parquet", skip_missing=True)
    assert result.rows + result.missing == len(ROWS)


@pytest.mark.parametrize("link", ["hard", "symbolic"])
def test_links_are_links_and_the_names_of_both_are_the_same(workdir, link):
    curate.export("t.parquet", "copied", to="folder")
    curate.export("t.parquet", "linked", to="folder", link=link)
    for path in (path for path in Path("copied").rglob("*.*") if path.is_file()):
        twin = Path("linked", path.relative_to("copied"))
        assert twin.read_bytes() == path.read_bytes() or path.name.startswith(".curate")
    files = (path for path in Path("linked").rglob("*") if not path.is_dir())
    links = [path for path in files if path.suffix != ".jsonl" and not path.name.startswith(".c")]
    assert len(links) == len(ROWS)
    if link == "symbolic":
        assert all(path.is_symlink() for path in links)
    else:
        assert {path.stat().st_ino for path in links} == {Path(f"i/{row:03}.png").stat().st_ino for row in ROWS}


def test_a_few_columns_go_along_where_they_are_named(workdir):
    curate.export("t.parquet", "out.jsonl", to="jsonl", take="kappa_x, votes")
    assert set(json.loads(Path("out.jsonl").read_text().split("\n")[0])) == {"key", "uri", "kappa_x", "votes", "label"}
    with pytest.raises(InputError, match="did you mean 'votes'"):
        curate.export("t.parquet", "other.jsonl", to="jsonl", take=["vote"])


@pytest.mark.parametrize(
    ("to", "options", "said"),
    [
        ("folder", {"link": "soft"}, "unknown --link 'soft'"),
        ("folder", {"link": "hard", "resize": 5}, "--link keeps images"),
        ("folder", {"resize": 0}, "1 pixel, got 0"),
        ("folder", {"encode": "gif"}, "--encode: expected"),
        ("folder", {"encode": "png:80"}, "--encode: expected"),
        ("folder", {"encode": "jpeg:101"}, "1 to 100"),
        ("folder", {"shard": "5"}, "--shard is for"),
        ("folder", {"null": True}, "--null is for"),
        ("folder", {"per": "embedding"}, "column 'embedding'"),
        ("jsonl", {"take": "key,thumbnail"}, "column 'thumbnail'"),
        ("webdataset", {"take": "thumbnail"}, "'thumbnail'"),
        ("folder", {"take": "embedding"}, "'embedding'"),
        ("webdataset", {"per": "label"}, "--per is for"),
        ("webdataset", {"link": "hard"}, "--link is for"),
        ("webdataset", {"shard": "0"}, "--shard: expected"),
        ("webdataset", {"shard": "5 MB", "resize": 5}, "size of each image"),
        ("csv", {"resize": 5}, "csv holds none"),
        ("csv", {"skip_missing": True}, "csv reads none"),
    ],
)
def test_what_a_format_cannot_do_is_refused_before_anything_is_written(workdir, to, options, said):
    before = sorted(workdir.rglob("*"))
    with pytest.raises(InputError) as caught:
        curate.export("t.parquet", f"out{FORMATS[to].suffix}", to=to, **options)
    assert said in str(caught.value)
    assert sorted(workdir.rglob("*")) == before


def test_thirty_thousand_classes_go_out_each_under_its_own_name(workdir):
    n = 30_000
    columns = {"key": [str(row) for row in range(n)], "label": [f"class {row}" for row in range(n)]}
    pq.write_table(pa.table(columns), "many.parquet")
    curate.export("many.parquet", "many.json", to="coco")
    content = json.loads(Path("many.json").read_text())
    assert len(content["categories"]) == len(content["annotations"]) == n
    name = {entry["id"]: entry["name"] for entry in content["categories"]}
    assert all(name[entry["category_id"]] == f"class {entry['image_id'] - 1}" for entry in content["annotations"])


def test_progress_is_reported_part_by_part(workdir, monkeypatch):
    monkeypatch.setattr(Shard.__init__, "__defaults__", (10, 0))
    reports = []
    curate.export("t.parquet", "out", to="folder", report=reports.append)
    assert [(entry.done, entry.total) for entry in reports] == [(10, 25), (20, 25), (25, 25)]
