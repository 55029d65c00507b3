"""What was typed -> the recipe of a training run."""

from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from scoring.errors import InputError

if TYPE_CHECKING:
    from trainers.cache import CachedFeatures
    from trainers.config import Augmentation, TrainConfig
    from trainers.start import Start

# option -> the section of the recipe and the field that it sets; the section names the methods that read it
SECTIONS: dict[str, tuple[str, str]] = {
    "kappa": ("contrastive", "kappa"),
    "positives": ("contrastive", "positives"),
    "negatives": ("contrastive", "negatives"),
    "samples": ("contrastive", "samples"),
    "kappa_pos": ("contrastive", "kappa_pos"),
    "phases": ("contrastive", "phases"),
    "form": ("losspred", "form"),
    "task": ("losspred", "task"),
    "margin": ("losspred", "margin"),
    "within": ("losspred", "within"),
    "weight": ("losspred", "weight"),
    "folds": ("losspred", "folds"),
    "stop_gradient": ("losspred", "stop_gradient"),
    "loss_column": ("losspred", "loss_column"),
}
METHODS_OF = {"contrastive": ("mcinfonce", "infonce", "hib", "elk"), "losspred": ("losspred",)}
AUGMENTATION = ("scale", "jitter", "gray", "blur", "blur_sigma", "corrupt")


def recipe_of(
    typed: dict[str, Any], start: "Start", cache: "CachedFeatures | None", *, precision: str
) -> "TrainConfig":
    """Return the recipe of what was typed at `curate train`.

    Args:
        typed: every parameter of the command by name.
        start: where the run begins; it decides the size of the views where none was typed.
        cache: where features come from, or None for images; a cache has its views already.
        precision: fp32 or bf16.

    Raises:
        InputError: for a value out of range, or an option that the method, or a cache, does not read.
    """
    from trainers.config import TrainConfig

    known = {field.name for field in fields(TrainConfig)} | {*SECTIONS, *AUGMENTATION}
    values = {name: value for name, value in typed.items() if name in known and name not in ("method", "freeze")}
    frozen = typed["freeze"] or cache is not None
    freeze = "trunk" if frozen else "batchnorm" if typed["freeze_batchnorm"] else "nothing"
    size = start.size(typed["size"], frozen=frozen)
    values |= {"backbone": start.backbone, "size": size, "precision": precision, "freeze": freeze}
    if cache is None:
        return recipe(typed["method"], values)
    of_images = [*AUGMENTATION, "small_size", "n_small", "freeze_batchnorm", "trunk_lr", "limit"]
    wrong = [name for name in of_images if typed[name] not in (None, False)]
    if wrong:
        raise InputError(
            f"--{wrong[0].replace('_', '-')} is for images, and a cache has its views already; leave it out"
        )
    config = recipe(typed["method"], {**values, "n_small": 0})
    return replace(config, augmentation=cache.augmentation)


def recipe(method: str, typed: dict[str, Any]) -> "TrainConfig":
    """Return the recipe of a method.

    Args:
        method: a name out of the table of methods.
        typed: option -> value; None where it was not typed, and the method's own default holds.

    Raises:
        InputError: for a value out of range, or an option that the method does not read.
    """
    from trainers.config import Augmentation, Contrastive, LossPrediction, TrainConfig
    from trainers.methods import METHODS

    own: dict[str, Any] = dict(METHODS[method].defaults)
    sections: dict[str, Any] = {"contrastive": Contrastive(), "losspred": LossPrediction()}
    given = {name: value for name, value in typed.items() if value is not None}
    own["augmentation"] = augmentation(own.get("augmentation", Augmentation()), given)
    for section, blank in sections.items():
        fields = {
            SECTIONS[name][1]: given.pop(name) for name in list(given) if SECTIONS.get(name, "")[:1] == (section,)
        }
        if fields and method not in METHODS_OF[section]:
            option = next(name for name, place in SECTIONS.items() if place == (section, next(iter(fields))))
            readers = ", ".join(METHODS_OF[section])
            raise InputError(f"--{option.replace('_', '-')} is of {readers}; {method} does not read it, leave it out")
        own[section] = replace(own.get(section, blank), **fields)
    return TrainConfig(method=method, **{**own, **{k: v for k, v in given.items() if k not in AUGMENTATION}})


def augmentation(own: "Augmentation", typed: dict[str, Any]) -> "Augmentation":
    """Return how views are drawn: what was typed in place of a method's own.

    Args:
        own: of the method.
        typed: ``scale`` (least share of the area), ``jitter``, ``gray``, ``blur``, ``corrupt`` (chances) and
            ``blur_sigma`` (most); others, and None, are passed over.
    """
    changes = {name: value for name, value in typed.items() if name in AUGMENTATION and value is not None}
    if "scale" in changes:
        changes["scale"] = (changes["scale"], 1.0)
    if "blur_sigma" in changes:
        changes["blur_sigma"] = (own.blur_sigma[0], changes["blur_sigma"])
    return replace(own, **changes)
