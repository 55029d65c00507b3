"""Faster convolutional backbones on a CPU: batch normalisation and activation folded into convolutions.

Folding is done in float32, then rounded once for bfloat16. Weights are packed for the processor when the model is
loaded. Each step is compared with the original backbone on an image of noise; a backbone with other layers than
convolutions, batch normalisation and pooling, or that fails the check, stays unchanged, and in bfloat16 runs under
autocast.

Pixels are normalised in one pass instead of four, which took a fifth of the time of a small model on a CPU. Images are
run in steps that fit the processor's cache.
"""

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_weights

from scoring.backbones import pads_same
from scoring.joined_backbone import JoinedBackbone
from scoring.model import ScoringModel
from scoring.shipped_networks import same_padding

STEP = 32  # images; of 8 to 64 the fastest for small backbones, and level for large ones
ALIKE = 1e-3  # relative error of features that folding may make, in float32
NEAR = 0.1  # relative error allowed in bfloat16; EfficientNet-Lite0 has 0.026, trio 0.011 (autocast: the same)
FUSED: dict[type[nn.Module], tuple[str, list[float]]] = {
    nn.ReLU: ("relu", []),
    nn.ReLU6: ("hardtanh", [0.0, 6.0]),
    nn.SiLU: ("swish", []),
}


def with_quick(model: ScoringModel, quick: nn.Module) -> ScoringModel:
    """Return a copy of a model whose features come from ``quick``: pixels (N, 3, S, S) -> features (N, D), float32."""
    faster = copy.copy(model)
    faster._modules = {**model._modules, "quick": quick, "backbone": _without_weights(model.backbone)}
    return faster


def _without_weights(backbone: nn.Module) -> nn.Module:
    """Return the layers from features to embeddings, without the weights of the backbones."""
    if not isinstance(backbone, JoinedBackbone):
        return nn.Identity()
    light = copy.copy(backbone)
    light._modules = {**backbone._modules, "parts": nn.ModuleList()}
    return light


class BackboneInputs(nn.Module):
    """Compute each backbone's input, (N, 3, S/k, S/k), float32, from pixel values in [0, 255], (N, 3, S, S)."""

    def __init__(self, model: ScoringModel) -> None:
        super().__init__()
        self.pools, self.affine = [], []
        device = model.mean.device
        for part in model.backbone_parts():
            side = model.spec.preprocessing.size // part.pool
            self.pools.append(part.pool)
            self.affine.append((_expanded(part.scale.to(device), side), _expanded(part.shift.to(device), side)))

    def forward(self, pixels: Tensor) -> list[Tensor]:
        """Return one normalised tensor per backbone, channels last."""
        values = pixels.to(torch.float32, memory_format=torch.channels_last)
        inputs = []
        for pool, (scale, shift) in zip(self.pools, self.affine, strict=True):
            seen = F.avg_pool2d(values, pool) if pool > 1 else values
            inputs.append(torch.addcmul(shift, seen, scale))
        return inputs


def _expanded(channels: Tensor, side: int) -> Tensor:
    """Expand three values to (1, 3, S, S), channels last, so that sums run over whole rows."""
    return channels.view(1, 3, 1, 1).expand(1, 3, side, side).contiguous(memory_format=torch.channels_last)


class QuickBackbones(nn.Module):
    """The backbones of a model for any runtime: pixel values in [0, 255], (N, 3, S, S) -> features (N, D), float32.

    Args:
        model: whose backbones are replaced.
        backbones: one for each of the model's, (N, 3, S/k, S/k) -> pooled features.
        step: images run at once.
        padded: pad smaller batches to ``step`` images, for runtimes with a fixed batch size.
    """

    def __init__(
        self, model: ScoringModel, backbones: Sequence[nn.Module], *, step: int = STEP, padded: int = 1
    ) -> None:
        super().__init__()
        self.step, self.padded = step, padded
        self.inputs = BackboneInputs(model)
        self.backbones = nn.ModuleList(backbones)
        self.all = _without_weights(model.backbone)

    def forward(self, pixels: Tensor) -> Tensor:
        """Return the features, shape (N, D), float32."""
        pooled = torch.cat([self._pooled(part) for part in pixels.split(self.step)])
        return self.all.standardize(pooled) if isinstance(self.all, JoinedBackbone) else pooled

    def _pooled(self, pixels: Tensor) -> Tensor:
        return torch.cat(
            [backbone(seen).float() for backbone, seen in zip(self.backbones, self.inputs(pixels), strict=True)], dim=1
        )


