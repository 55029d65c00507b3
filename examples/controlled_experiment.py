"""The controlled experiment of MCInfoNCE: do the losses recover posteriors that are known?

    python examples/controlled_experiment.py [--reduced | --full] [--table 1] [--figure 3] [--seeds 4 5] [--out FILE]

A generator with known mu(x) and kappa(x) makes pairs of observations; an encoder learns mu and kappa from the pairs
alone; then both are compared on new x. Prints tables 1, 2, 3 and 8 and the numbers of figures 2, 3, 4 and 7 of Kirchhof
et al. 2023, "Probabilistic Contrastive Learning Recovers the Correct Aleatoric Uncertainty of Ambiguous Inputs", next
to ours. `controlled_figures.py` draws what --out wrote. `docs/studies/controlled.md` has what we measured, and in what
we differ from the paper and why.
"""

import argparse
import json
import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from controlled_generator import FAMILIES, LARGEST, Encoder, Generator, Pairs, of_pairs
from controlled_results import HEADER, NOTES, Result, rows_of
from torch import Tensor, nn

from scoring.distributions import vmf
from scoring.metrics.ranking import spearman
from trainers.methods import contrastive_losses as losses

INF = math.inf
RANGES = {"ambiguous": (16.0, 32.0), "clear": (64.0, 128.0), "injective": (INF, INF)}
START = (16.0, 32.0)  # of an encoder's kappa where the generator's is infinite
START_ELK = (0.5, 8.0)  # around the 1.9 that it ends at; from 16 to 32 mu collapses: docs/studies/controlled.md


@dataclass(frozen=True)
class Setting:
    """One run of the experiment. The defaults are the paper's (table 6, table 7, appendix B.3).

    Attributes:
        loss: mcinfonce, hib or elk.
        ambiguity: which range of kappa(x) the generator has.
        accept: how positives are found, see ``Generator``.
        family: of the generator's posteriors, see ``Generator``.
        dim: D.
        encoder_dim: of the encoder's mu; None for D.
        shared: whether the encoder's kappa reads what its mu reads, see ``Encoder``.
        batch: pairs a step.
        samples: Monte Carlo draws.
        steps: batches, both phases together.
        share: of the steps in which mu alone learns; kappa learns in the rest; 0 trains both throughout.
        lr: Adam's, at the start.
        schedule: "steps": a tenth after each quarter. "cosine": to 0 over each phase.
        negatives: "bank": 32 other x for all anchors; "batch": all other items of the batch.
        mu_negatives: the same for the phase of mu; "roll" is the paper's M = 0.
        cross: all pairs of draws, see ``mcinfonce``.
        denominator: see ``mcinfonce``.
        clip: largest norm of the gradient.
        width: of the middle layers of the encoder.
        start: range of the encoder's kappa before it learns; None for the generator's, as the paper has it.
        calm: start the encoder from centred inputs and outputs that fill the sphere; else as torch does.
        pool: candidates for positives at a time.
        evaluate: new x on which kappa is compared.
        compare: how many of them all of whose pairs are compared in location.
        smoothing: steps that spread the generator's mu, before anything else.
    """

    loss: str = "mcinfonce"
    ambiguity: str = "ambiguous"
    accept: str = "exact"
    family: str = "vmf"
    dim: int = 10
    encoder_dim: int | None = None
    shared: bool = False
    batch: int = 512
    samples: int = 512
    steps: int = 100_000
    share: float = 0.5
    lr: float = 1e-4
    schedule: str = "steps"
    negatives: str = "bank"
    mu_negatives: str = "roll"
    cross: bool = False
    denominator: str = "authors"
    clip: float = INF
    width: int = 500
    start: tuple[float, float] | None = None
    calm: bool = False
    pool: int = 4096
    evaluate: int = 10_000
    compare: int = 10_000
    smoothing: int = 5000


FULL = Setting()
REDUCED = Setting(
    batch=256,
    samples=16,
    steps=8000,
    share=0.75,  # kappa is learned fast once mu is right, and not before
    lr=2e-3,
    schedule="cosine",
    negatives="batch",
    mu_negatives="batch",
    cross=True,
    denominator="eq7",
    clip=1.0,
    width=128,
    calm=True,
    pool=1024,
    compare=2000,
)
BANK = 32
KAPPA_POS = 20.0


