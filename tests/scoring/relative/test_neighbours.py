import numpy as np
import pytest
from synthetic import kinds, slow_distance, unit

from scoring.relative.neighbours import near_in, near_to
from scoring.relative.screened import screened_nearest
from scoring.relative.space import centred, mean_of


def dataset_of(rows):
    return centred(rows, mean_of(rows))


def test_the_nearest_is_the_nearest_that_is_no_copy():
    rows, _ = kinds(n=120)
    rows = np.concatenate([rows, rows[:30], unit(rows[30:60] + np.float16(0.01)).astype(np.float16)])
    near = near_in(dataset_of(rows))
    assert 1 - near.cosine[:, 0] == pytest.approx(slow_distance(rows), abs=1e-4)
    assert near.copies[:60].all()
    assert near.copies.sum() == 120


@pytest.mark.parametrize("crowd", [10, 150])
def test_a_crowd_of_copies_leaves_each_with_neighbours_beyond_it(crowd):
    rows, _ = kinds(n=100)
    page = unit(np.random.default_rng(1).normal(size=(1, 24)))
    blank = unit(page + np.random.default_rng(2).normal(size=(crowd, 24)) * 1e-3).astype(np.float16)
    everything = np.concatenate([rows, blank])
    near = near_in(dataset_of(everything), 5)
    assert (near.index[100:] < 100).all()
    assert 1 - near.cosine[:, 0] == pytest.approx(slow_distance(everything), abs=1e-4)


def test_rows_of_another_table_meet_themselves_as_copies():
    rows, _ = kinds(n=150)
    dataset = dataset_of(rows)
    inside, again = near_in(dataset), near_to(centred(rows[20:50], mean_of(rows)), dataset)
    assert np.array_equal(again.index[:, 0], inside.index[20:50, 0])
    assert again.cosine == pytest.approx(inside.cosine[20:50], abs=1e-5)
    assert (again.index != np.arange(20, 50)[:, None]).all()


def test_where_all_are_copies_there_is_no_neighbour():
    rows = np.tile(unit(np.ones((1, 8))), (30, 1)).astype(np.float16)
    assert not near_in(dataset_of(rows)).exists.any()


def test_screening_in_bfloat16_loses_no_neighbour_that_can_be_measured():
    rows, _ = kinds(n=700, width=48)
    units = dataset_of(rows).units
    index, cosine, recall = screened_nearest(units, 20)
    products = units.astype(np.float64) @ units.T
    np.fill_diagonal(products, -2)
    assert cosine == pytest.approx(-np.sort(-products, axis=1)[:, :20], abs=1e-5)
    assert np.take_along_axis(products, index, 1) == pytest.approx(cosine, abs=1e-5)
    assert recall.estimate > 0.999
    assert not recall.exact


def test_a_screened_dataset_of_a_few_rows_has_all_others_as_neighbours():
    rows, _ = kinds(n=7)
    index, _, _ = screened_nearest(dataset_of(rows).units, 6)
    assert [sorted(each) for each in index.tolist()] == [[j for j in range(7) if j != i] for i in range(7)]


def test_of_rows_equally_near_any_counts_as_found():
    rows = np.repeat(unit(np.random.default_rng(0).normal(size=(1, 24))), 400, axis=0).astype(np.float32)
    for k in (1, 10, 60):
        assert screened_nearest(rows, k)[2].estimate == 1


def test_a_dataset_is_screened_where_it_is_large(monkeypatch):
    from scoring.relative import neighbours

    rows, _ = kinds(n=400)
    plain = near_in(dataset_of(rows))
    monkeypatch.setattr(neighbours, "COMPARED", 100)
    screened = near_in(dataset_of(rows))
    assert screened.cosine == pytest.approx(plain.cosine, abs=1e-5)
    assert (screened.index == plain.index).mean() > 0.995
