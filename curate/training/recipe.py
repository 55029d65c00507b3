"""What was typed -> the recipe of a training run."""

from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from scoring.errors import InputError

if TYPE_CHECKING:
    from trainers.cache import CachedFeatures
    from trainers.config import Augmentation, TrainConfig
    from trainers.start import Start

SIAMESE = ("visimsiam", "simsiam")
CONTRASTIVE = ("mcinfonce", "infonce", "hib", "elk")
WITH_KAPPA = ("mcinfonce", "hib", "elk")
# option -> the section of the recipe that has it, by the same name, and the methods that read it
SECTIONS: dict[str, tuple[str, tuple[str, ...]]] = {
    "kappa": ("contrastive", WITH_KAPPA),
    "positives": ("contrastive", CONTRASTIVE),
    "negatives": ("contrastive", CONTRASTIVE),
    "samples": ("contrastive", ("mcinfonce", "hib")),
    "kappa_pos": ("contrastive", ("mcinfonce", "infonce", "elk")),
    "phases": ("contrastive", WITH_KAPPA),
    "denominator": ("contrastive", ("mcinfonce", "infonce", "elk")),
    "cross": ("contrastive", ("mcinfonce",)),
    **dict.fromkeys(
        ("form", "task", "margin", "within", "weight", "folds", "stop_gradient", "loss_column"),
        ("losspred", ("losspred",)),
    ),
}
# option -> the methods that read it, of the recipe itself; what is neither here nor above is read by all
OWN: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("small_size", "n_small", "predictor", "predictor_every"), SIAMESE),
    **dict.fromkeys(("latent_dim", "hidden_dim"), (*SIAMESE, *CONTRASTIVE)),
}
DEFAULT_LABEL = "label"  # of --label; nobody can tell whether it was typed
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
    config = recipe(typed["method"], values)
    if frozen:
        _require_frozen(typed, "--freeze" if typed["freeze"] else "--cached")
    if cache is None:
        return config
    of_images = [*AUGMENTATION, "small_size", "n_small", "limit", "label_from_folder"]
    wrong = [name for name in of_images if typed[name] not in (None, False)]
    if wrong:
        raise InputError(
            f"--{wrong[0].replace('_', '-')} is for images, and a cache has its views already; leave it out"
        )
    _require_label(typed["label"], cache)
    return replace(config, n_small=0, augmentation=cache.augmentation)


def _require_frozen(typed: dict[str, Any], why: str) -> None:
    """Raise ``InputError`` for an option that is about a backbone that moves."""
    of_moving = {
        "--freeze-batchnorm": typed["freeze_batchnorm"],
        "--trunk-lr": typed["trunk_lr"] is not None,
        "--no-stop-gradient": typed["stop_gradient"] is False,
    }
    wrong = [option for option, is_there in of_moving.items() if is_there]
    if wrong:
        raise InputError(f"{wrong[0]} is for a backbone that moves, and {why} holds it as it is; leave one of them out")


def _require_label(label: str, cache: "CachedFeatures") -> None:
    """Raise ``InputError`` if a column of labels was typed that is not the one in the cache."""
    held = cache.about["columns"].get("label")
    if label not in (DEFAULT_LABEL, held):
        raise InputError(
            f"{cache.folder} holds labels from {held or 'no column'}, not from {label!r}; leave --label out, or make a "
            f"cache with curate cache ... --label {label}"
        )


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
    typed_of: dict[str, dict[str, Any]] = {section: {} for section in sections}
    for option in [name for name in given if name in SECTIONS or name in OWN]:
        section, readers = SECTIONS[option] if option in SECTIONS else ("", OWN[option])
        if method not in readers:
            raise InputError(
                f"--{option.replace('_', '-')} is of {', '.join(readers)}; {method} does not read it, leave it out"
            )
        if section:
            typed_of[section][option] = given.pop(option)
    for section, blank in sections.items():
        own[section] = replace(own.get(section, blank), **typed_of[section])
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
        changes["blur_sigma"] = (min(own.blur_sigma[0], changes["blur_sigma"]), changes["blur_sigma"])
    return replace(own, **changes)
