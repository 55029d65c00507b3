"""Scoring ends with a score that is fitted to the dataset: when, with which columns, and what it depends on."""

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image
from runs import SMALL as SMALLEST

from curate.columns import describe
from curate.engines import full_run as engine
from curate.engines.score import score
from curate.fitting.fit import fit
from curate.policies.filter.policy import filter
from curate.tables.needs import default_column
from curate.tables.table import open_table
from scoring.relative.columns import AMBIGUOUS, COLUMNS, COPIES, FITTED, JUNK, LOCAL, NEIGHBOUR, PER_IMAGE, UNLIKE
from scoring.relative.model import DatasetFit

pytestmark = pytest.mark.usefixtures("few_copies")
SMALL = SMALLEST | {"batch_size": 32, "shard_size": 32}  # of small batches each costs time
N = 60
SCORES = (NEIGHBOUR, AMBIGUOUS, FITTED, LOCAL)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    """Sixty images, two of which are the same, and one file that is invalid."""
    path = tmp_path_factory.mktemp("fitted") / "photos"
    path.mkdir()
    generator = np.random.default_rng(0)
    for i in range(N):
        small = generator.integers(0, 256, (4, 4, 3), dtype=np.uint8)
        Image.fromarray(small).resize((40, 40)).save(path / f"{i:02}.png")
    (path / "05.png").write_bytes((path / "03.png").read_bytes())
    (path / "text.png").write_text("hello")
    return path


@pytest.fixture(scope="module")
def scored(dataset, tiny_checkpoint, tmp_path_factory):
    out = tmp_path_factory.mktemp("scored") / "s.parquet"
    return score(dataset, out, model=tiny_checkpoint, **SMALL), out


def columns_of(path, names=COLUMNS):
    return {name: open_table(path).read([name]).column(0).to_pylist() for name in names}


def test_a_table_ends_with_the_fitted_columns(scored):
    table = open_table(scored[1])
    assert table.schema.names[-len(COLUMNS) :] == list(COLUMNS)
    assert table.metadata["columns"][FITTED]["higher"] == describe(FITTED).higher == "less certain"
    assert default_column(table) == FITTED
    columns = columns_of(scored[1])
    for name, values in columns.items():
        assert values[-1] is None, name  # the file that is invalid
        assert values[3] == values[5], name
        assert name in (UNLIKE, JUNK) or all(np.isfinite(value) for value in values[:-1]), name
    assert columns[COPIES][3:6] == [2, 1, 2]


def test_a_filter_ranks_by_them(scored, tmp_path):
    result = filter(scored[1], tmp_path / "k.parquet", keep_top=20, allow_uneven=True)
    kept = set(open_table(tmp_path / "k.parquet").read(["key"]).column(0).to_pylist())
    keys = open_table(scored[1]).read(["key"]).column(0).to_pylist()
    values = columns_of(scored[1])[LOCAL][:-1]
    surest = sorted(zip(values, keys, strict=False))[:20]
    assert kept == {key for _, key in surest}
    assert [f" works on {LOCAL} " in note for note in result.notes] == [True]


def test_a_scorer_that_the_fit_holds_does_not_run_again(dataset, tiny_checkpoint, scored, tmp_path, monkeypatch):
    def again(*args, **kwargs):
        raise AssertionError("the dataset was compared once more")

    monkeypatch.setattr("scoring.relative.fit.column_of", again)
    settings = SMALL | {"scorer": ("neighbour", "ambiguous")}
    score(dataset, tmp_path / "s.parquet", model=tiny_checkpoint, **settings)
    assert columns_of(tmp_path / "s.parquet") == columns_of(scored[1])


def test_no_fit_leaves_them_out(dataset, tiny_checkpoint, scored, tmp_path):
    score(dataset, tmp_path / "s.parquet", model=tiny_checkpoint, **SMALL, fit=False)
    names = open_table(tmp_path / "s.parquet").schema.names
    assert names == [name for name in open_table(scored[1]).schema.names if name not in COLUMNS]


@pytest.mark.parametrize("changes", [{"limit": 49}, {"embedding": False}])
def test_a_dataset_that_is_too_small_or_has_no_embeddings_gets_none(dataset, tiny_checkpoint, tmp_path, changes):
    result = score(dataset, tmp_path / "s.parquet", model=tiny_checkpoint, **SMALL, **changes)
    assert not set(COLUMNS) & set(open_table(tmp_path / "s.parquet").schema.names)
    if "limit" in changes:
        assert "2 of 49 rows" in result.notes[0]
        assert "unc_fitted: 48 different" in result.notes[1]


def test_images_that_are_all_equal_are_scored_without(tmp_path, tiny_checkpoint):
    (tmp_path / "same").mkdir()
    for i in range(N):
        Image.new("RGB", (40, 40), (9, 90, 200)).save(tmp_path / "same" / f"{i}.png")
    result = score(tmp_path / "same", tmp_path / "s.parquet", model=tiny_checkpoint, **SMALL)
    assert "60 of 60 rows" in result.notes[0]
    assert "unc_fitted: 1 different" in result.notes[1]
    assert result.failed == 0


