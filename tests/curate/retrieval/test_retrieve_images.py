"""`curate retrieve` with images, which the model of the table scores."""

import json

import polars as pl
import pytest
from commandline import run
from PIL import Image

import curate

pytestmark = pytest.mark.usefixtures("few_copies")


def test_images_and_folders_are_scored_by_the_tables_model(full_table, folder, tiny_checkpoint, tmp_path):
    sheet, out = tmp_path / "s.png", tmp_path / "a.jsonl"
    typed = ["retrieve", full_table, folder / "03.png", folder, "--model", tiny_checkpoint, "--top", 2]
    result = run(*typed, "--sheet", sheet, "-o", out)
    assert result.exit_code == 0, result.stderr
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    of_three = [line for line in lines if line["query"] == str(folder / "03.png")]
    assert {line["key"] for line in of_three} == {"03.png", "05.png"}  # itself, as it is no row here, and its copy
    assert all(line["similarity"] > 0.999 for line in of_three)
    assert {line["query"] for line in lines if line["state"] == "failed"} == {
        str(folder / "broken.jpg"),
        str(folder / "text.png"),
    }
    with Image.open(sheet) as picture:
        assert picture.width > 600
    table = pl.read_parquet(full_table).filter(pl.col("key") == "03.png")
    assert of_three[0]["query_certainty"] == pytest.approx(table["kappa_visimsiam"][0], rel=1e-3)


def test_images_that_cannot_be_queries_are_one_line(full_table, folder, tiny_checkpoint, tmp_path):
    (tmp_path / "nothing").mkdir()
    for query, words in ((folder / "text.png", "not a readable image"), (tmp_path / "nothing", "got no files")):
        result = run("retrieve", full_table, query, "--model", tiny_checkpoint, "-q")
        assert result.exit_code == 1
        assert words in result.stderr
        assert result.stderr.count("\n") == 1
    result = run(
        "retrieve", full_table, folder / "03.png", "--model", tiny_checkpoint, "--certainty", "min:width", "-q"
    )
    assert "is a column" in result.stderr


def test_a_model_fitted_to_the_table_gives_the_fitted_score_of_images(full_table, folder, tiny_checkpoint, tmp_path):
    fitted, scored = tmp_path / "fitted.safetensors", tmp_path / "t.parquet"
    curate.fit(full_table, fitted, apply=scored, model=tiny_checkpoint)
    retrieval = curate.retrieve(scored, str(folder / "07.png"), model=fitted, top=1)
    table = pl.read_parquet(scored).filter(pl.col("key") == "07.png")
    assert retrieval.column == "unc_fitted"
    assert retrieval.certainty[0] == pytest.approx(table["unc_fitted"][0], abs=1e-3)
    assert retrieval.neighbours(0)[0].key == "07.png"
    assert curate.retrieve(scored, str(folder / "07.png"), model=tiny_checkpoint).column == "kappa_visimsiam"


def test_the_kappa_of_the_head_that_embeds_needs_no_calibration(folder, tmp_path):
    import torch

    from scoring.checkpoint import save_checkpoint
    from scoring.heads import NormHeadSpec
    from scoring.images import Preprocessing
    from scoring.model import ModelSpec, ScoringModel

    model, table = tmp_path / "m.safetensors", tmp_path / "t.parquet"
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        spec = ModelSpec(
            "test_resnet", {}, {"own": NormHeadSpec(8)}, Preprocessing(size=32, resize=32), embedding="own"
        )
        save_checkpoint(
            model, ScoringModel(spec).eval(), {"method": "own", "training": {}, "metrics": {}, "data_licence": "CC0"}
        )
    curate.score(str(folder), table, model=model, fit=False)
    retrieval = curate.retrieve(table, "03.png", credible=0.9)
    assert retrieval.column == "kappa_own"
    assert retrieval.bounds is not None
    assert "8 dimensions" in retrieval.region
