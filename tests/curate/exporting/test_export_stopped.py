"""An export that is stopped, at whatever moment, never looks whole, and the same command makes it whole."""

import hashlib
import os
import shutil
import signal
import traceback
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from exporting import picture
from hypothesis import given
from hypothesis import strategies as st

import curate
from curate.exporting import parts, row_images, run, work
from curate.exporting.names import _folded, folder_names
from curate.exporting.sides import Shard
from curate.exporting.table import FORMATS
from scoring.errors import InputError

N = 23
FORMATS_TRIED = ["folder", "webdataset", "csv"]


@pytest.fixture
def workdir(tmp_path, monkeypatch):
    """Two tables over files, and parts of five rows."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Shard.__init__, "__defaults__", (5, 0))
    monkeypatch.setattr("curate.exporting.sides.SHARD_ROWS", 5)
    (tmp_path / "i").mkdir()
    for number in range(N):
        (tmp_path / "i" / f"{number:03}.png").write_bytes(picture(number))
    table(tmp_path / "t.parquet", N)
    table(tmp_path / "u.parquet", N - 1)
    return tmp_path


def table(path, n, **columns):
    values = {
        "key": [f"{number:03}.png" for number in range(n)],
        "uri": [str(path.parent / "i" / f"{number:03}.png") for number in range(n)],
        "sha256": [hashlib.sha256(picture(number)).hexdigest() for number in range(n)],
        **columns,
    }
    pq.write_table(pa.table(values), path)


def out(to, name="out"):
    return f"{name}{FORMATS[to].suffix}"


def contents(place):
    """Bytes by path of a file or folder."""
    place = Path(place)
    if place.is_file():
        return place.read_bytes()
    return {path.relative_to(place).as_posix(): path.read_bytes() for path in place.rglob("*") if path.is_file()}


def killed_at(place, number, call):
    """Run something in a process that kills itself, hard, as it comes to a place for the n-th time."""
    holder, name = place
    pid = os.fork()
    if pid == 0:
        try:
            original, left = getattr(holder, name), [number]

            def deadly(*args, **kwargs):
                left[0] -= 1
                if left[0] == 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                return original(*args, **kwargs)

            setattr(holder, name, deadly)
            call()
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL


def removed(place, *, file_only=False):
    """Take an export away; a folder may stay, as the same command finds it whole."""
    place = Path(place)
    if place.is_file():
        place.unlink()
    elif not file_only:
        shutil.rmtree(place)


PLACES = {
    "as a file is written": (row_images, "fresh"),
    "as the pieces of a part are written": (parts.HashedFile, "entry"),
    "before a part has its line": (work, "append_line"),
    "after all parts": (run, "_finish"),
    "as all is compared": (work.WorkFolder, "check"),
    "before it has its name": (work.WorkFolder, "publish"),
    "as what is left is removed": (shutil, "rmtree"),
}


@pytest.mark.parametrize("to", [*(pytest.param(to, marks=pytest.mark.slow) for to in FORMATS_TRIED[1:]), "folder"])
def test_a_killed_export_never_looks_complete_and_the_same_command_ends_with_the_same_bytes(workdir, to):
    curate.export("t.parquet", out(to, "undisturbed"), to=to)
    expected = contents(out(to, "undisturbed"))
    sources = contents("i")
    n_killed = 0
    for name, place in PLACES.items():
        for number in (1, 4)[: 1 + (place[1] in ("fresh", "append_line"))]:
            for _ in range(2):  # and once more, as it goes on
                is_killed = killed_at(place, number, lambda: curate.export("t.parquet", out(to), to=to))
                n_killed += is_killed
                if os.path.lexists(out(to)):
                    assert contents(out(to)) == expected, name
                    removed(out(to), file_only=is_killed)
            curate.export("t.parquet", out(to), to=to)
            assert contents(out(to)) == expected, name
            assert not Path(f"{out(to)}.part").exists()
            removed(out(to))
    assert n_killed >= len(PLACES) - 1
    assert contents("i") == sources


def test_what_is_done_is_not_done_again(workdir):
    assert killed_at((work, "append_line"), 4, lambda: curate.export("t.parquet", "out", to="webdataset"))
    first = Path("out.part/out/shard-000000.tar").stat().st_mtime_ns
    result = curate.export("t.parquet", "out", to="webdataset")
    assert (result.resumed, result.rows) == (15, N)
    assert Path("out/shard-000000.tar").stat().st_mtime_ns == first
    again = curate.export("t.parquet", "out", to="webdataset")
    assert again.notes == ("out is complete already: nothing to do",)
    assert Path("out/shard-000000.tar").stat().st_mtime_ns == first


@pytest.mark.parametrize("damage", ["truncated", "changed", "gone", "journal"])
def test_parts_that_are_not_as_they_were_written_are_written_again(workdir, damage):
    curate.export("t.parquet", "undisturbed", to="webdataset")
    assert killed_at((work, "append_line"), 4, lambda: curate.export("t.parquet", "out", to="webdataset"))
    shard = Path("out.part/out/shard-000001.tar")
    if damage == "gone":
        shard.unlink()
    elif damage == "journal":
        journal = Path("out.part/journal.jsonl")
        journal.write_bytes(journal.read_bytes()[:-9])  # a line that was cut off
    else:
        data = shard.read_bytes()
        shard.write_bytes(data[:-7] if damage == "truncated" else data[:600] + b"!" + data[601:])
    result = curate.export("t.parquet", "out", to="webdataset")
    assert result.resumed == 10
    assert contents("out") == contents("undisturbed")


def test_what_changes_while_it_is_written_is_found_at_the_end(workdir, monkeypatch):
    def change(parts, plan):
        path = parts.folder / "003.png"
        path.write_bytes(path.read_bytes()[::-1])
        return ()

    monkeypatch.setattr(FORMATS["folder"].__class__, "__eq__", object.__eq__)
    changed = FORMATS["folder"].__class__(**{**FORMATS["folder"].__dict__, "finish": change})
    monkeypatch.setattr("curate.exporting.folder.FOLDER", changed)
    with pytest.raises(InputError, match=r"003\.png changed"):
        curate.export("t.parquet", "out", to="folder")
    assert not Path("out").exists()


def test_a_foreign_file_among_ours_is_found_at_the_end(workdir):
    assert killed_at((work.WorkFolder, "publish"), 1, lambda: curate.export("t.parquet", "out", to="folder"))
    Path("out.part/out/stranger.txt").write_text("x")
    with pytest.raises(InputError, match=r"24 files .*got 25"):
        curate.export("t.parquet", "out", to="folder")


@pytest.mark.parametrize(
    ("table", "options", "said"),
    [
        ("u.parquet", {}, "another subset: "),
        ("t.parquet", {"link": "hard"}, "another link: copy there, hard here"),
        ("t.parquet", {"resize": 5}, "another resize: none there, 5 here"),
        ("t.parquet", {"to": "imagefolder"}, "another format: folder there, imagefolder here"),
    ],
)
def test_another_export_onto_a_half_done_one_is_refused_by_the_difference(workdir, table, options, said):
    assert killed_at((work, "append_line"), 2, lambda: curate.export("t.parquet", "out", to="folder"))
    Path("out.part/lock").unlink()
    before = contents("out.part")
    options = {"to": "folder", **options}
    with pytest.raises(InputError, match=r"out\.part belongs to"):
        curate.export(table, "out", **options)
    Path("out.part/lock").unlink()
    assert contents("out.part") == before
    result = curate.export(table, "out", **options, overwrite=True)
    assert result.resumed == 0
    assert sorted(path.name for path in workdir.iterdir() if path.is_dir()) == ["i", "out"]


def test_a_folder_of_that_name_that_is_no_export_is_left_alone(workdir):
    Path("out.part").mkdir()
    Path("out.part/mine.txt").write_text("important")
    for overwrite in (False, True):
        with pytest.raises(InputError, match="not an unfinished export"):
            curate.export("t.parquet", "out", to="folder", overwrite=overwrite)
    assert Path("out.part/mine.txt").read_text() == "important"


def test_two_processes_cannot_write_one_export(workdir):
    with work.WorkFolder(Path("out"), 1), pytest.raises(InputError, match=r"out\.part .*process \d+"):
        curate.export("t.parquet", "out", to="folder")


@pytest.mark.parametrize("to", ["folder", "webdataset", "csv"])
def test_a_disk_that_fills_up_is_one_line_and_the_export_goes_on_once_there_is_room(workdir, to, monkeypatch):
    curate.export("t.parquet", out(to, "undisturbed"), to=to)
    count = iter(range(1000))

    class Full(type(Path())):
        def open(self, *args, **kwargs):
            full = next(count) >= 12
            return Path("/dev/full").open("wb") if full else super().open(*args, **kwargs)

    def fresh(path):
        path.unlink(missing_ok=True)
        return Full(path)

    with monkeypatch.context() as patch:
        for module in (row_images, parts):
            patch.setattr(module, "fresh", fresh)
        with pytest.raises(InputError, match="disk is full"):
            curate.export("t.parquet", out(to), to=to)
    assert not os.path.lexists(out(to))
    result = curate.export("t.parquet", out(to), to=to)
    assert contents(out(to)) == contents(out(to, "undisturbed"))
    assert result.resumed == {"folder": 5, "webdataset": 20, "csv": 0}[to]


@pytest.mark.parametrize("to", ["folder", "imagefolder", "webdataset", "parquet"])
def test_images_that_are_gone_are_counted_before_anything_is_written_or_left_out_with_a_list(workdir, to):
    for number in (3, 4, 17):
        Path(f"i/{number:03}.png").unlink()
    with pytest.raises(InputError, match=r"'003\.png', and 2 more"):
        curate.export("t.parquet", "out", to=to)
    assert sorted(path.name for path in workdir.iterdir()) == ["i", "t.parquet", "u.parquet"]
    result = curate.export("t.parquet", "out", to=to, skip_missing=True)
    assert (result.rows, result.missing) == (20, 3)
    with pytest.raises(InputError, match="2 more of 23"):
        curate.export("t.parquet", "out", to=to)
    assert Path("out.missing.csv").read_text() == "key,why\n" + "".join(
        f"{n:03}.png,no such file\n" for n in (3, 4, 17)
    )
    assert result.paths == (Path("out"), Path("out.missing.csv"))


def test_an_image_that_is_another_one_now_cannot_be_had_and_what_is_done_waits(workdir):
    Path("i/012.png").write_bytes(picture(1))
    with pytest.raises(InputError, match=r"'012\.png': .*was scored"):
        curate.export("t.parquet", "out", to="webdataset")
    assert not Path("out").exists()
    Path("i/012.png").write_bytes(picture(12))
    assert curate.export("t.parquet", "out", to="webdataset").resumed == 18


def test_an_image_that_cannot_be_decoded_is_named_where_it_is_to_be_encoded(workdir):
    Path("i/002.png").write_bytes(b"\x89PNG\r\n\x1a\n junk")
    table(workdir / "t.parquet", N, sha256=[None] * N)
    curate.export("t.parquet", "as-it-is", to="folder")
    with pytest.raises(InputError, match=r"'002\.png': png: broken"):
        curate.export("t.parquet", "out", to="folder", resize=4)
    assert curate.export("t.parquet", "out", to="folder", resize=4, skip_missing=True).missing == 1


def test_hard_links_that_a_killed_run_left_do_not_lead_to_the_images(workdir):
    sources = contents("i")
    assert killed_at((work, "append_line"), 2, lambda: curate.export("t.parquet", "out", to="folder", link="hard"))
    curate.export("t.parquet", "out", to="folder", overwrite=True)
    assert contents("i") == sources
    assert all(path.stat().st_nlink == 1 for path in Path("out").iterdir())


DEVICES = ("con", "prn", "aux", "nul", "com1", "lpt9", "com¹")
ODD_NAMES = [
    "..",
    ".",
    "a/b",
    "a\\b",
    "~",
    "_none",
    "é",
    "e\u0301",
    "ﬁ",
    "fi",
    "\u202egpj",
    "-rf",
    " a",
    "a.",
    "a ",
    "CON.x",
]
WORDS = st.one_of(st.text(max_size=12), st.sampled_from([*DEVICES, *ODD_NAMES, "x" * 300, "🦊" * 80]))


@given(st.lists(WORDS, unique=True, max_size=30))
def test_folders_of_classes_are_safe_and_each_classs_own_on_every_file_system(labels):
    names = folder_names([None, *labels])
    assert len({_folded(name) for name in names.values()}) == len(names)
    for name in names.values():
        assert 0 < len(name.encode()) <= 255
        assert not set(name) & set('<>:"/\\|?*\0')
        assert name.isprintable()
        assert name[0] not in ". -"
        assert name[-1] not in ". "
        assert name.split(".")[0].casefold() not in DEVICES


def test_names_that_are_plain_stay_as_they_are():
    plain = ["cat", "Golden retriever", "naïve", "猫", "🦊", "v1.2", "a-b_c"]
    assert list(folder_names(plain).values()) == plain
