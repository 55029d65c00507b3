"""The finder ``crop``: symmetric, bounded where groups are dense, and reported in words."""

import re
import shutil
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from made import (
    cosines,
    cut,
    embedded,
    large_parts,
    nearest_frames,
    plain_rows,
    random_signatures,
    signed,
    soft_pictures,
    write_table,
)
from PIL import Image, ImageOps

import curate
from curate.policies.dedup.finders.crops import NearParts, PartOf
from curate.policies.dedup.finders.looks import in_words, look_codes
from curate.policies.dedup.finders.table import FINDERS
from curate.policies.dedup.grouping.stars import find_stars
from scoring.errors import InputError
from scoring.images.cropfit import as_they_are, refine
from scoring.images.crops import LIKELY
from scoring.images.signature import ORIENTATIONS, reorient, signature, views

PHOTOS = sorted((Path(__file__).parents[5] / "examples" / "photos").glob("*.jpg"))
SAME = 0.985
NAMES = [view.name for view in views(mirrored=True, rotated=True)]


def small(image):
    return signature(np.asarray(image.convert("RGB").resize((32, 32), Image.Resampling.BILINEAR)))


@pytest.fixture(scope="module")
def copies():
    """Two photographs, a crop and a bordered copy of each, and a mirrored crop; keys report which is which."""
    rows = {}
    for name in ("flower", "retina"):
        photo = Image.open(next(path for path in PHOTOS if path.stem == name)).convert("RGB")
        width, height = photo.size
        crop = photo.crop((0, 0, round(0.88 * width), round(0.9 * height)))
        bordered = ImageOps.expand(photo, (round(0.08 * width), round(0.08 * height)), fill="black")
        made = {"photo": photo, "crop": crop, "border": bordered, "mirrored": ImageOps.mirror(crop)}
        rows |= {f"{name} {kind}": small(image) for kind, image in made.items()}
    return rows


def vectors_of(n, seed=0):
    """Embeddings of n rows of which none lies near another."""
    return np.random.default_rng(seed).normal(0, 1, (n, 64)).astype(np.float32)


def finder(signatures, looks, threshold=SAME, vectors=None):
    vectors = vectors_of(len(signatures)) if vectors is None else vectors
    return NearParts(plain_rows(signature=signatures, embedding=vectors), threshold, looks)


def links_of(signatures, looks, threshold=SAME, vectors=None):
    n = len(signatures)
    links = finder(signatures, looks, threshold, vectors).links(np.arange(n), np.ones(n, bool))
    return {(q, r): s for q, r, s in zip(links.query.tolist(), links.row.tolist(), links.similarity, strict=True)}


def test_a_crop_a_border_and_the_photograph_are_the_same_both_ways_round(copies):
    keys = list(copies)
    links = links_of(np.stack(list(copies.values())), views(mirrored=True), 0.97)
    for name in ("flower", "retina"):
        photo, crop, border, mirrored = (
            keys.index(f"{name} {kind}") for kind in ("photo", "crop", "border", "mirrored")
        )
        for a, b in ((photo, crop), (photo, border), (photo, mirrored), (crop, mirrored)):
            assert links[a, b] == pytest.approx(links[b, a], abs=1e-6)
    assert all(keys[a].split()[0] == keys[b].split()[0] for a, b in links)


def test_without_the_view_a_mirrored_crop_is_another_image(copies):
    keys = list(copies)
    links = links_of(np.stack(list(copies.values())), views(), 0.97)
    assert (keys.index("flower photo"), keys.index("flower mirrored")) not in links
    assert (keys.index("flower photo"), keys.index("flower crop")) in links


def test_turned_crops_are_found_in_either_order_and_as_alike():
    generator = np.random.default_rng(0)
    looks = views(mirrored=True, rotated=True)
    (picture,) = soft_pictures(generator, 1)
    full, part = signature(cut(generator, picture, 1)), signature(cut(generator, picture, 0.85))
    for look in looks:
        pair = np.concatenate([full[None], look.apply(part[None])])
        links = finder(pair, looks).links(np.arange(2), np.ones(2, bool))
        assert links.query.tolist() == [0, 1]
        seen = [in_words(code, NAMES) for code in links.view.tolist()]
        again = finder(pair, looks).parts.measured(links.query, pair, links.row).view.tolist()
        assert seen == [in_words(code, NAMES) for code in again]  # measured from there, not turned


