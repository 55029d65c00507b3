"""The generator of the controlled experiment is what it claims, and encoders learn its posteriors."""

import csv
import json
import math
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats

from scoring.distributions import vmf
from trainers.methods import contrastive_losses as losses

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))

import controlled_experiment as experiment
import controlled_figures as figures
import controlled_results as results
from controlled_generator import LARGEST, Certainty, Concentration, Generator, network, of_pairs

pytestmark = pytest.mark.study

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def generator():
    torch.manual_seed(0)
    return Generator(16.0, 32.0, dim=4, kappa_pos=8.0, smoothing=300)


def test_kappa_spans_its_range(generator):
    kappa = generator.posterior(torch.rand(1000, 4, generator=torch.Generator().manual_seed(1)))[1]
    assert 12 < kappa.min() < 18
    assert 28 < kappa.max() < 40


def test_smoothing_spreads_mu_over_the_sphere():
    x = torch.rand(500, 10, generator=torch.Generator().manual_seed(1))

    def mean_cosine(steps):
        torch.manual_seed(4)
        mu = Generator(16.0, 32.0, smoothing=steps).posterior(x)[0]
        return float((mu @ mu.T).mean())

    assert mean_cosine(0) > 0.8  # what the text alone describes
    assert abs(mean_cosine(500)) < 0.2


def test_the_probability_of_acceptance_is_the_average_of_the_likelihood_over_the_posterior(generator):
    x = torch.rand(3, 4, generator=torch.Generator().manual_seed(2))
    mu, kappa = generator.posterior(x)
    z = vmf.sample(mu[:2], kappa[:2], 1, generator=torch.Generator().manual_seed(3))[0]
    ours = generator.log_chance(z, mu, kappa).exp()
    latents = vmf.sample(mu, kappa, 200_000, generator=torch.Generator().manual_seed(4))
    likelihood = torch.exp(8.0 * (torch.einsum("nd,skd->snk", z, latents) - 1))
    ratio = ours / likelihood.mean(0)
    error = likelihood.std(0) / likelihood.mean(0) / math.sqrt(200_000)
    assert torch.allclose(ratio, ratio[0, 0].expand_as(ratio), rtol=float(8 * error.max()) + 1e-3)  # up to a constant
    assert float(ours.max()) <= 1


def test_accepted_positives_have_the_distribution_that_weighting_all_candidates_gives(generator):
    torch.manual_seed(5)
    n = 20_000
    z = vmf.sample(*generator.posterior(torch.rand(1, 4)), 1)[0]
    x_pos, _, is_accepted = generator._candidates(z.expand(n, 4), 512)
    # anchors that share a pool are not independent: average over pools of one anchor each instead
    means = torch.stack([generator._candidates(z, 512)[0][0] for _ in range(1500)])
    candidates = torch.rand(200_000, 4)
    weight = generator.log_chance(z, *generator.posterior(candidates)).exp()[0]
    expected = (weight[:, None] * candidates).sum(0) / weight.sum()
    assert is_accepted.float().mean() > 0.95
    assert x_pos.shape == (n, 4)
    assert ((means.mean(0) - expected).abs() < 4.5 * means.std(0) / math.sqrt(1500)).all()


@pytest.mark.parametrize("accept", ["exact", "eq53"])
def test_positives_are_nearer_than_chance_and_none_is_given_up(accept):
    torch.manual_seed(6)
    generator = Generator(16.0, 32.0, accept=accept, smoothing=500)
    pairs = generator.pairs(200, pool=512)
    mu, mu_pos = generator.posterior(pairs.x)[0], generator.posterior(pairs.x_pos)[0]
    paired, chance = (mu * mu_pos).sum(1).mean(), (mu @ mu_pos.T).mean()
    assert paired > chance + 0.3
    assert int(pairs.unaccepted) == 0
    assert (pairs.odds is None) == (accept == "exact")
    if pairs.odds is not None:
        assert pairs.odds.min() >= 0
        assert pairs.odds.diagonal().mean() < pairs.odds.mean()  # a positive is rarely drawn as a negative


