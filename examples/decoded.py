"""What a model with a decoder draws: images again, images between them, and new ones.

    curate train simvae photos.parquet -o simvae.safetensors --size 32 --epochs 40 --lr 1e-3 --set views=2
    python examples/decoded.py simvae.safetensors photos.parquet -o decoded.png
    python examples/decoded.py simvae.safetensors photos.parquet -o decoded.png --label label
    python examples/decoded.py simvae.safetensors vae.safetensors held-out.parquet --distance 500 --label label

Row by row: images; what the decoder makes of their mu; six steps from one mu to another, in pairs; and draws of z
from the Gaussian of full covariance that is fitted to the mu of the images, as in Bizeul et al. 2024, appendix A.7.6,
but of all classes at once; with --label of each class, a row for each. Of several models each gets its own sheet.

--distance says how far what is drawn is from real images: the Fréchet distance, which in the features of Inception
is FID, here in the embedding of `world`, the model that ships. Give images that nothing was trained on: those that
are drawn again and the reference are different ones. Other real images, the same without detail, their mean and noise
are measured as well. The distance grows with fewer images, so compare at one number of them. With --label draws are of
each class in turn, and a second number is the share of images whose 20 nearest real ones, in the same embedding, are
mostly of their class.
"""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import torch
from decoded_measures import NETWORK, baselines, embedded, frechet_distance, named_right
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from curate.sheets.picture import check_picture
from scoring.checkpoint import load_model
from scoring.errors import InputError
from scoring.heads import PosteriorHeadSpec
from scoring.model import ScoringModel
from trainers.data import load_training_set

COLUMNS, STEPS, FITTED = 12, 6, 1000  # tiles a row, tiles of a walk, and images that the Gaussian is fitted to
ENLARGED, GAP = 64, 2  # pixels
OF_CLASS = "the mean of its class, each time"


def head_of(model: ScoringModel) -> Any:
    """Return the head of a model that decodes.

    Raises:
        InputError: if it has none.
    """
    for name, spec in model.spec.heads.items():
        if isinstance(spec, PosteriorHeadSpec):
            return model.heads[name]
    raise InputError(f"expected a model that decodes, such as one of simvae, and its heads are {list(model.heads)}")


@torch.inference_mode()
def means(model: ScoringModel, pixels: Tensor) -> Tensor:
    """Return mu of each image, shape (N, M)."""
    head = head_of(model)
    return torch.cat([head.project(model.features(block)) for block in pixels.split(250)])


def walks(mu: Tensor, steps: int) -> Tensor:
    """Return points on the line from each even row to the row after it, ends included: (N // 2 * steps, M)."""
    share = torch.linspace(0, 1, steps).view(1, steps, 1)
    start, end = mu[0::2].unsqueeze(1), mu[1::2].unsqueeze(1)
    return (start + share * (end - start)).flatten(0, 1)


def draws(mu: Tensor, n: int, seed: int) -> Tensor:
    """Return n draws from the Gaussian with the mean and covariance of mu, shape (n, M)."""
    drawn = np.random.default_rng(seed).multivariate_normal(mu.mean(0).numpy(), np.cov(mu.numpy().T), n)
    return torch.from_numpy(drawn).float()


def class_draws(mu: Tensor, labels: Tensor, n: int, seed: int) -> Tensor:
    """Return n draws for each class, in the order of labels, from the Gaussian of its mu, shape (C * n, M).

    Raises:
        InputError: if a class has one image alone.
    """
    counts = labels.bincount()
    if (counts == 1).any():
        raise InputError("a Gaussian needs two images of a class or more, got one; leave the class out, or give more")
    return torch.cat([draws(mu[labels == label], n, seed + label) for label in counts.nonzero().flatten().tolist()])


