"""Construction of a run's modules: model, method and optimiser, and which of them are trained."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

import torch
from torch import nn

from scoring.backbones import create_backbone, size_options
from scoring.errors import InputError
from scoring.heads import EMBEDS
from scoring.images import Preprocessing
from scoring.lars import LARS
from scoring.model import ModelSpec, ScoringModel
from scoring.runner import is_out_of_memory
from trainers.config import TrainConfig
from trainers.methods.method import Method, Task
from trainers.methods.settings import Settings
from trainers.methods.table import METHODS

M = TypeVar("M", bound=nn.Module)


def build(
    config: TrainConfig, n_classes: int, *, init: ScoringModel | None = None, n: int = 0
) -> tuple[ScoringModel, Method[Any]]:
    """Return a model to train and its method; the same seed gives the same initial weights.

    A frozen backbone keeps its preprocessing and all existing heads bit-identical. If the backbone is trained, existing
    heads are dropped, since its features will change.

    Args:
        config: the recipe.
        n_classes: number of classes, for methods that read labels.
        init: a model to start from, with the recipe's backbone; its modules are reused, not copied.
        n: number of images, for methods that store something per image; 0 if unknown.

    Raises:
        InputError: if the backbone cannot read views of the recipe's sizes.
        ValueError: if a frozen start has another image size than the recipe.
    """
    kind, settings = METHODS[config.method], config.settings
    if init is not None and init.spec.backbone != config.backbone:
        raise InputError(f"the checkpoint to start from holds {init.spec.backbone!r}, the recipe {config.backbone!r}")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        if init is None:
            options = size_options(config.backbone, config.size) | config.backbone_options
            backbone = create_backbone(config.backbone, options=options)
            spec = ModelSpec(config.backbone, options, {}, Preprocessing(size=config.size, resize=config.size))
        else:
            spec, backbone = replace(init.spec, preprocessing=_preprocessing(config, init)), init.backbone
            if config.freeze != "trunk":  # trained weights are no longer a package's
                spec = replace(spec, parts=tuple(replace(part, packaged=None) for part in spec.parts))
        kept = kept_heads(config, init)
        head = kind.head(settings, config.size, n_classes)
        heads = {**{name: init.spec.heads[name] for name in kept}, **({} if head is None else {config.method: head})}  # type: ignore[union-attr]
        made = replace(spec, heads=heads, embedding=embedding_head(config, init))
        model = _checked_memory(lambda: ScoringModel(made, backbone=backbone), config)
        for name in kept:
            model.heads[name] = init.heads[name]  # type: ignore[union-attr]
        task = _task(config, model, n_classes, n)
        method = _checked_memory(lambda: kind(settings, task), config)
    if method.n_standard < 1:
        raise InputError(
            f"expected {config.method} to take a standard view or more, got n_standard={method.n_standard}"
        )
    sizes = [config.size, method.small_size] if method.n_small else [config.size]
    for size in sizes:
        _try_size(model, size)
    return model, method


def _task(config: TrainConfig, model: ScoringModel, n_classes: int, n: int) -> Task:
    preprocessing = model.spec.preprocessing
    return Task(
        width=model.width,
        n_classes=n_classes,
        seed=config.seed,
        is_frozen=config.freeze == "trunk",
        size=config.size,
        backbone=model.backbone,
        head=dict(model.heads.items()).get(config.method),
        precision=config.precision,
        n=n,
        mean=preprocessing.mean,
        std=preprocessing.std,
    )


def _checked_memory(make: Callable[[], M], config: TrainConfig) -> M:
    try:
        return make()
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        raise InputError(
            f"memory ran out for the modules of {config.method} with {_int_texts(config.settings)}; lower them (--set)"
        ) from None


def _int_texts(settings: Settings) -> str:
    return ", ".join(f"{name}={value}" for name, value in vars(settings).items() if type(value) is int)


def kept_heads(config: TrainConfig, init: ScoringModel | None) -> list[str]:
    """Return the names of existing heads to keep: on a frozen backbone all but the trained one, else none."""
    if init is None or config.freeze != "trunk":
        return []
    return [name for name in init.spec.heads if name != config.method]


def embedding_head(config: TrainConfig, init: ScoringModel | None) -> str:
    """Return the head whose mu is the embedding: the start's on a frozen backbone, else the method's if it has a mu.

    Raises:
        InputError: if the method would retrain the head that provides the embedding of a frozen start.
    """
    if config.freeze != "trunk":
        kind = METHODS[config.method]
        embeds = kind.embeds and isinstance(kind.head(config.settings, config.size), EMBEDS)
        return config.method if embeds else ""
    head_name = "" if init is None else init.spec.embedding
    if head_name and head_name == config.method:
        raise InputError(
            f"the embedding of the start is of its head {head_name}, and --freeze keeps embeddings; leave --freeze "
            "out, or train another method"
        )
    return head_name


def _preprocessing(config: TrainConfig, init: ScoringModel) -> Preprocessing:
    before = init.spec.preprocessing
    if config.size == before.size:
        return before
    if config.freeze == "trunk":
        raise ValueError(f"a frozen backbone for {before.size} pixels cannot be trained on views of {config.size}")
    if init.spec.parts:
        raise InputError(
            f"{init.spec.backbone} keeps its size: expected views of {before.size} pixels; leave --size out"
        )
    return replace(before, size=config.size, resize=config.size)


@torch.inference_mode()
def _try_size(model: ScoringModel, size: int) -> None:
    """Run one empty view through the backbone, so that an unsupported size fails before images are decoded."""
    name = model.spec.backbone
    try:
        features = model.eval().features(torch.zeros(1, 3, size, size))
    except (AssertionError, RuntimeError, ValueError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(
            f"{name} cannot read views of {size} pixels ({reason}); choose another --size, and for low-resolution "
            "views another --set small_size, or --set n_small=0"
        ) from None
    if features.shape != (1, model.width):
        raise InputError(
            f"{name} gives features of shape {tuple(features.shape)} for views of {size} pixels, expected "
            f"(1, {model.width}); choose another backbone, and for low-resolution views --set n_small=0"
        )


@torch.inference_mode()
def small_map(config: TrainConfig, model: ScoringModel, method: Method[Any]) -> str | None:
    """Return a warning if a trained network ends in a 1 x 1 feature map; None otherwise.

    Such a network strides too far for the image size and learns less. Batch normalisation of that map sees one value
    per image and channel; rounded to bfloat16, its variance can be 0, and the loss becomes NaN.
    """
    if config.freeze != "nothing":
        return None
    device = next(model.parameters()).device
    is_training = model.training
    try:
        for size in (config.size, method.small_size) if method.n_small else (config.size,):
            features = getattr(model.eval().backbone, "forward_features", lambda images: images)(
                torch.zeros(1, 3, size, size, device=device)
            )
            if isinstance(features, torch.Tensor) and features.ndim == 4 and features.shape[-2:] == (1, 1):
                normalised = any(isinstance(each, nn.modules.batchnorm._BatchNorm) for each in model.backbone.modules())
                is_risk = normalised and config.precision == "bf16"
                return (
                    f"{config.backbone} ends in a map of 1 x 1 for views of {size} pixels, "
                    f"{'where bf16 can give NaN' if is_risk else 'and sees little of them'}; use a network for small "
                    "images (--backbone resnet18_cifar), a larger --size (low-resolution views: --set small_size)"
                    f"{', or --precision fp32' if is_risk else ''}"
                )
        return None
    finally:
        model.train(is_training)


def set_mode(config: TrainConfig, model: ScoringModel, method: Method[Any]) -> None:
    """Put trained modules into training mode; frozen and kept modules into evaluation mode."""
    model.train()
    method.train()
    for name, head in model.heads.items():
        if name != config.method:
            head.eval().requires_grad_(False)
    if config.freeze == "nothing":
        return
    for module in model.backbone.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            module.eval()
    if config.freeze == "trunk":
        model.backbone.eval().requires_grad_(False)


def make_optimizer(config: TrainConfig, model: ScoringModel, method: Method[Any]) -> torch.optim.Optimizer:
    """Return the optimiser over the trained weights: the backbone unless frozen, and the method's modules."""
    if config.freeze == "trunk":
        model.backbone.requires_grad_(False)
    backbone = [p for p in model.backbone.parameters() if p.requires_grad]
    heads = dict(model.heads.items())
    of_head = list(heads[config.method].parameters()) if config.method in heads else []
    rates = method.rates()
    others = [p for name, p in method.named_parameters() if name not in rates]
    rest = [p for p in (*of_head, *others) if p.requires_grad]
    if not backbone and not rest and not rates:
        raise InputError(f"{config.method} on a frozen backbone has nothing to train; leave out --freeze")
    groups: list[dict[str, Any]] = []
    for parameters, share in ((backbone, config.backbone_lr), (rest, 1.0)):
        # no weight decay for biases and normalisation scales
        for decay, chosen in (
            (True, [p for p in parameters if p.ndim > 1]),
            (False, [p for p in parameters if p.ndim < 2]),
        ):
            if chosen:
                weight_decay = config.weight_decay if decay else 0.0
                groups.append({"params": chosen, "weight_decay": weight_decay, "share": share})
    for name, share in rates.items():
        groups.append({"params": [method.get_parameter(name)], "weight_decay": 0.0, "share": share})
    if config.optimizer == "adamw":
        return torch.optim.AdamW(groups, lr=config.lr, betas=config.betas)
    if config.optimizer == "lars":
        return LARS(groups, lr=config.lr, momentum=config.momentum)
    return torch.optim.SGD(groups, lr=config.lr, momentum=config.momentum)