ByName = dict[str, list[Result]]
SAMPLES = (1, 4, 16, 64, 256, 512)
DIMS = {"figure 4": (4, 8, 10, 16, 32, 64, 128), "figure 7": (10, 16, 32, 40, 48, 56, 64)}
# what a loss needs otherwise: HIB and ELK learn mu and kappa together (table 7)
CHANGES: dict[str, dict[str, Any]] = {"mcinfonce": {}, "hib": {"share": 0.0}, "elk": {"share": 0.0, "start": START_ELK}}


def loss_of(setting: Setting, phase: str, encoder: Encoder, pairs: Pairs) -> Tensor:
    """Return the loss of a batch; in a phase of "mu" or "kappa" the other has no gradient."""
    n, device = len(pairs.x), pairs.x.device
    negatives = setting.mu_negatives if phase == "mu" else setting.negatives
    bank = BANK if negatives == "bank" else 0
    items = torch.cat([pairs.x, pairs.x_pos, torch.rand(bank, setting.dim, device=device)])
    mu, kappa = encoder(items, learns=phase)
    contrast = of_pairs(n, bank, negatives=negatives, device=device)
    if pairs.odds is not None and negatives == "batch":
        # the authors draw negatives of an anchor with one minus the probability of a positive; other anchors are left
        # out
        contrast = replace(contrast, weights=contrast.weights * F.pad(pairs.odds, (n, 0)))
    if setting.loss == "hib":
        return losses.hib(mu, kappa, contrast, a=1.0, b=0.0, samples=setting.samples)
    if setting.loss == "elk":
        return losses.elk(mu, kappa, contrast, kappa_pos=KAPPA_POS, denominator=setting.denominator)
    return losses.mcinfonce(
        *(mu, kappa, contrast),
        kappa_pos=KAPPA_POS,
        samples=setting.samples,
        denominator=setting.denominator,
        cross=setting.cross,
    )


