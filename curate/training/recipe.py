"""From typed options to the recipe of a training run."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

from curate.options.values import part_of, several
from curate.training.options import TrainOptions
from scoring.errors import InputError
from scoring.settings import with_settings

if TYPE_CHECKING:
    from trainers.cache import CachedFeatures
    from trainers.config import TrainConfig
    from trainers.methods.settings import Augmentation
    from trainers.start import Start


def _means(meaning: str) -> Any:
    return field(default=None, metadata={"meaning": meaning})


@dataclass(frozen=True)
class ViewSettings:
    """Augmentation of views; None for the method's default."""

    scale: float | None = _means("least share of the area in a standard view")
    jitter: float | None = _means("probability of colour jitter on a view")
    jitter_strength: float | None = _means(
        "strength of brightness, contrast and saturation jitter; a quarter of it of hue"
    )
    gray: float | None = _means("probability of a grey view")
    blur: float | None = _means("probability of blur on a view")
    blur_sigma: float | None = _means("most blur, in pixels on a side of 224")
    solarize: float | None = _means("probability that bright values of a view are inverted")
    vertical_flip: float | None = _means("probability that a view is upside down")
    corrupt: float | None = _means("probability of noise, and of a grey box, on a view")
    damage: float | None = _means("probability of a view with little content: dark, blank, blurred, tiny, ...")


@dataclass(frozen=True)
class SharedSettings(ViewSettings):
    """The settings of ``--set`` common to all methods; None is the method's default."""

    optimizer: str | None = _means("sgd, adamw or lars")
    schedule: str | None = _means(
        "constant, cosine, or steps: factors of --lr and from which share on, 0.1@0.6,0.01@0.8"
    )
    warmup: float | None = _means("share of all steps over which the rate rises")
    weight_decay: float | None = _means("weight decay")
    clip: float | None = _means("largest norm of the gradient; 0: not clipped")
    accumulate: int | None = _means("batches per step, whose gradients are averaged")
    backbone_lr: float | None = _means("the backbone's rate as a share of --lr")


@dataclass(frozen=True)
class TrainRequest(SharedSettings, TrainOptions):
    """The options of ``curate train`` with the shared settings; ``set`` has those of the method."""

    data: tuple[str, ...] = ()
    set: Mapping[str, object] = field(default_factory=dict)
    backbone_set: Mapping[str, object] = field(default_factory=dict)


AUGMENTATION = tuple(each.name for each in fields(ViewSettings))
OF_EVERY_METHOD = tuple(each.name for each in fields(SharedSettings))
OPTIONS = ("epochs", "batch_size", "lr", "seed")  # typed as options, and not by --set
# of every method, by their names in the recipe; what is left out is the method's own
SHARED = (*OPTIONS, *(name for name in OF_EVERY_METHOD if name not in AUGMENTATION))
READING = ("key", "path_column", "image_column", "root", "label_from_folder", "limit")  # how to read a source
DEFAULT_LABEL = "label"  # of --label; whether it was typed is unknown


def recipe_of(
    request: TrainRequest, start: "Start", cache: "CachedFeatures | None", *, precision: str
) -> "TrainConfig":
    """Return the recipe for the options of `curate train`.

    Args:
        request: the options of the command.
        start: the initial model; it determines the size of the views if not typed.
        cache: the cache of features, or None for images.
        precision: fp32, bf16 or fp16.

    Raises:
        InputError: for a value out of range, or an option that the method or the cache does not use.
    """
    frozen = request.freeze or cache is not None
    freeze = "trunk" if frozen else "batchnorm" if request.freeze_batchnorm else "nothing"
    shared = {name: getattr(request, name) for name in (*SHARED, *AUGMENTATION)}
    shared |= {"backbone": start.backbone, "size": start.size(request.size, frozen=frozen)}
    shared["backbone_options"] = start.options
    config = recipe(request.method, {**shared, "precision": precision, "freeze": freeze}, request.set)
    if frozen:
        _require_frozen(request, "--freeze" if request.freeze else "--cached")
    if cache is None:
        return config
    _require_no_images(request, config)
    _require_label(request.label, cache)
    fixed = {name: about.cached for name, about in config.settings.about().items() if about.is_of_views}
    return replace(config, settings=replace(config.settings, **fixed), augmentation=cache.augmentation)


def request_of(options: TrainOptions) -> TrainRequest:
    """Return the request for the options of ``curate train``, completed by the named ``recipe``.

    Raises:
        InputError: for a shared setting of another type, or a recipe that the method does not have or a cache does not
            use.
    """
    shared, of_method = split_settings(options.set)
    data = tuple(str(source) for source in several(options.data))
    request = part_of(
        TrainRequest, options, data=data, set=of_method, backbone_set=dict(options.backbone_set or {}), **shared
    )
    return request if options.recipe is None else _with_named_recipe(request, options.recipe)