@pytest.mark.parametrize("family", ["gaussian", "laplace"])
def test_latents_of_another_family_are_mu_and_its_noise_on_the_sphere(family):
    torch.manual_seed(12)
    generator = Generator(16.0, 32.0, dim=4, smoothing=50, family=family)
    mu, kappa = generator.posterior(torch.rand(2, 4))
    noise = {"gaussian": stats.norm(0, kappa[0] ** -0.5), "laplace": stats.laplace(0, 1 / kappa[0])}[family]
    z = mu[0].numpy() + noise.rvs((200_000, 4), random_state=13)
    far = 1 - (z / np.linalg.norm(z, axis=1, keepdims=True)) @ mu[0].numpy()
    spread = float(generator.spread(mu, kappa, draws=20_000)[0])
    assert spread == pytest.approx(far.mean(), abs=5 * far.std() / math.sqrt(20_000))
    pairs = generator.pairs(100, pool=512)
    paired = (generator.posterior(pairs.x)[0] * generator.posterior(pairs.x_pos)[0]).sum(1).mean()
    assert paired > 0.5


def test_without_patience_there_is_one_pool_and_what_found_nothing_is_counted():
    torch.manual_seed(7)
    generator = Generator(16.0, 32.0, smoothing=200)
    pairs = generator.pairs(64, pool=8, patience=False)
    assert 0 < int(pairs.unaccepted) <= 64
    assert pairs.x_pos.isfinite().all()


def test_an_infinite_kappa_makes_mu_the_latent():
    torch.manual_seed(8)
    generator = Generator(math.inf, math.inf, dim=3, kappa_pos=5.0, smoothing=100)
    mu, kappa = generator.posterior(torch.rand(5, 3))
    assert kappa.isinf().all()
    assert torch.allclose(generator.log_chance(mu, mu, kappa).diagonal(), torch.zeros(5), atol=1e-5)


@pytest.mark.parametrize("loss", ["mcinfonce", "hib", "elk"])
def test_a_short_run_lowers_the_error_in_location(loss):
    tiny = replace(
        experiment.REDUCED,
        dim=4,
        batch=64,
        samples=4,
        steps=250,
        width=32,
        pool=512,
        smoothing=1000,
        evaluate=300,
        compare=100,
        loss=loss,
        **{"share": 0.8, **experiment.CHANGES[loss]},
    )
    trained = experiment.train(tiny, 0, device=CPU)
    untrained = experiment.train(replace(tiny, steps=0), 0, device=CPU)
    after, before = experiment.evaluate(tiny, *trained), experiment.evaluate(tiny, *untrained)
    assert after.location_rank > before.location_rank + 0.2
    assert math.isfinite(after.kappa_error)


def shifted(kind, by, low=16.0, high=32.0):
    """A network for kappa whose output is ``by`` higher, in units of log kappa, than when it was fitted."""
    torch.manual_seed(11)
    model = kind(network([4, 8, 1]), low, high)
    with torch.no_grad():
        model.net[-1].bias += by / model.slope
    return model


def test_the_kappa_of_an_encoder_begins_in_its_range_and_goes_as_low_as_it_is_sent():
    x = torch.rand(1000, 4, generator=torch.Generator().manual_seed(1))
    begin = shifted(Certainty, 0.0)(x)
    assert 14 < begin.min() < 18
    assert 28 < begin.max() < 37
    assert torch.allclose(shifted(Certainty, -5.0)(x), begin * math.exp(-5), rtol=1e-4)
    raw = shifted(Concentration, -50.0)  # the generator's has a floor
    assert float(raw(x).detach().min()) == pytest.approx(math.exp(raw.offset), rel=1e-3)


