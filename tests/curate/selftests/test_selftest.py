"""What the contract finds of scores that keep it, of scores that break it, and of what cannot be tried."""

import hashlib
import io
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from scipy import stats
from typer.testing import CliRunner

from curate.cli import app
from curate.engines.score import score
from curate.manifest.contract import SourceOptions
from curate.selftests import corruption, invariance
from curate.selftests.contract import BROKEN, HOLDS, UNSURE, UNTRIED
from curate.selftests.invariance import WAYS, Way, of_source, of_table, unchanged
from curate.selftests.run import selftest
from curate.statistics.calibrators import rise
from curate.statistics.degradations import LADDERS
from scoring.images import Preprocessing

pytestmark = pytest.mark.usefixtures("few_copies")
QUICK = tuple(way for way in WAYS if way.what in ("the same again", "another order"))


def picture(seed, side=40):
    """A smooth image with an edge in it, as JPEG."""
    generator = np.random.default_rng(seed)
    small = generator.integers(40, 216, (6, 6, 3), dtype=np.uint8)
    image = np.asarray(Image.fromarray(small).resize((side, side), Image.Resampling.BICUBIC)).copy()
    image[:, side // 2 :] //= 2
    file = io.BytesIO()
    Image.fromarray(image).save(file, "JPEG", quality=92)
    return file.getvalue()


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Eighty images in two folders, and a file that is invalid."""
    folder = tmp_path_factory.mktemp("photos")
    for number in range(80):
        place = folder / "ab"[number % 2]
        place.mkdir(exist_ok=True)
        (place / f"{number:02}.jpg").write_bytes(picture(number))
    (folder / "a" / "broken.jpg").write_bytes(b"no image")
    return folder


@pytest.fixture(scope="module")
def table(photos, tiny_checkpoint, tmp_path_factory):
    out = tmp_path_factory.mktemp("scored") / "s.parquet"
    score(photos, out, model=tiny_checkpoint, device="cpu", label_from_folder=True, workers=1)
    return out


def test_the_same_images_are_drawn_whatever_their_order_and_at_most_half(photos, tmp_path):
    paths = sorted(photos.rglob("*.jpg"))
    (tmp_path / "one.txt").write_text("".join(f"{path}\n" for path in paths))
    (tmp_path / "two.txt").write_text("".join(f"{path}\n" for path in paths[::-1]))
    options = SourceOptions()
    drawn = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        source = str(tmp_path / f"{name}.txt")
        drawn.append(of_source(source, 200, tmp_path / name, seed=3, options=options, announce=lambda text: None))
    (first, sample), (second, _) = drawn
    assert set(first.keys) == set(second.keys)
    assert len(first.keys) + first.unread == 41
    assert len(sample.keys) == 80
    assert next(first.data()) == (photos / first.keys[0]).read_bytes()


def test_images_behind_a_table_belong_to_its_rows(table, tmp_path):
    sample = of_table(open_(table), 30, tmp_path, seed=0, source=None)
    assert len(sample.keys) == 30
    rows = pq.read_table(table, columns=["key", "sha256"]).to_pylist()
    scored = {row["key"]: row["sha256"] for row in rows}
    assert [hashlib.sha256(data).hexdigest() for data in sample.data()] == [scored[key] for key in sample.keys]


def test_a_variant_that_cannot_run_is_skipped_and_the_others_run(photos, tiny_checkpoint, tmp_path):
    sample, _ = of_source(str(photos), 24, tmp_path, seed=0, options=SourceOptions(), announce=lambda text: None)
    ways = [Way("a cluster that is missing", {"engine": "ray:127.0.0.1:1"}), QUICK[0]]
    checks = unchanged(sample, tmp_path, tiny_checkpoint, fit=False, ways=ways)
    assert [check.state for check in checks if check.what == ways[0].what] == [UNTRIED]
    assert "no Ray cluster answers" in checks[0].words
    assert {check.state for check in checks if check.what == QUICK[0].what} == {HOLDS}


def open_(path):
    from curate.tables.table import open_table

    return open_table(path)


def test_scores_do_not_depend_on_batches_order_or_parts_and_a_variant_that_changes_them_is_found(
    photos, tiny_checkpoint, tmp_path
):
    options = SourceOptions()
    sample, _ = of_source(str(photos), 24, tmp_path, seed=0, options=options, announce=lambda text: None)
    local = [way for way in WAYS if not way.needs and way.tolerance is not None]
    rounded = Way("rounded", {"precision": "bf16"}, 0.0)
    absent = Way("the engine of another", {}, needs="a_package_that_nobody_has")
    checks = unchanged(sample, tmp_path, tiny_checkpoint, fit=True, ways=[*local, rounded, absent])
    by_way = {}
    for check in checks:
        by_way.setdefault(check.what, []).append(check)
    for way in local:
        assert {check.state for check in by_way[way.what]} <= {HOLDS, UNTRIED}, way.what
    assert {check.column for check in by_way["one at a time"]} >= {"kappa_visimsiam"}
    assert by_way["the same again"][0].words == "equal bits"
    assert {check.state for check in by_way["rounded"] if check.column == "kappa_visimsiam"} == {BROKEN}
    assert by_way["the engine of another"][0].words == "a_package_that_nobody_has is not installed"


def test_an_order_of_dropping_is_not_compared_where_embeddings_are_rounded(
    monkeypatch, photos, tiny_checkpoint, tmp_path
):
    sample, _ = of_source(str(photos), 24, tmp_path, seed=0, options=SourceOptions(), announce=lambda text: None)
    scored = {name: {f"{row}": float(row) for row in range(24)} for name in ("unc_fitted", "unc_local")}
    monkeypatch.setattr(invariance, "score", lambda *source, **settings: None)
    monkeypatch.setattr(invariance, "_columns_of", lambda path: scored)
    checks = unchanged(sample, tmp_path, tiny_checkpoint, fit=True, ways=[QUICK[0], Way("half", {}, None)])
    assert [(check.column, check.state) for check in checks[2:]] == [("unc_fitted", HOLDS), ("unc_local", UNTRIED)]
    assert {check.state for check in checks[:2]} == {HOLDS}


@pytest.mark.slow
def test_a_column_of_the_labels_is_separated_from_chance_level(photos, tiny_checkpoint, tmp_path):
    """A column that is high where the classifier is wrong, by its own predictions, and one of noise."""
    out = tmp_path / "s.parquet"
    score(photos, out, model=tiny_checkpoint, device="cpu", label_from_folder=True, workers=1)
    table = pq.read_table(out)
    generator = np.random.default_rng(5)
    widened = table.append_column("unc_noise", pa.array(generator.random(len(table)), mask=_failed(table)))
    pq.write_table(widened, out)
    from curate.evaluation.correctness import LINEAR
    from curate.evaluation.options import EvaluateOptions
    from curate.evaluation.work import judge_table

    rows, correctness = judge_table(open_(out), EvaluateOptions(out, label="label"))
    wrong = np.zeros(len(table))
    wrong[rows.index] = ~correctness.right[LINEAR]
    widened = widened.append_column(
        "unc_knows", pa.array(wrong + generator.random(len(table)) / 10, mask=_failed(table))
    )
    pq.write_table(widened, out)
    result = selftest(
        out, images=30, model=tiny_checkpoint, device="cpu", label="label", change="darkness", ways=QUICK, repeats=200
    )
    of_labels = {check.column: check.state for check in result.checks if check.section == "labels"}
    assert of_labels["unc_knows"] == HOLDS
    assert of_labels["unc_noise"] in (BROKEN, UNSURE)
    assert set(result.left_out) >= {"unc_noise", "unc_knows"}


def _failed(scores):
    return np.array([status != "ok" for status in scores["status"].to_pylist()])


@pytest.mark.slow
def test_a_folder_is_tried_with_its_own_company(photos, tiny_checkpoint):
    result = selftest(photos, images=30, model=tiny_checkpoint, device="cpu", change=["darkness", "blur"], ways=QUICK)
    assert result.images + result.unread == 30
    assert "kappa_visimsiam" in result.columns  # the others need images that random weights do not take for copies
    assert set(result.curves) == {"darkness", "blur"}
    assert result.passed == (not result.broken)
    facts = json.loads(json.dumps(result.to_json(), allow_nan=False))
    assert facts["strengths"]["blur"]["strength"] == [0.0, *LADDERS["blur"].strengths]
    assert any("darkness" in str(line) for line in result.lines())


def run(*words):
    return CliRunner().invoke(app, ["selftest", *map(str, words)])


def test_the_command_prints_a_table_draws_an_image_and_ends_with_1(table, tiny_checkpoint, tmp_path, monkeypatch):
    monkeypatch.setattr("curate.selftests.invariance.WAYS", QUICK)
    monkeypatch.setattr("curate.selftests.run.WAYS", QUICK)
    place, report = tmp_path / "fall.png", tmp_path / "all.json"
    options = ["--model", tiny_checkpoint, "--images", 30, "--device", "cpu", "--plot", place, "-o", report]
    done = run(table, *options)
    assert done.exit_code == (0 if json.loads(report.read_text())["passed"] else 1)
    assert "change no score" in done.stdout
    assert Image.open(place).size[0] > 500
    again = run(table, *options)
    assert again.exit_code == 1
    assert "--overwrite" in again.stderr


MISTAKES = {
    "too few images": (["--images", "5"], "--images must be between 20"),
    "another change": (["--change", "bluur"], "did you mean 'blur'"),
    "another column": (["--column", "kappa_visimsian"], "kappa_visimsiam"),
    "a source of a folder": (["--source", "x"], "--source is for a scored table"),
    "a report of another kind": (["-o", "x.txt"], "ends in .json"),
    "an image of another kind": (["--plot", "x.txt"], ".png"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_one_line(name, photos, tiny_checkpoint, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words, said = MISTAKES[name]
    done = run(photos, "--model", tiny_checkpoint, *words)
    assert done.exit_code == 1
    assert said in done.stderr
    assert done.stderr.strip().splitlines()[-1].startswith("error: ")
    assert list(tmp_path.iterdir()) == []


def test_few_images_and_a_table_without_embeddings_are_one_line(photos, tiny_checkpoint, tmp_path):
    done = run(photos / "a", "--model", tiny_checkpoint, "--images", 20)
    assert done.exit_code in (0, 1)
    few = tmp_path / "few"
    few.mkdir()
    for path in sorted((photos / "a").glob("*.jpg"))[:12]:
        (few / path.name).write_bytes(path.read_bytes())
    done = run(few, "--model", tiny_checkpoint)
    assert done.exit_code == 1
    assert "20 readable images" in done.stderr
    bare = tmp_path / "bare.parquet"
    score(photos, bare, model=tiny_checkpoint, device="cpu", embedding=False, workers=1)
    done = run(bare, "--model", tiny_checkpoint, "--images", 20)
    assert done.exit_code == 1
    assert "embedding" in done.stderr.splitlines()[-1]


def test_preprocessing_of_the_tiny_model_is_what_the_made_scores_take(tiny_checkpoint):
    from scoring.checkpoint import load_model

    assert load_model(tiny_checkpoint)[0].spec.preprocessing == Preprocessing(size=32, resize=32)


def drawn_changes(generator, n):
    """A score of n images and of versions that it gives nearly one value, in the middle: it decides nothing."""
    return generator.normal(size=n), 0.05 * generator.normal(size=n)


def test_an_interval_holds_the_truth_as_often_as_stated():
    """The unchanged images are a draw, too: of 1,000 runs at most 5 % miss, and what chance level adds."""
    generator = np.random.default_rng(7)
    missed = naive = 0
    for _ in range(1_000):
        base, worse_ = drawn_changes(generator, 80)
        climbed = corruption.Climbed(np.zeros((80, 1)), {"unc_x": base}, {"blur": [{"unc_x": worse_}]})
        end = rise(climbed.shares("blur", "unc_x")).end
        missed += not end.low <= 0 <= end.high
        shares = np.stack([corruption.rank_among(base, each, "unc_x") for each in (base, worse_)])
        end = rise(shares).end
        naive += not end.low <= 0 <= end.high
    assert missed <= stats.binom.ppf(0.999, 1_000, 0.05)
    assert naive > 150  # with the unchanged images taken for all there are


def test_ranks_by_strength_are_their_definition():
    base, changed = np.array([1.0, 2.0, 2.0, 4.0]), np.array([2.0, 5.0, 0.0, 3.0])
    more = np.mean([np.mean(base < value) + np.mean(base == value) / 2 for value in changed])
    assert corruption.shares_among(base, changed, "unc_a").mean() == pytest.approx(more)  # less is more certain
    assert corruption.shares_among(base, changed, "kappa_b").mean() == pytest.approx(1 - more)
    assert corruption.shares_among(base, base, "unc_a") == pytest.approx(0.5)


def test_what_all_images_show_alike_has_no_interval():
    base = np.arange(40.0)
    climbed = corruption.Climbed(np.zeros((40, 1)), {"unc_x": base}, {"blur": [{"unc_x": base + 100}]})
    assert rise(climbed.shares("blur", "unc_x")).end == pytest.approx((0.5, 0.5, 0.5))


def test_a_small_fall_that_is_sure_does_not_hide_a_larger_one():
    generator = np.random.default_rng(0)
    values = np.stack([np.full(100, level) for level in (0.5, 0.6, 0.582, 0.9, 0.8, 0.99)])
    values[4] += 0.02 * generator.normal(size=100)
    state, words = corruption._judged(rise(values), "blur")
    assert state == BROKEN
    assert "between 0.02 and 0.04" in words


def test_few_images_are_called_few_and_not_chance_level():
    from curate.selftests.run import _check
    from scoring.metrics.resampling import Interval

    assert _check("AUROC", "unc_x", Interval(0.54, 0.47, 0.62), 100).state == UNSURE
    assert _check("AUROC", "unc_x", Interval(0.52, 0.48, 0.56), 100).state == BROKEN
    assert _check("AUROC", "unc_x", Interval(0.62, 0.55, 0.7), 100).state == HOLDS
