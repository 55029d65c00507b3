"""Scoring with views: intervals next to the same scores, whatever is killed, split or reordered."""

from dataclasses import replace

import numpy as np
import pytest
from commandline import run
from PIL import Image
from runs import SMALL

from curate.columns import describe, is_less_certain, without_bounds
from curate.engines.journal import WorkFolder
from curate.engines.score import score
from curate.evaluation.rows import score_columns
from curate.facts.columns import shown_columns
from curate.tables.signals import default_column, kappa_of
from curate.tables.table import open_table
from scoring.checkpoint import load_model
from scoring.errors import InputError
from scoring.images import decode
from scoring.runner import Runner, select_device
from scoring.views import draws, views_of

VIEWS = replace(SMALL, views=4)
BOUNDS = [f"{kind}_visimsiam_{end}" for kind in ("kappa", "unc") for end in ("lower", "upper")]


@pytest.fixture(scope="module")
def viewed(folder, tiny_checkpoint, tmp_path_factory):
    out = tmp_path_factory.mktemp("viewed") / "scores.parquet"
    said = []
    score(folder, out, model=tiny_checkpoint, settings=VIEWS, announce=said.append)
    return out, said


def test_all_other_columns_are_those_of_a_run_without_views(whole, viewed):
    plain, table = open_table(whole).read(), open_table(viewed[0]).read()
    assert [name for name in table.schema.names if name not in plain.schema.names] == BOUNDS
    for name in plain.schema.names:
        assert table.column(name).equals(plain.column(name)), name
    assert without_bounds(table.schema.names) == plain.schema.names


def test_bounds_are_those_of_views_that_were_saved_as_pictures_and_scored(folder, viewed, tiny_checkpoint, tmp_path):
    import torch

    model, _ = load_model(tiny_checkpoint)
    rows = {row["key"]: row for row in open_table(viewed[0]).read().to_pylist()}
    keys = ["00.png", "11.png", "27.png"]
    for key in keys:
        image = decode((folder / key).read_bytes(), model.spec.preprocessing)
        for view in range(4):
            seen = views_of(torch.from_numpy(image.pixels).permute(2, 0, 1)[None], draws([image.sha256], view))
            Image.fromarray(seen[0].permute(1, 2, 0).numpy()).save(tmp_path / f"{key}-{view}.png")
    score(tmp_path, tmp_path / "s.parquet", model=tiny_checkpoint, settings=SMALL)
    kappas = {row["key"]: row["kappa_visimsiam"] for row in open_table(tmp_path / "s.parquet").read().to_pylist()}
    for key in keys:
        every = [rows[key]["kappa_visimsiam"], *(kappas[f"{key}-{view}.png"] for view in range(4))]
        assert rows[key]["kappa_visimsiam_lower"] == pytest.approx(min(every), rel=1e-4)
        assert rows[key]["kappa_visimsiam_upper"] == pytest.approx(max(every), rel=1e-4)


def test_the_score_lies_in_its_interval_copies_have_the_same_and_failures_none(viewed):
    rows = open_table(viewed[0]).read().to_pylist()
    for row in rows:
        bounds = [row[name] for name in BOUNDS]
        if row["status"] != "ok":
            assert bounds == [None] * 4
        else:
            assert row["kappa_visimsiam_lower"] <= row["kappa_visimsiam"] <= row["kappa_visimsiam_upper"]
            assert row["unc_visimsiam_lower"] <= row["unc_visimsiam"] <= row["unc_visimsiam_upper"]
    by_key = {row["key"]: row for row in rows}
    assert [by_key["03.png"][name] for name in BOUNDS] == [by_key["05.png"][name] for name in BOUNDS]


def test_a_run_that_was_cut_off_ends_with_the_same_bytes(folder, viewed, tiny_checkpoint, tmp_path, monkeypatch):
    out, real, commits = tmp_path / "s.parquet", WorkFolder.commit, []

    def commit(self, line):
        if len(commits) == 2:
            raise KeyboardInterrupt
        commits.append(line)
        real(self, line)

    with monkeypatch.context() as patch:
        patch.setattr(WorkFolder, "commit", commit)
        with pytest.raises(KeyboardInterrupt):
            score(folder, out, model=tiny_checkpoint, settings=VIEWS)
    assert score(folder, out, model=tiny_checkpoint, settings=VIEWS).resumed == 16
    assert out.read_bytes() == viewed[0].read_bytes()