@pytest.mark.parametrize("by", [20.0, 40.0, 100.0, 1e4])
def test_a_kappa_that_runs_away_stays_below_its_bound_with_a_finite_gradient(by):
    x = torch.rand(50, 4, generator=torch.Generator().manual_seed(1))
    model = shifted(Certainty, by)
    kappa = model(x)
    assert kappa.max() <= LARGEST * (1 + 1e-5)
    assert kappa.min() > 0.4 * min(LARGEST, 16 * math.exp(by) if by < 100 else LARGEST)
    mu = torch.nn.functional.normalize(torch.randn(50, 10, generator=torch.Generator().manual_seed(2)), dim=1)
    losses.hib(mu, kappa, of_pairs(25), a=1.0, b=0.0, samples=4).backward()
    assert all(p.grad.isfinite().all() for p in model.parameters())


@pytest.mark.parametrize("loss", ["mcinfonce", "hib", "elk"])
def test_losses_and_their_gradients_are_finite_at_the_largest_kappa(loss):
    torch.manual_seed(3)
    mu = torch.nn.functional.normalize(torch.randn(16, 10), dim=1).requires_grad_()
    kappa = torch.full((16,), LARGEST).requires_grad_()
    function, settings = {
        "mcinfonce": (losses.mcinfonce, {"kappa_pos": 20.0, "samples": 4}),
        "hib": (losses.hib, {"a": 1.0, "b": 0.0, "samples": 4}),
        "elk": (losses.elk, {"kappa_pos": 20.0}),
    }[loss]
    value = function(mu, kappa, of_pairs(8), **settings)
    value.backward()
    assert value.isfinite()
    assert mu.grad.isfinite().all()
    assert kappa.grad.isfinite().all()


def test_hib_raises_kappa_without_end_and_yet_stays_finite():
    tiny = replace(
        experiment.REDUCED, dim=4, batch=32, samples=4, steps=60, width=16, pool=512, smoothing=100,
        evaluate=300, compare=100, lr=0.05, loss="hib", **experiment.CHANGES["hib"],
    )  # fmt: skip
    result = experiment.evaluate(tiny, *experiment.train(tiny, 0, device=CPU))
    assert 1e4 < result.kappa_median <= LARGEST * (1 + 1e-5)
    assert math.isfinite(result.location_rank)


def test_a_loss_that_is_not_finite_stops_the_run(monkeypatch):
    monkeypatch.setattr(
        experiment, "loss_of", lambda setting, phase, encoder, pairs: encoder(pairs.x)[1].sum() * math.nan
    )
    tiny = replace(experiment.REDUCED, dim=3, batch=8, samples=2, steps=5, width=8, pool=64, smoothing=5, share=0.0)
    with pytest.raises(RuntimeError, match="finite loss, got nan"):
        experiment.train(tiny, 0, device=CPU)


def test_for_small_kappa_elk_compares_by_the_product_of_both_kappas_and_the_cosine():
    # so that kappa_pos k^2 / D takes the place of kappa_pos in InfoNCE: where the START_ELK comes from
    mu = torch.nn.functional.normalize(torch.randn(2, 10, generator=torch.Generator().manual_seed(2)), dim=1).double()
    uniform = float(vmf.log_normalizer(torch.zeros(()), 10))
    kernel = float(vmf.log_expected_likelihood(mu[0], torch.tensor(0.2), mu[1], torch.tensor(0.1))) - uniform
    assert kernel == pytest.approx(0.2 * 0.1 * float(mu[0] @ mu[1]) / 10, rel=1e-2)


def test_a_seed_gives_the_same_encoder_twice():
    tiny = replace(experiment.REDUCED, dim=3, batch=16, samples=2, steps=6, width=8, pool=256, smoothing=20)
    states = [experiment.train(tiny, 3, device=CPU)[1].state_dict() for _ in range(2)]
    for name, value in states[0].items():
        assert torch.equal(value, states[1][name]), name


def test_in_the_second_phase_mu_stays_as_it_is():
    tiny = replace(experiment.REDUCED, dim=3, batch=16, samples=2, steps=8, width=8, pool=256, smoothing=20)
    x = torch.rand(5, 3)
    single = experiment.train(replace(tiny, steps=4, share=1.0), 3, device=CPU)[1](x)
    both = experiment.train(replace(tiny, share=0.5), 3, device=CPU)[1](x)
    assert torch.equal(single[0], both[0])
    assert not torch.equal(single[1], both[1])


