"""Loss prediction: a head that predicts the loss of a task on an image.

The task is classification by a linear classifier on the features, or any task whose losses are in a user column.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from scoring.class_heads import HeadSpec
from scoring.errors import InputError
from scoring.heads import DEEPEST, UncertaintyHeadSpec
from trainers.methods.method import Batch, Method, Step, Task, needed
from trainers.methods.settings import MOST_WIDTH, Augmentation, Settings, setting

FORMS = ("ranking", "l2")


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """Return -log p of the true class in nats, shape (N,), from logits (N, C) and labels (N,)."""
    return F.cross_entropy(logits, labels, reduction="none")


def brier(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the Brier score, shape (N,), in [0, 2]."""
    return (logits.softmax(1) - F.one_hot(labels, logits.shape[1])).square().sum(1)


def margin(logits: Tensor, labels: Tensor) -> Tensor:
    """Return 1 minus the margin of the true class over the best other class, shape (N,), in [0, 2]; 1 at a tie."""
    probabilities = logits.softmax(1)
    right = probabilities.gather(1, labels[:, None]).squeeze(1)
    others = probabilities.scatter(1, labels[:, None], -1.0)
    return 1 - (right - others.amax(1))


LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {  # to add a task loss, add a line
    "cross-entropy": cross_entropy,
    "brier": brier,
    "margin": margin,
}


def l2_loss(predicted: Tensor, loss: Tensor) -> Tensor:
    """Return the mean squared difference of predicted uncertainty and loss, shapes (N,); the loss gets no gradient.

    Raises:
        ValueError: if the shapes differ.

    Source: Kirchhof et al. 2023 (URL), appendix B.9, eq. 8; Kirchhof et al. 2024, eq. 2.
    """
    _same_shape(predicted, loss)
    return (predicted - loss.detach().to(predicted.dtype)).square().mean()


def ranking_loss(predicted: Tensor, loss: Tensor, *, gap: float = 0.1, leeway: float = 0.0) -> Tensor:
    """Return the pairwise ranking loss; 0 if each pair is ordered correctly by at least ``gap``.

    Of images 2i and 2i+1, the one with the larger loss should be more uncertain by at least ``gap``: L = mean max(0,
    gap - s (u_2i - u_2i+1)), s = 1 if the loss of 2i is larger, else -1. A tie gives -1, as in the paper; since the
    order within a batch is random, its mean effect is 0. An unpaired last image is ignored.

    Args:
        predicted: uncertainties, shape (N,), N >= 2, in random order.
        loss: of the task, shape (N,); only its order matters, and it gets no gradient.
        gap: margin, in the unit of the uncertainty.
        leeway: pairs whose losses differ by less are not ranked (s = 0).

    Raises:
        ValueError: if the shapes differ, or there is no pair.

    Source: Kirchhof et al. 2024 (Pretrained Visual Uncertainties), eq. 3-5. As printed, eq. 3 multiplies the margin by
    s and rewards the wrong order; this is the loss of Yoo & Kweon 2019, eq. 2, which it adopts.

    >>> ranking_loss(torch.tensor([1.0, 0.2]), torch.tensor([3.0, 0.5])).item()
    0.0
    """
    _same_shape(predicted, loss)
    if len(predicted) < 2:
        raise ValueError(f"a ranking needs at least 2 images, got {len(predicted)}")
    even = len(predicted) // 2 * 2
    more = loss[0:even:2].detach() - loss[1:even:2].detach()
    sign = torch.where(more > 0, 1.0, -1.0)
    if leeway > 0:
        sign = torch.where(more.abs() < leeway, 0.0, sign)
    lead = predicted[0:even:2] - predicted[1:even:2]
    return (gap - sign.to(lead.dtype) * lead).clamp(min=0).mean()


def fold_of(rows: Tensor, folds: int, seed: int) -> Tensor:
    """Return the cross-validation fold of each row number, shape (N,), in [0, folds); constant over epochs."""
    mixed = rows + ((seed + 1) * 0x9E3779B97F4A7C1 & 0x3FFFFFFFFFFFFFFF)  # splitmix64 on 62 bits, to stay positive
    for shift, factor in ((30, 0x3F58476D1CE4E5B9), (27, 0x14D049BB133111EB)):
        mixed = ((mixed ^ (mixed >> shift)) * factor) & 0x7FFFFFFFFFFFFFFF
    return (mixed ^ (mixed >> 31)) % folds