def test_blank_images_are_a_part_of_nothing():
    generator = np.random.default_rng(0)
    signatures = np.concatenate([np.zeros((2, 255), np.int8), random_signatures(generator, 2)])
    assert not links_of(signatures, views())
    search = finder(signatures, views())
    assert search.measure(np.array([0, 0, 2]), np.array([1, 2, 2])).similarity.tolist() == [0, 0, 1]
    others = plain_rows(signature=signatures[:2], embedding=vectors_of(2))
    assert not len(search.foreign(others, np.ones(4, bool)))


@pytest.fixture(scope="module")
def dataset():
    """Sixty images: their own forty, ten parts of some of them, and ten of one kind, which all fit each other."""
    generator = np.random.default_rng(3)
    pictures = soft_pictures(generator, 41)
    vectors = generator.normal(0, 1, (60, 32))
    made = [cut(generator, picture, 1) for picture in pictures[:40]]
    made += [cut(generator, pictures[i], 0.85) for i in range(10)]
    vectors[40:50] = vectors[:10] + generator.normal(0, 0.1, (10, 32))
    kind = cut(generator, pictures[40], 1).astype(float)
    made += [
        (kind + 5 * noise).clip(0, 255).astype(np.uint8) for noise in soft_pictures(generator, 10, 32) / 255.0 - 0.5
    ]
    vectors[50:] = vectors[50] + generator.normal(0, 0.1, (10, 32))
    return np.stack([signature(picture) for picture in made]), vectors.astype(np.float32)


def restated(signatures, vectors, threshold):
    """Similarity of every pair by the definition."""
    n = len(signatures)
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    cosine = unit.astype(float) @ unit.T
    held = nearest_frames(signatures, signatures)
    near = [[j for j in np.argsort(-cosine[i]) if j != i][:16] for i in range(n)]
    crowd = np.array([np.median([held[i, j] for j in near[i]]) for i in range(n)])
    judged = np.array([[j in near[i] or i in near[j] for j in range(n)] for i in range(n)])
    first, other = (signatures[at.ravel()] for at in np.indices((n, n)))
    plain = as_they_are(first, other).reshape(n, n)
    parts = np.maximum(large_parts(refine(first, other)), large_parts(refine(other, first))).reshape(n, n)
    best = np.where(plain >= threshold, plain, np.where(np.maximum(held, held.T) >= LIKELY, parts, 0))
    return np.where(judged & (1 - best <= 0.1 * (1 - np.maximum(crowd[:, None], crowd))), best, 0)


def test_links_are_the_pairs_that_stand_out_by_the_definition(dataset):
    signatures, vectors = dataset
    similarity = restated(signatures, vectors, SAME)
    expected = np.argwhere((similarity >= SAME) & ~np.eye(60, dtype=bool))
    links = links_of(signatures, views(), SAME, vectors)
    assert set(links) == {tuple(pair) for pair in expected.tolist()}
    assert all(links[i, j] == pytest.approx(similarity[i, j], abs=2e-3) for i, j in links)
    parts = {(i, 40 + i) for i in range(10)}
    assert len(parts & set(links)) >= 8
    assert not any(i >= 50 for i, _ in links)  # of one kind: what fits all says nothing of one
    alone = PartOf(signatures, SAME, views()).measured(np.full(9, 50), signatures, np.arange(51, 60))
    assert (alone.similarity >= SAME).all()


def test_another_table_finds_the_same_pairs_whatever_order_its_rows_have(dataset):
    signatures, vectors = dataset
    search = finder(signatures[:40], views(), SAME, vectors[:40])
    for order in (np.arange(40, 60), np.random.default_rng(0).permutation(np.arange(40, 60))):
        links = search.foreign(plain_rows(signature=signatures[order], embedding=vectors[order]), np.ones(40, bool))
        pairs = set(zip(order[links.query].tolist(), links.row.tolist(), strict=True))
        assert pairs <= {(40 + i, i) for i in range(10)}
        assert len(pairs) >= 8
        some = search.foreign(
            plain_rows(signature=signatures[order], embedding=vectors[order]), np.ones(40, bool), np.arange(5)
        )
        assert set(some.query.tolist()) <= set(range(5))


