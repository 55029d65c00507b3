"""Which pairs an anchor is compared with, and by what weights."""

import pytest
import torch
from contrasted import directions, n_items, rows, seeded, weighed
from controlled_generator import of_pairs

from trainers.methods.contrast import Contrast, of_labels, of_views, of_votes
from trainers.methods.contrastive_losses import elk, hib, mcinfonce_of_samples


@pytest.mark.parametrize(
    "contrast",
    [of_views(2, 5), of_views(3, 4), of_pairs(4), of_pairs(4, negatives="roll")],
    ids=["two", "three", "pairs", "roll"],
)
def test_no_anchor_meets_itself_or_its_positive_as_a_negative(contrast):
    n, weights = n_items(contrast), weighed(contrast)
    for row, (anchor, positive) in enumerate(zip(rows(contrast.anchors, n), rows(contrast.positives, n), strict=True)):
        assert anchor != positive
        assert weights[row, anchor] == weights[row, positive] == 0
        assert weights[row].sum() > 0


def test_views_of_one_image_are_positives_and_all_views_of_others_negatives():
    contrast = of_views(3, 4)
    anchors, positives = contrast.anchors.tolist(), contrast.positives.tolist()
    expected = {(a, b) for a in range(12) for b in range(12) if a != b and a % 4 == b % 4}
    assert set(zip(anchors, positives, strict=True)) == expected
    for anchor, weights in zip(anchors, contrast.weights, strict=True):
        assert weights.tolist() == [float(item % 4 != anchor % 4) for item in range(12)]


def test_a_stated_number_of_negatives_is_kept_of_those_there_are():
    contrast = of_views(2, 6, negatives=3, generator=seeded())
    assert (contrast.weights.sum(1) == 3).all()
    assert (contrast.weights * (1 - of_views(2, 6).weights)).sum() == 0


def test_an_anchor_of_a_class_with_few_others_keeps_the_negatives_that_it_has():
    labels = torch.tensor([0] * 9 + [1]).repeat(2)  # two views of ten images; one is of another class
    contrast = of_labels(labels, negatives=3, generator=seeded())
    kept = dict(zip(contrast.anchors.tolist(), contrast.weights, strict=True))
    assert all(kept[row].nonzero().flatten().tolist() == [9, 19] for row in range(9))
    assert kept[9].sum() == kept[19].sum() == 3
    assert not {9, 19} & set(kept[9].nonzero().flatten().tolist())


def test_every_negative_is_kept_equally_often():
    generator, counts, rounds = seeded(), torch.zeros(10), 2000
    for _ in range(rounds):
        counts += of_views(2, 6, negatives=3, generator=generator).weights[0][of_views(2, 6).weights[0] > 0]
    error = (rounds * 0.3 * 0.7) ** 0.5
    assert ((counts - 0.3 * rounds).abs() < 4 * error).all()


def test_labels_give_positives_of_the_class_and_negatives_of_all_others():
    labels = torch.tensor([0, 1, 0, 2, 1, 1])
    contrast = of_labels(labels, generator=seeded())
    assert contrast.anchors.tolist() == [0, 1, 2, 4, 5]  # item 3 is alone
    assert (labels[contrast.anchors] == labels[contrast.positives]).all()
    assert (contrast.anchors != contrast.positives).all()
    assert torch.equal(contrast.weights.bool(), labels[contrast.anchors][:, None] != labels)


def test_labels_that_make_no_pair_give_none():
    assert of_labels(torch.zeros(4, dtype=torch.int64)) is None
    assert of_labels(torch.arange(4)) is None
    assert of_votes(torch.tensor([[1.0, 0], [1, 0], [1, 0]])) is None


def test_votes_choose_a_positive_with_the_probability_that_two_votes_agree():
    votes = torch.tensor([[3.0, 1.0], [8.0, 0.0], [0.0, 5.0], [1.0, 1.0]])
    counts, generator = torch.zeros(4), seeded()
    for _ in range(4000):
        contrast = of_votes(votes, generator=generator)
        at = contrast.anchors.tolist().index(0)
        counts[contrast.positives[at]] += 1
    # class 0 with probability 3/4: item 1 weighs 1, item 3 a half; class 1 with 1/4: item 2 weighs 1, item 3 a half
    expected = torch.tensor([0, 3 / 4 * 2 / 3, 1 / 4 * 2 / 3, 1 / 3])
    assert torch.allclose(counts / 4000, expected, atol=4 * 0.5 / 4000**0.5)
    assert counts[0] == 0


def test_votes_weigh_a_negative_by_its_probability_of_another_class():
    votes = torch.tensor([[4.0, 0.0], [4.0, 0.0], [1.0, 3.0], [0.0, 4.0]])
    contrast = of_votes(votes, generator=seeded())
    at = contrast.anchors.tolist().index(0)
    expected = torch.tensor([0.0, 0.0, 0.75, 1.0])
    expected[contrast.positives[at]] = 0
    assert torch.allclose(contrast.weights[at], expected)


def test_a_bank_is_the_only_place_that_negatives_come_from():
    z, kappa, contrast = directions(3, 7, 4), torch.linspace(1, 9, 7).double(), of_pairs(2, 3, negatives="bank")
    complete = Contrast(contrast.anchors, contrast.positives, torch.tensor([[0.0] * 4 + [1.0] * 3] * 2))
    for loss in (
        lambda pairs: mcinfonce_of_samples(z, pairs, kappa_pos=3.0),
        lambda pairs: elk(z[0], kappa, pairs, kappa_pos=1.0),
        lambda pairs: hib(z[0], kappa, pairs, a=1.0, b=0.0, samples=3, generator=seeded()),
    ):
        assert loss(contrast).item() == pytest.approx(loss(complete).item(), rel=1e-12)


def test_rolled_negatives_are_the_positives_of_the_anchor_before():
    assert weighed(of_pairs(3, negatives="roll")).argmax(1).tolist() == [5, 3, 4]


def test_a_weight_counts_as_so_many_copies_of_a_negative():
    z = directions(3, 5, 4)
    twice = Contrast(torch.tensor([0]), torch.tensor([1]), torch.tensor([[0.0, 0, 2, 1, 0]]))
    copied = Contrast(torch.tensor([0]), torch.tensor([1]), torch.tensor([[0.0, 0, 1, 1, 0, 1]]))
    with_copy = torch.cat([z, z[:, 2:3]], dim=1)
    single = mcinfonce_of_samples(z, twice, kappa_pos=3.0)
    other = mcinfonce_of_samples(with_copy, copied, kappa_pos=3.0)
    assert single.item() == pytest.approx(other.item(), rel=1e-12)
