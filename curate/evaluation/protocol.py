"""The probes that are trained on ``--train``, and their settings."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from scoring.errors import InputError
from scoring.lookup import require_known
from scoring.settings import require_between, with_settings

PROBES = {  # probe -> its settings
    "linear": ("c",),
    "knn": ("k", "temperature"),
    "few": ("c", "labels", "draws"),
    "mlp": ("hidden", "passes"),
    "lars": ("rate", "epochs"),
    "gmm": ("starts",),
}
USUAL = ("linear", "knn", "few")
VOTERS = 20
MOST = {"draws": 100, "hidden": 65_536, "passes": 10_000, "epochs": 10_000, "starts": 1000}
_AMOUNT = re.compile(r"(?P<share>[0-9]+(\.[0-9]+)?) ?%|(?P<count>[0-9]{1,9})")


@dataclass(frozen=True)
class ProtocolSettings:
    """Settings of the probes that are trained on ``--train``.

    Attributes:
        k: neighbours of kNN; by default 20, or all rows if there are fewer.
        temperature: of the kNN vote, whose weights are exp(cosine / temperature).
        c: inverse regularisation strength of linear classifiers, see ``fit_linear``.
        labels: few-label settings, each a share of every class ("1%") or a number per class ("5").
        draws: random draws of few labels.
        hidden: hidden units of the MLP.
        passes: epochs of the MLP.
        rate: initial learning rate of the linear classifier by LARS.
        epochs: of the linear classifier by LARS.
        starts: initialisations of the Gaussian mixture, of which the most likely fit is used.

    Source: the vote of Wu et al. 2018, arXiv:1805.01978, with k = 200 and temperature 0.07; here k is 20 as in DINO
    (Caron et al. 2021, arXiv:2104.14294); MoCo's code has 200 and 0.1 on CIFAR-10. Few labels: Chen et al. 2020
    ("SimCLR"), arXiv:2002.05709, sec. 6.
    """

    k: int | None = None
    temperature: float = 0.07
    c: float = 1.0
    labels: str = "1%,10%"
    draws: int = 3
    hidden: int = 256
    passes: int = 200
    rate: float = 1.6
    epochs: int = 100
    starts: int = 5

    def __post_init__(self) -> None:
        require_between("--set k", self.k, 1, hint="20 and 200 are usual")
        for name, usual in (("temperature", "0.07 and 0.1 are"), ("c", "1 is"), ("rate", "1.6 is")):
            require_between(f"--set {name}", getattr(self, name), 1e-6, 10**9, f"{usual} usual")
        for name, most in MOST.items():
            require_between(f"--set {name}", getattr(self, name), 1, most)
        self.amounts()

    def amounts(self) -> dict[str, float | int]:
        """Return the few-label settings by name: a share per class (float), or a number of rows (int)."""
        amounts: dict[str, float | int] = {}
        for text in self.labels.split(","):
            read = _AMOUNT.fullmatch(text.strip())
            share = float(read["share"]) / 100 if read and read["share"] else None
            count = int(read["count"]) if read and read["count"] else None
            if share is not None and 0 < share < 1:
                amounts[f"{share:.3%}".rstrip("0%").rstrip(".") + "% of labels"] = share
            elif count:
                amounts[f"{count:,} {'label' if count == 1 else 'labels'} a class"] = count
            else:
                raise InputError(
                    f"--set labels takes shares and numbers of each class, such as 1%,10% or 5, got {text!r}"
                )
        return amounts


@dataclass(frozen=True)
class Protocol:
    """The probes to run, in the order of ``PROBES``, and their settings."""

    probes: tuple[str, ...] = USUAL
    settings: ProtocolSettings = ProtocolSettings()

    def check(self, n: int) -> None:
        """Raise InputError if there are fewer training rows than neighbours requested."""
        if self.settings.k is not None and self.settings.k > n:
            raise InputError(
                f"--set k: expected at most {n:,}, the rows to learn from, got {self.settings.k:,}; choose fewer"
            )

    def facts(self) -> dict[str, Any]:
        """Return the probes with the settings that they use, as JSON values."""
        read = {name for probe in self.probes for name in PROBES[probe]}
        return {"probes": list(self.probes), **{k: v for k, v in asdict(self.settings).items() if k in read}}


def protocol_of(probe: str | Sequence[str] | None, settings: Mapping[str, object] | None) -> Protocol:
    """Return the requested protocol.

    Args:
        probe: one or several of ``PROBES``, also as comma-separated text; ``USUAL`` by default.
        settings: fields of ``ProtocolSettings``.

    Raises:
        InputError: for an unknown probe or setting, or a setting of a probe that is not run.
    """
    texts = [probe] if isinstance(probe, str) else list(probe or USUAL)
    names = [name.strip() for text in texts for name in text.split(",")]
    for name in names:
        require_known(name, PROBES, "unknown --probe")
    probes = tuple(name for name in PROBES if name in names)
    chosen = with_settings(ProtocolSettings, settings, name="--probe", what="protocol of")
    for setting in settings or {}:
        readers = [name for name, read in PROBES.items() if setting in read]
        if not set(readers) & set(probes):
            raise InputError(
                f"--set {setting} is for --probe {' or '.join(readers)}, which was not requested; add it, or "
                "leave it out"
            )
    return Protocol(probes, chosen)
