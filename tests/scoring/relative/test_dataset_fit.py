import numpy as np
import pytest
from synthetic import kinds, slow_distance, unit

from scoring.errors import InputError
from scoring.metrics.ranking import auroc, ranks
from scoring.relative.columns import AMBIGUOUS, CLUSTER, FITTED, JUNK, LOCAL, NEIGHBOUR, PER_IMAGE, UNLIKE
from scoring.relative.fit import LEAST_ROWS, column_of, fit_dataset
from scoring.scorers import scored, scorers_named

SCORES = (NEIGHBOUR, AMBIGUOUS, FITTED, LOCAL)


def test_a_row_means_the_same_alone_as_in_its_dataset():
    rows, _ = kinds(n=400)
    fit, said = fit_dataset(rows)
    alone = [fit.score(rows[i : i + 1]).columns for i in range(0, 400, 37)]
    for name in (NEIGHBOUR, AMBIGUOUS, FITTED):  # when a row is dropped depends on all others
        assert np.concatenate([each[name] for each in alone]) == pytest.approx(said.columns[name][::37], abs=0.01)
    assert np.concatenate([each[CLUSTER] for each in alone]).tolist() == said.columns[CLUSTER][::37].tolist()


def test_columns_match_their_definitions():
    rows, _ = kinds(n=400)
    fit, said = fit_dataset(rows)
    assert said.columns.keys() == PER_IMAGE.keys() - {JUNK}
    assert all(said.columns[name].dtype == np.float32 for name in SCORES)
    assert all(values.shape == (400,) for values in said.columns.values())
    assert said.columns[NEIGHBOUR] == pytest.approx(slow_distance(rows), abs=1e-3)
    share = said.columns[AMBIGUOUS]
    assert share == pytest.approx((ranks(share) - 0.5) / 400, abs=0.01)
    assert said.columns[FITTED] == pytest.approx(share / 2, abs=1e-6)  # nothing is known of junk
    centred = unit(rows.astype(float))
    centred = unit(centred - centred.mean(0))
    assert (said.columns[CLUSTER] == (centred @ fit.clusters.T).argmax(1)).mean() > 0.98  # but for near ties
    assert set(said.columns[UNLIKE]) == {-1}


def test_it_ranks_rows_whose_nearest_row_is_of_another_kind():
    rows, kind = kinds(n=600, spread=0.75)
    near = np.array([np.argsort(-(unit(rows.astype(float)) @ row.astype(float)))[1] for row in rows])
    _, said = fit_dataset(rows)
    assert auroc(said.columns[AMBIGUOUS], kind[near] != kind) > 0.65


def test_a_copy_in_the_dataset_makes_no_image_certain():
    rows, _ = kinds(n=300)
    lonely = unit(np.random.default_rng(5).normal(size=(1, 24))).astype(np.float16)
    alone = fit_dataset(np.concatenate([rows, lonely]))[1].columns[NEIGHBOUR][-1]
    twins = fit_dataset(np.concatenate([rows, np.tile(lonely, (9, 1))]))[1].columns[NEIGHBOUR]
    assert twins[-9:] == pytest.approx(np.full(9, alone), abs=0.05)
    assert twins[-1] > np.quantile(twins[:300], 0.9)


def test_junk_is_above_all_else_and_is_ordered_by_its_probability():
    rows, _ = kinds(n=300)
    page = unit(np.random.default_rng(7).normal(size=(1, 24)))
    crowd = unit(page + np.random.default_rng(8).normal(size=(80, 24)) * 0.08).astype(np.float16)
    odds = np.concatenate([np.random.default_rng(9).normal(-5, 1, 300), np.linspace(0.5, 6, 80)])
    _, said = fit_dataset(np.concatenate([rows, crowd]), odds)
    assert auroc(said.columns[NEIGHBOUR], odds > 0) < 0.2  # they lie near their own kind
    assert said.columns[FITTED][300:] == pytest.approx(1 / (1 + np.exp(-odds[300:])), abs=1e-6)
    assert said.columns[FITTED][:300].max() <= 0.5
    assert (said.columns[LOCAL][300:] == said.columns[FITTED][300:]).all()


def test_a_row_without_junk_score_is_no_junk():
    rows, _ = kinds(n=120)
    odds = np.full(120, np.nan)
    assert fit_dataset(rows, odds)[1].columns[FITTED].max() <= 0.5


def test_of_a_large_dataset_a_bounded_draw_is_kept():
    rows, _ = kinds(n=500)
    fit, said = fit_dataset(rows, most=200)
    fitted = fit_dataset(rows)[1]
    assert len(fit.references) == 200
    assert fit.n_bytes < 200 * 24 * 2 + 300 * 24 * 4 + 5 * 1001 * 4 + 200 * 10 * 4 + 60 * 24 * 4
    assert said.columns[NEIGHBOUR] == pytest.approx(
        fitted.columns[NEIGHBOUR]
    )  # the dataset itself is judged as a whole
    apart = fit.score(rows).columns
    assert (apart[NEIGHBOUR] >= said.columns[NEIGHBOUR] - 1e-4).all()
    assert apart[AMBIGUOUS].mean() == pytest.approx(0.5, abs=0.07)  # its ranks are those of the draw


def test_rows_of_another_place_are_outside():
    rows, _ = kinds(n=300, spread=0.2)
    fit, said = fit_dataset(rows)
    assert said.outside <= 0.011
    assert fit.score(kinds(n=100, seed=11)[0]).outside > 0.5


@pytest.mark.parametrize("n", [0, 1, LEAST_ROWS - 1])
def test_too_few_rows_are_refused(n):
    with pytest.raises(InputError, match=f"{LEAST_ROWS} .*got {n}"):
        fit_dataset(kinds(n=40)[0][:n])


def test_rows_that_are_all_copies_are_refused():
    with pytest.raises(InputError, match="of one image"):
        fit_dataset(np.tile(kinds(n=1)[0], (50, 1)))


def test_half_of_them_being_one_row_is_no_trouble():
    rows, _ = kinds(n=100)
    _, said = fit_dataset(np.concatenate([rows, np.tile(rows[:1], (100, 1))]))
    assert all(np.isfinite(values).all() for values in said.columns.values())


def test_the_scorers_of_a_table_agree():
    rows, _ = kinds(n=120)
    _, said = fit_dataset(rows)
    for name, scorer in scorers_named(["neighbour", "ambiguous"]).items():
        for column, values in scored(name, scorer, rows, 120).items():
            assert values == pytest.approx(said.columns[column], abs=1e-6)


def test_the_scorers_take_any_dataset():
    for n in (0, 1):
        assert column_of(kinds(n=5)[0][:n], NEIGHBOUR)[NEIGHBOUR].tolist() == [0] * n
    copies = np.tile(kinds(n=1)[0], (5, 1))
    assert column_of(copies, NEIGHBOUR)[NEIGHBOUR].tolist() == [2] * 5
    assert column_of(kinds(n=5)[0], AMBIGUOUS)[AMBIGUOUS].shape == (5,)