def has_bfloat16() -> bool:
    """Return whether this CPU multiplies in bfloat16; others only convert it, without a gain."""
    able = torch.cpu.get_capabilities()
    return any(able.get(name) for name in ("avx512_bf16", "amx_bf16", "amx_tile", "bf16"))


def for_inference(model: ScoringModel, device: torch.device, precision: str) -> ScoringModel:
    """Return a faster model with the same heads and scores, or the model itself if none is known.

    Args:
        model: in evaluation mode, channels last, on ``device``.
        device: the model is only changed on a CPU.
        precision: ``fp32`` or ``bf16``; ``bf16`` changes nothing on a CPU without it.
    """
    if device.type != "cpu" or (precision == "bf16" and not has_bfloat16()) or model.dropouts():
        return model
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    size = model.spec.preprocessing.size
    fast = [_with_packed_convolutions(part.backbone, size // part.pool, dtype) for part in model.backbone_parts()]
    if not any(isinstance(module, PackedBackbone) for module in fast):
        return model
    return with_quick(model, QuickBackbones(model, fast))


def _with_packed_convolutions(backbone: nn.Module, size: int, dtype: torch.dtype) -> nn.Module:
    """Return a backbone with packed convolutions for images of ``size``, or the backbone unchanged."""
    generator = torch.Generator().manual_seed(0)
    with torch.inference_mode(False), torch.no_grad():  # inference tensors have no version counter
        image = torch.randn(1, 3, size, size, generator=generator).contiguous(memory_format=torch.channels_last)
        expected = backbone(image)
        folded = folded_alike(backbone, image)
        if folded is None:
            return backbone
        try:
            fast = PackedBackbone(folded, image, dtype)
            most = NEAR if dtype == torch.bfloat16 else ALIKE
            return fast if relative_error(fast(image), expected) <= most else backbone
        except (AttributeError, RuntimeError, TypeError, ValueError):  # unsupported processor, torch version or layer
            return backbone


def folded_alike(backbone: nn.Module, image: Tensor) -> nn.Module | None:
    """Return the result of ``fold_batchnorm``; None if it changes the features of an image."""
    folded = fold_batchnorm(backbone, image)
    return folded if folded is not None and relative_error(folded(image), backbone(image)) <= ALIKE else None


def relative_error(features: Tensor, expected: Tensor) -> float:
    """Return the norm of the difference over the norm of the expected features."""
    return float((features.float() - expected).norm() / expected.norm().clamp(min=1e-12))


def followers(backbone: nn.Module, image: Tensor, kinds: tuple[type[nn.Module], ...]) -> list[tuple[Any, Any]]:
    """Return (convolution, module of ``kinds``) wherever the module reads the convolution's output.

    Other readers of that output are not detected: compare the changed backbone with the original.
    """
    producers: dict[int, tuple[nn.Module, Tensor, int]] = {}  # keeps the tensors, so that no id is reused
    pairs: list[tuple[Any, Any]] = []

    def gave(module: nn.Module, _: Any, out: Tensor) -> None:
        producers[id(out)] = (module, out, out._version)

    def reads(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        conv, out, version = producers.get(id(inputs[0]), (module, inputs[0], -1))
        if out._version == version:  # the tensor was not changed in place
            pairs.append((conv, module))

    hooks = [layer.register_forward_hook(gave) for layer in backbone.modules() if isinstance(layer, nn.Conv2d)]
    hooks += [layer.register_forward_pre_hook(reads) for layer in backbone.modules() if isinstance(layer, kinds)]
    try:
        backbone(image)
    finally:
        for hook in hooks:
            hook.remove()
    return pairs


def replace_modules(backbone: nn.Module, change: Callable[[nn.Module], nn.Module]) -> None:
    """Replace each module in a backbone by ``change(module)``; a module used twice stays one."""
    for parent in list(backbone.modules()):
        for name, child in list(parent.named_children()):
            parent._modules[name] = change(child)


def fold_batchnorm(backbone: nn.Module, image: Tensor) -> nn.Module | None:
    """Return a copy whose convolutions include the batch normalisation after them, in float32.

    None if a normalisation follows no convolution, or another kind of layer has weights.
    """
    backbone = copy.deepcopy(backbone).eval()
    pairs = followers(backbone, image, (nn.BatchNorm2d,))
    convolutions = {id(conv) for conv, _ in pairs}
    if len(convolutions) != len(pairs) or len({id(norm) for _, norm in pairs}) != len(pairs):
        return None
    for conv, norm in pairs:
        weight, bias = fuse_conv_bn_weights(
            conv.weight, conv.bias, norm.running_mean, norm.running_var, norm.eps, norm.weight, norm.bias
        )
        conv.weight, conv.bias = nn.Parameter(weight.detach(), False), nn.Parameter(bias.detach(), False)
    after = {id(norm): getattr(norm, "act", nn.Identity()) for _, norm in pairs}  # timm's norms hold an activation
    replace_modules(backbone, lambda module: after.get(id(module), module))
    of_convolutions = {id(p) for conv in backbone.modules() if isinstance(conv, nn.Conv2d) for p in conv.parameters()}
    return backbone if all(id(value) in of_convolutions for value in backbone.parameters()) else None


class PackedBackbone(nn.Module):
    """A folded backbone with packed convolutions; pooling and the rest run in float32.

    Args:
        backbone: from ``fold_batchnorm``; changed in place.
        image: of the input size, (1, 3, S, S), float32.
        dtype: of the convolutions, bfloat16 or float32.
    """

    def __init__(self, backbone: nn.Module, image: Tensor, dtype: torch.dtype) -> None:
        super().__init__()
        self.dtype = dtype
        self.num_features, self.head_hidden_size = backbone.num_features, getattr(backbone, "head_hidden_size", None)
        sides: dict[int, torch.Size] = {}
        hooks = [
            layer.register_forward_pre_hook(lambda module, inputs: sides.__setitem__(id(module), inputs[0].shape))
            for layer in backbone.modules()
            if isinstance(layer, nn.Conv2d)
        ]
        acts = {id(conv): act for conv, act in followers(backbone, image, tuple(FUSED))}
        for hook in hooks:
            hook.remove()
        gone = {id(act) for act in acts.values()}
        made = {
            id(conv): PackedConv(conv, acts.get(id(conv)), sides[id(conv)], dtype)
            for conv in backbone.modules()
            if isinstance(conv, nn.Conv2d) and id(conv) in sides
        }
        replace_modules(backbone, lambda module: nn.Identity() if id(module) in gone else made.get(id(module), module))
        self.backbone: Any = backbone

    def forward(self, images: Tensor) -> Tensor:
        """Return features, shape (N, D), float32, for normalised images (N, 3, H, W)."""
        read = images.to(self.dtype, memory_format=torch.channels_last)
        with torch.autocast("cpu", enabled=False):  # layers have explicit dtypes
            return self.backbone.forward_head(self.backbone.forward_features(read).float(), pre_logits=True)


class PackedConv(nn.Module):
    """A convolution with its activation and weights packed for this processor.

    TensorFlow pads one more pixel at the far side than at the near side, which would need a copy of the whole map.
    Instead the kernel gets a row and a column of zeros, and the padding is equal on both sides.
    """

    def __init__(self, conv: nn.Conv2d, act: nn.Module | None, shape: torch.Size, dtype: torch.dtype) -> None:
        super().__init__()
        self.shape = shape[1:]
        padding, weight = list(conv.padding), conv.weight.detach()
        if pads_same(conv):
            totals = [same_padding(shape[2 + i], conv.kernel_size[i], conv.stride[i], conv.dilation[i]) for i in (0, 1)]
            if any(total % 2 for total in totals) and (totals[0] % 2 != totals[1] % 2 or conv.dilation != (1, 1)):
                raise ValueError("a padding that no row of zeros can take the place of")
            extra = totals[0] % 2
            weight, padding = F.pad(weight, (extra, 0, extra, 0)), [(total + extra) // 2 for total in totals]
        self.conv = (padding, list(conv.stride), list(conv.dilation), conv.groups)
        self.act, self.numbers = ("none", []) if act is None else FUSED[type(act)]
        weight = weight.to(dtype).contiguous(memory_format=torch.channels_last)
        self.weight = torch.ops.mkldnn._reorder_convolution_weight(weight, *self.conv, [STEP, *self.shape])
        self.bias = None if conv.bias is None else conv.bias.detach().to(dtype)

    def forward(self, x: Tensor) -> Tensor:
        """Return (N, C', H', W') for (N, C, H, W), in the dtype of the weights."""
        if x.shape[1:] != self.shape:
            raise ValueError(f"a convolution laid out for {tuple(self.shape)} got {tuple(x.shape[1:])}")
        return torch.ops.mkldnn._convolution_pointwise(
            x, self.weight, self.bias, *self.conv, self.act, self.numbers, ""
        )
