"""Image folders and FiftyOne: names that are safe, folders that are whole, labels that come back."""

import json
import os
import re
import shutil
import tarfile
import unicodedata

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from exporting import KEYS, batch, counts, pairs, picture
from hypothesis import given
from hypothesis import strategies as st

from curate.exporting.batches import read_labels, write_batch
from curate.exporting.names import Claims, FileNames, KeyNames
from curate.exporting.subset import export
from curate.exporting.table import FORMATS
from curate.manifest.contract import ReadError
from curate.tables.images import images_by_key
from scoring.errors import InputError

FOLDERS = [name for name, format in FORMATS.items() if format.folder]


def jsonl(path):
    return [json.loads(line) for line in path.read_text("utf-8").split("\n") if line]


def named(keys, suffix="png", **how):
    """The paths of the images of keys in one export."""
    claims = Claims(FileNames(**how))
    claims.add(keys)
    names = FileNames(**how, shared=claims.shared())
    return [names.of(key, suffix) for key in keys]


def folded(path):
    return unicodedata.normalize("NFKC", path).casefold()


@pytest.mark.parametrize("nested", [False, True])
def test_names_stay_in_their_folder_and_fit_every_file_system(nested):
    for name in named(KEYS, nested=nested):
        assert not name.startswith("/")
        for part in name.split("/"):
            assert not set(part) & set('<>:"\\|?*\n\r')
            assert part[0] not in ". -"
            assert part[-1] not in ". "
            assert part.split(".")[0].casefold() not in ("con", "nul")  # names of devices on Windows
            assert len((part + ".heic").encode()) < 255


def test_a_file_name_is_the_key_unless_it_repeats_or_no_file_system_takes_it():
    assert named(["Leopards/c00006.jpg", "a b/ä 猫.JPG", "007"]) == ["c00006.jpg", "ä 猫.JPG", "007.png"]
    assert named(["Leopards/c00006.jpg", "a b/ä 猫.JPG"], nested=True) == ["Leopards/c00006.jpg", "a b/ä 猫.JPG"]
    same = named(["cat/1.jpg", "dog/1.jpg", "dog/2.jpg"])
    assert same[2] == "2.jpg"
    assert all(re.fullmatch(r"1~[0-9a-f]{8}\.jpg", name) for name in same[:2])
    assert len(set(same)) == 3
    assert named(["cat/1.jpg", "dog/1.jpg"], nested=True) == ["cat/1.jpg", "dog/1.jpg"]
    folder, file = named(["a.jpg/b.jpg", "a.jpg"], nested=True)
    assert (folder, bool(re.fullmatch(r"a~[0-9a-f]{8}\.jpg", file))) == ("a.jpg/b.jpg", True)
    assert named(["a.jpg", "a.jpg.webp"], "webp", encoded="webp", kind="webp")[0] != "a.jpg.webp"


@given(st.lists(st.text(min_size=1, max_size=8), unique=True), st.booleans())
def test_names_differ_even_where_case_does_not_count_and_lead_back_to_their_keys(keys, nested):
    names = named(keys, nested=nested)
    assert len({folded(name) for name in names}) == len(keys)
    folders = {folded("/".join(name.split("/")[:n])) for name in names for n in range(1, name.count("/") + 1)}
    assert not folders & {folded(name) for name in names}
    if not nested:
        back = KeyNames(keys)
        assert [back.key_of(name) for name in names] == keys
        assert [back.key_of(name.upper()) for name in names] == keys


def test_keys_that_fold_to_one_name_get_separate_names(tmp_path):
    keys = ["A.jpg", "a.jpg", "a", "a.jpg.jpg", "%61.jpg", "./a.jpg", "é", "e\u0301"]
    write_batch(batch(tmp_path / "i", keys), tmp_path / "out", "imagefolder")
    rows = jsonl(tmp_path / "out" / "train" / "metadata.jsonl")
    assert [row["curate_key"] for row in rows] == keys
    assert len({row["file_name"].casefold() for row in rows}) == len(keys)
    for number, row in enumerate(rows):
        assert (tmp_path / "out" / "train" / row["file_name"]).read_bytes() == picture(number)


