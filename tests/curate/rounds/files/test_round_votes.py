"""Several labels a key: who counts, what they agree on, and how far."""

import math
from itertools import permutations

import numpy as np
import pytest

from curate.rounds.files.votes import RoundVotes, Vote, agree, agreement, label_table


def slow_alpha(votes):
    """Krippendorff's alpha from all ordered pairs of values, one by one (his step C)."""
    several = [labels for labels in votes if len(labels) > 1]
    coincidences = {}
    for labels in several:
        for i, j in permutations(range(len(labels)), 2):
            pair = labels[i], labels[j]
            coincidences[pair] = coincidences.get(pair, 0) + 1 / (len(labels) - 1)
    n = sum(coincidences.values())
    margin = {}
    for (a, _), count in coincidences.items():
        margin[a] = margin.get(a, 0) + count
    observed = sum(count for (a, b), count in coincidences.items() if a != b)
    expected = sum(margin[a] * margin[b] for a, b in permutations(margin, 2)) / (n - 1)
    return 1 - observed / expected


@pytest.mark.parametrize("seed", range(4))
def test_agreement_is_alpha_of_all_ordered_pairs(seed):
    generator = np.random.default_rng(seed)
    votes = [[f"c{i}" for i in generator.integers(0, 3, generator.integers(1, 6))] for _ in range(30)]
    measures = agreement(votes)
    assert measures.alpha == pytest.approx(slow_alpha(votes))
    alike = [a == b for labels in votes for a, b in permutations(labels, 2)]
    weights = [1 for labels in votes for _ in permutations(labels, 2)]
    assert measures.pairs == pytest.approx(np.average(alike, weights=weights))
    assert measures.n_keys == sum(len(labels) > 1 for labels in votes)


def test_agreement_without_annotators_is_not_defined():
    assert math.isnan(agreement([["a"], ["b"], []]).alpha)
    assert math.isnan(agreement([["a", "a"], ["a", "a"]]).alpha)
    assert agreement([["a", "a"], ["a", "a"]]).pairs == 1


def test_the_majority_decides_and_the_entropy_says_how_far_votes_differ():
    consensus = agree(["cat"] * 3 + ["dog"])
    assert (consensus.state, consensus.label, consensus.n_labels) == ("labelled", "cat", 4)
    assert consensus.entropy == pytest.approx(-(0.75 * math.log(0.75) + 0.25 * math.log(0.25)))
    assert agree(["cat"]).entropy == 0


def test_a_tie_has_no_label_and_names_both():
    consensus = agree(["dog", "cat", "cat", "dog", "cow"])
    assert (consensus.state, consensus.label, consensus.classes) == ("tied", None, ("cat", "dog"))


def test_a_later_answer_of_the_same_annotator_counts_instead_of_the_earlier():
    votes = RoundVotes([[Vote("a", "cat", "ann"), Vote("a", "dog", "bob")]])
    news = votes.add([Vote("a", "dog", "ann"), Vote("a", "dog", "bob"), Vote("b", "cat", "ann")])
    assert (news.new, news.changed, news.repeated) == (["b"], ["a"], ["a"])
    assert votes.labels_of("a") == ["dog", "dog"]


def test_the_same_import_twice_changes_nothing():
    said = [Vote("a", "cat"), Vote("a", "cat"), Vote("a", "dog"), Vote("b", None, "ann")]
    once, twice = RoundVotes([said]), RoundVotes([said, said])
    assert once.consensus() == twice.consensus()
    assert RoundVotes([said]).add(said).repeated == ["a", "b"]
    assert once.labels_of("a") == ["cat", "cat", "dog"]


def test_a_skip_gives_way_to_any_label():
    assert RoundVotes([[Vote("a", None, "ann")]]).consensus()["a"].state == "skipped"
    assert RoundVotes([[Vote("a", None, "ann"), Vote("a", "cow", "bob")]]).consensus()["a"].label == "cow"


def test_the_table_of_labels_has_their_entropy_as_a_column():
    votes = RoundVotes([[Vote("b", "cat", "ann"), Vote("b", "dog", "bob"), Vote("a", "cow", "ann"), Vote("c", None)]])
    rows = label_table(votes, {"a": 1, "b": 2, "c": 2}, {"a": "control", "b": "strategy", "c": "holdout"}).to_pylist()
    assert [(row["key"], row["label"], row["state"], row["n_labels"], row["round"], row["arm"]) for row in rows] == [
        ("a", "cow", "labelled", 1, 1, "control"),
        ("b", None, "tied", 2, 2, "strategy"),
        ("c", None, "skipped", 0, 2, "holdout"),
    ]
    assert [row["entropy"] for row in rows] == pytest.approx([0, math.log(2), 0])
