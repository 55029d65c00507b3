"""Images through threads, in their order and within bounds."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from curate.tables import images as module
from curate.tables.images import in_order


def test_results_come_in_order_and_things_are_taken_as_they_are_needed():
    taken = []

    def things():
        for number in range(40):
            taken.append(number)
            yield number

    def slow(number):
        time.sleep(0.002 * (number % 3))
        return number * number

    with ThreadPoolExecutor(4) as pool:
        results = in_order(pool, slow, things(), 6, lambda _: 0)
        assert next(results) == 0
        assert len(taken) == 7
        assert list(results) == [number * number for number in range(1, 40)]


@pytest.mark.parametrize("limit", [100, 250])
def test_no_more_bytes_are_in_hand_than_the_bound_but_of_one_alone(monkeypatch, limit):
    monkeypatch.setattr(module, "ENCODED", limit)
    sizes = [60, 50, 40, 300, 10, 10, 90, 100, 1] * 3
    inside, most, lock = [], [], threading.Lock()

    def work(size):
        with lock:
            inside.append(size)
            most.append(sum(inside))
        time.sleep(0.001)
        with lock:
            inside.remove(size)
        return size

    with ThreadPoolExecutor(8) as pool:
        assert list(in_order(pool, work, sizes, 8, lambda size: size)) == sizes
    assert max(most) == 300
    assert all(held <= limit or held == 300 for held in most)


def test_an_error_comes_in_order_and_ends_what_waits():
    done = []

    def work(number):
        if number == 2:
            raise ValueError("two")
        done.append(number)
        return number

    with ThreadPoolExecutor(1) as pool:
        results = in_order(pool, work, range(100), 4, lambda _: 0)
        assert [next(results), next(results)] == [0, 1]
        with pytest.raises(ValueError, match="two"):
            next(results)
    assert len(done) < 10
