"""The signature column: what scoring writes, and what can be read back from any tool's table."""

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image, ImageOps
from runs import SMALL, run_again
from typer.testing import CliRunner

import curate
from curate.cli import app
from curate.engines.score import score
from curate.manifest.contract import SourceOptions
from curate.manifest.sources import open_manifest
from curate.tables.signatures import SIGNATURE_TYPE, signature_array, signature_matrix, stored_matrix
from curate.tables.table import open_table
from scoring.errors import InputError
from scoring.images import decode
from scoring.images.preprocessing import Preprocessing
from scoring.images.signature import ORIENTATIONS, chroma, reorient, signature


def some(n, seed=0):
    return np.random.default_rng(seed).integers(-127, 128, (n, 287)).astype(np.int8)


def test_scoring_writes_each_images_signature_after_its_hash_and_null_for_a_failure(folder, full_table):
    table = open_table(full_table)
    names = table.schema.names
    assert names[names.index("phash") + 1] == "signature"
    assert table.schema.field("signature").type == pa.binary(287)
    for row in table.read().to_pylist():
        if row["status"] == "ok":
            image = decode((folder / row["key"]).read_bytes(), Preprocessing())
            assert np.frombuffer(row["signature"], np.int8).tolist() == image.signature.tolist()
        else:
            assert row["signature"] is None
    assert table.metadata["settings"]["signature"] == "dct-16 f^0.75 chroma-4"


def test_mirrored_files_have_mirrored_signatures_in_the_table(tiny_checkpoint, tmp_path):
    (tmp_path / "in").mkdir()
    picture = Image.fromarray(np.random.default_rng(1).integers(0, 256, (5, 6, 3), dtype=np.uint8)).resize((90, 70))
    picture.save(tmp_path / "in" / "a.png")
    ImageOps.mirror(picture).save(tmp_path / "in" / "b.png")
    score(tmp_path / "in", tmp_path / "s.parquet", model=tiny_checkpoint, **SMALL)
    upright, mirrored = signature_matrix(open_table(tmp_path / "s.parquet").read(["signature"]).column(0))
    expected = reorient(upright[None], ORIENTATIONS["mirrored"])[0]
    assert np.abs(expected.astype(int) - mirrored).max() <= 4  # the resize to 32 pixels rounds either way
    assert np.abs(upright.astype(int) - mirrored).max() > 50


def test_an_image_of_one_colour_scores_and_has_a_signature_of_zeros(tiny_checkpoint, tmp_path):
    (tmp_path / "in").mkdir()
    Image.new("RGB", (50, 40), (9, 90, 200)).save(tmp_path / "in" / "a.png")
    score(tmp_path / "in", tmp_path / "s.parquet", model=tiny_checkpoint, **SMALL)
    (row,) = open_table(tmp_path / "s.parquet").read().to_pylist()
    assert (row["status"], row["signature"][:255]) == ("ok", bytes(255))
    assert np.frombuffer(row["signature"], np.int8)[255:257].tolist() == [69, -49]  # Cb and Cr of BT.601


def test_info_says_what_the_column_is(full_table):
    done = CliRunner().invoke(app, ["info", str(full_table)])
    assert done.exit_code == 0
    (line,) = [line for line in done.output.splitlines() if line.strip().startswith("signature")]
    assert "fixed_size_binary[287]" in line
    assert "255 numbers whose cosine is the similarity of two" in " ".join(done.output.split())


def test_a_condition_on_the_column_and_its_receipt_work(full_table, tmp_path):
    result = curate.filter(full_table, tmp_path / "kept.parquet", where="signature is not null")
    table = open_table(full_table).read(["status"])
    assert result.kept == table.column(0).to_pylist().count("ok")
    assert CliRunner().invoke(app, ["verify", str(result.receipt)]).exit_code == 0


def test_a_users_own_column_of_that_name_becomes_source_signature(folder, tiny_checkpoint, tmp_path):
    rows = pa.table({"path": [str(folder / "00.png")], "signature": ["J. Hancock"]})
    pq.write_table(rows, tmp_path / "mine.parquet")
    score(tmp_path / "mine.parquet", tmp_path / "s.parquet", model=tiny_checkpoint, **SMALL)
    (row,) = open_table(tmp_path / "s.parquet").read().to_pylist()
    assert row["source_signature"] == "J. Hancock"
    assert len(row["signature"]) == 287


