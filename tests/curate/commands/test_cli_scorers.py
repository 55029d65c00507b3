"""A score that needs no training, from outside, in one file and one line: in the table, its help and the documents."""

import runpy
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch
from commandline import run
from PIL import Image

from curate.options.option import declared
from scoring.checkpoint import load_model, save_checkpoint
from scoring.class_heads import ClassifierHeadSpec
from scoring.heads import KappaHeadSpec
from scoring.images import Preprocessing
from scoring.model import ModelSpec, ScoringModel
from scoring.scorers import WHERE

ROOT = Path(__file__).parents[3]
OUTSIDE = '''
from dataclasses import dataclass

from scoring.column import Column
from scoring.scorers import FEATURES, LOGITS, TABLE


@dataclass(frozen=True)
class Entropy:
    """Entropy of the classes."""

    needs = LOGITS
    passes = 0
    columns = {"unc_entropy": Column("entropy of the class probabilities", "nats", "less certain")}

    def score(self, given):
        log_p = given.log_softmax(1)
        return {"unc_entropy": -(log_p.exp() * log_p).sum(1)}


@dataclass(frozen=True)
class Shaken:
    """Spread of the features over passes."""

    passes: int = 3
    needs = FEATURES
    columns = {"unc_shaken": Column("spread of the features with dropout", "1", "less certain")}

    def score(self, given):
        return {"unc_shaken": given.std(0).mean(1)}


@dataclass(frozen=True)
class Nearest:
    """Distance to the nearest other row."""

    needs = TABLE
    passes = 0
    columns = {"unc_nearest": Column("one less the cosine with the nearest other row", "1", "less certain")}

    def score(self, given):
        cosine = given.astype("float64") @ given.astype("float64").T
        cosine[range(len(given)), range(len(given))] = -2
        return {"unc_nearest": 1 - cosine.max(1)}
'''


@pytest.fixture
def place(tmp_path, monkeypatch):
    """Images, one of them broken; a model with a classifier; and a module with three scorers, each with its line."""
    (tmp_path / "photos").mkdir()
    for i in range(7):
        noise = np.random.default_rng(i).integers(0, 256, (40, 40, 3), dtype=np.uint8)
        Image.fromarray(noise).save(tmp_path / "photos" / f"{i}.png")
    (tmp_path / "photos" / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    torch.manual_seed(0)
    heads = {"classes": ClassifierHeadSpec(4), "visimsiam": KappaHeadSpec(8, 31.0)}
    model = ScoringModel(ModelSpec("test_resnet", {}, heads, Preprocessing(size=32, resize=32)))
    card = {"method": "visimsiam", "training": {}, "metrics": {}, "data_licence": "CC0"}
    save_checkpoint(tmp_path / "m.safetensors", model.eval(), card)
    (tmp_path / "outside_scorers.py").write_text(OUTSIDE)
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("Entropy", "Shaken", "Nearest"):
        monkeypatch.setitem(WHERE, name.lower(), f"outside_scorers:{name}")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def score(out, *more):
    return run("score", "photos", "-o", out, "--model", "m.safetensors", "--device", "cpu", "--dtype", "float32", *more)


@pytest.mark.usefixtures("place")
def test_scorers_from_outside_are_columns_with_their_meaning():
    result = score("s.parquet", "--scorer", "entropy", "--scorer", "nearest", "--shard-size", 3)
    assert result.exit_code == 0, result.output
    assert score("plain.parquet", "--shard-size", 3).exit_code == 0
    table, plain = pl.read_parquet("s.parquet"), pl.read_parquet("plain.parquet")
    assert table.columns == [*plain.columns, "unc_entropy", "unc_nearest"]
    assert table.select(plain.columns).equals(plain)
    ok = table.filter(pl.col("status") == "ok")
    assert table.filter(pl.col("status") != "ok").select("unc_entropy", "unc_nearest").row(0) == (None, None)
    # by hand: logits of the features, and cosines of the stored embeddings
    model, _ = load_model("m.safetensors")
    pixels = torch.stack(
        [
            torch.from_numpy(np.array(Image.open(f"photos/{key}").resize((32, 32), Image.Resampling.BICUBIC)))
            for key in ok["key"]
        ]
    ).permute(0, 3, 1, 2)
    with torch.no_grad():
        chances = model.heads["classes"](model.features(pixels)).softmax(1)
    assert np.allclose(ok["unc_entropy"], -(chances * chances.log()).sum(1), rtol=0.05)
    vectors = ok["embedding"].to_numpy()
    nearest = [max(vectors[i] @ vectors[j] for j in range(7) if j != i) for i in range(7)]
    assert np.allclose(ok["unc_nearest"], 1 - np.array(nearest), atol=1e-5)
    said = " ".join(run("info", "s.parquet").output.split())
    assert "of the class probabilities" in said
    assert "nearest other row" in said
    kept = run("filter", "s.parquet", "--keep-top", 4, "--column", "unc_entropy", "-o", "k.parquet")
    assert kept.exit_code == 0, kept.output
    assert pl.read_parquet("k.parquet")["unc_entropy"].max() == ok["unc_entropy"].sort()[3]
    tables = runpy.run_path(str(ROOT / "docs/generate.py"))["TABLES"]
    assert "| `unc_entropy` | entropy of the class probabilities | nats | less certain |" in tables["columns"]()
    assert "| `kappa_<method>` |" in tables["columns"]()
    anew = declared(runpy.run_path(str(ROOT / "curate/engines/options.py"))["ScoreOptions"])
    assert "entropy, shaken, nearest" in {field.name: field.about.text for field in anew}["scorer"]


@pytest.mark.usefixtures("place")
def test_other_scorers_are_another_run_and_the_same_ones_are_done_already():
    assert score("s.parquet", "--scorer", "entropy").exit_code == 0
    again = score("s.parquet", "--scorer", "entropy")
    assert again.exit_code == 0
    assert "is complete already" in again.stderr
    other = score("s.parquet")
    assert other.exit_code == 1
    assert "scorers" in other.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["s.parquet", "--scorer", "entropi"], "did you mean 'entropy'"),
        (["s.parquet", "--scorer", "nearest", "--no-embedding"], "leave out --no-embedding"),
        (["parts", "--scorer", "nearest"], "--out NAME.parquet, got parts"),
    ],
)
def test_a_scorer_that_cannot_be_is_one_line_and_nothing_is_written(place, args, words):
    result = score(*args)
    assert result.exit_code == 1
    assert words in result.stderr.splitlines()[-1]
    assert {path.name for path in place.iterdir()} <= {"photos", "m.safetensors", "outside_scorers.py", "__pycache__"}


def test_the_option_names_those_there_are():
    text = " ".join(run("score", "--help").stdout.split())
    assert "crops, dropout, neighbour, ambiguous" in text
