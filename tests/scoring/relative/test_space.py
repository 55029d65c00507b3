import numpy as np
import pytest
from synthetic import kinds, unit

from scoring.relative.space import centred, mean_of


def test_centring_takes_out_what_all_have_in_common():
    rows, _ = kinds()
    plain = unit(rows.astype(np.float64))
    expected = unit(plain - plain.mean(0))
    dataset = centred(rows, mean_of(rows))
    assert dataset.units == pytest.approx(expected, abs=1e-5)
    assert mean_of(rows) == pytest.approx(plain.mean(0), abs=1e-6)


def test_the_length_of_a_row_does_not_count():
    rows, _ = kinds(n=30)
    longer = rows.astype(np.float32) * np.linspace(0.5, 20, 30)[:, None]
    assert centred(longer, mean_of(longer)).units == pytest.approx(centred(rows, mean_of(rows)).units, abs=1e-3)


def test_cosines_as_stored_come_back_from_those_after_centring():
    rows, _ = kinds(n=40)
    dataset = centred(rows, mean_of(rows))
    plain = unit(rows.astype(np.float64))
    index = np.tile(np.arange(40), (40, 1))
    assert dataset.raw(dataset, index, dataset.units @ dataset.units.T) == pytest.approx(plain @ plain.T, abs=1e-5)


def test_a_row_at_the_mean_has_no_direction():
    rows = np.array([[1, 0], [0, 1], [1, 1]], np.float16)
    rows[2] = 0.7071
    mean = unit(rows.astype(np.float32))[2]
    assert centred(rows, mean).units[2].tolist() == [0, 0]
