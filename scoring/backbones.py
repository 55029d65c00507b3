"""Feature extractors by name. The only file that imports timm, which takes longer than scoring a hundred images."""

import sys
from collections.abc import Mapping
from difflib import get_close_matches
from importlib.metadata import EntryPoint
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import torch
from torch import nn

from scoring import plugins
from scoring.backbone_options import require_options
from scoring.errors import InputError
from scoring.images.preprocessing import INTERPOLATIONS, Preprocessing
from scoring.shipped_networks import NETWORKS, SamePaddedConv
from scoring.small_networks import CIFAR_RESNETS, ENCODERS, SMALL_NETWORKS, with_small_stem

SAFE_FILE = "model.safetensors"  # name of the weights on the hub without a pickle
ANSWER = 10.0  # seconds to wait for the hub
PUBLISHED_CLASSES = 1000  # number of ImageNet classes


def stored_backbone(name: str, options: Mapping[str, Any] | None = None) -> nn.Module:
    """Return ``create_backbone`` for weights to be loaded, without timm for the shipped models."""
    return NETWORKS[name]() if name in NETWORKS and not options else create_backbone(name, options=dict(options or {}))


def create_backbone(name: str, *, pretrained: bool = False, options: dict[str, Any] | None = None) -> nn.Module:
    """Return a timm model without its classifier: images (N, 3, H, W) -> features (N, D).

    Args:
        name: any timm model name, such as ``resnet18`` or ``vit_small_patch16_224.dino``, a name in
            ``SMALL_NETWORKS``, or one that another package adds (``scoring.plugins``).
        pretrained: download the published weights, or read them from the cache.
        options: further keywords of ``timm.create_model``, such as ``{"in_chans": 3}``.

    Raises:
        InputError: if timm knows no such model, or the weights are not available.
    """
    if name in SMALL_NETWORKS:
        return _small_network(name, pretrained, options or {})
    import timm

    if not timm.is_model(name.split(".")[0]):
        added = plugins.plugins(plugins.BACKBONES)
        if not pretrained and name in added:
            return _plugin_backbone(added[name], options or {})
        close = get_close_matches(name, [*added, *timm.list_models()], n=3)
        hint = f"; close names: {', '.join(close)}" if close else ""
        every = "python -c 'import timm; print(*timm.list_models())'"
        raise InputError(
            f"timm {timm.__version__} has no model {name!r}{hint}; all of them: {every}; no installed package adds it"
        )
    _require_tag(name)
    try:
        on_disk = fetched_before(name) if pretrained else {}
        return timm.create_model(name, pretrained=pretrained, num_classes=0, **on_disk, **(options or {}))
    except (AssertionError, TypeError, ValueError) as error:
        raise InputError(f"timm cannot build {name!r} with options {options or {}}: {error}") from None
    except (OSError, RuntimeError) as error:
        if not pretrained:
            raise
        if "size mismatch" in str(error) or "Error(s) in loading" in str(error):
            raise InputError(
                f"the published weights of {name!r} have another shape than {options}; leave out --backbone-set, or "
                "train from random weights (NAME without timm:)"
            ) from None
        text = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(
            f"the published weights of {name!r} could not be fetched ({text}); "
            "check the network, or use a local file of weights (timm:NAME@FILE.safetensors)"
        ) from None


def _small_network(name: str, pretrained: bool, options: Mapping[str, Any]) -> nn.Module:
    if pretrained:
        raise InputError(f"there are no published weights of {name!r}; start from random ones (without timm:)")
    known = ("img_size",) if name in ENCODERS else ()
    unknown = [option for option in options if option not in known]
    if unknown:
        raise InputError(f"{name} has no option {unknown[0]!r} (its options: {', '.join(known) or 'none'})")
    if name in ENCODERS:
        return ENCODERS[name](**options)
    import timm

    return with_small_stem(timm.create_model(CIFAR_RESNETS[name], num_classes=0))


def _plugin_backbone(point: EntryPoint, options: Mapping[str, Any]) -> nn.Module:
    made = plugins.load_plugin(point)(**options)
    if not isinstance(made, nn.Module) or not isinstance(getattr(made, "num_features", None), int):
        raise InputError(f"the plug-in {point.name!r} is not a backbone: expected a module with num_features")
    return made


def timm_hint(name: str) -> str:
    """Return how to name timm's model of this or a similar name, for a message; else an empty text.

    >>> timm_hint("resnet50"), timm_hint("resnet5O"), timm_hint("nothing like it")
    ("; timm has it: 'timm:resnet50'", "; did you mean 'timm:resnet50'?", '')
    """
    import timm

    architecture, _, tag = name.partition(".")
    if timm.is_model(architecture):
        return f"; timm has it: 'timm:{name}'"
    close = get_close_matches(architecture.lower(), timm.list_models(), n=1, cutoff=0.75)
    return f"; did you mean 'timm:{close[0]}{tag and '.'}{tag}'?" if close else ""


def _require_tag(name: str) -> None:
    """Raise ``InputError`` if timm has no pretrained weights with this tag for the architecture."""
    import timm

    try:
        timm.get_pretrained_cfg(name)
    except RuntimeError:
        known = ", ".join(timm.list_pretrained(f"{name.split('.')[0]}.*")) or "none"
        raise InputError(f"timm {timm.__version__} knows no weights {name!r} (known: {known})") from None