@pytest.mark.parametrize("kind", [pa.binary(), pa.binary(287)])
def test_a_scored_table_can_be_scored_again_and_its_signatures_are_not_taken_for_images(tmp_path, kind):
    rows = pa.table({"uri": ["a.png"], "signature": signature_array(some(1)).cast(kind)})
    pq.write_table(rows, tmp_path / "scored.parquet")
    manifest = open_manifest(tmp_path / "scored.parquet", SourceOptions())
    assert manifest.rows(0, 1)["uri"].to_pylist() == [str(tmp_path / "a.png")]
    assert manifest.rows(0, 1).schema.names == ["key", "uri", "source_uri", "source_signature"]


def test_another_kind_of_signature_is_another_run(folder, tiny_checkpoint, tmp_path, monkeypatch):
    from scoring.images import signature

    out = tmp_path / "s.parquet"
    monkeypatch.setattr(signature, "KIND", "something older")
    run_again(folder, out, tiny_checkpoint)
    assert open_table(out).metadata["settings"]["signature"] == "something older"
    monkeypatch.undo()
    score(folder, tmp_path / "t.parquet", model=tiny_checkpoint, **SMALL, embedding=False)
    assert "signature" in open_table(tmp_path / "t.parquet").schema.names


def test_column_and_matrix_are_there_and_back_with_zeros_for_null():
    rows = some(5)
    column = signature_array([rows[0], None, rows[2], rows[3], rows[4]])
    assert column.type == SIGNATURE_TYPE
    assert column.null_count == 1
    expected = rows[:, :255].copy()
    expected[1] = 0
    assert (signature_matrix(column) == expected).all()
    assert (signature_matrix(column.slice(1, 3)) == expected[1:4]).all()
    assert signature_matrix(column.slice(5)).shape == (0, 255)


def test_chunks_and_the_types_of_other_tools_read_alike(tmp_path):
    rows = some(6)
    column = signature_array([*rows[:5], None])
    chunks = pa.chunked_array([column.slice(0, 2), column.slice(2, 0), column.slice(2)])
    expected = rows[:, :255].copy()
    expected[5] = 0
    assert (signature_matrix(chunks) == expected).all()
    assert signature_matrix(pa.chunked_array([], SIGNATURE_TYPE)).shape == (0, 255)
    for kind in (pa.binary(), pa.large_binary()):
        assert (signature_matrix(column.cast(kind)) == expected).all()
        assert (signature_matrix(column.cast(kind).slice(1, 4)) == expected[1:5]).all()
    pq.write_table(pa.table({"signature": column}), tmp_path / "a.parquet")
    pl.read_parquet(tmp_path / "a.parquet").write_parquet(tmp_path / "b.parquet")
    assert (signature_matrix(open_table(tmp_path / "b.parquet").read().column(0)) == expected).all()


def test_the_signature_of_an_image_survives_the_column():
    picture = np.random.default_rng(3).integers(0, 256, (32, 32, 3), dtype=np.uint8)
    stored = np.concatenate([signature(picture), chroma(picture)])
    assert (signature_matrix(signature_array([stored]))[0] == signature(picture)).all()
    assert (stored_matrix(signature_array([stored]))[0] == stored).all()
    older = pa.array([signature(picture).tobytes()], pa.binary(255))
    assert (stored_matrix(older)[0] == signature(picture)).all()


def test_what_is_no_signature_is_refused_with_its_length_and_row():
    with pytest.raises(InputError, match=r"got 3 \(row 1"):
        signature_matrix(pa.array([b"x" * 287, b"abc"]))
    with pytest.raises(InputError, match="got string"):
        signature_matrix(pa.array(["x"]))
    with pytest.raises(InputError, match=r"got fixed_size_binary\[16\]"):
        signature_matrix(pa.array([bytes(16)], pa.binary(16)))
    with pytest.raises(InputError, match="signatures of"):
        signature_matrix(pa.chunked_array([pa.array([b"x" * 287]), pa.array([b"x" * 255])]))
    with pytest.raises(ValueError, match=r"287 numbers .*int8"):
        signature_array([np.zeros(4, np.int8)])