def test_every_key_comes_back_exactly_from_images_sorted_into_folders_of_classes(tmp_path):
    write_batch(batch(tmp_path / "images"), tmp_path / "out", "imagefolder")
    root = tmp_path / "out" / "train"
    classes = ["cat", "a b", "猫", ".."[:1] + "x"]
    expected = {}
    for number, row in enumerate(jsonl(root / "metadata.jsonl")):
        label = classes[number % 3]
        (root / label).mkdir(exist_ok=True)
        shutil.move(root / row["file_name"], root / label / row["file_name"])
        expected[row["curate_key"]] = label
    labels = read_labels(tmp_path / "out", "imagefolder", keys=KEYS)
    assert dict(pairs(labels)) == expected
    assert set(expected) == set(KEYS)
    assert labels.problems == ()


def test_every_key_comes_back_exactly_from_labels_in_the_metadata(tmp_path):
    write_batch(batch(tmp_path / "images"), tmp_path / "out", "imagefolder")
    path = tmp_path / "out" / "train" / "metadata.jsonl"
    rows = jsonl(path)
    assert rows[0]["curate_gain"] is None  # infinite
    lines = [json.dumps({**row, "label": f"class {i % 3}"}, ensure_ascii=False) for i, row in enumerate(rows)]
    path.write_bytes("\r\n".join(lines).encode())
    labels = read_labels(tmp_path / "out", "imagefolder", keys=KEYS)
    assert pairs(labels) == [(key, f"class {i % 3}") for i, key in enumerate(KEYS)]


def test_files_of_a_folder_that_mean_nothing_are_named(tmp_path):
    root = tmp_path / "sorted"
    for name in ("cat/a.png", "dog/a.png", "cat/b.png", "cat/x.png", "cat/deep/c.png", "cat/notes.txt", "d.png"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"")
    (root / "link").symlink_to(root / "cat")
    (root / ".hidden").mkdir()
    keys = ["a.png", "b.png", "c.png", "d.png", "e.png"]
    labels = read_labels(root, "imagefolder", keys=keys, classes=["cat", "dog"])
    assert pairs(labels) == [("b.png", "cat")]
    assert counts(labels) == {
        "in no class folder": 1,
        "a link, not followed": 1,
        "deeper than one folder": 1,
        "no image file": 1,
        "unknown key": 1,
        "two labels by one annotator": 2,
        "not in the file": 2,
    }


def test_a_class_called_train_is_a_class(tmp_path):
    (tmp_path / "s" / "train").mkdir(parents=True)
    (tmp_path / "s" / "train" / "a.png").write_bytes(b"")
    assert pairs(read_labels(tmp_path / "s", "imagefolder", keys=["a.png"])) == [("a.png", "train")]


def test_labels_in_two_places_are_refused(tmp_path):
    (tmp_path / "s" / "cat").mkdir(parents=True)
    (tmp_path / "s" / "metadata.jsonl").write_text('{"file_name": "a.png", "label": "dog"}\n')
    with pytest.raises(InputError, match="got both"):
        read_labels(tmp_path / "s", "imagefolder", keys=["a.png"])


def test_an_export_without_labels_is_one_line(tmp_path):
    write_batch(batch(tmp_path / "i", ["a", "b"]), tmp_path / "out", "imagefolder")
    with pytest.raises(InputError, match="no label: 2"):
        read_labels(tmp_path / "out", "imagefolder", keys=["a", "b"])


@pytest.mark.parametrize("text", ["{", "[]", "3", '{"file_name": "a", "file_name": "b"}', "NaN"])
def test_a_damaged_line_of_metadata_is_named(tmp_path, text):
    (tmp_path / "metadata.jsonl").write_text("{}\n" + text + "\n")
    with pytest.raises(InputError, match="line 2"):
        read_labels(tmp_path, "imagefolder", keys=["a"])


