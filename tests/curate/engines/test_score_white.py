"""The white of 16-bit images: found for a source, recorded, kept by runs that go on, and used by what reads again."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commandline import run
from PIL import Image
from runs import SMALL

from curate.engines import white
from curate.engines.journal import Part
from curate.engines.score import score
from curate.engines.white import FEWEST, find_white, white_notes
from curate.manifest.contract import SourceOptions
from curate.manifest.sources import open_manifest
from curate.reporting.thumbs import thumbnails
from curate.retrieval.images import scorer_of
from curate.sheets.tiles import tiles
from curate.tables.table import open_table
from curate.torch import SubsetDataset
from curate.training.dataset import white_of
from scoring.errors import InputError


def grey(seed, size=(48, 40)):
    small = np.random.default_rng(seed).integers(0, 256, (5, 6), dtype=np.uint8)
    return np.asarray(Image.fromarray(small).resize(size, Image.Resampling.BICUBIC))


def save(folder, n, scale, *, suffix="png", first=0):
    folder.mkdir(exist_ok=True)
    for seed in range(first, first + n):
        Image.fromarray(grey(seed).astype(np.uint16) * scale).save(folder / f"{seed:03}.{suffix}")
    return folder


def scored(source, out, checkpoint, **changes):
    said = []
    changes = {"white": None, **changes}
    result = score(source, out, model=checkpoint, announce=said.append, **{**SMALL, **changes})
    return result, [line for line in said if "--white" in line]


@pytest.mark.parametrize(("scale", "expected"), [(1, 255), (4, 1023), (16, 4095), (64, 16383), (257, 65535)])
def test_the_white_belongs_to_the_depth_that_all_images_share(tmp_path, scale, expected):
    sampled = find_white(open_manifest(save(tmp_path / "p", 12, scale)))
    assert (sampled.white, sampled.n) == (expected, 12)
    assert sampled.highest == max(int(grey(seed).max()) for seed in range(12)) * scale
    assert bool(sampled.words()) == (expected != 65535)


def test_few_images_and_eight_bit_images_decide_nothing(tmp_path):
    assert find_white(open_manifest(save(tmp_path / "few", FEWEST - 1, 16))).white == 65535
    for seed in range(20):
        folder = tmp_path / "eight"
        folder.mkdir(exist_ok=True)
        Image.fromarray(grey(seed)).save(folder / f"{seed}.png")
    assert find_white(open_manifest(folder)).n == 0


def test_one_bright_image_speaks_for_all(tmp_path):
    """Twelve dark ones of 16 bits are dark: never decided for one image."""
    folder = save(tmp_path / "p", 11, 16)
    save(folder, 1, 257, first=11)
    assert find_white(open_manifest(folder)).white == 65535


def test_rare_deep_images_are_found_among_jpegs_by_their_names(tmp_path):
    folder = save(tmp_path / "p", 9, 16)
    for seed in range(200):
        Image.fromarray(grey(seed)).save(folder / f"a{seed:03}.jpg")
    assert find_white(open_manifest(folder)).white == 4095


def test_rare_deep_images_are_found_among_many_others(tmp_path):
    folder = save(tmp_path / "p", 12, 16)
    for seed in range(150):
        Image.fromarray(grey(seed)).save(folder / f"a{seed:03}.png")
    sampled = find_white(open_manifest(folder))
    assert (sampled.white, sampled.n) == (4095, 12)


def test_the_names_of_a_long_source_are_read_in_parts_of_it():
    read = []

    class Long:
        n_rows = 10**7

        def rows(self, start, stop):
            read.append(stop - start)
            keys = [f"{row}.png" if row % 100 == 0 else f"{row}.jpg" for row in range(start, stop)]
            return pa.table({"key": keys, "uri": keys})

    rows = white._candidates(Long())
    assert sum(read) <= 65_536
    assert (rows % 100 == 0).all()
    assert rows.min() < 10**5
    assert rows.max() > 9 * 10**6
    assert len(np.unique(rows)) == len(rows)


def test_images_inside_a_table_are_examined_too(tmp_path):
    folder = save(tmp_path / "p", 10, 16)
    rows = [path.read_bytes() for path in sorted(folder.iterdir())]
    pq.write_table(pa.table({"id": list(map(str, range(10))), "image": rows}), tmp_path / "t.parquet")
    manifest = open_manifest(tmp_path / "t.parquet", SourceOptions(key="id", image_column="image"))
    assert find_white(manifest).white == 4095


def test_twelve_bits_score_as_their_eight_bit_copies_and_are_reported_in_one_line(tmp_path, tiny_checkpoint):
    save(tmp_path / "deep", 12, 16)
    (tmp_path / "plain").mkdir()
    for seed in range(12):
        Image.fromarray(grey(seed)).save(tmp_path / "plain" / f"{seed:03}.png")
    _, said = scored(tmp_path / "deep", tmp_path / "deep.parquet", tiny_checkpoint)
    _, nothing = scored(tmp_path / "plain", tmp_path / "plain.parquet", tiny_checkpoint)
    assert (len(said), nothing) == (1, [])
    assert "4,095" in said[0]
    deep, plain = (open_table(tmp_path / f"{name}.parquet") for name in ("deep", "plain"))
    assert deep.metadata["settings"]["white"] == 4095
    for column in ("quality_brightness", "quality_contrast"):
        ours, original = (np.array(table.read([column]).column(0).to_pylist()) for table in (deep, plain))
        assert np.abs(ours - original).max() < 0.01
    assert min(deep.read(["quality_brightness"]).column(0).to_pylist()) > 0.1


def test_the_white_can_be_stated_and_another_is_another_run(tmp_path, tiny_checkpoint):
    folder = save(tmp_path / "p", 12, 16)
    result, said = scored(folder, tmp_path / "s.parquet", tiny_checkpoint, white=65535)
    assert said == []
    assert any("--white 4095" in note for note in result.notes)
    with pytest.raises(InputError, match="another white"):
        scored(folder, tmp_path / "s.parquet", tiny_checkpoint, white=4095)
    result, said = scored(folder, tmp_path / "s.parquet", tiny_checkpoint)  # a repeat keeps the white of before
    assert (said, result.resumed) == ([], 12)
    result, said = scored(folder, tmp_path / "s.parquet", tiny_checkpoint, overwrite=True)
    assert len(said) == 1
    with pytest.raises(InputError, match="--white"):
        scored(folder, tmp_path / "t.parquet", tiny_checkpoint, white=3)


def test_brighter_images_than_the_white_are_counted_and_named_in_their_rows(tmp_path, tiny_checkpoint):
    folder = save(tmp_path / "p", 10, 16)
    save(folder, 1, 257, first=10)
    result, _ = scored(folder, tmp_path / "s.parquet", tiny_checkpoint, white=4095)
    assert any("--white 65535" in note for note in result.notes)
    errors = open_table(tmp_path / "s.parquet").read(["error"]).column(0).to_pylist()
    assert [error is not None for error in errors] == [False] * 10 + [True]


def test_a_run_whose_images_use_their_bits_has_no_note():
    def notes(n, highest, white):
        return white_notes([Part(0, 9, 0, "", {}, 1, n, highest), Part(1, 9, 0, "", {}, 1)], white)

    assert notes(0, 0, 65535) == notes(5, 65535, 65535) == notes(5, 4000, 4095) == []
    assert "--white 255" in notes(1, 255, 65535)[0]


def test_what_reads_the_images_of_a_table_again_uses_its_white(tmp_path, tiny_checkpoint):
    folder = save(tmp_path / "p", 12, 16)
    scored(folder, tmp_path / "s.parquet", tiny_checkpoint)
    table = open_table(tmp_path / "s.parquet")
    expected = grey(0).mean()
    assert abs(np.asarray(SubsetDataset(table.path)[0]["image"]).mean() - expected) < 1
    assert abs(tiles(table, [0], "key")[0].pixels.mean() - expected) < 4
    webp = next(iter(thumbnails(table, [0], source=None).data.values()))
    (tmp_path / "thumb.webp").write_bytes(webp)
    assert abs(np.asarray(Image.open(tmp_path / "thumb.webp")).mean() - expected) < 8
    assert scorer_of(table, model=tiny_checkpoint)[1].white == 4095
    run("export", table.path, "--to", "folder", "--encode", "jpeg:95", "-o", tmp_path / "out", "-q")
    written = sorted((tmp_path / "out").rglob("*.jp*g"))[0]
    assert abs(np.asarray(Image.open(written)).mean() - expected) < 1


def test_training_finds_the_white_too(tmp_path):
    manifest = open_manifest(save(tmp_path / "p", 12, 16))
    said = []
    assert white_of(manifest, None, said.append) == 4095
    assert white_of(manifest, 1023, said.append) == 1023
    assert len(said) == 1


def test_the_command_takes_auto_or_a_number(tmp_path, tiny_checkpoint):
    folder = save(tmp_path / "p", 12, 16)
    out = tmp_path / "s.parquet"
    done = run("score", folder, "-o", out, "--model", tiny_checkpoint, "--white", "1023", "--no-fit", "--json")
    assert json.loads(done.stdout)["rows"] == 12
    assert open_table(out).metadata["settings"]["white"] == 1023
    assert run("score", folder, "-o", out, "--model", tiny_checkpoint, "--white", "bright").exit_code == 2


def test_images_of_a_file_are_a_column(tmp_path, tiny_checkpoint):
    folder = tmp_path / "p"
    folder.mkdir()
    pictures = [Image.fromarray(grey(seed)) for seed in range(3)]
    pictures[0].save(folder / "a.gif", save_all=True, append_images=pictures[1:])
    pictures[0].save(folder / "b.jpg")
    (folder / "c.png").write_bytes(b"no image")
    scored(folder, tmp_path / "s.parquet", tiny_checkpoint)
    table = open_table(tmp_path / "s.parquet")
    assert table.read(["n_frames"]).column(0).to_pylist() == [3, 1, None]
    assert table.schema.field("n_frames").type == pa.int32()
