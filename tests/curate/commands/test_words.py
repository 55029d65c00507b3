"""Every fact that the library returns has its words."""

import pytest

from curate.commands.status import SEEN, advice_words, lift_words
from curate.commands.verify import DIFFERENCES, FINDINGS, difference_words, finding_words
from curate.evaluation import measures
from curate.evaluation.results import NO_SLOPE
from curate.policies import findings
from curate.policies.findings import Difference, Finding
from curate.rounds.measures import stopping
from curate.rounds.measures.lift import ArmLift
from curate.rounds.measures.stopping import Advice


def constants(module):
    return {value for name, value in vars(module).items() if name.isupper() and isinstance(value, str)}


def test_every_kind_of_difference_and_finding_has_words_and_no_other():
    assert constants(findings) == {*DIFFERENCES, *FINDINGS, "other columns"}


def test_every_criterion_and_every_lack_of_a_slope_has_words():
    assert constants(stopping) == set(SEEN)
    assert {measures.INFINITE, measures.SEPARATED} == set(NO_SLOPE)


@pytest.mark.parametrize(
    ("fact", "text"),
    [
        (Difference("decision", "a {0}\n", "keep", "drop"), "a {0}\n: now keep, then drop"),
        (Difference("rank", "a", 1200, 3), "a: now number 1,200, then number 3"),
        (Difference("value", "a", column="it's", file="batch"), 'a: column "it\'s" differs from the batch'),
    ],
)
def test_a_difference_names_the_row_and_both_values(fact, text):
    assert difference_words(fact).endswith(text)


def test_a_digest_is_shown_by_its_first_sixteen_digits():
    said = finding_words(Finding("other digest", "t.parquet", "0123456789abcdef" * 4, "f" * 64))
    assert "expected ffffffffffffffff" in said


def test_advice_says_what_it_saw_or_how_many_models_it_needs():
    assert advice_words(Advice("mean entropy", None, {"models": 0, "needed": 1})) == "needs a model, and none was given"
    assert advice_words(Advice("pool", False, {"left": 1})) == "1 image is left to request"
    early = Advice("exhausted coverage", None, {"models": 2, "needed": 4})
    assert advice_words(early) == "needs 4 models, there are 2"


@pytest.mark.parametrize(
    ("lift", "end"),
    [
        (
            ArmLift(30, 90, 0.8, 0.6, 0.2, 0.1, 0.3),
            "+20.0 points (+10.0 to +30.0, about 95 % of this look); the strategy beats random",
        ),
        (ArmLift(30, 90, 0.5, 0.6, -0.1, -0.2, -0.05), "random beats the strategy"),
        (ArmLift(30, 90, 0.6, 0.6, 0.0, -0.1, 0.1, 70), "about 70 control labels if the difference stays"),
        (ArmLift(30, 90, 0.6, 0.6, 0.0, -0.1, 0.1, 70_000), "not enough yet to decide"),
        (ArmLift(30, 90, 0.6, 0.6, 0.0, -0.1, 0.1, None, few_held_out=True), "more held-out rows are needed"),
    ],
)
def test_the_lift_says_who_is_ahead_or_what_is_missing(lift, end):
    assert lift_words(lift).endswith(end)
