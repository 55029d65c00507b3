"""Score a heap of images, keep the subset worth training on."""

__version__ = "0.1.0"
