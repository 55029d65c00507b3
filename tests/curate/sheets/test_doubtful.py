"""The most doubtful groups of duplicates: which groups and rows are shown, and in which order."""

import math

import numpy as np
import pytest
from deduplicated import dropped, fact, kept, slow_doubt, write

from curate.sheets.doubtful import MOST_MEMBERS, doubt, doubtful_groups


@pytest.mark.parametrize(
    ("similarity", "threshold", "margin", "expected"),
    [
        (0.95, 0.9, 0.05, 0.5),
        (0.9, 0.9, 0.0, 0.0),
        (1.0, 0.9, 0.1, 1.0),
        (0.85, 0.9, -0.05, -0.5),  # at the far end of a chain
        (1.0, 1.0, 0.0, 1.0),  # same bytes
        (3.0, 4.0, 1.0, 0.25),  # bits
        (0.0, 4.0, 4.0, 1.0),
        (6.0, 4.0, -2.0, -0.5),
        (0.0, 0.0, 0.0, 1.0),  # a hash that is equal or not
    ],
)
def test_doubt_falls_linearly_from_the_threshold_to_equality(similarity, threshold, margin, expected):
    got = doubt(*(np.array([value]) for value in (similarity, threshold, margin)))
    assert got[0] == pytest.approx(expected)


def test_a_row_without_a_threshold_leaves_no_doubt():
    nothing = np.array([math.nan])
    assert doubt(np.array([1.0]), nothing, nothing)[0] == math.inf
    assert doubt(nothing, nothing, nothing)[0] == math.inf


@pytest.mark.parametrize("seed", range(3))
def test_groups_and_rows_come_in_the_order_of_the_definition(tmp_path, seed):
    draw_from = np.random.default_rng(seed)
    decisions, calls = [], {}
    for group in draw_from.permutation(30).tolist():
        decisions.append(kept(f"{group}", group))
        for copy in range(int(draw_from.integers(1, 20))):
            bits = bool(draw_from.integers(2))
            threshold = 8.0 if bits else 0.9
            similarity = float(draw_from.integers(0, 9)) if bits else round(float(draw_from.uniform(0.9, 1)), 2)
            key = f"{group}/{copy}"
            decisions.append(dropped(key, f"{group}", group, similarity, threshold))
            calls.setdefault(group, []).append((slow_doubt(similarity, threshold), key))
    draw_from.shuffle(decisions)
    place = {row["key"]: at for at, row in enumerate(decisions)}
    expected = sorted((min(doubts)[0], group) for group, doubts in calls.items())[:10]
    doubtful = doubtful_groups(*write(tmp_path, decisions), limit=10)
    assert [group.number for group in doubtful] == [group for _, group in expected]
    for group in doubtful:
        order = sorted(calls[group.number], key=lambda call: (round(call[0], 9), place[call[1]]))
        assert group.members[0].key == f"{group.number}"
        away = {key: round(distance, 9) for distance, key in order}
        assert [away[member.key] for member in group.members[1:]] == list(away.values())[: MOST_MEMBERS - 1]
        assert group.size == 1 + len(order)
        assert group.n_hidden == max(0, group.size - MOST_MEMBERS)


def test_a_thousand_copies_are_counted_and_the_most_doubtful_are_shown(tmp_path):
    rows = [dropped(f"{i}", "best", 1, 0.9 + 0.0001 * ((i * 7) % 1000)) for i in range(1000)]
    (group,) = doubtful_groups(*write(tmp_path, [*rows[:500], kept("best", 1), *rows[500:]]), limit=5)
    assert [member.key for member in group.members[:2]] == ["best", "0"]
    assert [round((member.similarity - 0.9) * 10000) for member in group.members[1:]] == list(range(11))
    assert (group.size, group.n_hidden) == (1001, 989)


def test_exact_copies_and_groups_without_a_margin_come_last(tmp_path):
    decisions = [kept("a", 1), dropped("b", "a", 1, 1.0, 1.0), kept("c", 2), dropped("d", "c", 2, 0.99)]
    decisions += [kept("e", 0), dropped("f", "e", 0, None, None)]
    groups = [fact(0, "e", 2, None, margin=None), fact(1, "a", 2, 1.0, margin=1.0), fact(2, "c", 2, 0.99, margin=0.9)]
    doubtful = doubtful_groups(*write(tmp_path, decisions, groups), limit=5)
    assert [group.number for group in doubtful] == [2, 1, 0]
