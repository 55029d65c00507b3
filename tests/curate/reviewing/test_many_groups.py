"""The time of a review with many groups: each finding and each decision is looked at a few times, however many."""

import numpy as np

from curate.reporting.findings import Finding
from curate.reviewing.queue import _parts

N = 400


class Counted(str):
    """A text that counts how often it is compared."""

    compared = 0
    __hash__ = str.__hash__

    def __eq__(self, other):
        Counted.compared += 1
        return str.__eq__(self, other)


def test_parts_of_a_finding_are_distinguished_without_comparing_all_of_them():
    parts = [Counted(f"given {row % 200}, suggested {row % 7}") for row in range(N)]
    finding = Finding("label", "", np.arange(N), np.zeros(N), ["wrong"] * N, parts=parts)
    found = list(_parts(finding))
    assert Counted.compared < 3 * N
    assert [name for name, _ in found] == list(dict.fromkeys(map(str, parts)))
    for name, part in found:
        assert part.rows.tolist() == [row for row in range(N) if str(parts[row]) == name]