@dataclass(frozen=True)
class LossPredSettings(Settings):
    """The settings of loss prediction (Kirchhof et al. 2023 and 2024)."""

    form: str = setting("ranking", "rank pairs by their loss, or predict the loss with a squared error", choices=FORMS)
    task: str = setting("cross-entropy", "the loss that is predicted", choices=tuple(LOSSES))
    loss_column: str = setting("", "column with your losses to predict, instead of a classifier's")
    margin: float = setting(0.1, "margin of the ranking, in the unit of the uncertainty", above=0)
    leeway: float = setting(0.0, "pairs whose losses differ by less are not ranked", least=0)
    hidden: int = setting(512, "width of the head's hidden layers", least=1, most=MOST_WIDTH)
    depth: int = setting(2, "hidden layers of the head", least=0, most=DEEPEST)
    within: float = setting(
        0.0, "weight of pairs of an image and its view, where the view counts as less certain", least=0, most=1
    )
    weight: float = setting(1.0, "weight of the head's loss relative to the classifier's", above=0)
    folds: int = setting(
        5,
        "classifiers; the loss of an image is from the one not trained on it; 1: one for all images",
        least=1,
        most=100,
    )
    stop_gradient: bool = setting(True, "stop the head's gradient before the backbone; the ranking always does")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.within and self.form != "ranking":
            raise InputError("pairs within an image are ranked, and form=l2 has no ranking; leave out within")
        if self.leeway and self.form != "ranking":
            raise InputError("leeway is of the ranking, and form=l2 has none; leave out leeway")
        if self.form == "ranking" and not self.stop_gradient:
            raise InputError("the ranking loss always stops its gradient before the backbone; use form=l2, or stop it")


