"""A convolutional backbone as a CPU runs it fastest: normalisation folded in, an activation in its convolution.

Folding is done in float32; in bfloat16 the sums are rounded to it once. Weights are laid out for the processor at load
instead of at each call. Each step is checked against the backbone as it was on an image of noise; a backbone with
anything but convolutions, batch normalisation and pooling, or whose check fails, is left alone, and in bfloat16 runs
under autocast.
"""

import copy
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_weights

from scoring.backbones import pads_same
from scoring.model import ScoringModel
from scoring.quick import STEP, QuickTrunks, with_quick
from scoring.shipped_networks import same_padding

ALIKE = 1e-3  # relative error of features that folding may make, in float32
NEAR = 0.1  # and bfloat16 after it; EfficientNet-Lite0 0.026, trio 0.011 (autocast: the same)
FUSED: dict[type[nn.Module], tuple[str, list[float]]] = {
    nn.ReLU: ("relu", []),
    nn.ReLU6: ("hardtanh", [0.0, 6.0]),
    nn.SiLU: ("swish", []),
}


def has_bfloat16() -> bool:
    """Return whether this CPU multiplies in bfloat16; others only convert it, which gains nothing."""
    able = torch.cpu.get_capabilities()
    return any(able.get(name) for name in ("avx512_bf16", "amx_bf16", "amx_tile", "bf16"))