def test_the_first_of_some_rows_is_the_first_of_all_their_links(dataset):
    signatures, vectors = dataset
    search = finder(signatures, views(), SAME, vectors)
    stars = find_stars(np.arange(60)[::-1].copy(), {"crop": search}, np.ones(60, bool))
    owners = {i: 40 + i for i in range(10) if (i, 40 + i) in links_of(signatures, views(), SAME, vectors)}
    assert {row: int(stars.owner[row]) for row in np.flatnonzero(stars.finder >= 0)} == owners


def far_apart(colours, others):
    """Whether some of the 4 x 4 cells of each pair differ by more than 20 levels of colour."""
    return np.hypot(*np.moveaxis(colours.astype(float) - others, -1, 0)).max((1, 2)) > 20


def test_whole_images_of_one_shape_and_other_colours_are_no_parts_of_each_other():
    generator, looks = np.random.default_rng(5), views(mirrored=True)
    pictures, mirrored = soft_pictures(generator, 40), ORIENTATIONS["mirrored"]
    made = [cut(generator, picture, 1) for picture in pictures]
    made += [cut(generator, picture, 0.85) for picture in pictures[:8]]
    made += [cut(generator, picture, 0.98) for picture in pictures[8:24]]
    signatures = np.stack([signature(picture) for picture in made])
    vectors = generator.normal(0, 1, (64, 32))
    vectors[40:] = vectors[:24] + generator.normal(0, 0.1, (24, 32))
    colours = generator.integers(-90, 90, (64, 4, 4, 2)).astype(np.int8)
    colours[48:54] = colours[8:14] + generator.integers(-5, 6, (6, 4, 4, 2)).astype(np.int8)
    colours[17] = colours[63] = 1  # grey
    turned = [*range(50, 52), *range(56, 60)]
    signatures[turned], colours[turned] = reorient(signatures[turned], mirrored), colours[turned, :, ::-1]
    rows = plain_rows(signature=signatures, embedding=vectors.astype(np.float32), chroma=colours.reshape(64, 32))
    search = FINDERS["crop"].build(rows, SAME, looks)
    every, all_rows = np.arange(64), np.ones(64, bool)
    plain = finder(signatures, looks, SAME, rows.embedding).links(every, all_rows)
    is_turned, whole = plain.view % 8 == 1, cosines(np.concatenate([signatures, reorient(signatures, mirrored)]))
    seen = np.where(is_turned[:, None, None, None], colours[plain.query][:, :, ::-1], colours[plain.query])
    alike = whole[plain.query + 64 * is_turned, plain.row] >= 0.95
    other = alike & far_apart(seen, colours[plain.row]) & (np.abs(colours[plain.row]).max((1, 2, 3)) > 1)
    expected = set(zip(plain.query[~other].tolist(), plain.row[~other].tolist(), strict=True))

    def linked(links):
        return set(zip(links.query.tolist(), links.row.tolist(), strict=True))

    assert (
        linked(search.links(every, all_rows))
        == expected
        == linked(search.foreign(rows, all_rows)) - {(row, row) for row in range(64)}
    )
    assert {(8, 48), (10, 50), (23, 63), (57, 17)} <= expected  # alike, mirrored, and copies that are grey
    assert not {(14, 54), (17, 57), (19, 59), (63, 23)} & expected
    assert len({(i, 40 + i) for i in range(8)} & expected) >= 6  # parts, whatever their colours
    assert any(plain.view[other] >= 8)
    strict = search.stricter(0.99).links(every, all_rows)
    assert linked(strict) == expected & linked(plain.take(plain.similarity >= np.float32(0.99)))