class LossPred(Method[LossPredSettings]):
    """A head that predicts the loss of a classifier, or any precomputed loss, by rank or by value."""

    paper = "Kirchhof et al. 2024, arXiv:2402.16569"
    Settings = LossPredSettings
    needs_labels = True
    n_standard = 1  # with the plain image, for comparison
    defaults: ClassVar = {
        "optimizer": "adamw",
        "betas": (0.8, 0.95),
        "lr": 1e-3,
        "schedule": "cosine",
        "warmup": 0.05,
        "augmentation": Augmentation(scale=(0.08, 1.0), jitter=0.4, gray=0.0, blur=0.0),
    }

    def __init__(self, settings: LossPredSettings, task: Task) -> None:
        super().__init__(settings, task)
        _check_gradient(settings, task)
        self.seed, self.n_classes = task.seed, task.n_classes
        self.classifier = None if settings.loss_column else nn.Linear(task.width, settings.folds * task.n_classes)
        if settings.within:
            self.n_standard, self.n_plain = 2, 1
        self._batch: Batch | None = None

    @classmethod
    def head(cls, settings: LossPredSettings, size: int, n_classes: int = 2) -> HeadSpec:
        """Return an MLP; by default the published one, with two hidden layers of width 512."""
        return UncertaintyHeadSpec(settings.hidden, settings.depth)

    @classmethod
    def reads_labels(cls, settings: LossPredSettings) -> bool:
        """Return whether a classifier is trained."""
        return not settings.loss_column

    @classmethod
    def reads_losses(cls, settings: LossPredSettings) -> str | None:
        """Return the column with the user's losses, or None."""
        return settings.loss_column or None

    def before_step(self, batch: Batch) -> None:
        """Store the row numbers of the images, which determine their folds, and the user's losses."""
        self._batch = batch

    def forward(self, features: Tensor, head: nn.Module | None, labels: Tensor | None) -> Step:
        """Return the classifiers' cross-entropy plus the weighted loss of the head.

        Neighbours in the randomly ordered batch form pairs, in each view; with ``within``, so do the plain image and
        its view.
        """
        n_views, n = features.shape[:2]
        flat = features.flatten(0, 1)
        predicted = needed(head, "an uncertainty head")(
            flat.detach() if self.settings.stop_gradient else flat
        )  # (V * N,)
        measures: dict[str, Tensor] = {}
        batch = self._batch or Batch(torch.arange(n, device=flat.device))
        if self.classifier is None:
            task, total = needed(batch.losses, "the losses of its column").repeat(n_views), flat.new_zeros(())
        else:
            every = needed(labels, "labels, or losses").repeat(n_views)
            total, task, measures = self._classify(flat, every, batch.rows.repeat(n_views))
        of_head = self._rank(predicted, task, n_views) if self.settings.form == "ranking" else l2_loss(predicted, task)
        measures |= {"task": task.mean(), "unc": predicted.detach().mean(), "ordered": share_ordered(predicted, task)}
        return Step(total + self.settings.weight * of_head, measures)

    def _rank(self, predicted: Tensor, task: Tensor, n_views: int) -> Tensor:
        """Return the ranking loss; pairs of a plain image and its view have weight ``within``, others the rest.

        A view should be less certain than its plain image, whatever the losses: it cannot contain more information
        (data processing inequality). This is our addition: without it, 5 to 20 % of blurred, noisy or covered images
        become more certain.
        """
        gap, leeway, within = self.settings.margin, self.settings.leeway, self.settings.within
        u, loss = predicted.view(n_views, -1), task.view(n_views, -1)
        between = torch.stack(
            [ranking_loss(*pair, gap=gap, leeway=leeway) for pair in zip(u, loss, strict=True)]
        ).mean()
        if not within:
            return between
        within_image = (gap - (u[1] - u[0])).clamp(min=0).mean()  # the plain image is view 0
        return within * within_image + (1 - within) * between

    def _classify(self, flat: Tensor, labels: Tensor, rows: Tensor) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """Return the classifiers' loss, each image's loss under its fold's classifier, and measures."""
        folds = self.settings.folds
        logits = self.classifier(flat).view(len(flat), folds, self.n_classes)  # type: ignore[misc]
        fold = fold_of(rows, folds, self.seed)
        every = cross_entropy(logits.flatten(0, 1), labels.repeat_interleave(folds)).view(len(flat), folds)
        learns = torch.ones_like(every)
        if folds > 1:
            learns.scatter_(1, fold[:, None], 0.0)  # an image's classifier is never trained on its fold
        fit = (every * learns).sum() / learns.sum()
        held_out = logits.detach()[torch.arange(len(flat), device=flat.device), fold]  # (V * N, C)
        # float64: losses of confident predictions would all be 0 in float32, and tie
        task = LOSSES[self.settings.task](held_out.double(), labels)
        return fit, task, {"accuracy": (held_out.argmax(1) == labels).float().mean()}


def _check_gradient(settings: LossPredSettings, task: Task) -> None:
    """Raise ``InputError`` if nothing would train the backbone, or if a frozen backbone is to be trained."""
    if task.is_frozen and not settings.stop_gradient:
        raise InputError(
            "stop_gradient=false is for a backbone that trains, and --freeze or --cached freezes it; leave "
            "one of them out"
        )
    if settings.loss_column and settings.stop_gradient and not task.is_frozen:
        raise InputError(
            f"the losses in {settings.loss_column!r} train only the head, and nothing would train the backbone; add "
            "--freeze, or let gradients through with --set form=l2 --set stop_gradient=false"
        )


def share_ordered(predicted: Tensor, loss: Tensor) -> Tensor:
    """Return the share of pairs 2i, 2i+1 whose uncertainties are ordered like their losses, in [0, 1]."""
    even = len(predicted) // 2 * 2
    ours = predicted[0:even:2].detach() > predicted[1:even:2].detach()
    return (ours == (loss[0:even:2] > loss[1:even:2])).float().mean()


def _same_shape(predicted: Tensor, loss: Tensor) -> None:
    if predicted.ndim != 1 or predicted.shape != loss.shape:
        got = f"{tuple(predicted.shape)} and {tuple(loss.shape)}"
        raise ValueError(f"prediction and loss must both have shape (N,), got {got}")