TINY = {"dim": 3, "batch": 16, "samples": 2, "steps": 8, "width": 8, "pool": 256, "smoothing": 20, "share": 0.5}


@pytest.mark.parametrize("change", [{"shared": True}, {"encoder_dim": 5}, {"family": "laplace"}, {"dim": 2}])
def test_every_change_of_the_encoder_and_the_generator_trains(change):
    setting = replace(experiment.REDUCED, **TINY | {"evaluate": 200, "compare": 50} | change)
    _, encoder, _ = trained = experiment.train(setting, 3, device=CPU)
    result = experiment.evaluate(setting, *trained)
    mu, kappa = encoder(torch.rand(4, setting.dim))
    assert mu.shape == (4, setting.encoder_dim or setting.dim)
    assert 0 <= result.spread_mean <= 2
    assert all(map(math.isfinite, result.measures().values()))
    assert len(result.posteriors) == (5 if setting.dim == 2 else 0)
    # a kappa that reads the network of mu gives it a gradient, unless mu alone is kept as it is
    encoder.zero_grad()
    kappa.sum().backward()
    assert (encoder.direction[0].weight.grad is not None) == setting.shared


def test_posteriors_on_a_circle_are_compared_after_the_rotation_that_fits():
    angle = torch.tensor([0.1, 1.0, 2.5, -2.0, -0.7])
    on_circle = torch.stack([angle.cos(), angle.sin()], 1)
    turned = torch.stack([(angle + 0.8).cos(), -(angle + 0.8).sin()], 1)  # a rotation and a reflection
    rows = torch.tensor(experiment._posteriors(on_circle, torch.ones(5), turned, torch.full((5,), 2.0)))
    assert torch.allclose(rows[:, 2], rows[:, 0], atol=1e-5)
    assert (rows[:, 3] == 2).all()


def test_figures_and_numbers_are_drawn_from_what_runs_wrote(tmp_path, monkeypatch):
    def result(at):
        rows = [[0.1, 20.0, 0.2, 25.0], [2.0, 16.0, 2.1, 18.0]]
        return experiment.Result(*(0.1 * at for _ in range(12)), rows)

    found = {"figure 2": {"2": [result(1)]}} | {f"figure {n}": {"4": [result(1), result(3)]} for n in (4, 7)}
    path, out = tmp_path / "r.json", tmp_path / "drawn"
    path.write_text(json.dumps({"results": found}, default=lambda each: vars(each)))
    monkeypatch.setattr(sys, "argv", ["", str(path), "--csv", str(tmp_path / "n.csv"), "-o", str(out)])
    figures.main()
    rows = list(csv.DictReader((tmp_path / "n.csv").open()))
    assert rows[1]["kappa rank"] == "0.2±0.1"  # standard error of 0.1 and 0.3
    assert rows[1]["seeds"] == "2"
    assert sorted(each.name for each in out.iterdir()) == ["controlled-circle.svg", "controlled-dims.svg"]


def test_the_paper_size_is_the_paper_size():
    full = experiment.FULL
    assert (full.dim, full.batch, full.samples, full.steps, full.lr) == (10, 512, 512, 100_000, 1e-4)
    assert (full.negatives, full.mu_negatives, full.denominator) == ("bank", "roll", "authors")
    rates = [experiment.rate(full, step, 50_000) for step in (0, 24_999, 25_000, 49_999)]
    assert rates == pytest.approx([1e-4, 1e-4, 1e-5, 1e-5])


