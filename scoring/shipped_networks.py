"""The two backbones of the shipped models in plain torch, with timm's weight names.

They equal timm's networks; a test compares their features with timm's, bit by bit. They are here because importing
timm, with torchvision and torch's compiler, takes longer than scoring a hundred images.
"""

from abc import ABC, abstractmethod

import torch.nn.functional as F
from torch import Tensor, nn

# EfficientNet-Lite0 (Tan and Le 2019, arXiv:1905.11946, table 1, without squeeze and excitation; stem and head are not
# scaled): (expansion, channels, repeats, stride, kernel) of each stage
LITE0 = (
    (1, 16, 1, 1, 3),
    (6, 24, 2, 2, 3),
    (6, 40, 2, 2, 5),
    (6, 80, 3, 2, 3),
    (6, 112, 3, 1, 5),
    (6, 192, 4, 2, 5),
    (6, 320, 1, 1, 3),
)
LITE0_EPS = 1e-3  # of batch normalisation, TensorFlow's
RESNET10T = ((64, 1), (128, 2), (256, 2), (512, 2))  # channels and stride of each block


def same_padding(size: int, kernel: int, stride: int, dilation: int) -> int:
    """Return TensorFlow's padding per axis for a convolution: half before, the larger half after.

    >>> same_padding(128, 3, 2, 1)
    1
    """
    steps = -(-size // stride) - 1
    return max(0, steps * stride + (kernel - 1) * dilation + 1 - size)


class SamePaddedConv(nn.Conv2d):
    """A convolution with TensorFlow's padding, depending on the input size."""

    def forward(self, input: Tensor) -> Tensor:
        """Return (N, C', H / stride, W / stride), rounded up, from (N, C, H, W)."""
        high, wide = (
            same_padding(input.shape[2 + i], self.kernel_size[i], self.stride[i], self.dilation[i]) for i in (0, 1)
        )
        padded = F.pad(input, (wide // 2, wide - wide // 2, high // 2, high - high // 2))
        return F.conv2d(padded, self.weight, self.bias, self.stride, (0, 0), self.dilation, self.groups)


class NormAct(nn.BatchNorm2d):
    """Batch normalisation followed by an activation."""

    def __init__(self, channels: int, act: nn.Module | None = None) -> None:
        super().__init__(channels, eps=LITE0_EPS)
        self.act = act or nn.Identity()

    def forward(self, input: Tensor) -> Tensor:
        """Return the normalised and activated map, of the shape of the input."""
        return self.act(super().forward(input))


def _conv(channels: int, out: int, kernel: int, *, stride: int = 1, groups: int = 1) -> nn.Conv2d:
    """Return a convolution without bias; TensorFlow's padding is only needed with a stride above 1."""
    if stride > 1:
        return SamePaddedConv(channels, out, kernel, stride, groups=groups, bias=False)
    return nn.Conv2d(channels, out, kernel, padding=kernel // 2, groups=groups, bias=False)


class SeparableBlock(nn.Module):
    """A depthwise convolution followed by a pointwise one."""

    def __init__(self, channels: int, out: int, kernel: int) -> None:
        super().__init__()
        self.conv_dw = _conv(channels, channels, kernel, groups=channels)
        self.bn1 = NormAct(channels, nn.ReLU6(inplace=True))
        self.conv_pw = _conv(channels, out, 1)
        self.bn2 = NormAct(out)

    def forward(self, x: Tensor) -> Tensor:
        """Return (N, C', H, W) for (N, C, H, W)."""
        return self.bn2(self.conv_pw(self.bn1(self.conv_dw(x))))


class InvertedBlock(nn.Module):
    """An inverted residual block: expand, depthwise convolution, project; with a skip connection if shapes match."""

    def __init__(self, channels: int, out: int, kernel: int, *, stride: int, expansion: int) -> None:
        super().__init__()
        wide = channels * expansion
        self.conv_pw = _conv(channels, wide, 1)
        self.bn1 = NormAct(wide, nn.ReLU6(inplace=True))
        self.conv_dw = _conv(wide, wide, kernel, stride=stride, groups=wide)
        self.bn2 = NormAct(wide, nn.ReLU6(inplace=True))
        self.conv_pwl = _conv(wide, out, 1)
        self.bn3 = NormAct(out)
        self.adds = stride == 1 and channels == out

    def forward(self, x: Tensor) -> Tensor:
        """Return (N, C', H / stride, W / stride) for (N, C, H, W)."""
        projected = self.bn3(self.conv_pwl(self.bn2(self.conv_dw(self.bn1(self.conv_pw(x))))))
        return projected + x if self.adds else projected


class Backbone(nn.Module, ABC):
    """Base class of both networks.

    Args:
        classes: of a classifier that is never used, whose weights timm's files include; 0 for none.
    """

    num_features: int
    classifier_name: str

    def __init__(self, classes: int = 0) -> None:
        super().__init__()
        self._build()
        self.global_pool = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(1))
        if classes:  # last, as timm has it
            self.add_module(self.classifier_name, nn.Linear(self.num_features, classes))

    @abstractmethod
    def _build(self) -> None:
        """Add the layers with timm's names in timm's order."""

    @abstractmethod
    def forward_features(self, x: Tensor) -> Tensor:
        """Return the last map, (N, D, h, w), for images (N, 3, H, W)."""

    def forward_head(self, x: Tensor, pre_logits: bool = False) -> Tensor:
        """Return features (N, D) of the last map; ``pre_logits`` is timm's keyword and has no effect."""
        pooled: Tensor = self.global_pool(x)
        return pooled

    def forward(self, x: Tensor) -> Tensor:
        """Return features (N, D) for images (N, 3, H, W)."""
        return self.forward_head(self.forward_features(x))


class EfficientNetLite0(Backbone):
    """timm's ``tf_efficientnet_lite0`` without its classifier: images (N, 3, H, W) -> features (N, 1280)."""

    num_features = 1280
    classifier_name = "classifier"

    def _build(self) -> None:
        self.conv_stem = _conv(3, 32, 3, stride=2)
        self.bn1 = NormAct(32, nn.ReLU6(inplace=True))
        stages, channels = [], 32
        for expansion, out, repeats, stride, kernel in LITE0:
            blocks: list[nn.Module] = []
            for at in range(repeats):
                first = stride if at == 0 else 1
                blocks.append(
                    SeparableBlock(channels, out, kernel)
                    if expansion == 1
                    else InvertedBlock(channels, out, kernel, stride=first, expansion=expansion)
                )
                channels = out
            stages.append(nn.Sequential(*blocks))
        self.blocks = nn.Sequential(*stages)
        self.conv_head = _conv(channels, self.num_features, 1)
        self.bn2 = NormAct(self.num_features, nn.ReLU6(inplace=True))

    def forward_features(self, x: Tensor) -> Tensor:
        """Return the last map, (N, 1280, H / 32, W / 32), rounded up."""
        return self.bn2(self.conv_head(self.blocks(self.bn1(self.conv_stem(x)))))


class BasicBlock(nn.Module):
    """A residual block of two convolutions; the skip connection is averaged and projected if shapes differ."""

    def __init__(self, channels: int, out: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, out, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(out)
        self.act1 = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(out, out, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(out)
        self.act2 = nn.ReLU(inplace=True)
        self.downsample: nn.Module | None = None
        if stride > 1:
            mean = nn.AvgPool2d(2, stride, ceil_mode=True, count_include_pad=False)
            project = nn.Conv2d(channels, out, 1, bias=False)
            self.downsample = nn.Sequential(mean, project, nn.BatchNorm2d(out))

    def forward(self, x: Tensor) -> Tensor:
        """Return (N, C', H / stride, W / stride) for (N, C, H, W)."""
        features = self.bn2(self.conv2(self.act1(self.bn1(self.conv1(x)))))
        features += x if self.downsample is None else self.downsample(x)
        activated: Tensor = self.act2(features)
        return activated


class ResNet10T(Backbone):
    """timm's ``resnet10t`` without its classifier: images (N, 3, H, W) -> features (N, 512).

    Source: He et al. 2015, arXiv:1512.03385, with the stem and the downsampling of He et al. 2018, arXiv:1812.01187.
    """

    num_features = 512
    classifier_name = "fc"

    def _build(self) -> None:
        self.conv1 = nn.Sequential(
            nn.Conv2d(3, 24, 3, 2, 1, bias=False),
            nn.BatchNorm2d(24),
            nn.ReLU(inplace=True),
            nn.Conv2d(24, 32, 3, 1, 1, bias=False),
            nn.BatchNorm2d(32),
            nn.ReLU(inplace=True),
            nn.Conv2d(32, 64, 3, 1, 1, bias=False),
        )
        self.bn1 = nn.BatchNorm2d(64)
        self.act1 = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        channels = 64
        for at, (out, stride) in enumerate(RESNET10T, start=1):
            self.add_module(f"layer{at}", nn.Sequential(BasicBlock(channels, out, stride)))
            channels = out

    def forward_features(self, x: Tensor) -> Tensor:
        """Return the last map, (N, 512, H / 32, W / 32), rounded up."""
        x = self.maxpool(self.act1(self.bn1(self.conv1(x))))
        for at in range(1, 1 + len(RESNET10T)):
            x = getattr(self, f"layer{at}")(x)
        return x


NETWORKS: dict[str, type[Backbone]] = {"tf_efficientnet_lite0": EfficientNetLite0, "resnet10t": ResNet10T}
