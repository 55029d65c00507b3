"""Networks for small images that timm lacks: ResNets with a 3x3 stem, and the encoders of SimVAE."""

from abc import ABC, abstractmethod
from typing import Any

from torch import Tensor, nn

MLP_WIDTHS = (500, 500, 2000)
STAGES = ((32, 1), (64, 2), (128, 2), (256, 2))  # channels and stride
STEM = 16
POOLED_FROM = 64  # pixels: smaller images are not pooled after the stem


def with_small_stem(resnet: Any) -> nn.Module:
    """Return a timm ResNet with a 3x3 stem of stride 1 and no max-pool: 32 pixels give a last map of 4 x 4.

    Source: He et al. 2020 (MoCo), the CIFAR-10 demo of its authors; Chen et al. 2020 (SimCLR), appendix B.9.
    """
    old = resnet.conv1
    resnet.conv1 = nn.Conv2d(old.in_channels, old.out_channels, 3, 1, 1, bias=False)
    nn.init.kaiming_normal_(resnet.conv1.weight, mode="fan_out", nonlinearity="relu")  # as timm initialises the others
    resnet.maxpool = nn.Identity()
    resnet.pretrained_cfg = {"classifier": "fc"}  # no weights of it are published
    network: nn.Module = resnet
    return network


class Flat(nn.Module, ABC):
    """Base class of the two encoders, whose features are the flattened map."""

    num_features: int

    @abstractmethod
    def forward_features(self, x: Tensor) -> Tensor:
        """Return the last map for images (N, 3, S, S)."""

    def forward_head(self, x: Tensor, pre_logits: bool = False) -> Tensor:
        """Return features (N, D) of the last map; ``pre_logits`` is timm's keyword and has no effect."""
        return x.flatten(1)

    def forward(self, x: Tensor) -> Tensor:
        """Return features (N, D) for images (N, 3, S, S)."""
        return self.forward_head(self.forward_features(x))


class MLP(Flat):
    """An encoder of three layers of 500, 500 and 2,000 units on the pixels; the paper's last layer is in the head.

    Source: Bizeul et al. 2024, arXiv:2402.01399, Table 3 (a).

    Args:
        img_size: side of the input images, in pixels.
    """

    num_features = MLP_WIDTHS[-1]

    def __init__(self, img_size: int = 32) -> None:
        super().__init__()
        width, layers = 3 * img_size * img_size, []
        for out in MLP_WIDTHS:
            layers += [nn.Linear(width, out), nn.ReLU(inplace=True)]
            width = out
        self.layers = nn.Sequential(*layers)

    def forward_features(self, x: Tensor) -> Tensor:
        """Return features (N, 2000)."""
        features: Tensor = self.layers(x.flatten(1))
        return features


class _Block(nn.Module):
    """A residual block of two convolutions; the skip connection is projected if shapes differ."""

    def __init__(self, channels: int, out: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(channels, out, 3, stride, 1, bias=False), nn.BatchNorm2d(out)
        self.conv2, self.bn2 = nn.Conv2d(out, out, 3, 1, 1, bias=False), nn.BatchNorm2d(out)
        self.act1, self.act2 = nn.ReLU(inplace=True), nn.ReLU(inplace=True)
        project = nn.Conv2d(channels, out, 1, stride, bias=False)
        self.downsample = nn.Sequential(project, nn.BatchNorm2d(out))

    def forward(self, x: Tensor) -> Tensor:
        """Return (N, C', H / stride, W / stride), rounded up, for (N, C, H, W)."""
        added: Tensor = self.bn2(self.conv2(self.act1(self.bn1(self.conv1(x))))) + self.downsample(x)
        activated: Tensor = self.act2(added)
        return activated


class SimVAEResNet(Flat):
    """The ResNet encoder of SimVAE: a 4x4 stem, four stages of one residual block, and the map flattened.

    The paper has a map of 32 x 32 after stem and max-pool, from 64 pixels (CelebA). For 32 pixels (CIFAR-10) the pool
    would give 16 x 16, so it is omitted below 64: features are 256 x 4 x 4 for both.

    Source: Bizeul et al. 2024, arXiv:2402.01399, Table 4 (a).

    Args:
        img_size: side of the input images, in pixels.
    """

    def __init__(self, img_size: int = 32) -> None:
        super().__init__()
        pools = img_size >= POOLED_FROM
        self.pad, self.conv1 = nn.ZeroPad2d((1, 2, 1, 2)), nn.Conv2d(3, STEM, 4, bias=False)  # same size
        self.bn1, self.act1 = nn.BatchNorm2d(STEM), nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, 1) if pools else nn.Identity()
        channels, side = STEM, -(-img_size // 2) if pools else img_size
        for at, (out, stride) in enumerate(STAGES, start=1):
            self.add_module(f"layer{at}", _Block(channels, out, stride))
            channels, side = out, -(-side // stride)
        self.num_features = channels * side * side

    def forward_features(self, x: Tensor) -> Tensor:
        """Return the last map, (N, 256, h, w)."""
        x = self.maxpool(self.act1(self.bn1(self.conv1(self.pad(x)))))
        for at in range(1, 1 + len(STAGES)):
            x = getattr(self, f"layer{at}")(x)
        return x


CIFAR_RESNETS = {"resnet18_cifar": "resnet18", "resnet50_cifar": "resnet50"}  # name -> timm's, see with_small_stem
ENCODERS: dict[str, type[Flat]] = {"mlp": MLP, "resnet_simvae": SimVAEResNet}  # need the image size
SMALL_NETWORKS = (*CIFAR_RESNETS, *ENCODERS)
