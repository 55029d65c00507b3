import numpy as np
import pytest
from synthetic import kinds

from scoring.relative import fit
from scoring.relative.columns import FITTED, LOCAL
from scoring.relative.fit import fit_dataset, similarity_order, tournament_ranks
from scoring.relative.space import centred, mean_of


def units_of(rows):
    return centred(rows, mean_of(rows)).units


def test_similar_rows_are_next_to_each_other():
    rows, kind = kinds(n=200, spread=0.2)
    neighbours = kind[similarity_order(units_of(rows))]
    assert (neighbours[1:] != neighbours[:-1]).sum() == len(set(kind)) - 1


@pytest.mark.parametrize("block", [2, 4, 8, 32])
def test_the_first_to_go_is_the_highest_of_its_neighbours_in_line(block):
    rows, _ = kinds(n=256)
    units, values = units_of(rows), np.random.default_rng(0).uniform(0, 0.5, 256)
    dropped = np.argsort(-tournament_ranks(values, values, units))[: 256 // block]
    blocks = similarity_order(units).reshape(-1, block)
    assert set(dropped) == set(blocks[np.arange(len(blocks)), values[blocks].argmax(1)])


@pytest.mark.parametrize("share", [0.1, 0.2, 0.37, 0.5, 0.9])
def test_a_kind_that_is_all_hard_loses_the_share_of_all(share):
    rows, kind = kinds(n=240, spread=0.2)
    hard = kind == kind[0]
    values = np.random.default_rng(1).uniform(0, 0.2, 240) + np.where(hard, 0.3, 0)
    dropped = np.argsort(-tournament_ranks(values, values, units_of(rows)))[: round(share * 240)]
    assert np.isin(dropped, np.flatnonzero(hard)).sum() == pytest.approx(share * hard.sum(), abs=3)


def test_junk_comes_first_and_wins_against_no_image():
    rows, _ = kinds(n=100)
    values = np.random.default_rng(2).uniform(0, 0.5, 100).astype(np.float32)
    values[::4] = np.linspace(0.51, 1, 25)
    image = np.arange(100) % 4 != 0
    units = units_of(rows)
    out = tournament_ranks(values, values, units)
    assert (out[~image] == values[~image]).all()
    assert sorted(out[image]) == pytest.approx(0.5 * (np.arange(75) + 0.5) / 75)
    assert (out[image] == tournament_ranks(values[image], values[image], units[image])).all()


def test_of_many_rows_a_draw_is_clustered(monkeypatch):
    monkeypatch.setattr(fit, "LINED_UP", 60)
    rows, kind = kinds(n=500, spread=0.2)
    line = similarity_order(units_of(rows))
    assert sorted(line) == list(range(500))
    assert (np.diff(kind[line]) == 0).mean() > 0.95  # by chance one in six


@pytest.mark.parametrize("n", [0, 1, 2, 3])
def test_few_rows(n):
    units = units_of(kinds(n=20)[0])[:n]
    assert len(set(tournament_ranks(np.zeros(n), np.zeros(n), units).tolist())) == n


def test_the_rows_of_a_dataset_go_in_turns():
    rows, kind = kinds(n=400, spread=0.6)
    columns = fit_dataset(rows)[1].columns
    dropped = columns[LOCAL] > 0.4
    shares = np.bincount(kind[dropped], minlength=kind.max() + 1) / np.bincount(kind)
    assert dropped.mean() == pytest.approx(0.2, abs=0.005)
    assert shares == pytest.approx(np.full(len(shares), 0.2), abs=0.07)
    assert columns[FITTED][dropped].mean() > columns[FITTED][~dropped].mean() + 0.1
