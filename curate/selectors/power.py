"""Sampling by a score instead of ranking by it: variety in a batch for the price of one random number a row."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from curate.selectors.contract import Selector, check
from curate.selectors.pool import Pool, Selection
from curate.selectors.scores import SCORES
from scoring.errors import InputError
from scoring.lookup import lookup
from scoring.metrics.ranking import ranks

FORMS = ("power", "softmax", "rank")


@dataclass(frozen=True)
class PowerSampling(Selector):
    """Draws rows without putting them back, with probabilities that grow with a score.

    The probability of a row with score s is proportional to s^(1/T) for "power", exp(s/T) for "softmax" and r^(-1/T)
    for "rank", r = 1 for the highest score and ties sharing their mean. A small temperature T approaches the top of the
    ranking, a large one random sampling. All draws at once: the rows with the highest log-chance plus Gumbel noise.
    Rows with score 0 come last under "power", in random order.

    Args:
        score: a name of ``SCORES``.
        temperature: T > 0, in the unit of log s, s, or log r.
        form: "power", "softmax" or "rank".

    Source: Kirsch et al. 2021, arXiv:2106.12059, sec. 3 and appendix (power, softmax, softrank), with beta = 1/T.
    """

    score: str = "margin"
    temperature: float = 1.0
    form: str = "power"

    needs: ClassVar[tuple[str, ...]] = ("probabilities",)
    optional: ClassVar[tuple[str, ...]] = ("uncertainty",)  # with score="score"
    prefix: ClassVar[bool] = True
    cost: ClassVar[str] = "the score's, and O(N log N) time, O(N) memory"

    def __post_init__(self) -> None:
        if not 0 < self.temperature < np.inf:
            raise InputError(
                f"the temperature must be above 0 and finite, got {self.temperature:g};"
                " 1 is the usual one, less listens more to the score"
            )
        if self.form not in FORMS:
            raise InputError(f"the form must be one of {', '.join(FORMS)}, got {self.form!r}")
        object.__setattr__(self, "needs", lookup(SCORES, self.score, kind="score").needs)

    def __call__(self, pool: Pool, budget: int, *, seed: int = 0) -> Selection:
        """Pick rows, as every ``Selector`` does."""
        check(pool, budget, self.needs)
        values = SCORES[self.score].compute(pool)[pool.candidates]
        weight = self._log_chance(values)
        generator = np.random.default_rng(seed)
        noise = generator.gumbel(size=len(values))
        last = generator.random(len(values))  # orders the rows without any probability
        order = np.lexsort((last, -(weight + noise)))[:budget]
        return Selection(pool.candidates[order], values[order], parts={"log_chance": weight[order]})

    def _log_chance(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the log of each row's probability up to a constant, shape (M,); -inf for none."""
        if self.form == "softmax":
            return values / self.temperature
        if self.form == "rank":
            return -np.log(ranks(-values)) / self.temperature
        if values.min() < 0:
            raise InputError(
                f"power sampling needs scores of at least 0, got {values.min():.4g}; use the rank or softmax form"
            )
        return np.log(values, out=np.full_like(values, -np.inf), where=values > 0) / self.temperature
