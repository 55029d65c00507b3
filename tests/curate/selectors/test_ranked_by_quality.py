from dataclasses import replace

import numpy as np
import pytest
from replayed import digits
from sklearn.metrics import roc_auc_score

from curate.rounds.simulation.replay import Replay, replay
from curate.selectors.chance import Random
from curate.selectors.contract import Pool
from curate.selectors.ranked import Discounted, HighestScore, Margin, discount, gate, rank_share
from scoring.errors import InputError


def pool_of(n=40, seed=0, **more):
    generator = np.random.default_rng(seed)
    order = generator.permutation(n)
    columns = {
        "vectors": generator.standard_normal((n, 3)).astype(np.float32),
        "probabilities": generator.dirichlet(np.ones(4), n).astype(np.float32),
        "quality": generator.random(n).astype(np.float32),
    }
    return Pool(np.sort(order[: n - 10]), np.sort(order[n - 5 :]), **(columns | more))


def place_of(value, among):
    """Rank by counting: ties count half."""
    return (sum(x < value for x in among) + sum(x == value for x in among) / 2) / len(among)


def margin_of(row):
    best = sorted(map(float, row), reverse=True)
    return 1 - (best[0] - best[1])


@pytest.mark.parametrize("seed", range(3))
def test_rank_share_counts_what_is_below_and_half_of_what_ties(seed):
    values = np.random.default_rng(seed).integers(0, 6, 25) / 7
    assert rank_share(values) == pytest.approx([place_of(value, values) for value in values])
    assert rank_share(-values) == pytest.approx(1 - rank_share(values))


def test_the_gate_leaves_out_the_lowest_share_of_candidates_and_labelled_rows():
    pool = pool_of()
    used = np.concatenate([pool.candidates, pool.labelled])
    expected = [row for row in pool.candidates if place_of(pool.quality[row], pool.quality[used]) >= 0.3]
    assert gate(pool, 0.3).candidates.tolist() == expected
    assert gate(pool, 0.0).candidates.tolist() == pool.candidates.tolist()
    assert gate(Pool(np.arange(10), quality=np.arange(10) / 10), 0.5).candidates.tolist() == [5, 6, 7, 8, 9]


def test_equal_qualities_pass_or_fail_together():
    pool = Pool(np.arange(4), quality=np.full(4, 0.2, np.float32))
    assert len(gate(pool, 0.5).candidates) == 4
    with pytest.raises(InputError, match="of 4 candidates"):
        gate(pool, 0.6)


def test_the_discount_is_its_definition_row_by_row():
    pool = pool_of()
    e = {row: margin_of(pool.probabilities[row]) for row in pool.candidates}
    discounted = discount(pool, Margin()).uncertainty
    for row in pool.candidates:
        rank_e = place_of(e[row], list(e.values()))
        rank_a = place_of(-pool.quality[row], -pool.quality[pool.candidates])
        assert discounted[row] == pytest.approx(rank_e * (1 - rank_a), abs=1e-12)


def test_a_discount_of_equal_qualities_changes_no_pick():
    pool = pool_of(quality=np.full(40, 0.3, np.float32))
    assert Discounted(Margin())(pool, 20).rows.tolist() == Margin()(pool, 20).rows.tolist()


def test_a_discounted_selector_ranks_by_the_mix_and_says_what_it_cost():
    pool = pool_of()
    selection = Discounted(Margin())(pool, 8)
    mixed = discount(pool, Margin()).uncertainty
    assert selection.rows.tolist() == sorted(pool.candidates, key=lambda row: (-mixed[row], row))[:8]
    assert selection.gains.tolist() == [mixed[row] for row in selection.rows]
    assert selection.parts["margin"] == pytest.approx([margin_of(pool.probabilities[row]) for row in selection.rows])
    assert selection.parts["quality"] == pytest.approx(pool.quality[selection.rows])
    alone = len(set(Margin()(pool, 8).rows) & set(selection.rows))
    best = set(sorted(pool.candidates, key=lambda row: -pool.quality[row])[:8])
    assert selection.notes == (
        f"of 8 picks, {alone} are also picked by margin alone and {len(best & set(selection.rows))} by quality alone",
    )


def test_a_discount_promises_what_it_wraps():
    assert Discounted(Margin()).prefix is True
    assert Discounted(Margin()).needs == ("probabilities", "quality")


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda pool: gate(replace(pool, quality=None), 0.5), "a quality column"),
        (lambda pool: discount(replace(pool, quality=None), Margin()), "need a quality column"),
        (lambda pool: gate(pool, 1.0), r"gate .*got 1"),
        (lambda pool: gate(pool, float("nan")), "got nan"),
        (lambda pool: Discounted(Random()), "got Random; .*gate"),
        (lambda pool: Discounted(HighestScore())(pool, 2), "a score column"),
    ],
)
def test_what_cannot_be_mixed_is_one_line(call, said):
    with pytest.raises(InputError, match=said):
        call(pool_of())


class BetterHalf(Margin):
    """Margin among the half of better quality."""

    def __call__(self, pool, budget, *, seed=0):
        return super().__call__(gate(pool, 0.5), budget, seed=seed)


def junked(seed, auroc):
    """Digits, three tenths of the pool blended of two classes with a coin flip for a label; a quality of that AUROC."""
    clean, generator = digits(), np.random.default_rng(seed)
    n = len(clean.labels)
    features, labels = clean.features.copy(), clean.labels.copy()
    bad = generator.permutation(n)[: round(0.3 * n)]
    for row in bad:
        other = generator.choice(np.flatnonzero(clean.labels != clean.labels[row]))
        features[row] = (clean.features[row] + clean.features[other]) / 2
        labels[row] = clean.labels[row if generator.random() < 0.5 else other]
    is_bad = np.isin(np.arange(n), bad)
    shift = {0.77: 1.045, 1.0: 50.0}[auroc]  # of two unit normals, AUROC = Phi(shift / sqrt 2)
    quality = -(generator.standard_normal(n) + shift * is_bad)
    assert roc_auc_score(is_bad, -quality) == pytest.approx(auroc, abs=0.03)
    quality = ((quality - quality.min()) / np.ptp(quality)).astype(np.float32)
    return Replay(features, labels, clean.test_features, clean.test_labels, quality=quality, calibrate=False), is_bad


def study(selector, auroc, seeds=range(8)):
    """Accuracy at 220 labels, and the share of them that is bad, in percent."""
    accuracy, share = [], []
    for seed in seeds:
        data, is_bad = junked(seed, auroc)
        curves = replay(data, selector, budgets=range(20, 221, 20), seeds=[seed])
        accuracy.append(curves.accuracy[0, -1])
        share.append(is_bad[curves.picks[0]].mean())
    return 100 * np.mean(accuracy), 100 * np.mean(share)


@pytest.mark.study
def test_discount_and_gate_keep_ambiguous_rows_out_as_in_the_published_study():
    plain, plain_bad = study(Margin(), 0.77)
    assert plain_bad == pytest.approx(55, abs=5)
    product, product_bad = study(Discounted(Margin()), 0.77)
    assert product_bad == pytest.approx(27, abs=5)
    assert product > plain + 1
    gated, gated_bad = study(BetterHalf(), 1.0)
    assert gated_bad == pytest.approx(3, abs=2)
    assert gated > plain + 3