def test_the_tables_print_our_numbers_above_the_papers(capsys, tmp_path, monkeypatch):
    made = experiment.Result(0.1, 0.05, 0.97, 3.0, 2.0, 0.5, 22.0, 21.0, 0.02, 0.3, 0.2, 1.0)
    monkeypatch.setattr(experiment, "train", lambda *arguments, **keywords: (None, None, 1.0))
    monkeypatch.setattr(experiment, "evaluate", lambda *arguments: made)
    out = tmp_path / "results.json"
    wanted = ["--table", "1", "--table", "3", "--table", "8", "--figure", "3", "--figure", "7", "--dims", "10", "32"]
    experiment.main([*wanted, "--seeds", "4", "5", "--out", str(out)])
    printed = capsys.readouterr().out
    assert "| ambiguous | 0.10 ± 0.00 (0.05 ± 0.00) | 0.97 ± 0.00 | 3.00 ± 0.00 (2.00 ± 0.00) | 0.50 ± 0.00" in printed
    assert "| paper | 0.04 ± 0.00 | 0.99 ± 0.00 | 6.15 ± 0.61 | 0.82 ± 0.04" in printed
    assert "| paper | 0.02 ± 0.00 | 1.00 ± 0.00 | 21.70 ± 0.31 | 0.92 ± 0.00" in printed
    assert "| paper | 0.04 ± 0.00 | 0.99 ± 0.00 | 7.31 ± 1.53 | 0.87 ± 0.02" in printed
    assert "Figure 3, seeds 4, 5" in printed
    assert "\n| 32 | 0.10" in printed
    assert "| injective | 0.10 ± 0.00 (0.05 ± 0.00) | 0.97 ± 0.00 | true kappa is inf | 0.50 ± 0.00 | 22.00" in printed
    assert '"kappa_rank": 0.5' in out.read_text()


@pytest.mark.parametrize(
    ("values", "printed"),
    [
        ([0.126], "0.13"),
        ([1.0, 3.0], "2.00 ± 1.00"),
        ([1e12, 3e12], "2.0e+12 ± 1.0e+12"),
        ([5.8e18], "5.8e+18"),
        ([1.0, math.nan], "-"),
        ([math.inf], "-"),
    ],
)
def test_a_cell_is_readable_whatever_is_in_it(values, printed):
    assert results.cell(values) == printed


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--graph"], "--graph needs --device cuda"),
        (["--steps", "1"], "--steps must be"),
        (["--dims", "1"], "--dims must be"),
    ],
)
def test_options_that_do_not_go_together_are_refused(words, complaint, capsys):
    with pytest.raises(SystemExit):
        experiment.parse(words)
    assert complaint in capsys.readouterr().err


def test_the_paper_size_takes_the_authors_seeds_and_the_reduced_one_a_single_one():
    assert experiment.parse(["--full"]).seeds == [4, 5, 6, 7, 8]
    assert experiment.parse([]).seeds == [4]


@pytest.mark.slow
def test_the_reduced_size_recovers_location_and_kappa_of_ambiguous_observations():
    torch.set_num_threads(1)  # two that wait for one another on a busy machine took ten times as long
    result = experiment.evaluate(experiment.REDUCED, *experiment.train(experiment.REDUCED, 4, device=CPU))
    # measured: 0.989, 0.151, 0.75 and 6.4; the paper, at its size: 0.99, 0.04, 0.82 and 6.15
    assert result.location_rank > 0.98
    assert result.location_error < 0.2
    assert result.kappa_rank > 0.65
    assert result.kappa_error < 8


@pytest.mark.slow
def test_the_reduced_size_of_elk_recovers_location_and_the_order_of_kappa():
    torch.set_num_threads(1)  # two that wait for one another on a busy machine took ten times as long
    setting = replace(experiment.REDUCED, loss="elk", steps=1000, **experiment.CHANGES["elk"])
    result = experiment.evaluate(setting, *experiment.train(setting, 4, device=CPU))
    # measured: 0.984, 0.047, 0.66 and a mean kappa of 1.87; the paper, at its size: 1.00, 0.02, 0.92
    assert result.location_rank > 0.97
    assert result.location_error < 0.1
    assert result.kappa_rank > 0.5
    assert 1.5 < result.kappa_mean < 2.5


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_step_can_be_replayed_as_a_cuda_graph():
    tiny = replace(experiment.FULL, batch=64, samples=16, steps=40, width=64, pool=2048, smoothing=100, compare=200)
    trained = experiment.train(tiny, 0, device=torch.device("cuda"), graph=True)
    assert math.isfinite(experiment.evaluate(tiny, *trained).location_rank)
