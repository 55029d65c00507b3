"""The image of duplicate groups: which groups and rows are shown, and where."""

import math
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deduplicated import HOSTILE, alone, dropped, fact, kept, write
from PIL import Image

from curate.sheets import groups as drawing
from curate.sheets.doubtful import doubtful_groups
from curate.sheets.groups import _short, group_sheet
from curate.sheets.tiles import Tile, contact_sheet
from curate.tables.table import open_table
from scoring.errors import InputError

COLOURS = {
    "red": (255, 0, 0),
    "green": (0, 255, 0),
    "blue": (0, 0, 255),
    "yellow": (255, 255, 0),
    "cyan": (0, 255, 255),
    "pink": (255, 0, 255),
}
FRAME, WHITE, GREY = (0, 128, 0), (255, 255, 255), (128, 128, 128)


@pytest.fixture
def folder(tmp_path):
    """Images of one colour each, and a table with their paths and labels."""
    for name, colour in COLOURS.items():
        Image.new("RGB", (200, 100), colour).save(tmp_path / f"{name}.png")
    names = list(COLOURS)
    uris = [str(tmp_path / f"{name}.png") for name in names]
    pq.write_table(
        pa.table({"key": names, "uri": uris, "label": [f"a {name}" for name in names]}), tmp_path / "t.parquet"
    )
    return tmp_path


def draw(folder, decisions, out, groups=None, **settings):
    n = group_sheet(open_table(folder / "t.parquet"), *write(folder, decisions, groups), folder / out, **settings)
    with Image.open(folder / out) as sheet:
        return n, sheet.convert("RGB")


def sections(folder, decisions, groups=None, **settings):
    """The headings that are drawn, each with its tiles."""
    drawn = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(drawing, "contact_sheet", lambda parts, **how: drawn.append(parts) or contact_sheet(parts, **how))
        draw(folder, decisions, "sections.png", groups, overwrite=True, **settings)
    return drawn[0]


TWO_GROUPS = [
    kept("red", 3),
    dropped("green", "red", 3, 0.98),
    alone("pink"),
    kept("blue", 5),
    dropped("yellow", "blue", 5, 0.95),
    dropped("cyan", "blue", 5, 0.91, reason="rotated"),
]


