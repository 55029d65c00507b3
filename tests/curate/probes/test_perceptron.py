"""The network with one hidden layer on embeddings, and the linear probe by LARS."""

import numpy as np
import pytest
import torch

from curate.probes.linear import fit_linear_probe
from curate.probes.perceptron import Steps, lars_logits, perceptron_answers


def test_it_learns_what_no_linear_probe_can_and_never_predicts_a_class_without_rows():
    draw = torch.Generator().manual_seed(0)
    rows = torch.randn(400, 2, generator=draw)
    labels = 2 * (rows.prod(1) > 0).long()  # classes 0 and 2 of 3
    known, held = slice(0, 300), slice(300, 400)
    answers = perceptron_answers(rows[known], labels[known], rows[held], 3, seed=0, steps=Steps(120, 128, 3e-3))
    assert (answers == labels[held]).float().mean() > 0.9
    linear = fit_linear_probe(rows[known].numpy(), labels[known].numpy(), 3).predict(rows[held].numpy()).argmax(1)
    assert (torch.from_numpy(linear) == labels[held]).float().mean() < 0.7
    again = perceptron_answers(rows[known], labels[known], rows[held], 3, seed=0, steps=Steps(120, 128, 3e-3))
    assert torch.equal(again, answers)


def test_lars_is_its_definition_in_numpy():
    draw = torch.Generator().manual_seed(1)
    rows, queries = torch.randn(9, 3, generator=draw), torch.randn(4, 3, generator=draw)
    labels = torch.tensor([0, 1, 3] * 3)  # class 2 has no rows
    logits = lars_logits(rows, labels, queries, 4, seed=0, steps=Steps(3, 512, 50.0)).numpy()
    mean, scale = rows.numpy().mean(0), rows.numpy().std(0, ddof=1).mean()
    x, target = (rows.numpy() - mean) / scale, np.eye(4)[labels]
    weight = 0.01 * torch.randn(4, 3, generator=torch.Generator().manual_seed(0)).numpy().astype(np.float64)
    bias, velocity, of_bias = np.zeros(4), np.zeros((4, 3)), np.zeros(4)
    for done in range(3):  # one batch a pass: the order of its rows is nothing
        rate = 50 * (1 + np.cos(np.pi * done / 3)) / 2
        raised = np.exp(x @ weight.T + bias)
        gap = (raised / raised.sum(1, keepdims=True) - target) / 9
        gradient = gap.T @ x
        trust = 0.001 * np.linalg.norm(weight) / np.linalg.norm(gradient)
        velocity = 0.9 * velocity + trust * gradient
        of_bias = 0.9 * of_bias + gap.sum(0)
        weight, bias = weight - rate * velocity, bias - rate * of_bias
    expected = (queries.numpy() - mean) / scale @ weight.T + bias
    assert logits[:, [0, 1, 3]] == pytest.approx(expected[:, [0, 1, 3]], rel=1e-3, abs=1e-3)
    assert np.isneginf(logits[:, 2]).all()
