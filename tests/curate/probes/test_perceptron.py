"""The network with one hidden layer on embeddings."""

import torch

from curate.probes.linear import fit_linear_probe
from curate.probes.perceptron import perceptron_answers


def test_it_learns_what_no_linear_probe_can_and_never_says_a_class_without_rows():
    draw = torch.Generator().manual_seed(0)
    rows = torch.randn(400, 2, generator=draw)
    labels = 2 * (rows.prod(1) > 0).long()  # classes 0 and 2 of 3
    known, held = slice(0, 300), slice(300, 400)
    answers = perceptron_answers(rows[known], labels[known], rows[held], 3, seed=0, passes=120, rate=3e-3)
    assert (answers == labels[held]).float().mean() > 0.9
    linear = fit_linear_probe(rows[known].numpy(), labels[known].numpy(), 3).predict(rows[held].numpy()).argmax(1)
    assert (torch.from_numpy(linear) == labels[held]).float().mean() < 0.7
    again = perceptron_answers(rows[known], labels[known], rows[held], 3, seed=0, passes=120, rate=3e-3)
    assert torch.equal(again, answers)