def colour_of(image):
    """The name of the colour in the middle of an image."""
    pixels = np.asarray(image)
    pixel = pixels[len(pixels) // 2, pixels.shape[1] // 2].astype(int)
    return min(COLOURS, key=lambda name: np.abs(pixel - COLOURS[name]).sum())


def colours(tiles):
    return [colour_of(tile.pixels) for tile in tiles]


# Which groups, which rows


def test_a_leak_that_was_reported_and_not_dropped_is_shown_as_kept(folder):
    row = dropped("green", "red", 3, 0.98) | {"decision": "keep"}
    (group,) = doubtful_groups(*write(folder, [kept("red", 3), row]), limit=5)
    assert [(member.key, member.is_kept, member.decision) for member in group.members] == [
        ("red", True, "keep"),
        ("green", False, "keep"),
    ]
    ((_, (first, second)),) = sections(folder, [kept("red", 3), row])
    assert (first.first, second.first) == ("kept", "0.98, keep")


def place(group, index):
    """Where a tile is: small groups stand side by side, each four tiles wide, below 36 px of heading."""
    return 8 + (4 * group + index) * 136, 8 + 36


def tile(sheet, group, index):
    """The 128 x 128 pixels of a tile."""
    x, y = place(group, index)
    return sheet.crop((x, y, x + 128, y + 128))


def test_groups_stand_side_by_side_on_the_sheet_with_the_kept_one_first_in_a_green_frame(folder):
    n, sheet = draw(folder, TWO_GROUPS, "sheet.png")
    assert n == 2
    shown = [[colour_of(tile(sheet, group, at)) for at in range(size)] for group, size in ((0, 3), (1, 2))]
    assert shown == [["blue", "cyan", "yellow"], ["red", "green"]]
    for group in range(2):
        x, y = place(group, 0)
        edge = [sheet.getpixel((x - 2, y + 60)), sheet.getpixel((x + 129, y + 60)), sheet.getpixel((x + 60, y + 129))]
        assert edge == [FRAME] * 3
        assert sheet.getpixel((x + 136 + 129, y + 60)) == WHITE
    assert sheet.size[0] == 8 + 8 * 136


def test_a_hundred_pairs_fill_a_sheet_and_leave_it_not_mostly_white():
    from curate.sheets.groups import FEWEST_COLUMNS, MOST_COLUMNS

    pair = [Tile(np.zeros((128, 128, 3), np.uint8), "kept", "a")] * 2
    sheet = contact_sheet([("a pair", pair)] * 100, columns=MOST_COLUMNS, fewest=FEWEST_COLUMNS)
    assert sheet.size == (8 + 12 * 136, 8 + 34 * (36 + 166))  # three pairs next to one another
    black = (np.asarray(sheet.convert("L")) < 10).mean()
    assert black > 0.25


def test_an_unreadable_image_gets_a_tile_with_its_error(folder):
    (folder / "cyan.png").write_bytes(b"\x89PNG\r\n\x1a\n and no more")
    (folder / "green.png").unlink()
    n, sheet = draw(folder, TWO_GROUPS, "sheet.png")
    assert n == 2
    for group, at in ((0, 1), (1, 1)):
        pixels = np.asarray(tile(sheet, group, at))
        assert (pixels[0] == GREY).all()
        assert (pixels[50:80] < 200).any()


def test_a_run_without_duplicates_is_reported(folder):
    n, sheet = draw(folder, [alone("red")], "sheet.png")
    assert n == 0
    assert (np.asarray(sheet) < 100).any()
    assert sections(folder, [alone("red")]) == [("no duplicates", [])]


def test_hostile_names_are_drawn_as_text(folder):
    for key in HOSTILE:
        pq.write_table(pa.table({"key": [key, "b"], "uri": [str(folder / "red.png")] * 2}), folder / "t.parquet")
        group = fact(1, key, 2, 0.9, finders=[key], labels=[key, "b"], conflict=True)
        n, _ = draw(
            folder, [kept(key, 1), dropped("b", key, 1, 0.95, reason=key)], "sheet.png", [group], overwrite=True
        )
        assert n == 1


def test_a_group_has_a_heading_and_its_least_alike_first_after_the_kept_one(folder):
    (heading, tiles), (_, others) = sections(folder, TWO_GROUPS)
    assert [colours(tiles), colours(others)] == [["blue", "cyan", "yellow"], ["red", "green"]]
    assert heading.startswith("group 5 · 3 images · smallest similarity 0.91")
    assert [tile.first for tile in tiles] == ["kept", "0.91", "0.95"]
    assert "rotated" in " ".join(tiles[1].more)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({}, "2 images · smallest similarity 0.98 (signature) · cosine"),
        ({"measure": "hash", "smallest_similarity": 4.0}, "2 images · up to 4 bits differ · cosine"),
        ({"measure": None}, "2 images · smallest similarity 0.98 · cosine"),
        ({"smallest_similarity": None}, "2 images · cosine"),
        ({"smallest_similarity": math.nan}, "2 images · cosine"),
    ],
)
def test_a_heading_says_how_alike_the_least_alike_pair_is(folder, change, words):
    ((heading, _),) = sections(folder, TWO_GROUPS[:2], [fact(3, "red", 2, 0.98) | change])
    assert heading == f"group 3 · {words}"


def test_a_short_reason_leaves_out_the_kept_key_shown_next_to_it():
    lines = _short("the same as a/b.png by signature (cosine 0.9731, mirrored), but stays", "a/b.png")
    assert " ".join(lines) == "by signature (cosine 0.9731, mirrored), but stays"
    assert len(lines) == 3
    assert _short("like no other", "") == ["like no other"]


def test_only_twelve_of_a_large_group_are_shown_and_the_rest_counted(folder):
    names = [f"copy {i}" for i in range(3423)]
    table = pa.table({"key": ["best", *names], "uri": [str(folder / "red.png")] * 3424})
    pq.write_table(table, folder / "t.parquet")
    rows = [kept("best", 1), *(dropped(name, "best", 1, 0.95) for name in names)]
    ((heading, tiles),) = sections(folder, rows)
    assert len(tiles) == 12
    assert heading.endswith("and 3,412 more")
    assert "3,424 images" in heading


def test_different_labels_are_marked_and_labels_of_each_row_shown_on_request(folder):
    groups = [fact(3, "red", 2, 0.98), fact(5, "blue", 3, 0.91, labels=["cat", "dog"], conflict=True, margin=0.1)]
    (heading, tiles), (other, _) = sections(folder, TWO_GROUPS, groups, label="label")
    assert heading.endswith("LABELS DIFFER: cat, dog")
    assert "label: a blue" in tiles[0].more
    assert "LABELS" not in other


def test_the_same_run_gives_the_same_bytes(folder):
    draw(folder, TWO_GROUPS, "a.png")
    first = (folder / "a.png").read_bytes()
    draw(folder, list(TWO_GROUPS), "a.png", overwrite=True)
    assert (folder / "a.png").read_bytes() == first