@pytest.mark.parametrize(
    ("edges", "words"),
    [
        ((0, 256, 0, 256), "a part of it: nearly all"),
        ((0, 230, 0, 256), "a part of it: 90% of the height, at the top"),
        ((0, 256, 51, 256), "a part of it: 80% of the width, at the right"),
        ((13, 243, 13, 243), "a part of it: 90% of the width, 90% of the height, in the middle"),
        ((76, 256, 10, 236), "a part of it: 88% of the width, 70% of the height, at the bottom"),
        ((90, 256, 0, 166), "a part of it: 65% of the width, 65% of the height, at the bottom left"),
    ],
)
def test_a_part_is_reported_in_words(edges, words):
    for view, name in enumerate(NAMES):
        held, holds = (look_codes(view, np.array([edges]), holds=way) for way in (False, True))
        assert held.dtype == np.int32
        before = "" if view == 0 else f"{name}, "
        assert in_words(int(held[0]), NAMES) == before + words
        assert in_words(int(holds[0]), NAMES) == before + words.replace("a part of it", "holds it")
        assert in_words(view, NAMES) == ("" if view == 0 else name)


def test_cropped_adds_the_finder_and_the_decisions_name_the_part(copies, tmp_path):
    keys = list(copies)
    table = write_table(
        tmp_path / "scores.parquet",
        {
            "key": keys,
            "sha256": [f"{at:064d}" for at in range(len(keys))],
            "signature": signed(np.stack(list(copies.values()))),
            "embedding": embedded(list(vectors_of(len(keys)))),
            "rank": [float("mirrored" not in key) + ("photo" in key) for key in keys],
        },
        signature="x",
    )
    out = tmp_path / "unique.parquet"
    result = curate.dedup(table, out, cropped=True, mirrored=True, keep="max:rank")
    kept = pq.read_table(out)["key"].to_pylist()
    assert {"flower photo", "retina photo"} <= set(kept)
    assert result.dropped_by["crop >= 0.985"] >= 4
    rows = {row["key"]: row for row in pq.read_table(result.decisions).to_pylist()}
    assert rows["flower crop"]["rule"] == "crop >= 0.985"
    assert "the same as flower photo by crop (cosine 0.9" in rows["flower crop"]["reason"]
    place = ", a part of it: 88% of the width, (89|90)% of the height, at the top left"
    assert re.search(place, rows["flower crop"]["reason"])
    assert ", mirrored, a part of it: 88% of the width, " in rows["flower mirrored"]["reason"]
    without = curate.dedup(table, tmp_path / "other.parquet", mirrored=True)
    assert not any(name.startswith("crop") for name in without.dropped_by)
    copy = shutil.copy(table, tmp_path / "copy.parquet")
    against = curate.dedup(table, tmp_path / "third.parquet", {"crop": None}, against=copy, report_only=True)
    assert against.n_leaks == len(keys)


def test_cropped_without_signatures_says_what_is_missing(tmp_path):
    table = write_table(tmp_path / "scores.parquet", {"sha256": ["a", "b"]})
    with pytest.raises(InputError, match="finder crop needs"):
        curate.dedup(table, None, cropped=True, dry_run=True)


@pytest.mark.parametrize(("side", "is_part"), [(0.63, False), (0.66, False), (0.72, True), (0.8, True)])
def test_a_part_of_less_than_seventy_percent_of_a_side_is_not_the_same(side, is_part):
    """What is promised of --cropped; smaller parts fit images that they do not show."""
    photo = Image.open(next(path for path in PHOTOS if path.stem == "flower")).convert("RGB")
    width, height = photo.size
    left, top = round((1 - side) * width / 2), round((1 - side) * height / 2)
    part = photo.crop((left, top, left + round(side * width), top + round(side * height)))
    both = np.stack([small(photo), small(part)])
    assert ((0, 1) in links_of(both, views(), 0.97)) == is_part
    search = finder(both, views(), 0.97)
    measured = search.measure(np.array([0]), np.array([1])).similarity[0]
    assert (measured >= 0.97) == is_part


def test_progress_counts_settled_rows_up_to_all_of_them():
    signatures = random_signatures(np.random.default_rng(0), 300)
    progress = []
    search = {"crop": finder(signatures, views())}
    find_stars(np.arange(300), search, np.ones(300, bool), compared=lambda done, total: progress.append((done, total)))
    assert progress[-1] == (300, 300)
    assert progress == sorted(progress)