@torch.inference_mode()
def sheet(model: ScoringModel, pixels: Tensor, seed: int, labels: Tensor | None = None) -> NDArray[np.uint8]:
    """Return the image of all rows, shape (H, W, 3); with labels, shape (N,), draws are of each class."""
    decode, mu = head_of(model).decoder, means(model, pixels)
    shown = pixels[:COLUMNS].float() / 255
    between = walks(mu[: 4 * COLUMNS // STEPS], STEPS)
    new = draws(mu, 2 * COLUMNS, seed) if labels is None else class_draws(mu, labels, COLUMNS, seed)
    rows = [shown, decode(mu[:COLUMNS]), *decode(between).split(COLUMNS), *decode(new).split(COLUMNS)]
    return tiled(rows)


@torch.inference_mode()
def drawn(
    model: ScoringModel, pixels: Tensor, again: Tensor, seed: int, labels: Tensor | None = None
) -> dict[str, Tensor]:
    """Return what a model makes of images, and as its own many, each (N, 3, S, S) in [0, 1].

    Args:
        model: with a decoder.
        pixels: uint8, that the Gaussian of draws is fitted to.
        again: uint8, shape (N, 3, S, S), to be drawn again.
        seed: of the draws.
        labels: classes of ``pixels``, each of which is then drawn of in turn.
    """
    decode, mu, n = head_of(model).decoder, means(model, pixels), len(again)
    if labels is None:
        new = draws(mu, n, seed)
    else:
        n_classes = len(labels.unique())
        of_class = class_draws(mu, labels, -(-n // n_classes), seed).unflatten(0, (n_classes, -1))
        new = of_class.transpose(0, 1).flatten(0, 1)[:n]
    points = {"drawn again": means(model, again), "draws": new}
    return {name: torch.cat([decode(block) for block in z.split(250)]) for name, z in points.items()}


def distance_lines(
    models: Mapping[str, ScoringModel], pixels: Tensor, n: int, seed: int, labels: Tensor | None = None
) -> list[str]:
    """Return one line for each baseline, and for what each model draws: its distance to n real images.

    With the classes of all images, shape (N,), there is the share that is named right, too.

    Raises:
        InputError: for images of which not twice as many are left, next to those that the Gaussian is fitted to.
    """
    known, held = pixels[:FITTED], pixels[FITTED:]
    if n < 2 or len(held) < 2 * n:
        raise InputError(
            f"expected {FITTED} images to fit draws to and 2 x {n} held out, 2 or more each, got {len(pixels)} in "
            "all; lower --distance, or give more"
        )
    network, _ = load_model(NETWORK)
    real, other = held[:n].float() / 255, held[n : 2 * n]
    fitted = None if labels is None else labels[:FITTED]
    sets = baselines(real, other.float() / 255, seed)
    in_turn = None if fitted is None else fitted.unique().repeat(n)[:n]
    if fitted is not None and in_turn is not None:
        middles = {label: known[fitted == label].float().mean(0) / 255 for label in in_turn.unique().tolist()}
        sets[OF_CLASS] = torch.stack([middles[label] for label in in_turn.tolist()])
    for name, model in models.items():
        sets |= {f"{name}: {what}": made for what, made in drawn(model, known, other, seed, fitted).items()}
    reference, rows = embedded(real, network), {name: embedded(made, network) for name, made in sets.items()}
    cells = {name: [f"{frechet_distance(row, reference):.3f}"] for name, row in rows.items()}
    head = [f"{n} images", f"distance in the embedding of {NETWORK}"]
    if labels is not None and in_turn is not None:
        of_real, of_other = labels[FITTED : FITTED + n], labels[FITTED + n : FITTED + 2 * n]
        head.append("named right")
        for name, row in rows.items():
            classes = in_turn if name == OF_CLASS or name.endswith(": draws") else of_other
            cells[name].append(f"{named_right(row, classes, reference, of_real):.3f}")
    lines = [head, ["---"] * len(head), *([name, *values] for name, values in cells.items())]
    return [f"| {' | '.join(line)} |" for line in lines]


def tiled(rows: Sequence[Tensor]) -> NDArray[np.uint8]:
    """Return rows of images, each (N, 3, S, S) in [0, 1], side by side and enlarged, on white."""
    across = ENLARGED + GAP
    out = np.full((len(rows) * across - GAP, COLUMNS * across - GAP, 3), 255, np.uint8)
    for top, row in enumerate(rows):
        for left, tile in enumerate((255 * row).round().byte().permute(0, 2, 3, 1).numpy()):
            large = Image.fromarray(tile).resize((ENLARGED, ENLARGED), Image.Resampling.NEAREST)
            out[top * across :, left * across :][:ENLARGED, :ENLARGED] = np.asarray(large)
    return out


def main(typed: Sequence[str] | None = None) -> None:
    """Draw a model's images."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, nargs="+", help="checkpoints of simvae, vae, betavae or crvae")
    parser.add_argument("data", type=Path, help="a Parquet file with a column of encoded images")
    parser.add_argument("-o", "--out", type=Path, default=Path("decoded.png"))
    parser.add_argument("--column", default="image")
    parser.add_argument("--label", help="column of classes, to draw of each")
    parser.add_argument("--distance", type=int, default=0, metavar="N", help="measure it on N images")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(typed)
    try:
        check_picture(options.out, overwrite=True)
        models = {path.stem: load_model(path)[0].eval() for path in options.model}
        reading = {(head_of(model), model.spec.preprocessing)[1] for model in models.values()}
        if len(models) < len(options.model) or len(reading) > 1:
            raise InputError("expected models of different names that read images alike; give others, or one by one")
        columns = [name for name in (options.column, options.label) if name]
        if missing := set(columns) - set(names := pq.read_schema(options.data).names):
            raise InputError(
                f"expected a column {missing.pop()} in {options.data}, got {', '.join(names)}; name another"
            )
        table = pq.read_table(options.data, columns=columns).slice(0, FITTED + 2 * options.distance)
        classes = table.column(options.label).to_pylist() if options.label else None
        stored = table.column(options.column).to_pylist()
        readers = [lambda image=image: image for image in stored]
        images = load_training_set(readers, classes, n=len(readers), preprocessing=reading.pop(), workers=1)
        pixels, labels = images.pixels, images.labels
        for name, model in models.items():
            out = options.out if len(models) == 1 else options.out.with_stem(f"{options.out.stem}-{name}")
            of_fitted = None if labels is None else labels[:FITTED]
            Image.fromarray(sheet(model, pixels[:FITTED], options.seed, of_fitted)).save(out)
        if options.distance:
            print("\n".join(distance_lines(models, pixels, options.distance, options.seed, labels)))
    except InputError as error:
        raise SystemExit(f"error: {error}") from None


if __name__ == "__main__":
    main()