def rate(setting: Setting, step: int, steps: int) -> float:
    """Return the learning rate at a step of a phase."""
    if setting.schedule == "cosine":
        return setting.lr * min(1.0, (step + 1) / 50) * 0.5 * (1 + math.cos(math.pi * step / steps))
    return setting.lr * 0.1 ** (2 * step // steps)


def train(
    setting: Setting,
    seed: int,
    *,
    device: torch.device,
    graph: bool = False,
    report: Callable[[str], None] = lambda line: None,
) -> tuple[Generator, Encoder, float]:
    """Return the generator of a seed, the encoder that learned from it, and the seconds that took.

    Raises:
        RuntimeError: if the loss is not finite.
    """
    torch.manual_seed(seed)
    low, high = RANGES[setting.ambiguity]
    generator = Generator(
        *(low, high),
        dim=setting.dim,
        kappa_pos=KAPPA_POS,
        accept=setting.accept,
        smoothing=setting.smoothing,
        family=setting.family,
    ).to(device)
    begin = setting.start or ((low, high) if high < INF else START)
    encoder = Encoder(
        *(setting.dim, setting.width, *begin), calm=setting.calm, latent_dim=setting.encoder_dim, shared=setting.shared
    ).to(device)
    begun = time.monotonic()
    first = round(setting.steps * setting.share)
    phases = [("mu", first), ("kappa", setting.steps - first)] if first else [("both", setting.steps)]
    for number, (phase, steps) in enumerate(phases):
        chosen = {"mu": encoder.direction, "kappa": encoder.kappa, "both": encoder}[phase]
        parameters = list(chosen.parameters())
        speed = torch.tensor(0.0, device=device)
        optimizer = torch.optim.Adam(parameters, lr=speed, fused=True, capturable=device.type == "cuda")

        def step(phase: str = phase, parameters: list[nn.Parameter] = parameters, optimizer=optimizer) -> Tensor:
            pairs = generator.pairs(setting.batch, pool=setting.pool, patience=not graph)
            loss = loss_of(setting, phase, encoder, pairs)
            optimizer.zero_grad(set_to_none=False)
            loss.backward()
            nn.utils.clip_grad_norm_(parameters, setting.clip)
            optimizer.step()
            return loss.detach()

        run = _captured(step) if graph else step
        factor = 0.1 ** (number / 2) if setting.schedule == "steps" else 1.0  # as the authors' code has it
        for at in range(steps):
            speed.fill_(factor * rate(setting, at, steps))
            loss = run()
            if (at + 1) % max(1, steps // 5) == 0:
                if not math.isfinite(float(loss)):
                    raise RuntimeError(f"expected a finite loss, got {float(loss)} by step {at + 1} of {phase}")
                report(f"{phase} {at + 1}/{steps} loss {float(loss):.4f} {time.monotonic() - begun:.0f} s")
    return generator, encoder, time.monotonic() - begun


def _captured(step: Callable[[], Tensor]) -> Callable[[], Tensor]:
    """Return the step as a CUDA graph that is replayed; three steps run first, as the capture needs."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = step()

    def replay() -> Tensor:
        graph.replay()
        return loss

    return replay


@torch.no_grad()
def evaluate(setting: Setting, generator: Generator, encoder: Encoder, seconds: float) -> Result:
    """Return how near the encoder is to the generator, on x that are the same for every run."""
    x = torch.rand(setting.evaluate, setting.dim, generator=torch.Generator().manual_seed(10**6))
    x = x.to(next(encoder.parameters()).device)
    (true_mu, true_kappa), (mu, kappa) = generator.posterior(x), encoder(x)
    first, second = torch.tril_indices(setting.compare, setting.compare, -1)
    true_cosine, cosine = (
        (some[: setting.compare] @ some[: setting.compare].T).cpu()[first, second] for some in (true_mu, mu)
    )
    apart, off = (cosine - true_cosine).double(), (kappa - true_kappa).double()
    known = math.isfinite(float(off.sum()))
    true_spread = generator.spread(true_mu, true_kappa).double()
    spread = 1 - vmf.mean_cosine(kappa, mu.shape[1])
    return Result(
        location_rmse=float(apart.square().mean().sqrt()),
        location_error=float(apart.abs().mean()),
        location_rank=spearman(cosine.numpy(), true_cosine.numpy()),
        kappa_rmse=float(off.square().mean().sqrt()),
        kappa_error=float(off.abs().mean()),
        kappa_rank=spearman(kappa.cpu().numpy(), true_kappa.cpu().numpy()) if known else math.nan,
        kappa_mean=float(kappa.double().mean()),
        kappa_median=float(kappa.median()),
        spread_rmse=float((spread - true_spread).square().mean().sqrt()),
        spread_mean=float(spread.mean()),
        spread_true=float(true_spread.mean()),
        seconds=seconds,
        posteriors=_posteriors(true_mu, true_kappa, mu, kappa) if mu.shape[1] == true_mu.shape[1] == 2 else [],
    )


def _posteriors(true_mu: Tensor, true_kappa: Tensor, mu: Tensor, kappa: Tensor, n: int = 5) -> list[list[float]]:
    """Return angle and kappa of n posteriors on the circle, and the encoder's after the rotation that fits all best."""
    left, _, right = torch.linalg.svd(mu.T @ true_mu)
    turned = mu @ left @ right
    columns = [torch.atan2(true_mu[:, 1], true_mu[:, 0]), true_kappa, torch.atan2(turned[:, 1], turned[:, 0]), kappa]
    return torch.stack(columns, 1)[:n].tolist()


def run(setting: Setting, seeds: list[int], arguments: argparse.Namespace) -> list[Result]:
    """Return the result of every seed, and print each."""
    results = []
    for seed in seeds:

        def say(line: str, seed: int = seed) -> None:
            print(f"  {setting.loss} {setting.ambiguity} seed {seed}: {line}", flush=True)

        device = torch.device(arguments.device)
        trained = train(setting, seed, device=device, graph=arguments.graph, report=say)
        results.append(evaluate(setting, *trained))
        say(" ".join(f"{name} {value:.4g}" for name, value in results[-1].measures().items()))
    return results


def experiments(base: Setting, dims: list[int] | None = None) -> dict[str, dict[str, Setting]]:
    """Return the settings of each table and figure by name.

    Args:
        base: what the others differ from.
        dims: of figures 4 and 7; None for the paper's.
    """
    of = {figure: dims or listed for figure, listed in DIMS.items()}
    return {
        "table 1": {name: replace(base, ambiguity=name) for name in RANGES},
        "table 2": {name: replace(base, family=name) for name in FAMILIES},
        "table 3": {name: replace(base, loss=name, **CHANGES[name]) for name in ("hib", "elk", "mcinfonce")},
        "table 8": {"independent": base, "shared": replace(base, shared=True)},
        "figure 2": {"2": replace(base, dim=2)},
        # in step, as in equation 7: the bias of few samples is what the figure shows
        "figure 3": {str(n): replace(base, samples=n, cross=False) for n in SAMPLES if n <= base.samples},
        "figure 4": {str(n): replace(base, encoder_dim=n if n != base.dim else None) for n in of["figure 4"]},
        "figure 7": {str(n): replace(base, dim=n) for n in of["figure 7"]},
    }


def parse(words: list[str] | None = None) -> argparse.Namespace:
    """Return what was requested."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--reduced", action="store_true", help="minutes on a CPU (the default)")
    size.add_argument("--full", action="store_true", help="the paper's size: hours on a GPU")
    parser.add_argument("--table", type=int, choices=(1, 2, 3, 8), action="append", default=[])
    parser.add_argument("--figure", type=int, choices=(2, 3, 4, 7), action="append", default=[])
    parser.add_argument("--dims", type=int, nargs="+", help="of figures 4 (encoder) and 7 (both); default: the paper's")
    parser.add_argument(
        "--seeds", type=int, nargs="+", help="default: 4 in the reduced size, the authors' 4 5 6 7 8 in the full"
    )
    parser.add_argument("--accept", choices=("exact", "eq53"), default="exact", help="how positives are found")
    parser.add_argument("--steps", type=int, help="batches, both phases together")
    parser.add_argument("--batch", type=int, help="pairs a step")
    parser.add_argument("--samples", type=int, help="Monte Carlo draws")
    parser.add_argument("--smoothing", type=int, help="steps that spread the generator over the sphere first")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--graph", action="store_true", help="replay each step as a CUDA graph; needs --device cuda")
    parser.add_argument("--threads", type=int, default=2, help="of the CPU; default 2")
    parser.add_argument("--out", type=Path, help="write settings and results as JSON, after each setting")
    arguments = parser.parse_args(words)
    if arguments.graph and not arguments.device.startswith("cuda"):
        parser.error("--graph needs --device cuda")
    for name in ("steps", "batch", "samples"):
        if getattr(arguments, name) is not None and getattr(arguments, name) < 2:
            parser.error(f"--{name} must be at least 2, got {getattr(arguments, name)}")
    if min(arguments.dims or [2]) < 2:
        parser.error(f"--dims must be at least 2, got {min(arguments.dims)}")
    arguments.seeds = arguments.seeds or ([4, 5, 6, 7, 8] if arguments.full else [4])
    if not arguments.table and not arguments.figure:
        arguments.table = [1]
    return arguments


def main(words: list[str] | None = None) -> None:
    """Run what was requested and print it next to the paper's numbers."""
    arguments = parse(words)
    torch.set_num_threads(arguments.threads)
    changes = {name: getattr(arguments, name) for name in ("steps", "batch", "samples", "accept", "smoothing")}
    base = replace(FULL if arguments.full else REDUCED, **{k: v for k, v in changes.items() if v is not None})
    names = [f"table {n}" for n in arguments.table] + [f"figure {n}" for n in arguments.figure]
    lines, results_of = [], dict[Setting, list[Result]]()
    record = {"setting": asdict(base), "seeds": arguments.seeds, "results": dict[str, ByName]()}
    for name in names:
        lines += [f"{name.capitalize()}, seeds {', '.join(map(str, arguments.seeds))}", *HEADER]
        by_name = record["results"][name] = {}
        for each, setting in experiments(base, arguments.dims)[name].items():
            if setting not in results_of:
                results_of[setting] = run(setting, arguments.seeds, arguments)
            by_name[each] = results_of[setting]
            lines += rows_of(name, each, setting.ambiguity, by_name[each])
            if arguments.out:
                arguments.out.write_text(json.dumps(record, default=asdict, indent=1) + "\n")
        lines += [NOTES[name]] if name in NOTES else []
    print("\n".join([*lines, f"An encoder's kappa is held below {LARGEST:.0e}."]))


if __name__ == "__main__":
    main()
