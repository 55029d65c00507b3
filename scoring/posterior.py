"""A Gaussian posterior of features, and a decoder to images."""

from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from scoring.maps import map_of_decoder

LEAST_CHANNELS = 16


class Doubling(nn.Module):
    """A residual block that doubles a map: (N, C, S, S) -> (N, C', 2S, 2S).

    Transposed convolution, BN, ReLU, convolution, BN; the shortcut is upsampling and a 1 x 1 convolution. The kernel is
    twice the stride, so that all outputs depend on equally many inputs, which avoids checkerboard artefacts.
    """

    def __init__(self, channels: int, narrower: int) -> None:
        super().__init__()
        self.enlarge = nn.ConvTranspose2d(channels, narrower, 4, stride=2, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(narrower)
        self.refine = nn.Conv2d(narrower, narrower, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(narrower)
        self.mix = nn.Conv2d(channels, narrower, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Return the map with twice the side."""
        fine = self.norm2(self.refine(F.relu(self.norm1(self.enlarge(x)))))
        return F.relu(fine + F.interpolate(self.mix(x), scale_factor=2.0))


class Decoder(nn.Sequential):
    """A residual decoder: z (N, M) -> images (N, 3, S, S) in [0, 1].

    Source: Bizeul et al. 2024, table 4 (b): a linear layer to 256 maps of 4 x 4, then blocks of two convolutions that
    double the side and halve the channels, then three channels. There the blocks have no shortcut.
    """

    def __init__(self, dim: int, size: int, channels: int) -> None:
        side, doublings = map_of_decoder(size)
        widths = [max(min(channels, LEAST_CHANNELS), channels >> at) for at in range(doublings + 1)]
        blocks = [Doubling(before, after) for before, after in pairwise(widths)]
        start = [nn.Linear(dim, channels * side * side), nn.Unflatten(1, (channels, side, side))]
        super().__init__(*start, *blocks, nn.Conv2d(widths[-1], 3, 3, padding=1), nn.Sigmoid())


class PosteriorHead(nn.Module):
    """A linear map to mean and log-variance of q(z|x), and a decoder of z.

    Source: Bizeul et al. 2024, sec. 4: Gaussian q(z|x) and p(x|z) of diagonal covariance.
    """

    def __init__(self, width: int, dim: int, size: int, channels: int) -> None:
        super().__init__()
        self.mean = nn.Linear(width, dim)
        self.log_variance = nn.Linear(width, dim)
        self.decoder = Decoder(dim, size, channels)

    def project(self, features: Tensor) -> Tensor:
        """Return the mean of q(z|x), shape (N, M), for features, shape (N, D), in the head's precision."""
        return self.mean(features.to(self.mean.weight.dtype))

    def posterior(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and log-variance of q(z|x), each of shape (N, M), for features, shape (N, D)."""
        return self.project(features), self.log_variance(features.to(self.mean.weight.dtype))

    def forward(self, features: Tensor, pixels: Tensor) -> Tensor:
        """Return the mean log-variance, and the mean squared error of the decoded mean: shape (N, 2).

        From features (N, D), and the pixels of the same images in [0, 1], (N, 3, S, S).
        """
        mean, log_variance = self.posterior(features)
        error = (self.decoder(mean) - pixels.float()).square().flatten(1).mean(1)
        return torch.stack([log_variance.mean(1), error], dim=1)