def _with_named_recipe(request: TrainRequest, name: str) -> TrainRequest:
    if request.cached is not None:
        raise InputError(
            "a recipe is for images, and a cache already has its views and its network; leave --recipe out"
        )
    from trainers.named_recipes import named_recipe

    recipe = named_recipe(request.method, name)
    rest = {option: value for option, value in recipe.options.items() if getattr(request, option) is None}
    rest["set"] = {**recipe.settings, **request.set}
    if request.backbone is None:
        rest["backbone_set"] = {**recipe.backbone_set, **request.backbone_set}
    return replace(request, **rest)


def split_settings(settings: Mapping[str, object] | None) -> tuple[dict[str, Any], dict[str, object]]:
    """Return the shared settings by name, None if not set, and the method's settings.

    Raises InputError for a value of another type, or the name of an option.
    """
    if name := next((name for name in settings or {} if name in OPTIONS), None):
        raise InputError(f"{name} is an option and no setting; pass it as --{name.replace('_', '-')}")
    shared = {name: value for name, value in (settings or {}).items() if name in OF_EVERY_METHOD}
    of_method = {name: value for name, value in (settings or {}).items() if name not in shared}
    return vars(with_settings(SharedSettings, shared, name="training", what="shared part of")), of_method


def _require_frozen(request: TrainRequest, why: str) -> None:
    """Raise ``InputError`` for an option that only applies if the backbone is trained."""
    of_moving = {"--freeze-batchnorm": request.freeze_batchnorm, "--set backbone_lr": request.backbone_lr is not None}
    wrong = [option for option, is_typed in of_moving.items() if is_typed]
    if wrong:
        raise InputError(f"{wrong[0]} is for a backbone that trains, and {why} freezes it; leave one of them out")


def _require_no_images(request: TrainRequest, config: "TrainConfig") -> None:
    """Raise ``InputError`` for an option on images or views, which a cache already has."""
    wrong = [f"--set {name}" for name in AUGMENTATION if getattr(request, name) is not None]
    wrong += [
        f"--{name.replace('_', '-')}"
        for name in (*READING, "white", "stream")
        if getattr(request, name) not in (None, False)
    ]
    wrong += [f"--set {name}" for name in request.set if config.settings.about()[name].is_of_views]
    if wrong:
        raise InputError(f"{wrong[0]} is for images, and a cache already has its views; leave it out")


def _require_label(label: str, cache: "CachedFeatures") -> None:
    """Raise ``InputError`` if the label column differs from the cache's."""
    held = cache.about["columns"].get("label")
    if label not in (DEFAULT_LABEL, held):
        raise InputError(
            f"{cache.folder} holds labels from {held or 'no column'}, not from {label!r}; leave --label out, or make a "
            f"cache with curate cache ... --label {label}"
        )


def recipe(method: str, typed: Mapping[str, Any], settings: Mapping[str, object] | None = None) -> "TrainConfig":
    """Return the recipe of a method.

    Args:
        method: name of the method.
        typed: option -> value; None for the method's default.
        settings: settings of the method, name -> value, or its text as typed.

    Raises:
        InputError: for an unknown method or setting, or a value out of range.
    """
    from scoring.lookup import lookup
    from trainers.config import TrainConfig
    from trainers.methods.settings import Augmentation
    from trainers.methods.table import METHODS

    kind = lookup(METHODS, method, kind="method")
    known = {each.name for each in fields(TrainConfig)}
    if unknown := [name for name in kind.defaults if name not in known]:
        raise InputError(f"the defaults of {method} set {unknown[0]!r}, which is not one of {', '.join(sorted(known))}")
    views = augmentation(kind.defaults.get("augmentation", Augmentation()), typed)
    typed_values = {name: value for name, value in typed.items() if value is not None and name not in AUGMENTATION}
    method_settings = with_settings(kind.Settings, settings, name=method, what="method", others=OF_EVERY_METHOD)
    return TrainConfig(method, **{**kind.defaults, **typed_values, "augmentation": views, "settings": method_settings})


def augmentation(default: "Augmentation", typed: Mapping[str, Any]) -> "Augmentation":
    """Return the augmentation: typed settings, with the method's for the others.

    Args:
        default: of the method.
        typed: ``scale`` (minimal share of the area), ``blur_sigma`` (maximum) and other names of ``AUGMENTATION``;
            other names, and None, are ignored.
    """
    changes = {name: value for name, value in typed.items() if name in AUGMENTATION and value is not None}
    if "scale" in changes:
        changes["scale"] = (changes["scale"], 1.0)
    if "blur_sigma" in changes:
        changes["blur_sigma"] = (min(default.blur_sigma[0], changes["blur_sigma"]), changes["blur_sigma"])
    return replace(default, **changes)