def test_a_link_to_a_relative_path_points_at_the_image(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    table = batch(tmp_path / "i", ["a.png"])
    table = table.set_column(1, "uri", pa.array([os.path.relpath(table["uri"][0].as_py())]))
    write_batch(table, "linked", "imagefolder", link="symbolic")
    linked = tmp_path / "linked" / "train" / "a.png"
    assert linked.is_symlink()
    assert linked.read_bytes() == picture(0)


@pytest.mark.parametrize("format", ["imagefolder", "fiftyone"])
def test_links_point_at_the_images_and_copies_hold_their_bytes(tmp_path, format):
    table = batch(tmp_path / "i", ["a.png", "B"])
    inner = {"imagefolder": "train", "fiftyone": "data"}[format]
    write_batch(table, tmp_path / "copied", format)
    write_batch(table, tmp_path / "linked", format, link="symbolic")
    for number, name in enumerate(["a.png", "B.png"]):
        copied, linked = (tmp_path / which / inner / name for which in ("copied", "linked"))
        assert copied.read_bytes() == linked.read_bytes() == picture(number)
        assert linked.is_symlink()
        assert not copied.is_symlink()


@pytest.mark.parametrize("format", ["imagefolder", "fiftyone"])
@pytest.mark.parametrize("link", ["copy", "hard", "symbolic"])
def test_a_missing_image_is_named_and_nothing_appears(tmp_path, format, link):
    table = batch(tmp_path / "i", ["a", "b"])
    (tmp_path / "i" / "001.png").unlink()
    with pytest.raises(InputError, match="'b': no such file"):
        write_batch(table, tmp_path / "out", format, link=link)
    assert [path.name for path in tmp_path.iterdir()] == ["i"]


def test_images_come_from_the_reader_where_there_is_one(tmp_path):
    def reader(key):
        if key == "gone":
            raise ReadError("missing", "no such member")
        return picture(5, "JPEG")

    table = batch(tmp_path / "i", ["a", "s.tar/b"], uri=[None, "/data/s.tar::b"])
    write_batch(table, tmp_path / "out", "imagefolder", images=reader, link="symbolic")
    names = sorted(path.name for path in (tmp_path / "out" / "train").iterdir())
    assert names == ["a.jpg", "b.jpg", "metadata.jsonl"]
    with pytest.raises(InputError, match="'gone': no such member"):
        write_batch(batch(tmp_path / "i", ["gone"], uri=[None]), tmp_path / "o", "imagefolder", images=reader)


def test_files_and_members_of_tar_files_are_read_by_their_uri(tmp_path):
    member = tmp_path / "x.png"
    member.write_bytes(picture(3))
    with tarfile.open(tmp_path / "s.tar", "w") as shard:
        shard.add(member, "x.png")
    table = batch(tmp_path / "i", ["a.png", "x.png"], uri=[str(member), f"{tmp_path / 's.tar'}::x.png"])
    write_batch(table, tmp_path / "out", "imagefolder", images=images_by_key(table))
    for name in ("a.png", "x.png"):
        assert (tmp_path / "out" / "train" / name).read_bytes() == picture(3)
    none = batch(tmp_path / "i", ["a.png"], uri=[None])
    with pytest.raises(InputError, match=r"'a\.png': .*no file"):
        write_batch(none, tmp_path / "other", "imagefolder", images=images_by_key(none))


def test_a_url_that_may_be_signed_is_not_in_the_message(tmp_path, monkeypatch):
    monkeypatch.setattr("curate.manifest.remote.TRIES", 1)
    table = batch(tmp_path / "i", ["a"], uri=["https://host/a.jpg?signature=secret"])
    with pytest.raises(InputError, match="'a': fetching failed") as caught:
        write_batch(table, tmp_path / "out", "imagefolder")
    assert "secret" not in str(caught.value)


def test_numbers_and_names_that_the_database_of_fiftyone_cannot_hold_are_made_fit(tmp_path):
    more = {"phash": pa.array([2**64 - 1, 1], pa.uint64()), "a.b$c": [1, 2]}
    table = (
        batch(tmp_path / "i", ["a", "b"]).append_column("phash", more["phash"]).append_column("a.b$c", [more["a.b$c"]])
    )
    written = write_batch(table, tmp_path / "out", "fiftyone")
    assert written.notes == ("left out, because no tool reads them: embedding",)
    first, second = json.loads((tmp_path / "out" / "samples.json").read_text())["samples"]
    assert (first["curate_phash"], second["curate_phash"]) == (str(2**64 - 1), "1")
    assert (first["curate_a_b_c"], second["curate_a_b_c"]) == (1, 2)
    fields = json.loads((tmp_path / "out" / "metadata.json").read_text())["sample_fields"]
    declared = {field["name"]: field["ftype"].rpartition(".")[2] for field in fields}
    assert (declared["curate_phash"], declared["curate_a_b_c"]) == ("StringField", "IntField")


def saved(table, path):
    pq.write_table(table, path)
    return path


@pytest.mark.parametrize("format", FOLDERS)
def test_only_an_export_that_was_not_changed_is_replaced_and_only_when_that_is_requested(tmp_path, format):
    columns = {"label": ["x", "y"], "split": ["train", "val"]}
    small = saved(batch(tmp_path / "i", ["a"], label=["x"], split=["train"]), tmp_path / "one.parquet")
    large = saved(batch(tmp_path / "i", ["b", "c"], **columns), tmp_path / "two.parquet")
    export(small, tmp_path / "out", to=format)
    with pytest.raises(InputError, match="exists already"):
        export(large, tmp_path / "out", to=format)
    export(large, tmp_path / "new", to=format)
    if FORMATS[format].reads_images:
        rows = batch(tmp_path / "i", ["b", "c"], **columns)
        gone = rows.set_column(1, "uri", pa.array([rows["uri"][0].as_py(), "/nowhere.png"]))
        with pytest.raises(InputError, match="no such file"):
            export(saved(gone, tmp_path / "gone.parquet"), tmp_path / "out", to=format, overwrite=True)
        assert export(small, tmp_path / "out", to=format).notes[0].endswith("nothing to do")  # the old one is whole
    export(large, tmp_path / "out", to=format, overwrite=True)
    files = {path.relative_to(tmp_path / "new") for path in (tmp_path / "new").rglob("*")}
    assert files == {path.relative_to(tmp_path / "out") for path in (tmp_path / "out").rglob("*")}
    assert {path.name for path in tmp_path.iterdir() if path.is_dir()} == {"i", "new", "out"}
    (tmp_path / "out" / "mine.txt").write_text("important")
    with pytest.raises(InputError, match="more than an export"):
        export(small, tmp_path / "out", to=format, overwrite=True)
    assert (tmp_path / "out" / "mine.txt").read_text() == "important"


@pytest.mark.parametrize("format", ["imagefolder", "fiftyone", "folder"])
def test_folders_of_images_that_are_no_export_are_never_replaced(tmp_path, format):
    inner = {"imagefolder": "train", "fiftyone": "data", "folder": "."}[format]
    rows = batch(tmp_path / "i", ["b", "c"])
    two = saved(rows, tmp_path / "t.parquet")

    def refused(match, table=two):
        before = sorted(tmp_path.rglob("*"))
        with pytest.raises(InputError, match=match):
            export(table, tmp_path / "out", to=format, overwrite=True)
        assert sorted(tmp_path.rglob("*")) == before

    (tmp_path / "out" / inner / "cat").mkdir(parents=True)
    (tmp_path / "out" / inner / "cat" / "1.png").write_bytes(b"precious")
    refused("holds more than an export")
    shutil.rmtree(tmp_path / "out")
    (tmp_path / "out").mkdir()
    export(two, tmp_path / "out", to=format, overwrite=True)
    exported = next(path for path in (tmp_path / "out" / inner).iterdir() if path.name.startswith("b"))
    inside = rows.set_column(1, "uri", pa.array([str(exported), rows["uri"][1].as_py()]))
    refused("holds images of the batch", saved(inside, tmp_path / "inside.parquet"))  # links would point nowhere
    broken = rows.set_column(1, "uri", pa.array(["file:///nul%00/b.png", rows["uri"][1].as_py()]))
    refused("NUL byte", saved(broken, tmp_path / "broken.parquet"))
    (tmp_path / "out" / inner / "sorted").mkdir()
    exported.rename(tmp_path / "out" / inner / "sorted" / exported.name)  # somebody's labels
    refused("other files than it was written with")


def test_a_folder_needs_a_place(tmp_path):
    (tmp_path / "no").touch()
    with pytest.raises(InputError, match="not a folder"):
        write_batch(batch(tmp_path / "i", ["a"]), tmp_path / "no" / "out", "imagefolder")


def samples(*rows):
    return {"samples": list(rows)}


def label(name, **more):
    return {"_cls": "Classification", "label": name, **more}


def fiftyone(tmp_path, value, keys=("a", "b", "c"), **more):
    (tmp_path / "samples.json").write_text(json.dumps(value))
    return read_labels(tmp_path, "fiftyone", keys=keys, **more)


def test_every_key_comes_back_exactly_from_a_fiftyone_folder(tmp_path):
    write_batch(batch(tmp_path / "images"), tmp_path / "out", "fiftyone")
    path = tmp_path / "out" / "samples.json"
    value = json.loads(path.read_text("utf-8"))
    for number, sample in enumerate(value["samples"]):
        assert (tmp_path / "out" / sample["filepath"]).read_bytes() == picture(number)
        assert sample["curate_prediction"]["label"] == "cat"
        sample["ground_truth"] = label(f"class {number % 3}", annotator="ann")
    path.write_text(json.dumps(value))
    labels = read_labels(tmp_path / "out", "fiftyone", keys=KEYS)
    assert pairs(labels) == [(key, f"class {i % 3}") for i, key in enumerate(KEYS)]
    assert {row.annotator for row in labels.rows} == {"ann"}


def test_the_fields_of_a_fiftyone_dataset_are_declared(tmp_path):
    write_batch(batch(tmp_path / "i", ["a", "b"]), tmp_path / "out", "fiftyone", classes=("cat", "dog"))
    value = json.loads((tmp_path / "out" / "metadata.json").read_text())
    declared = {field["name"]: field["ftype"].removeprefix("fiftyone.core.fields.") for field in value["sample_fields"]}
    assert declared["curate_key"] == "StringField"
    assert declared["curate_rank"] == "IntField"
    assert declared["curate_gain"] == "FloatField"
    assert declared["curate_prediction"] == "EmbeddedDocumentField"
    assert value["classes"] == {"ground_truth": ["cat", "dog"]}
    for sample in json.loads((tmp_path / "out" / "samples.json").read_text())["samples"]:
        assert {name for name in sample if not name.startswith("_")} <= set(declared)
        assert len(bytes.fromhex(sample["_id"]["$oid"])) == 12


def test_a_fiftyone_prediction_is_no_label_and_the_field_can_be_named(tmp_path):
    both = {"curate_key": "a", "curate_prediction": label("cat"), "mine": label("dog"), "yours": label("cow")}
    with pytest.raises(InputError, match=r"'ground_truth' .* mine, yours"):
        fiftyone(tmp_path, samples(both))
    assert pairs(fiftyone(tmp_path, samples(both), name="mine")) == [("a", "dog")]
    only = {"curate_key": "a", "curate_prediction": label("cat")}
    with pytest.raises(InputError, match="none; choose the field"):
        fiftyone(tmp_path, samples(only))


def test_fiftyone_labels_that_cannot_be_used_are_named(tmp_path):
    rows = [
        {"curate_key": "a", "ground_truth": label("cat")},
        {"curate_key": "b", "ground_truth": None},
        {"curate_key": "c", "ground_truth": {"_cls": "Classifications", "classifications": [label("x"), label("y")]}},
        {"filepath": "/other/z.jpg", "ground_truth": label("cat")},
        {"ground_truth": 3},
    ]
    labels = fiftyone(tmp_path, samples(*rows))
    assert pairs(labels) == [("a", "cat")]
    assert counts(labels) == {"no label": 1, "several labels in one annotation": 1, "unknown key": 1, "not a label": 1}


def test_a_folder_of_another_format_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"no samples\.json"):
        read_labels(tmp_path, "fiftyone", keys=["a"])
    with pytest.raises(InputError, match="got nothing"):
        read_labels(tmp_path / "none", "imagefolder", keys=["a"])


def test_only_what_was_picked_in_a_round_has_its_tag_in_fiftyone(tmp_path):
    picked = batch(tmp_path / "i", ["a"])
    write_batch(picked, tmp_path / "round", "fiftyone")
    write_batch(picked.drop_columns(["rank", "round", "gain"]), tmp_path / "scored", "fiftyone")
    tags = [
        json.loads((tmp_path / name / "samples.json").read_text())["samples"][0]["tags"] for name in ("round", "scored")
    ]
    assert tags == [["curate", "round-3"], ["curate"]]
