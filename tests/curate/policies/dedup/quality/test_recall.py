"""Planted copies: drawn, edited, scored and counted."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import curate
from curate.commands.dedup import recall_header, recall_lines, recall_table
from curate.policies.dedup.options import DedupOptions
from curate.policies.dedup.policy import Dedup
from curate.policies.dedup.quality.examine import Hits, count_recalled, effective_size
from curate.policies.dedup.quality.planted import EDIT, ORIGINAL, Copier, Planted, plant
from curate.policies.dedup.request import DedupRequest
from curate.retrieval.images import scorer_of
from curate.tables.images import Images, drawn_rows
from curate.tables.table import embedding_matrix, open_table
from scoring.edits import EDITS
from scoring.errors import InputError
from scoring.metrics.proportions import wilson

KINDS = ("crop-90", "png", "mirror")


def planted(rows, kinds=KINDS, unread=None):
    copies = pa.table(
        {
            ORIGINAL: pa.array(np.repeat(rows, len(kinds)), pa.int64()),
            EDIT: pa.array(list(kinds) * len(rows)),
            "status": pa.array(["ok"] * (len(rows) * len(kinds))),
        }
    )
    return Planted(copies, list(rows), unread or {}, 0)


def hits(finder, *pairs):
    copies, rows = np.array(pairs, np.int64).reshape(-1, 2).T
    return Hits(finder, copies, rows)


def test_a_copy_is_found_if_it_is_linked_with_its_original():
    report = count_recalled(planted([4, 7]), [hits("hash", (0, 4), (1, 4), (5, 7), (3, 4))], KINDS)
    assert [(kind.name, kind.detected, kind.n) for kind in report.kinds] == [
        ("crop-90", 1, 2),
        ("png", 1, 2),
        ("mirror", 1, 2),
    ]
    assert (report.overall.detected, report.overall.n, report.elsewhere) == (3, 6, 1)


def test_a_copy_is_found_if_it_is_linked_with_a_row_of_its_originals_group_but_not_of_no_group():
    groups = np.array([0, 0, -1, -1])
    with_group = count_recalled(planted([1]), [hits("hash", (0, 0))], KINDS, groups=groups)
    assert with_group.overall.detected == 1
    without = count_recalled(planted([2]), [hits("hash", (0, 3))], KINDS, groups=groups)
    assert (without.overall.detected, without.elsewhere) == (0, 1)


def test_finders_are_counted_apart_and_together_each_copy_once():
    finders = [hits("hash", (0, 4), (0, 4)), hits("embedding", (0, 4), (1, 4)), hits("bytes")]
    overall = count_recalled(planted([4, 7]), finders, KINDS).overall
    assert overall.by_finder == {"hash": 1, "embedding": 2, "bytes": 0}
    assert overall.detected == 2


def test_listed_copies_are_counted_with_the_found_ones_but_are_not_found():
    finders = [hits("hash", (0, 4), (1, 4)), hits("listed", (1, 4), (2, 4), (3, 4), (5, 7))]
    report = count_recalled(planted([4, 7]), finders, KINDS)
    assert report.overall.by_finder == {"hash": 2, "listed": 4}
    assert (report.overall.detected, report.elsewhere) == (2, 0)
    assert [kind.by_finder["listed"] for kind in report.kinds] == [1, 1, 2]
    assert recall_header(report)[-1] == "listed"
    assert sum("listed" in line for line in recall_lines(report)) == 1


def test_the_interval_of_a_kind_is_wilsons():
    report = count_recalled(planted(range(40)), [hits("hash", *((3 * i, i) for i in range(31)))], KINDS)
    expected = wilson(31, 40)
    assert (report.kinds[0].low, report.kinds[0].high) == pytest.approx((expected.low, expected.high))


def test_no_hit_at_all_is_a_recall_of_zero_with_an_upper_bound():
    report = count_recalled(planted(range(40)), [], KINDS)
    assert report.overall.detected == 0
    assert (report.overall.low, report.overall.high) == pytest.approx(wilson(0, 40)[1:])


def test_copies_out_of_order_are_a_bug_of_the_caller():
    with pytest.raises(ValueError, match="order of the edits"):
        count_recalled(planted([1, 2]), [], KINDS[::-1])


@pytest.mark.parametrize(
    ("grid", "expected"),
    [
        (np.ones((5, 4), bool), 5),
        (np.tile([[True, False]], (9, 1)), 18),  # every image alike: only the kinds differ
        (np.repeat([[True], [False], [True], [False]], 3, 1), 3),  # all or nothing: fewer than images, so 4 at least
        (np.ones((1, 3), bool), 1),
        (np.array([[True, False, True]]), 1),
    ],
)
def test_the_effective_size_is_between_images_and_copies(grid, expected):
    assert effective_size(grid) == pytest.approx(max(expected, grid.shape[0]))


def test_the_overall_interval_covers_where_copies_of_an_image_are_found_together():
    generator = np.random.default_rng(0)
    covered, repeats, truth = 0, 600, 0.7
    for _ in range(repeats):
        of_image = generator.beta(0.7, 0.3, (60, 1))  # images that are easy or hard as a whole
        grid = generator.random((60, 12)) < of_image
        effective = effective_size(grid)
        interval = wilson(grid.mean() * effective, effective)
        covered += interval.low <= truth <= interval.high
    assert covered / repeats > 0.93


# -- drawing and reading


def test_the_same_keys_are_drawn_whatever_the_order_of_the_rows(full_table, tmp_path):
    table = pq.read_table(full_table)
    pq.write_table(table.take(np.random.default_rng(0).permutation(len(table))), tmp_path / "other.parquet")
    first, second = open_table(full_table), open_table(tmp_path / "other.parquet")
    keys = [table.read(["key"]).column(0).take(drawn_rows(table, 7, seed=3)).to_pylist() for table in (first, second)]
    assert keys[0] == keys[1]
    assert drawn_rows(first, 4, seed=3).tolist() == drawn_rows(first, 7, seed=3).tolist()[:4]
    assert drawn_rows(first, 7, seed=4).tolist() != drawn_rows(first, 7, seed=3).tolist()


def test_rows_that_failed_are_never_drawn(full_table):
    table = open_table(full_table)
    drawn = drawn_rows(table, 100, seed=0)
    ok = np.array(table.read(["status"]).column(0).to_pylist()) == "ok"
    assert sorted(drawn.tolist()) == np.flatnonzero(ok).tolist()


def test_images_are_read_from_their_paths_or_from_the_source(full_table, folder):
    table = open_table(full_table)
    rows = drawn_rows(table, 5, seed=0).tolist()
    keys = table.read(["key"]).column(0).to_pylist()
    expected = {row: (folder / keys[row]).read_bytes() for row in rows}
    assert {image.row: image.data for image in Images.of(table, rows).read(rows)} == expected
    assert {image.row: image.data for image in Images.of(table, rows, source=str(folder)).read(rows)} == expected


def test_a_source_without_the_key_is_named(full_table, tmp_path, folder):
    (tmp_path / "some").mkdir()
    (tmp_path / "some" / "00.png").write_bytes((folder / "00.png").read_bytes())
    with pytest.raises(InputError, match=r"'01\.png' \(1 of 2"):
        Images.of(open_table(full_table), [0, 1], source=str(tmp_path / "some"))


def test_a_table_without_paths_needs_the_source(full_table, tmp_path):
    table = pq.read_table(full_table)
    at = table.column_names.index("uri")
    pq.write_table(table.set_column(at, "uri", pa.nulls(len(table), pa.string())), tmp_path / "t.parquet")
    with pytest.raises(InputError, match=r"2 of 2 .*--source"):
        Images.of(open_table(tmp_path / "t.parquet"), [0, 1])


@pytest.fixture
def moved(full_table, folder, tmp_path):
    """A table whose first image is gone, whose second changed."""
    photos = tmp_path / "photos"
    photos.mkdir()
    table = pq.read_table(full_table)
    keys = table.column("key").to_pylist()
    for key in keys:
        (photos / key).write_bytes((folder / key).read_bytes())
    (photos / keys[0]).unlink()
    (photos / keys[1]).write_bytes(b"another image")
    at = table.column_names.index("uri")
    table = table.set_column(at, "uri", pa.array([str(photos / key) for key in keys]))
    pq.write_table(table, tmp_path / "moved.parquet")
    return open_table(tmp_path / "moved.parquet")


def test_images_that_cannot_be_read_are_named_and_others_take_their_place(moved, tiny_checkpoint):
    runner, settings = scorer_of(moved, model=tiny_checkpoint, device="cpu")
    made = plant(Images.of(moved, range(6)), range(6), Copier(runner, settings, 0), n=3, kinds=["png"])
    assert made.rows == [2, 3, 4]
    assert {key: why.split(":")[0] for key, why in made.unread.items()} == {"00.png": "missing", "01.png": "changed"}


def test_nothing_that_can_be_read_is_an_error_that_says_why(moved, tiny_checkpoint):
    runner, settings = scorer_of(moved, model=tiny_checkpoint, device="cpu")
    with pytest.raises(InputError, match=r"'00\.png': missing"):
        plant(Images.of(moved, [0, 1]), [0, 1], Copier(runner, settings, 0), n=2, kinds=["png"])


# -- scoring


def test_a_lossless_copy_has_the_scores_of_its_original(full_table, tiny_checkpoint):
    table = open_table(full_table)
    runner, settings = scorer_of(table, model=tiny_checkpoint, device="cpu")
    rows = drawn_rows(table, 6, seed=0).tolist()
    made = plant(Images.of(table, rows), rows, Copier(runner, settings, 0), n=6, kinds=["png", "jpeg-20"])
    scored = table.read().take(made.rows)
    lossless = made.copies.take(list(range(0, 12, 2)))
    for name in ("phash", "signature", "width", "height"):
        assert lossless.column(name).to_pylist() == scored.column(name).to_pylist()
    ours, others = (embedding_matrix(table.column("embedding")).astype(float) for table in (lossless, scored))
    assert np.abs(ours - others).max() < 2e-3  # batches of another composition
    assert np.allclose(lossless.column("kappa_visimsiam"), scored.column("kappa_visimsiam"), rtol=1e-3)
    names = [name for name in made.copies.column_names if name not in (ORIGINAL, EDIT)]
    assert names == table.schema.names


def test_the_same_seed_plants_the_same_copies_whatever_is_planted_next_to_them(full_table, tiny_checkpoint):
    table = open_table(full_table)
    runner, settings = scorer_of(table, model=tiny_checkpoint, device="cpu")
    rows = drawn_rows(table, 4, seed=0).tolist()
    kinds = ["crop-60", "noise"]

    def digests(rows, kinds, seed):
        made = plant(Images.of(table, rows), rows, Copier(runner, settings, seed), n=9, kinds=kinds).copies
        return dict(zip(made.column("key").to_pylist(), made.column("sha256").to_pylist(), strict=True))

    everything = digests(rows, kinds, 0)
    assert digests(rows[1:3], ["noise"], 0).items() <= everything.items()
    assert not digests(rows, kinds, 1).items() & everything.items()


@pytest.mark.parametrize(("model", "match"), [(None, "checkpoint as --model"), ("trio", "copies must be scored")])
def test_a_table_of_a_model_that_does_not_ship_needs_its_checkpoint_and_no_other(full_table, model, match):
    with pytest.raises(InputError, match=match):
        scorer_of(open_table(full_table), model=model)


def test_settings_come_from_the_table_and_odd_metadata_does_no_harm(full_table, tiny_checkpoint):
    table = open_table(full_table)
    table.metadata["settings"] = {**table.metadata["settings"], "max-pixels": 12345, "precision": 7}
    settings = scorer_of(table, model=tiny_checkpoint, device="cpu")[1]
    assert (settings.max_pixels, settings.precision, settings.dtype) == (12345, "auto", "float16")


# -- all of it


def brute_force(table, threshold):
    """The definition: every copy against every row, by cosine of signature or by equal bytes."""

    def unit(column):
        vectors = np.array([np.frombuffer((value or bytes(255))[:255], np.int8) for value in column.to_pylist()], float)
        return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)

    rows = table.read(["signature", "sha256"])

    def search(copies):
        cosine = unit(copies.column("signature")) @ unit(rows.column("signature")).T
        yield Hits("signature", *np.nonzero(cosine >= threshold))
        same = np.array(copies.column("sha256").to_pylist())[:, None] == np.array(rows.column("sha256").to_pylist())
        yield Hits("bytes", *np.nonzero(same))

    return search


def recalled(table, n, kinds, model, report=lambda done, total: None):
    """Copies of n images, found again by brute force."""
    copier = Copier(*scorer_of(table, model=model, device="cpu"), 0)
    rows = drawn_rows(table, 3 * n, seed=0)
    made = plant(Images.of(table, rows), rows.tolist(), copier, n=n, kinds=kinds, report=report)
    return count_recalled(made, list(brute_force(table, 0.97)(made.copies)), kinds)


def test_recall_is_estimated_on_the_users_own_images(full_table, tiny_checkpoint):
    table = open_table(full_table)
    seen = []
    kinds = ("half-size", "jpeg-50", "png", "mirror")
    report = recalled(table, 10, kinds, tiny_checkpoint, lambda done, total: seen.append((done, total)))
    share = {kind.name: kind.detected / kind.n for kind in report.kinds}
    assert list(share) == ["half-size", "jpeg-50", "png", "mirror"]
    assert share["png"] == share["jpeg-50"] == share["half-size"] == 1.0
    assert share["mirror"] < 0.5
    assert report.overall.by_finder["bytes"] == 10  # the originals are PNGs of the same encoder
    assert report.overall.detected == sum(kind.detected for kind in report.kinds)
    assert seen == [(8, 10), (10, 10)]


def test_crops_that_the_default_lists_are_in_the_estimate(full_table, tiny_checkpoint):
    report = curate.dedup(full_table, None, dry_run=True, estimate_recall=6, model=str(tiny_checkpoint)).planted
    kinds = {kind.name: kind.by_finder | {"found": kind.detected} for kind in report.kinds}
    assert all(kind["listed"] >= kind["found"] for kind in kinds.values())
    for name in ("crop-80", "letterbox"):
        assert (kinds[name]["found"], kinds[name]["listed"] >= 4) == (0, True)
    assert kinds["crop-60"]["listed"] == kinds["mirror"]["listed"] == 0
    typed = curate.dedup(
        full_table, None, ["bytes", "signature"], dry_run=True, estimate_recall=6, model=str(tiny_checkpoint)
    )
    expected = {kind.name: kind.detected for kind in typed.planted.kinds}
    assert {name: kind["found"] for name, kind in kinds.items()} == expected
    assert "listed" not in typed.planted.overall.by_finder


def test_the_report_is_json_and_lines_that_name_every_number(full_table, tiny_checkpoint, moved):
    report = recalled(moved, 50, ("jpeg-20", "png"), tiny_checkpoint)
    plain = json.loads(json.dumps(report.to_json()))
    assert plain["images"] == report.images == 26
    assert plain["overall"]["n"] == 52
    assert set(plain["unread"]) == {"00.png", "01.png"}
    text = "\n".join(recall_lines(report))
    assert "52 found" in text.replace(f"{report.overall.detected:,} of 52 found", "52 found")
    assert "2 images" in text
    assert "01.png (changed" in text
    assert len(recall_table(report)) == 3
    assert all(len(row) == len(recall_header(report)) for row in recall_table(report))


def test_every_edit_can_be_planted(full_table, tiny_checkpoint):
    table = open_table(full_table)
    report = recalled(table, 2, list(EDITS), tiny_checkpoint)
    assert [kind.name for kind in report.kinds] == list(EDITS)
    assert report.failed == 0


def test_a_copy_that_cannot_be_scored_counts_as_missed():
    made = planted([4])
    at = made.copies.column_names.index("status")
    made.copies = made.copies.set_column(at, "status", pa.array(["ok", "corrupt", "ok"]))
    report = count_recalled(made, [hits("hash", (0, 4), (2, 4))], KINDS)
    assert (report.failed, report.overall.detected, report.overall.n) == (1, 2, 3)
    assert any("counted as missed" in line for line in recall_lines(report))


@pytest.mark.parametrize(
    ("changes", "text"), [({"estimate_recall": 100_001}, "got 100,001"), ({"estimate_recall": 9, "seed": -1}, "--seed")]
)
def test_settings_that_cannot_be_are_refused(changes, text):
    with pytest.raises(InputError, match=text):
        Dedup(DedupRequest({"bytes": 1.0}), options=DedupOptions("s.parquet", **changes))