def test_batches_shards_and_order_change_no_interval(folder, viewed, tiny_checkpoint, tmp_path):
    listed = tmp_path / "list.txt"
    listed.write_text("\n".join(str(path) for path in sorted(folder.iterdir(), reverse=True)))
    settings = replace(VIEWS, batch_size=7, shard_rows=11)
    score(listed, tmp_path / "s.parquet", model=tiny_checkpoint, settings=settings)
    there = {row["sha256"]: row for row in open_table(tmp_path / "s.parquet").read().to_pylist()}
    for row in open_table(viewed[0]).read().to_pylist():
        if row["status"] == "ok":
            found = [there[row["sha256"]][name] for name in BOUNDS]
            assert np.allclose(found, [row[name] for name in BOUNDS], rtol=1e-4)


def test_what_it_costs_and_which_scores_have_none_is_said(viewed):
    said = "\n".join(viewed[1])
    assert "4 views of every image: the network runs 5 times for each" in said
    assert "60.0%" in said
    assert "no interval: p_junk, unc_neighbour" in said
    metadata = open_table(viewed[0]).metadata
    assert metadata["intervals"] == {"views": 4, "coverage": 0.6}
    assert metadata["settings"]["number of views"] == 4


@pytest.mark.parametrize("views", [0, 8])
def test_other_views_on_the_same_output_are_refused_with_the_difference(folder, viewed, tiny_checkpoint, views):
    with pytest.raises(InputError, match="another number of views: 4 there"):
        score(folder, viewed[0], model=tiny_checkpoint, settings=replace(SMALL, views=views))


def test_views_of_another_kind_are_refused_too(folder, viewed, tiny_checkpoint, monkeypatch):
    monkeypatch.setattr("curate.engines.job.VIEWS_KIND", "another")
    with pytest.raises(InputError, match="another view"):
        score(folder, viewed[0], model=tiny_checkpoint, settings=VIEWS)


def test_a_column_of_the_users_own_that_is_called_as_a_bound_is_kept_apart(folder, tiny_checkpoint, tmp_path):
    (tmp_path / "images.csv").write_text(f"path,kappa_visimsiam_lower\n{folder / '00.png'},mine\n")
    score(tmp_path / "images.csv", tmp_path / "s.parquet", model=tiny_checkpoint, settings=VIEWS)
    row = open_table(tmp_path / "s.parquet").read().to_pylist()[0]
    assert row["source_kappa_visimsiam_lower"] == "mine"
    assert row["kappa_visimsiam_lower"] <= row["kappa_visimsiam"]


def test_bounds_are_described_and_taken_for_no_score_of_their_own(viewed):
    table = open_table(viewed[0])
    assert describe("kappa_visimsiam_lower").meaning.startswith("lowest over the image and views")
    assert describe("kappa_visimsiam_upper").higher == "more certain"
    assert is_less_certain("unc_visimsiam_upper")
    assert describe("mine_lower").meaning == "the user's own"
    assert default_column(table) == kappa_of(table) == "kappa_visimsiam"
    table.metadata = {}
    assert default_column(table) == kappa_of(table) == "kappa_visimsiam"


@pytest.mark.parametrize("views", ["1", "-3", "1000000"])
def test_a_number_of_views_that_cannot_be_is_one_line(folder, tmp_path, tiny_checkpoint, views):
    done = run("score", folder, "--views", views, "--model", tiny_checkpoint, "-o", tmp_path / "s.parquet")
    assert done.exit_code == 1
    assert done.stderr.startswith("error: --views takes 2 to 256")
    assert done.stderr.count("\n") == 1


def test_what_measures_all_scores_of_a_table_measures_no_bounds(viewed):
    names, doubles = score_columns(open_table(viewed[0]))
    assert (names, doubles) == (["kappa_visimsiam"], ["unc_visimsiam"])


def test_a_report_tells_ends_of_intervals_as_numbers_and_not_as_scores(viewed):
    shown, _ = shown_columns(open_table(viewed[0]), None)
    assert [each.column for each in shown if each.kind == "score"] == ["kappa_visimsiam", "unc_visimsiam"]
    assert set(BOUNDS) <= {each.column for each in shown if each.kind == "number"}


def test_a_runner_makes_no_views_unless_asked(tiny_checkpoint):
    model, _ = load_model(tiny_checkpoint)
    assert Runner(model, select_device("cpu")).columns == ("kappa_visimsiam", "unc_visimsiam")
