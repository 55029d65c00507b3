"""The image of duplicate groups: which groups and rows are shown, where, and that nothing in a name can act."""

import base64
import hashlib
import html
import io
import math
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deduplicated import HOSTILE, alone, dropped, fact, kept, write
from PIL import Image

from curate.sheets.doubtful import doubtful_groups
from curate.sheets.groups import _short, group_sheet
from curate.sheets.sheet import Tile, contact_sheet
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
    if out.endswith(".html"):
        return n, (folder / out).read_text(encoding="utf-8")
    with Image.open(folder / out) as sheet:
        return n, sheet.convert("RGB")


TWO_GROUPS = [
    kept("red", 3),
    dropped("green", "red", 3, 0.98),
    alone("pink"),
    kept("blue", 5),
    dropped("yellow", "blue", 5, 0.95),
    dropped("cyan", "blue", 5, 0.91, reason="rotated"),
]


class Seen(HTMLParser):
    """What a browser would make of a page: elements with their attributes, and text outside script and style."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.tags, self.words, self._inside = [], [], None
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self._inside = tag

    def handle_endtag(self, tag):
        self._inside = None

    def handle_data(self, data):
        if self._inside not in ("script", "style"):
            self.words.append(data)

    def all(self, tag):
        return [attrs for name, attrs in self.tags if name == tag]


def sections_of(text):
    return re.findall(r"<section.*?</section>", text, re.S)


def colour_of(image):
    """The name of the colour in the middle of a JPEG or a crop."""
    pixel = np.asarray(image)[image.height // 2, image.width // 2].astype(int)
    return min(COLOURS, key=lambda name: np.abs(pixel - COLOURS[name]).sum())


def pictures_of(text):
    data = re.findall(r'src="data:image/jpeg;base64,([^"]+)"', text)
    return [Image.open(io.BytesIO(base64.b64decode(part))).convert("RGB") for part in data]


# Which groups, which rows


def test_a_leak_that_was_reported_and_not_dropped_is_shown_as_kept(folder):
    row = dropped("green", "red", 3, 0.98) | {"decision": "keep"}
    (group,) = doubtful_groups(*write(folder, [kept("red", 3), row]), limit=5)
    assert [(member.key, member.is_kept, member.decision) for member in group.members] == [
        ("red", True, "keep"),
        ("green", False, "keep"),
    ]
    _, text = draw(folder, [kept("red", 3), row], "page.html")
    assert "0.98 (threshold 0.9), keep" in text


# PNG


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


def test_an_image_that_cannot_be_read_gets_a_tile_that_says_so(folder):
    (folder / "cyan.png").write_bytes(b"\x89PNG\r\n\x1a\n and no more")
    (folder / "green.png").unlink()
    n, sheet = draw(folder, TWO_GROUPS, "sheet.png")
    assert n == 2
    for group, at in ((0, 1), (1, 1)):
        pixels = np.asarray(tile(sheet, group, at))
        assert (pixels[0] == GREY).all()
        assert (pixels[50:80] < 200).any()
    _, text = draw(folder, TWO_GROUPS, "page.html")
    assert text.count(">not readable</span>") == 2
    assert len(pictures_of(text)) == 3


def test_a_run_without_duplicates_says_so(folder):
    n, sheet = draw(folder, [alone("red")], "sheet.png")
    assert n == 0
    assert (np.asarray(sheet) < 100).any()
    n, text = draw(folder, [alone("red")], "page.html")
    assert n == 0
    assert "No duplicates were found." in text


@pytest.mark.parametrize("out", ["sheet.png", "page.html"])
def test_hostile_names_are_drawn_as_text(folder, out):
    for key in HOSTILE:
        pq.write_table(pa.table({"key": [key, "b"], "uri": [str(folder / "red.png")] * 2}), folder / "t.parquet")
        group = fact(1, key, 2, 0.9, finders=[key], labels=[key, "b"], conflict=True)
        n, _ = draw(folder, [kept(key, 1), dropped("b", key, 1, 0.95, reason=key)], out, [group], overwrite=True)
        assert n == 1


# HTML


def test_the_page_holds_the_groups_in_order_with_pictures_of_at_most_160_pixels(folder):
    n, text = draw(folder, TWO_GROUPS, "page.html")
    assert n == 2
    shown = [[colour_of(picture) for picture in pictures_of(section)] for section in sections_of(text)]
    assert shown == [["blue", "cyan", "yellow"], ["red", "green"]]
    assert {picture.size for picture in pictures_of(text)} == {(160, 80)}
    first = html.unescape(re.sub("<[^>]+>", " ", sections_of(text)[0]))
    assert "group 5 · 3 images · smallest similarity 0.91" in first
    assert first.index("kept") < first.index("0.91 (threshold 0.9)") < first.index("0.95 (threshold 0.9)")
    assert "the same as 'blue': rotated" in first


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({}, "2 images · smallest similarity 0.98 (signature) · <bdi>cosine</bdi>"),
        ({"measure": "hash", "smallest_similarity": 4.0}, "2 images · up to 4 bits differ · <bdi>cosine</bdi>"),
        ({"measure": None}, "2 images · smallest similarity 0.98 · <bdi>cosine</bdi>"),
        ({"smallest_similarity": None}, "2 images · <bdi>cosine</bdi>"),
        ({"smallest_similarity": math.nan}, "2 images · <bdi>cosine</bdi>"),
    ],
)
def test_a_heading_says_how_alike_the_least_alike_pair_is(folder, change, words):
    _, text = draw(folder, TWO_GROUPS[:2], "page.html", [fact(3, "red", 2, 0.98) | change])
    assert f"<h2>group 3 · {words}" in text


def test_a_short_reason_leaves_out_the_kept_key_which_stands_beside_it():
    lines = _short("the same as a/b.png by signature (cosine 0.9731, mirrored), but stays", "a/b.png")
    assert " ".join(lines) == "by signature (cosine 0.9731, mirrored), but stays"
    assert len(lines) == 3
    assert _short("like no other", "") == ["like no other"]


def test_only_twelve_of_a_large_group_are_shown_and_the_rest_counted(folder):
    names = [f"copy {i}" for i in range(3423)]
    table = pa.table({"key": ["best", *names], "uri": [str(folder / "red.png")] * 3424})
    pq.write_table(table, folder / "t.parquet")
    _, text = draw(folder, [kept("best", 1), *(dropped(name, "best", 1, 0.95) for name in names)], "page.html")
    assert len(pictures_of(text)) == 12
    assert "<p>and 3,412 more</p>" in text
    assert "3,424 images" in text


def test_different_labels_are_marked_and_those_of_each_row_shown_when_asked(folder):
    groups = [fact(3, "red", 2, 0.98), fact(5, "blue", 3, 0.91, labels=["cat", "dog"], conflict=True, margin=0.1)]
    _, text = draw(folder, TWO_GROUPS, "page.html", groups, label="label")
    conflict, other = sections_of(text)
    assert conflict.startswith('<section class="conflict">')
    assert "labels differ: <bdi>cat, dog</bdi>" in conflict
    assert "<bdi>a blue</bdi>" in conflict
    assert other.startswith("<section><h2>")
    assert "label <bdi>cat</bdi>" in other


def test_the_policy_of_the_page_names_its_one_style_and_its_one_script_and_forbids_the_rest(folder):
    _, text = draw(folder, TWO_GROUPS, "page.html")
    seen = Seen(text)
    policy = next(
        attrs["content"] for attrs in seen.all("meta") if attrs.get("http-equiv") == "Content-Security-Policy"
    )
    digests = {}
    for tag in ("style", "script"):
        (inside,) = re.findall(f"<{tag}>(.*?)</{tag}>", text, re.S)
        digests[tag] = base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()
    assert policy.split("; ") == [
        "default-src 'none'",
        "img-src data:",
        f"style-src 'sha256-{digests['style']}'",
        f"script-src 'sha256-{digests['script']}'",
        "base-uri 'none'",
        "form-action 'none'",
    ]
    assert text.index("Content-Security-Policy") < text.index("<style>")
    for tag, attrs in seen.tags:
        assert not [name for name in attrs if name.startswith("on") or name == "style"], tag
        assert tag not in ("a", "base", "embed", "form", "iframe", "link", "object")
    assert all(attrs["src"].startswith("data:image/jpeg;base64,") for attrs in seen.all("img"))


def test_no_name_changes_the_elements_of_the_page(folder):
    def skeleton(keys, words):
        uris = [str(folder / "red.png")] * len(keys)
        pq.write_table(pa.table({"key": keys, "uri": uris, "label": words}), folder / "t.parquet")
        rows = [kept(keys[0], 1), *(dropped(key, keys[0], 1, 0.95, reason=key) for key in keys[1:])]
        group = fact(1, keys[0], 9, 0.9, finders=words, labels=words, conflict=True)
        _, text = draw(folder, rows, "page.html", [group], overwrite=True, label="label")
        return Seen(text), text

    seen, text = skeleton(HOSTILE, HOSTILE)
    harmless, _ = skeleton(list("abcdefghi"), list("abcdefghi"))
    assert [(tag, sorted(attrs)) for tag, attrs in seen.tags] == [(tag, sorted(attrs)) for tag, attrs in harmless.tags]
    assert "".join(seen.words).count("<script>alert(1)</script>") >= 3  # as text: key, reason, labels
    assert next(attrs["alt"] for attrs in seen.all("img")) == HOSTILE[0]
    assert not set(text) & set("\x00\x1b\r\t\u202e")
    assert max(map(len, seen.words)) < 5000


def test_a_title_is_the_name_of_the_table_escaped(folder):
    name = folder / "<b>&.parquet"
    (folder / "t.parquet").rename(name)
    group_sheet(open_table(name), *write(folder, TWO_GROUPS), folder / "page.html")
    assert "<title>Duplicates in &lt;b&gt;&amp;.parquet</title>" in (folder / "page.html").read_text()


def test_the_same_run_gives_the_same_bytes(folder):
    for out in ("a.png", "a.html"):
        draw(folder, TWO_GROUPS, out)
        first = (folder / out).read_bytes()
        draw(folder, list(TWO_GROUPS), out, overwrite=True)
        assert (folder / out).read_bytes() == first


# Where images come from


def test_bytes_inside_a_parquet_file_are_found_by_key(folder):
    names = list(COLOURS)
    data = [(folder / f"{name}.png").read_bytes() for name in reversed(names)]
    pq.write_table(pa.table({"key": names[::-1], "image": data}), folder / "images.parquet")
    pq.write_table(pa.table({"key": names, "uri": pa.nulls(len(names), pa.string())}), folder / "t.parquet")
    _, text = draw(folder, TWO_GROUPS, "page.html", source=str(folder / "images.parquet"))
    assert [colour_of(picture) for picture in pictures_of(text)] == ["blue", "cyan", "yellow", "red", "green"]
    with pytest.raises(InputError, match=r"t.parquet holds no path to 5 of 5 images; name what was scored"):
        draw(folder, TWO_GROUPS, "other.html")
    assert not (folder / "other.html").exists()


OF_ANOTHER = [fact(3, "red", 2, 0.98) | {"other_table": True}]


@pytest.mark.parametrize("decision", ["drop", "keep"])
def test_the_kept_one_of_another_set_is_read_there_even_when_its_key_is_in_both(folder, decision):
    other = pa.table({"key": ["red"], "uri": [str(folder / "pink.png")]})
    pq.write_table(other, folder / "old.parquet")
    decisions = [
        dropped(key, "red", 3, score) | {"decision": decision} for key, score in (("red", 0.99), ("green", 0.98))
    ]
    n, text = draw(folder, decisions, "page.html", OF_ANOTHER, against=(open_table(folder / "old.parquet"), None))
    assert n == 1
    assert [colour_of(picture) for picture in pictures_of(text)] == ["pink", "green", "red"]
    assert "3 images" in text
    assert text.count('<li class="kept">') == 1


def test_the_kept_one_of_another_set_that_is_not_given_is_asked_for(folder):
    with pytest.raises(
        InputError, match="the kept images of 1 groups are rows of another table; name it with --against"
    ):
        draw(folder, [dropped("green", "red", 3, 0.98), alone("red")], "page.html", OF_ANOTHER)


def test_the_labelled_pairs_of_real_photographs_are_drawn(tmp_path):
    data = Path(__file__).resolve().parents[4] / "shared" / "data" / "caltech_subset.parquet"
    if not data.exists():
        pytest.skip(f"{data} is absent")
    keys = ["llama/image_0001.jpg", "llama/image_0010.jpg"]
    pq.write_table(pa.table({"key": keys, "uri": pa.nulls(2, pa.string())}), tmp_path / "t.parquet")
    decisions = [kept(keys[0], 1), dropped(keys[1], keys[0], 1, 0.95)]
    _, text = draw(tmp_path, decisions, "page.html", source=str(data))
    first, second = (np.asarray(picture.resize((16, 16)).convert("L"), float).ravel() for picture in pictures_of(text))
    assert np.corrcoef(first, second)[0, 1] > 0.9


# Mistakes


@pytest.mark.parametrize(
    ("out", "settings", "words"),
    [
        ("sheet.jpg", {}, r"expected a name that ends in .png or .html, got .*sheet.jpg"),
        ("red.png", {}, r"red.png exists already; choose another name, or replace it with --overwrite"),
        ("/dev/null/sheet.png", {}, "not a folder"),
        ("sheet.png", {"label": "labl"}, r"t.parquet has no column 'labl'; did you mean 'label'"),
    ],
)
def test_a_mistake_is_one_line_and_draws_nothing(folder, out, settings, words):
    before = sorted(folder.iterdir())
    with pytest.raises(InputError, match=words) as raised:
        draw(folder, TWO_GROUPS, out, **settings)
    assert "\n" not in str(raised.value)
    assert [path for path in folder.iterdir() if path not in before and path.suffix != ".parquet"] == []


def test_decisions_of_another_table_are_refused(folder):
    with pytest.raises(InputError, match=r"no row with the key 'grey' \(1 of 6 are missing\); give the table that was"):
        draw(folder, [*TWO_GROUPS, dropped("grey", "red", 3, 0.97)], "page.html")


def test_groups_of_another_run_are_refused(folder):
    other = [fact(3, "red", 2, 0.98), fact(9, "blue", 3, 0.91)]
    words = r"has no row of group 9, which .* names \(1 of 2 are missing\); give the two files of one run"
    with pytest.raises(InputError, match=words):
        draw(folder, TWO_GROUPS, "page.html", other)


def test_decisions_of_a_filter_are_refused_by_the_missing_column(folder):
    decisions, groups = write(folder, TWO_GROUPS)
    pq.write_table(decisions.read().drop_columns(["group"]), folder / "filter.parquet")
    with pytest.raises(InputError, match=r"filter.parquet has no column 'group'"):
        doubtful_groups(open_table(folder / "filter.parquet"), groups, limit=5)
