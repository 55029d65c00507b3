"""DINO: a student predicts the prototype assignment of a sharpened, centred teacher for another view."""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from scoring.class_heads import WIDEST, WIDEST_INSIDE, HeadSpec
from scoring.head_modules import PrototypeHead
from scoring.heads import PrototypeHeadSpec
from trainers.methods.method import Batch, Method, Step, Task
from trainers.methods.momentum import MomentumEncoder
from trainers.methods.settings import MOST_WIDTH, Settings, setting


def dino_loss(student: Tensor, teacher: Tensor, *, temperature: float) -> Tensor:
    """Return the mean cross-entropy of a view's student output under the teacher output of another view, in nats.

    -mean over view pairs i != j and images of sum_k softmax(teacher_i)_k log softmax(student_j / T)_k.

    Args:
        student: logits of every view, shape (V, N, K).
        teacher: logits of the first views, already centred and sharpened, shape (T, N, K), T <= V, V >= 2; no gradient.
        temperature: of the student, > 0.

    Raises:
        ValueError: if the shapes do not fit, or there is no other view.

    Source: Caron et al. 2021, arXiv:2104.14294, eq. 3 and algorithm 1.
    """
    n_views = len(student)
    if student.ndim != 3 or teacher.shape[1:] != student.shape[1:] or not 1 <= len(teacher) <= n_views or n_views < 2:
        got = f"{tuple(student.shape)} and {tuple(teacher.shape)}"
        raise ValueError(f"expected shapes (V, N, K) and (T, N, K) with T <= V and V >= 2, got {got}")
    log_p = (student / temperature).log_softmax(-1)
    others = log_p.sum(0) - log_p[: len(teacher)]  # (T, N, K): of all views but the teacher's own
    per_image = (teacher.detach().softmax(-1) * others).sum(-1)  # (T, N)
    return -per_image.mean() / (n_views - 1)


@dataclass(frozen=True)
class DINOSettings(Settings):
    """The settings of DINO; defaults are from Nakamura et al. 2023, appendix B (without momentum teacher)."""

    prototypes: int = setting(
        4096,
        "number K of prototypes, to which images are assigned; 65,536 in DINO's paper, for a million images",
        least=2,
        most=WIDEST,
    )
    hidden_dim: int = setting(2048, "width of the two hidden layers of the head", least=1, most=WIDEST_INSIDE)
    bottleneck: int = setting(256, "width of the sphere on which prototypes lie", least=2, most=WIDEST_INSIDE)
    teacher_temperature: float = setting(0.04, "of the teacher, by which cosines are divided", above=0, most=1e3)
    student_temperature: float = setting(0.1, "of the student, by which cosines are divided", above=0, most=1e3)
    centre: float = setting(0.9, "share of the teacher's centre that is kept in a step", least=0, below=1)
    momentum: float = setting(
        0.0,
        "share of its weights that the teacher keeps in a step, rising to 1; 0: the network is the teacher",
        least=0,
        below=1,
    )
    n_small: int = setting(6, "low-resolution views per image", least=0, cached=0)
    small_size: int = setting(96, "side of a low-resolution view, in pixels", least=1, most=MOST_WIDTH, cached=96)


class DINO(Method[DINOSettings]):
    """Self-distillation over prototypes; the entropy of the teacher is the uncertainty."""

    paper = "Caron et al. 2021, arXiv:2104.14294"
    Settings = DINOSettings
    defaults: ClassVar = {"lr": 0.03, "schedule": "cosine", "batch_size": 64}

    def __init__(self, settings: DINOSettings, task: Task) -> None:
        super().__init__(settings, task)
        self.n_small, self.small_size = settings.n_small, settings.small_size
        self.teacher: MomentumEncoder | None = None
        if settings.momentum:
            if task.backbone is None or not isinstance(task.head, PrototypeHead):
                raise ValueError("expected the trained backbone and head, which the momentum teacher copies, got none")
            live = [task.backbone, task.head.cosines]
            self.teacher = MomentumEncoder(live, momentum=settings.momentum, precision=task.precision)

    @classmethod
    def head(cls, settings: DINOSettings, size: int, n_classes: int = 2) -> HeadSpec:
        """Return the prototype head, which scores with the teacher's temperature and centre."""
        return PrototypeHeadSpec(
            settings.prototypes, settings.hidden_dim, settings.bottleneck, settings.teacher_temperature
        )

    @classmethod
    def reads_pixels(cls, settings: DINOSettings) -> bool:
        """Return whether the teacher is a momentum copy, which reads the views itself."""
        return settings.momentum > 0

    def before_step(self, batch: Batch) -> None:
        """Run the standard views through a momentum teacher, and update its momentum."""
        if self.teacher is None:
            return
        rest = (1 - self.settings.momentum) * (math.cos(math.pi * batch.share) + 1) / 2
        self.teacher.momentum = 1 - rest
        views = batch.pixels[0]  # (T, N, 3, S, S)
        self.of_teacher = self.teacher(views.flatten(0, 1)).unflatten(0, views.shape[:2])

    def forward(self, features: Tensor, head: nn.Module | None, labels: Tensor | None) -> Step:
        """Return the loss over all pairs of a standard view and another view; update the centre."""
        if not isinstance(head, PrototypeHead):
            raise ValueError("DINO needs its head of prototypes")
        student = head.cosines(features.flatten(0, 1)).unflatten(0, features.shape[:2])  # (V, N, K)
        cosines = student[: self.n_standard].detach() if self.teacher is None else self.of_teacher
        logits = head.sharpened(cosines)
        loss = dino_loss(student, logits, temperature=self.settings.student_temperature)
        with torch.no_grad():
            probabilities = logits.softmax(-1)
            most = math.log(logits.shape[-1])
            undecided = torch.special.entr(probabilities).sum(-1).mean() / most  # 1: uniform over prototypes
            used = torch.special.entr(probabilities.mean((0, 1))).sum() / most  # 0: all images have the same prototype
            if self.training:
                head.centre.lerp_(cosines.mean((0, 1)), 1 - self.settings.centre)
        return Step(loss, {"undecided": undecided, "used": used})

    def after_step(self, step: int) -> None:
        """Update the momentum teacher, if any."""
        if self.teacher is not None:
            self.teacher.follow()
