"""Cross-entropy on labels: trains a backbone from which other methods start."""

from typing import ClassVar

import torch.nn.functional as F
from torch import Tensor, nn

from scoring.class_heads import ClassifierHeadSpec
from scoring.heads import HeadSpec
from trainers.methods.method import Method, Step
from trainers.methods.settings import Augmentation, Settings


class Supervised(Method[Settings]):
    """A linear classifier on the features, with label smoothing 0.1."""

    needs_labels = True
    n_standard = 1
    defaults: ClassVar = {
        "lr": 0.2,
        "schedule": "cosine",
        "warmup": 0.05,
        "weight_decay": 5e-4,
        "augmentation": Augmentation(scale=(0.25, 1.0), jitter=0.3, gray=0.1, blur=0.1),
    }

    @classmethod
    def head(cls, settings: Settings, size: int, n_classes: int = 2) -> HeadSpec:
        """Return the classifier."""
        return ClassifierHeadSpec(n_classes)

    def forward(self, features: Tensor, head: nn.Module | None, labels: Tensor | None) -> Step:
        """Return the mean cross-entropy and the accuracy over all views."""
        if labels is None or head is None:
            raise ValueError("cross-entropy needs labels, and its head")
        logits = head(features.flatten(0, 1))
        target = labels.repeat(features.shape[0])
        loss = F.cross_entropy(logits, target, label_smoothing=0.1)
        return Step(loss, {"accuracy": (logits.argmax(1) == target).float().mean()})
