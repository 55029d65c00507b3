"""``curate sheet``: the right images in the right places."""

import io
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from typer.testing import CliRunner

from curate.cli import app
from curate.sheets.tiles import Tile, contact_sheet
from scoring.errors import InputError

# kappa -> colour; the rows of the table are in another order.
COLOURS = {5.0: (255, 0, 0), 4.0: (0, 255, 0), 3.0: (0, 0, 255), 2.0: (255, 255, 0), 1.0: (0, 255, 255)}
ORDER = [3.0, 5.0, 1.0, 4.0, 2.0]
WHITE, BLACK, GREY = (255, 255, 255), (0, 0, 0), (128, 128, 128)


def png(colour, size=(128, 128)):
    buffer = io.BytesIO()
    Image.new("RGB", size, colour).save(buffer, "PNG")
    return buffer.getvalue()


def run(*args):
    return CliRunner().invoke(app, ["sheet", *map(str, args)])


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Five images of one colour each, a table of them, and a Parquet file that holds their bytes in reverse."""
    monkeypatch.chdir(tmp_path)
    for kappa, colour in COLOURS.items():
        (tmp_path / f"{kappa:.0f}.png").write_bytes(png(colour))
    keys = [f"{kappa:.0f}.png" for kappa in ORDER]
    uris = [str(tmp_path / key) for key in keys]
    kappas = pa.array(ORDER, pa.float32())
    pq.write_table(pa.table({"key": keys, "uri": uris, "kappa_a": kappas}), "scores.parquet")
    pq.write_table(pa.table({"key": keys, "uri": pa.nulls(5, pa.string()), "kappa_a": kappas}), "inside.parquet")
    data = [(tmp_path / key).read_bytes() for key in reversed(keys)]
    pq.write_table(pa.table({"key": keys[::-1], "image": data}), "images.parquet")
    return tmp_path


def tile_at(sheet, heading, index, columns=10, above=0):
    """The 128 x 128 pixels of a tile: 8 px between tiles, 30 px of caption beneath, 36 px for each heading."""
    x = 8 + (index % columns) * 136
    y = 8 + 36 * heading + (above + index // columns) * 166
    return np.asarray(sheet.crop((x, y, x + 128, y + 128)))


def colour_of(tile):
    """The one colour of a tile; an image in the wrong place would show white or a neighbour."""
    colours = {tuple(pixel) for pixel in tile.reshape(-1, 3).tolist()}
    assert len(colours) == 1
    return colours.pop()


def test_the_highest_stand_above_in_falling_order_and_the_lowest_below_in_rising_order(folder):
    result = run("scores.parquet", "-o", "sheet.png", "--top", 3, "--bottom", 2)
    assert result.exit_code == 0
    assert result.stderr == "3 highest and 2 lowest of kappa_a: sheet.png\n"
    with Image.open("sheet.png") as sheet:
        shown = [colour_of(tile_at(sheet, 1, i)) for i in range(3)]
        below = [colour_of(tile_at(sheet, 2, i, above=1)) for i in range(2)]
        assert colour_of(tile_at(sheet, 1, 3)) == WHITE
    assert shown == [COLOURS[5.0], COLOURS[4.0], COLOURS[3.0]]
    assert below == [COLOURS[1.0], COLOURS[2.0]]


def test_a_table_with_fewer_rows_than_requested_is_drawn_once(folder):
    result = run("scores.parquet", "-o", "sheet.png", "--top", 30, "--bottom", 30)
    assert result.stderr == "3 highest and 2 lowest of kappa_a: sheet.png\n"


def test_a_caption_is_printed_beneath_its_tile_and_nowhere_else(folder):
    run("scores.parquet", "-o", "sheet.png", "--top", 1, "--bottom", 0)
    with Image.open("sheet.png") as sheet:
        beneath = np.asarray(sheet.convert("L").crop((8, 8 + 36 + 128, 136, 8 + 36 + 128 + 30)))
        beside = np.asarray(sheet.convert("L").crop((144, 44, 272, 44 + 158)))
    assert (beneath < 100).sum() > 20
    assert (beside == 255).all()


def test_images_keep_their_shape_and_are_centred(folder):
    (folder / "5.png").write_bytes(png((255, 0, 0), (64, 32)))  # twice as wide as high
    (folder / "4.png").write_bytes(png((0, 255, 0), (100, 400)))  # a quarter as wide as high
    run("scores.parquet", "-o", "sheet.png", "--top", 2, "--bottom", 0)
    with Image.open("sheet.png") as sheet:
        wide, high = tile_at(sheet, 1, 0), tile_at(sheet, 1, 1)
    rows = np.flatnonzero((wide == COLOURS[5.0]).all(2).all(1))
    columns = np.flatnonzero((high == COLOURS[4.0]).all(2).all(0))
    assert (rows[0], rows[-1]) == (32, 95)
    assert (columns[0], columns[-1]) == (48, 79)


def test_bytes_inside_a_parquet_file_are_found_by_key_in_whatever_order_they_are(folder):
    result = run("inside.parquet", "--source", "images.parquet", "-o", "sheet.png", "--top", 5, "--bottom", 0)
    assert result.exit_code == 0, result.output
    with Image.open("sheet.png") as sheet:
        assert [colour_of(tile_at(sheet, 1, i)) for i in range(5)] == list(COLOURS.values())


def test_a_subset_of_scored_bytes_can_be_drawn(folder, tiny_checkpoint):
    score = ["score", "images.parquet", "-o", "s.parquet", "--model", str(tiny_checkpoint), "--device", "cpu"]
    assert CliRunner().invoke(app, score).exit_code == 0
    assert CliRunner().invoke(app, ["filter", "s.parquet", "--keep-top", "2", "-o", "k.parquet"]).exit_code == 0
    result = run("k.parquet", "--source", "images.parquet", "-o", "sheet.png", "--bottom", 0)
    assert result.exit_code == 0, result.output
    kept = sorted(pq.read_table("k.parquet").to_pylist(), key=lambda row: -row["kappa_visimsiam"])
    with Image.open("sheet.png") as sheet:
        shown = [colour_of(tile_at(sheet, 1, i)) for i in range(2)]
    assert shown == [COLOURS[float(row["key"].removesuffix(".png"))] for row in kept]


def test_an_image_that_cannot_be_read_gets_a_marked_tile(folder):
    (folder / "5.png").write_bytes(b"\x89PNG\r\n\x1a\n and no more")
    (folder / "4.png").unlink()
    assert run("scores.parquet", "-o", "sheet.png", "--top", 3, "--bottom", 0).exit_code == 0
    with Image.open("sheet.png") as sheet:
        tiles = [tile_at(sheet, 1, i) for i in range(3)]
    for tile in tiles[:2]:
        edge = np.concatenate([tile[0], tile[-1], tile[:, 0], tile[:, -1]])
        assert (edge == GREY).all()
        assert (tile[2:40, 2:-2] == 255).all()
        assert (tile[50:80] < 200).any()  # it says so in the middle
    assert colour_of(tiles[2]) == COLOURS[3.0]


def test_rows_without_a_value_have_no_place_and_ties_go_to_the_earlier_row(folder):
    table = pq.read_table("scores.parquet").set_column(
        2, "kappa_a", pa.array([7.0, None, 7.0, float("nan"), 1.0], pa.float32())
    )
    pq.write_table(table, "odd.parquet")
    result = run("odd.parquet", "-o", "sheet.png", "--bottom", 0)
    assert result.stderr.startswith("3 highest of kappa_a")
    with Image.open("sheet.png") as sheet:
        shown = [colour_of(tile_at(sheet, 1, i)) for i in range(4)]
    assert shown == [COLOURS[3.0], COLOURS[1.0], COLOURS[2.0], WHITE]


def test_another_column_can_be_sorted_by(folder):
    table = pq.read_table("scores.parquet").append_column("sharp", pa.array([1, 2, 3, 4, 5]))
    pq.write_table(table, "two.parquet")
    assert run("two.parquet", "--column", "sharp", "-o", "sheet.png", "--top", 2).exit_code == 0
    with Image.open("sheet.png") as sheet:
        assert [colour_of(tile_at(sheet, 1, i)) for i in range(2)] == [COLOURS[2.0], COLOURS[4.0]]


def test_an_existing_image_is_kept_until_overwrite(folder):
    before = (folder / "5.png").read_bytes()
    result = run("scores.parquet", "-o", "5.png")
    assert result.exit_code == 1
    assert result.stderr == "error: 5.png exists already; choose another name, or replace it with --overwrite\n"
    assert (folder / "5.png").read_bytes() == before
    shutil.copy("5.png", "old.png")
    assert run("scores.parquet", "-o", "old.png", "--overwrite").exit_code == 0
    assert (folder / "old.png").read_bytes() != before


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["inside.parquet"], "inside.parquet holds no path"),
        (["scores.parquet", "--column", "kapa_a"], "did you mean 'kappa_a'"),
        (["scores.parquet", "--top", "0", "--bottom", "0"], "value in kappa_a"),
        (["inside.parquet", "--source", "other.parquet"], "key '3.png'"),
        (["inside.parquet", "--source", "nowhere"], "nowhere"),
    ],
)
def test_a_mistake_is_one_line_with_exit_1_and_draws_nothing(folder, args, words):
    pq.write_table(pa.table({"key": ["a"], "image": [png(BLACK)]}), "other.parquet")
    result = run(*args, "-o", "sheet.png")
    assert result.exit_code == 1
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    assert words in result.stderr
    assert not (folder / "sheet.png").exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("-o sheet.jpg", "got sheet.jpg"),
        ("-o /dev/null/sheet.png", "not a folder"),
        ("-o sheet.png --column uri", "got string"),
    ],
)
@pytest.mark.usefixtures("folder")
def test_a_name_or_column_that_cannot_be_drawn_is_one_line(options, words):
    result = run("scores.parquet", *options.split())
    assert result.exit_code == 1
    assert words in result.stderr
    assert result.stderr.count("\n") == 1


def test_more_than_2000_images_are_refused():
    tile = Tile(None, "1", "a")
    assert contact_sheet([("all", [tile] * 2000)], columns=100).height == 8 + 36 + 20 * 166
    with pytest.raises(InputError, match="2000 images, got 2001"):
        contact_sheet([("some", [tile] * 1000), ("more", [tile] * 1001)])


def test_too_many_images_are_refused_before_any_is_read(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    n = 2100
    table = pa.table({"key": [str(i) for i in range(n)], "uri": ["/none"] * n, "kappa_a": np.arange(n, dtype="f4")})
    pq.write_table(table, "many.parquet")
    read = []
    monkeypatch.setattr("curate.tables.images.read_uri", lambda uri: read.append(uri))
    result = run("many.parquet", "-o", "sheet.png", "--top", 1001, "--bottom", 1000)
    assert result.exit_code == 1
    assert "2000 images, got 2001" in result.stderr
    assert not read


def test_a_caption_that_is_too_long_is_cut_inside_its_tile():
    tile = Tile(np.zeros((10, 10, 3), np.uint8), "1.5", "a" * 500)
    sheet = contact_sheet([("", [tile])], columns=2)
    caption = np.asarray(sheet.convert("L").crop((0, 44 + 128, sheet.width, sheet.height)))
    dark = np.flatnonzero((caption < 128).any(0))
    assert dark.min() >= 8
    assert dark.max() < 8 + 128 + 2


def test_both_sides_of_a_cut_are_drawn_in_the_colours_of_what_becomes_of_them(folder):
    run_filter = CliRunner().invoke(app, ["filter", "scores.parquet", "--keep-top", "2", "-o", "kept.parquet"])
    assert run_filter.exit_code == 0, run_filter.output
    args = ("scores.parquet", "-o", "sheet.png", "--top", 1, "--bottom", 1, "--decisions", "kept.decisions.parquet")
    assert run(*args).exit_code == 0
    with Image.open("sheet.png") as sheet:
        tiles = [colour_of(tile_at(sheet, i + 1, 0, above=i)) for i in range(4)]
        frames = [sheet.getpixel((8 - 2, 8 + 36 * (i + 1) + i * 166 - 2)) for i in range(4)]
    assert tiles == [COLOURS[5.0], COLOURS[1.0], COLOURS[3.0], COLOURS[4.0]]  # highest, lowest, just dropped, just kept
    green, red = (0, 128, 0), (255, 0, 0)
    assert frames == [green, red, red, green]
    (folder / "other.parquet").write_bytes((folder / "kept.decisions.parquet").read_bytes())
    data = pq.read_table("scores.parquet").set_column(0, "key", pa.array([f"x{i}" for i in range(5)]))
    pq.write_table(data, "strangers.parquet")
    refused = run("strangers.parquet", "-o", "s.png", "--decisions", "kept.decisions.parquet")
    assert (refused.exit_code, refused.stderr.count("\n")) == (1, 1)
    assert "of strangers.parquet" in refused.stderr


def test_a_batch_without_scores_is_drawn_in_the_order_of_its_ranks(folder):
    data = pq.read_table("scores.parquet").drop_columns(["kappa_a"]).append_column("rank", pa.array([3, 1, 5, 2, 4]))
    pq.write_table(data, "batch.parquet")
    assert run("batch.parquet", "-o", "sheet.png").stderr == "5 lowest of rank: sheet.png\n"
    with Image.open("sheet.png") as sheet:
        shown = [colour_of(tile_at(sheet, 1, i)) for i in range(5)]
    assert shown == list(COLOURS.values())


def test_headings_say_which_end_is_the_least_certain():
    from curate.sheets.contact import _ends
    from curate.sheets.rank import Extremes

    titles = [title for title, _ in _ends(Extremes("unc_a", [0], [1, 2], 3000))]
    assert titles == ["least certain, highest unc_a: 1 of 3,000 rows", "most certain, lowest unc_a: 2 of 3,000 rows"]
    titles = [title for title, _ in _ends(Extremes("kappa_a", [0], [], 1))]
    assert titles == ["most certain, highest kappa_a: 1 of 1 row", "least certain, lowest kappa_a: 0 of 1 row"]
    assert _ends(Extremes("width", [0], [], 2))[0][0] == "highest width: 1 of 2 rows"


@pytest.mark.parametrize(
    ("environment", "line"),
    [
        ({"KITTY_WINDOW_ID": "1", "TERM": "xterm-kitty"}, "kitten icat 'a b.png'"),
        ({"TERM_PROGRAM": "iTerm.app"}, "imgcat 'a b.png'"),
        ({"TERM": "xterm-sixel"}, "img2sixel 'a b.png'"),
        ({"TERM": "xterm-256color"}, None),
        ({}, None),
    ],
)
def test_terminals_that_show_images_get_their_escape_codes(environment, line):
    from curate.commands.sheet import how_to_show

    assert how_to_show(Path("a b.png"), environment) == line