def test_a_folder_of_parts_says_what_to_type(dataset, tiny_checkpoint, tmp_path):
    result = score(dataset, tmp_path / "parts", model=tiny_checkpoint, **SMALL)
    assert result.notes == [
        f"a folder of parts gets no unc_fitted on its own; curate fit {tmp_path / 'parts'} --apply NAME.parquet"
    ]
    result = fit(tmp_path / "parts", apply=tmp_path / "fitted.parquet", model=tiny_checkpoint)
    assert set(COLUMNS) <= set(open_table(tmp_path / "fitted.parquet").schema.names)  # the images were read again
    assert any("p_junk" in note for note in result.notes)


def test_a_run_that_died_before_the_end_ends_with_the_same_bytes(
    dataset, tiny_checkpoint, scored, tmp_path, monkeypatch
):
    def dies(*args, **kwargs):
        raise KeyboardInterrupt

    out = tmp_path / "s.parquet"
    with monkeypatch.context() as patch:
        patch.setattr(engine, "publish", dies)
        with pytest.raises(KeyboardInterrupt):
            score(dataset, out, model=tiny_checkpoint, **SMALL)
    assert not out.exists()
    assert score(dataset, out, model=tiny_checkpoint, **SMALL).resumed == N + 1
    assert out.read_bytes() == scored[1].read_bytes()


def test_the_order_of_the_images_changes_no_column(dataset, tiny_checkpoint, scored, tmp_path):
    files = sorted(path.name for path in dataset.iterdir())
    (tmp_path / "list.txt").write_text("".join(f"{name}\n" for name in reversed(files)))
    score(tmp_path / "list.txt", tmp_path / "s.parquet", model=tiny_checkpoint, **SMALL, root=str(dataset))
    for name, values in columns_of(tmp_path / "s.parquet", SCORES).items():
        expected = [np.nan if value is None else value for value in columns_of(scored[1])[name]]
        got = [np.nan if value is None else value for value in reversed(values)]
        assert np.array(got) == pytest.approx(np.array(expected), abs=0.02, nan_ok=True)


def test_a_fitted_model_gives_the_columns_in_the_same_pass(dataset, tiny_checkpoint, scored, tmp_path):
    fit(scored[1], tmp_path / "f.safetensors", model=tiny_checkpoint)
    out = tmp_path / "again.parquet"
    score(dataset, out, model=tmp_path / "f.safetensors", **SMALL)
    names = [name for name in open_table(scored[1]).schema.names if name != COPIES]
    assert open_table(out).schema.names == names
    assert open_table(out).metadata["model"]["digest"] == open_table(scored[1]).metadata["model"]["digest"]
    for name, values in columns_of(out, PER_IMAGE).items():
        expected = columns_of(scored[1])[name]
        assert values[-1] is expected[-1] is None
        if name in (NEIGHBOUR, AMBIGUOUS):
            assert values[:-1] == pytest.approx(expected[:-1], abs=0.02), name
    single = tmp_path / "one"
    single.mkdir()
    (single / "10.png").write_bytes((dataset / "10.png").read_bytes())
    score(single, tmp_path / "one.parquet", model=tmp_path / "f.safetensors", **SMALL)
    alone, among = columns_of(tmp_path / "one.parquet", [FITTED]), columns_of(out, [FITTED])
    assert alone[FITTED][0] == pytest.approx(among[FITTED][10], abs=1e-4)


def test_a_users_own_column_of_that_name_is_kept_under_another(dataset, tiny_checkpoint, tmp_path):
    rows = [{"path": str(dataset / f"{i:02}.png"), "unc_fitted": float(i)} for i in range(N)]
    import pyarrow.parquet as pq

    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "list.parquet")
    score(tmp_path / "list.parquet", tmp_path / "s.parquet", model=tiny_checkpoint, **SMALL)
    names = open_table(tmp_path / "s.parquet").schema.names
    assert "source_unc_fitted" in names
    assert FITTED in names


def test_images_far_from_the_fitted_ones_are_reported(dataset, tiny_checkpoint, scored, tmp_path, monkeypatch):
    fit(scored[1], tmp_path / "f.safetensors", model=tiny_checkpoint)
    same = score(dataset, tmp_path / "s.parquet", model=tmp_path / "f.safetensors", **SMALL)
    assert same.notes == []
    nearer = np.sort(columns_of(scored[1])["unc_neighbour"][:-1])[N // 2]
    monkeypatch.setattr(DatasetFit, "far", nearer)  # half of the images are farther than that
    other = score(dataset, tmp_path / "o.parquet", model=tmp_path / "f.safetensors", **SMALL)
    share = float(other.notes[0].split("%")[0])
    assert share == pytest.approx(50, abs=4)
    assert "farther from the dataset" in other.notes[0]


def test_what_takes_a_while_is_announced(dataset, tiny_checkpoint, tmp_path, monkeypatch):
    from curate.engines import output

    monkeypatch.setattr(output, "LONG", 30)
    lines = []
    score(dataset, tmp_path / "s.parquet", model=tiny_checkpoint, **SMALL, announce=lines.append)
    assert "comparing 59 images" in str(lines)