def fetched_before(name: str) -> dict[str, Any]:
    """Return the option with which timm reads cached pretrained weights; empty if it must download them.

    Raises:
        OSError: if they are not cached and their host does not answer; timm would wait for a minute.
    """
    import timm
    from huggingface_hub import constants, try_to_load_from_cache

    record = timm.get_pretrained_cfg(name)
    place = getattr(record, "hf_hub_id", None)
    if not place or getattr(record, "hf_hub_filename", None):
        return {}
    cached = try_to_load_from_cache(place, SAFE_FILE)
    if isinstance(cached, str):
        return {"pretrained_cfg_overlay": {"file": cached}}
    request = Request(constants.ENDPOINT, method="HEAD")  # noqa: S310  (https, or what the user's environment says)
    try:
        with urlopen(request, timeout=ANSWER):  # noqa: S310
            return {}
    except HTTPError:  # the hub answers
        return {}
    except URLError as error:
        raise OSError(f"{constants.ENDPOINT} does not answer: {error.reason}") from None


def published_licence(backbone: nn.Module) -> str:
    """Return the licence that timm records for a model's pretrained weights."""
    record = getattr(backbone, "pretrained_cfg", None) or {}
    return str(record.get("license") or "not stated")


def size_options(name: str, size: int | None) -> dict[str, Any]:
    """Return the timm options for an input size; None is the size of the published weights.

    Convolutional networks read any size. Transformers are built for one size; most in timm also read others with
    ``dynamic_img_size``.
    """
    if name in SMALL_NETWORKS:
        return {"img_size": size} if name in ENCODERS and size else {}
    import timm

    config = timm.get_pretrained_cfg(name) if timm.is_model(name.split(".")[0]) else None
    if config is None or not config.fixed_input_size:
        return {}
    size = size or config.input_size[-1]
    options: dict[str, Any] = {"img_size": size, "dynamic_img_size": True}
    try:
        with torch.device("meta"):
            timm.create_model(name, num_classes=0, **options)
    except TypeError:
        return {"img_size": size}
    return options


def published_preprocessing(backbone: nn.Module, size: int | None = None) -> Preprocessing:
    """Return the preprocessing of timm's pretrained weights for a model.

    Args:
        backbone: from ``create_backbone``.
        size: side of the input in pixels; by default the size of the pretrained weights. The resize before the crop
            scales with it.

    Raises:
        InputError: if ``Preprocessing`` cannot express timm's record, such as images that are not square.
    """
    import timm

    record = timm.data.resolve_model_data_config(backbone)
    channels, height, width = record["input_size"]
    if channels != 3 or height != width:
        raise InputError(
            f"its weights are for images of {channels} x {height} x {width}; expected 3 x N x N, use another"
        )
    side = size or height
    interpolation = record["interpolation"] if record["interpolation"] in INTERPOLATIONS else INTERPOLATIONS[0]
    # timm resizes the short side to floor(size / crop_pct), then cuts the middle out
    return Preprocessing(
        size=side,
        resize=max(side, int(side / record["crop_pct"])),
        interpolation=interpolation,
        mean=record["mean"],
        std=record["std"],
    )


def published_shapes(name: str, options: Mapping[str, Any] | None = None) -> dict[str, torch.Size]:
    """Return the shapes of a model's pretrained weights with the classifier: name -> shape, in order."""
    require_options(options or {})
    with torch.device("meta"):
        if name in NETWORKS and not options:
            model: nn.Module = NETWORKS[name](classes=PUBLISHED_CLASSES)
        else:
            import timm

            model = timm.create_model(name, **(options or {}))
    return {key: value.shape for key, value in model.state_dict().items()}


def pads_same(conv: nn.Conv2d) -> bool:
    """Return whether a convolution pads as in TensorFlow, depending on the input size."""
    layers = sys.modules.get("timm.layers")  # None if timm was not imported, so the network is not timm's
    return isinstance(conv, SamePaddedConv) or (layers is not None and isinstance(conv, layers.Conv2dSame))


def synchronize_batchnorm(backbone: nn.Module) -> nn.Module:
    """Return a network with its weights and batch normalisation synchronised over all processes, on GPUs."""
    from timm.layers import convert_sync_batchnorm

    return convert_sync_batchnorm(backbone)


def feature_width(backbone: nn.Module) -> int:
    """Return D, the width of the backbone's output for one image."""
    width = getattr(backbone, "head_hidden_size", None) or backbone.num_features
    return int(width)  # type: ignore[arg-type]


def canonical_name(backbone: nn.Module) -> str | None:
    """Return timm's current name of a model with the tag of its weights; None if unknown."""
    record = getattr(backbone, "pretrained_cfg", None) or {}
    architecture, tag = record.get("architecture"), record.get("tag")
    return f"{architecture}.{tag}" if architecture and tag else architecture


def classifier_names(backbone: nn.Module) -> tuple[str, ...]:
    """Return the names of classification layers in timm's weights, which our backbones lack."""
    names = (getattr(backbone, "pretrained_cfg", None) or {}).get("classifier") or ()
    return (names,) if isinstance(names, str) else tuple(names)