def for_inference(model: ScoringModel, device: torch.device, precision: str) -> ScoringModel:
    """Return a model with the same heads that gives the same scores sooner, or the model itself where none is known.

    Args:
        model: in evaluation mode, channels last, on the device.
        device: where it runs.
        precision: ``fp32``, or ``bf16``, for which nothing changes on a CPU without it.
    """
    if device.type != "cpu" or (precision == "bf16" and not has_bfloat16()) or model.dropouts():
        return model
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    size = model.spec.preprocessing.size
    fast = [_fast(part.trunk, size // part.pool, dtype) for part in model.trunks()]
    if not any(isinstance(one, PackedTrunk) for one in fast):
        return model
    return with_quick(model, QuickTrunks(model, fast))


def _fast(trunk: nn.Module, size: int, dtype: torch.dtype) -> nn.Module:
    """Return a backbone with packed convolutions that reads images of ``size``, or the backbone as it is."""
    generator = torch.Generator().manual_seed(0)
    with torch.inference_mode(False), torch.no_grad():  # inference tensors count no changes in place
        picture = torch.randn(1, 3, size, size, generator=generator).contiguous(memory_format=torch.channels_last)
        expected = trunk(picture)
        folded = folded_alike(trunk, picture)
        if folded is None:
            return trunk
        try:
            fast = PackedTrunk(folded, picture, dtype)
            most = NEAR if dtype == torch.bfloat16 else ALIKE
            return fast if relative_error(fast(picture), expected) <= most else trunk
        except (
            AttributeError,
            RuntimeError,
            TypeError,
            ValueError,
        ):  # a processor, a torch or a layer that this is not for
            return trunk


def folded_alike(trunk: nn.Module, picture: Tensor) -> nn.Module | None:
    """Return what ``fold_batchnorm`` does, or None too where the features of an image come out otherwise."""
    folded = fold_batchnorm(trunk, picture)
    return folded if folded is not None and relative_error(folded(picture), trunk(picture)) <= ALIKE else None


def relative_error(found: Tensor, expected: Tensor) -> float:
    """Return the length of the difference over that of what was expected."""
    return float((found.float() - expected).norm() / expected.norm().clamp(min=1e-12))


def followers(trunk: nn.Module, picture: Tensor, kinds: tuple[type[nn.Module], ...]) -> list[tuple[Any, Any]]:
    """Return (convolution, module of ``kinds``) wherever the one reads the very tensor that the other gave.

    That nothing else reads it is not seen here: what is made of it has to be compared with what it was.
    """
    given: dict[int, tuple[nn.Module, Tensor, int]] = {}  # the tensors are held, so that no number is used twice
    pairs: list[tuple[Any, Any]] = []

    def gave(module: nn.Module, _: Any, out: Tensor) -> None:
        given[id(out)] = (module, out, out._version)

    def reads(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        conv, out, version = given.get(id(inputs[0]), (module, inputs[0], -1))
        if out._version == version:  # nothing was added to it in place
            pairs.append((conv, module))

    hooks = [one.register_forward_hook(gave) for one in trunk.modules() if isinstance(one, nn.Conv2d)]
    hooks += [one.register_forward_pre_hook(reads) for one in trunk.modules() if isinstance(one, kinds)]
    try:
        trunk(picture)
    finally:
        for hook in hooks:
            hook.remove()
    return pairs


def replace_modules(trunk: nn.Module, change: Callable[[nn.Module], nn.Module]) -> None:
    """Put ``change(module)`` instead of each module inside a backbone; one used in two places stays one."""
    for parent in list(trunk.modules()):
        for name, child in list(parent.named_children()):
            parent._modules[name] = change(child)


def fold_batchnorm(trunk: nn.Module, picture: Tensor) -> nn.Module | None:
    """Return a copy whose convolutions do what the batch normalisation after them did, in float32.

    None if a normalisation follows no convolution, or anything else in the backbone has weights.
    """
    trunk = copy.deepcopy(trunk).eval()
    pairs = followers(trunk, picture, (nn.BatchNorm2d,))
    convolutions = {id(conv) for conv, _ in pairs}
    if len(convolutions) != len(pairs) or len({id(norm) for _, norm in pairs}) != len(pairs):
        return None
    for conv, norm in pairs:
        weight, bias = fuse_conv_bn_weights(
            conv.weight,
            conv.bias,
            norm.running_mean,
            norm.running_var,
            norm.eps,
            norm.weight,
            norm.bias,
        )
        conv.weight, conv.bias = nn.Parameter(weight.detach(), False), nn.Parameter(bias.detach(), False)
    after = {id(norm): getattr(norm, "act", nn.Identity()) for _, norm in pairs}  # timm's norms hold an activation
    replace_modules(trunk, lambda module: after.get(id(module), module))
    of_convolutions = {id(p) for one in trunk.modules() if isinstance(one, nn.Conv2d) for p in one.parameters()}
    return trunk if all(id(value) in of_convolutions for value in trunk.parameters()) else None


class PackedTrunk(nn.Module):
    """A folded backbone whose convolutions run packed; pooling and what comes after it run in float32.

    Args:
        trunk: from ``fold_batchnorm``; taken over, not copied.
        picture: of the size that it will read, (1, 3, S, S), float32.
        dtype: of the convolutions, bfloat16 or float32.
    """

    def __init__(self, trunk: nn.Module, picture: Tensor, dtype: torch.dtype) -> None:
        super().__init__()
        self.dtype = dtype
        self.num_features, self.head_hidden_size = trunk.num_features, getattr(trunk, "head_hidden_size", None)
        sides: dict[int, torch.Size] = {}
        hooks = [
            one.register_forward_pre_hook(lambda module, inputs: sides.__setitem__(id(module), inputs[0].shape))
            for one in trunk.modules()
            if isinstance(one, nn.Conv2d)
        ]
        acts = {id(conv): act for conv, act in followers(trunk, picture, tuple(FUSED))}
        for hook in hooks:
            hook.remove()
        gone = {id(act) for act in acts.values()}
        made = {
            id(conv): PackedConv(conv, acts.get(id(conv)), sides[id(conv)], dtype)
            for conv in trunk.modules()
            if isinstance(conv, nn.Conv2d) and id(conv) in sides
        }
        replace_modules(trunk, lambda module: nn.Identity() if id(module) in gone else made.get(id(module), module))
        self.trunk: Any = trunk

    def forward(self, pictures: Tensor) -> Tensor:
        """Return features, shape (N, D), float32, of what the backbone reads, (N, 3, S, S)."""
        read = pictures.to(self.dtype, memory_format=torch.channels_last)
        with torch.autocast("cpu", enabled=False):  # each layer has its precision
            return self.trunk.forward_head(self.trunk.forward_features(read).float(), pre_logits=True)


class PackedConv(nn.Module):
    """A convolution with its activation, its weights laid out for this processor.

    TensorFlow's padding, one more pixel at the far side than at the near one, would need a copy of the whole map. A
    row and a column of zeros before the kernel's own take its place, and the padding is the same at both sides.
    """

    def __init__(self, conv: nn.Conv2d, act: nn.Module | None, shape: torch.Size, dtype: torch.dtype) -> None:
        super().__init__()
        self.shape = shape[1:]
        padding, weight = list(conv.padding), conv.weight.detach()
        if pads_same(conv):
            totals = [same_padding(shape[2 + i], conv.kernel_size[i], conv.stride[i], conv.dilation[i]) for i in (0, 1)]
            if any(one % 2 for one in totals) and (totals[0] % 2 != totals[1] % 2 or conv.dilation != (1, 1)):
                raise ValueError("a padding that no row of zeros can take the place of")
            odd = totals[0] % 2
            weight, padding = F.pad(weight, (odd, 0, odd, 0)), [(one + odd) // 2 for one in totals]
        self.conv = (padding, list(conv.stride), list(conv.dilation), conv.groups)
        self.act, self.numbers = ("none", []) if act is None else FUSED[type(act)]
        weight = weight.to(dtype).contiguous(memory_format=torch.channels_last)
        self.weight = torch.ops.mkldnn._reorder_convolution_weight(weight, *self.conv, [STEP, *self.shape])
        self.bias = None if conv.bias is None else conv.bias.detach().to(dtype)

    def forward(self, x: Tensor) -> Tensor:
        """Return (N, C', H', W') of (N, C, H, W), both of its dtype."""
        if x.shape[1:] != self.shape:
            raise ValueError(f"a convolution laid out for {tuple(self.shape)} got {tuple(x.shape[1:])}")
        return torch.ops.mkldnn._convolution_pointwise(
            x, self.weight, self.bias, *self.conv, self.act, self.numbers, ""
        )