# Where images come from


def test_bytes_inside_a_parquet_file_are_found_by_key(folder):
    names = list(COLOURS)
    data = [(folder / f"{name}.png").read_bytes() for name in reversed(names)]
    pq.write_table(pa.table({"key": names[::-1], "image": data}), folder / "images.parquet")
    pq.write_table(pa.table({"key": names, "uri": pa.nulls(len(names), pa.string())}), folder / "t.parquet")
    drawn = sections(folder, TWO_GROUPS, source=str(folder / "images.parquet"))
    assert [colours(tiles) for _, tiles in drawn] == [["blue", "cyan", "yellow"], ["red", "green"]]
    with pytest.raises(InputError, match="5 of 5 images"):
        draw(folder, TWO_GROUPS, "other.png")
    assert not (folder / "other.png").exists()


OF_ANOTHER = [fact(3, "red", 2, 0.98) | {"other_table": True}]


@pytest.mark.parametrize("decision", ["drop", "keep"])
def test_the_kept_one_of_another_set_is_read_there_even_when_its_key_is_in_both(folder, decision):
    other = pa.table({"key": ["red"], "uri": [str(folder / "pink.png")]})
    pq.write_table(other, folder / "old.parquet")
    decisions = [
        dropped(key, "red", 3, score) | {"decision": decision} for key, score in (("red", 0.99), ("green", 0.98))
    ]
    ((heading, tiles),) = sections(folder, decisions, OF_ANOTHER, against=(open_table(folder / "old.parquet"), None))
    assert colours(tiles) == ["pink", "green", "red"]
    assert "3 images" in heading
    assert [tile.frame for tile in tiles] == ["green", None, None]


def test_the_table_of_a_kept_image_must_be_passed(folder):
    with pytest.raises(InputError, match="it as --against"):
        draw(folder, [dropped("green", "red", 3, 0.98), alone("red")], "page.png", OF_ANOTHER)


def test_the_labelled_pairs_of_real_photographs_are_drawn(tmp_path):
    data = Path(__file__).resolve().parents[4] / "shared" / "data" / "caltech_subset.parquet"
    if not data.exists():
        pytest.skip(f"{data} is absent")
    keys = ["llama/image_0001.jpg", "llama/image_0010.jpg"]
    pq.write_table(pa.table({"key": keys, "uri": pa.nulls(2, pa.string())}), tmp_path / "t.parquet")
    decisions = [kept(keys[0], 1), dropped(keys[1], keys[0], 1, 0.95)]
    ((_, tiles),) = sections(tmp_path, decisions, source=str(data))
    small = (Image.fromarray(tile.pixels).resize((16, 16)).convert("L") for tile in tiles)
    first, second = (np.asarray(image, float).ravel() for image in small)
    assert np.corrcoef(first, second)[0, 1] > 0.9


# Mistakes


@pytest.mark.parametrize(
    ("out", "settings", "words"),
    [
        ("sheet.jpg", {}, r"got .*sheet.jpg"),
        ("red.png", {}, r"red.png exists already"),
        ("/dev/null/sheet.png", {}, "not a folder"),
        ("sheet.png", {"label": "labl"}, "did you mean 'label'"),
    ],
)
def test_a_mistake_is_one_line_and_draws_nothing(folder, out, settings, words):
    before = sorted(folder.iterdir())
    with pytest.raises(InputError, match=words) as raised:
        draw(folder, TWO_GROUPS, out, **settings)
    assert "\n" not in str(raised.value)
    assert [path for path in folder.iterdir() if path not in before and path.suffix != ".parquet"] == []


def test_decisions_of_another_table_are_refused(folder):
    with pytest.raises(InputError, match=r"'grey' \(1 of 6"):
        draw(folder, [*TWO_GROUPS, dropped("grey", "red", 3, 0.97)], "page.png")


def test_groups_of_another_run_are_refused(folder):
    other = [fact(3, "red", 2, 0.98), fact(9, "blue", 3, 0.91)]
    words = r"has no row of group 9, which .* names \(1 of 2 are missing\); pass the two files of one run"
    with pytest.raises(InputError, match=words):
        draw(folder, TWO_GROUPS, "page.png", other)


def test_decisions_of_a_filter_are_refused_by_the_missing_column(folder):
    decisions, groups = write(folder, TWO_GROUPS)
    pq.write_table(decisions.read().drop_columns(["group"]), folder / "filter.parquet")
    with pytest.raises(InputError, match="no column 'group'"):
        doubtful_groups(open_table(folder / "filter.parquet"), groups, limit=5)
