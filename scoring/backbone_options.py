"""Options that shape the network of a timm model."""

import json
from collections.abc import Mapping
from typing import Any

from scoring.errors import InputError

# keywords of timm's that only shape a network, and the values that they take: words, whether, or from one number to
# another; its other keywords read files or the network
BACKBONE_OPTIONS: dict[str, tuple[Any, ...]] = {
    "in_chans": (1, 64),
    "img_size": (1, 1 << 15),
    "dynamic_img_size": (False, True),
    "output_stride": (1, 64),
    "patch_size": (1, 512),
    "embed_dim": (1, 1 << 14),
    "depth": (1, 256),
    "num_heads": (1, 256),
    "mlp_ratio": (0.01, 64.0),
    "reg_tokens": (0, 256),
    "init_values": (0.0, 10.0),
    "qkv_bias": (False, True),
    "class_token": (False, True),
    "stem_width": (1, 4096),
    "stem_type": ("deep", "deep_tiered"),
    "replace_stem_pool": (False, True),
    "base_width": (1, 4096),
    "cardinality": (1, 4096),
    "avg_down": (False, True),
    "zero_init_last": (False, True),
    "drop_rate": (0.0, 0.99),
    "drop_path_rate": (0.0, 0.99),
    "proj_drop_rate": (0.0, 0.99),
    "attn_drop_rate": (0.0, 0.99),
    "global_pool": ("avg", "max", "token"),
    "act_layer": ("relu", "gelu", "silu", "leaky_relu", "elu", "tanh", "mish"),
}


def require_options(options: Mapping[str, Any]) -> None:
    """Raise ``ValueError`` for options out of bounds or that do not shape the network (others make timm read files)."""
    for name, value in options.items():
        if name not in BACKBONE_OPTIONS:
            raise ValueError(f"backbone option {name}={value!r} is not one of {', '.join(BACKBONE_OPTIONS)}")
        allowed = BACKBONE_OPTIONS[name]
        if isinstance(allowed[0], str | bool):
            fits = value in allowed and type(value) is type(allowed[0])
            values = ", ".join(str(choice).lower() for choice in allowed)
        else:
            least, most = allowed
            is_number = type(value) is int or (type(value) is float and isinstance(least, float))
            fits, values = is_number and least <= value <= most, f"between {least:,} and {most:,}"
        if not fits:
            raise ValueError(f"backbone option {name} takes {values}, got {value!r}")


def parse_backbone_options(settings: Mapping[str, object]) -> dict[str, Any]:
    """Return the values of ``--backbone-set`` by name, as typed or in Python, with the type of each option.

    Raises:
        InputError: for an unknown option, or a value that it does not take.

    >>> parse_backbone_options({"depth": "4", "drop_path_rate": 0.1, "class_token": "false"})
    {'depth': 4, 'drop_path_rate': 0.1, 'class_token': False}
    """
    options: dict[str, Any] = {}
    for name, value in settings.items():
        text = str(value).lower() if isinstance(value, bool) else str(value)
        try:
            options[name] = json.loads(text)  # a number, true or false
        except (ValueError, RecursionError):
            options[name] = text
    try:
        require_options(options)
    except ValueError as error:
        raise InputError(f"{error}; choose another --backbone-set") from None
    return options
