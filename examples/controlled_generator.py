"""A generative process whose posteriors are known, and the encoder that is to find them.

An observation x is a point of [0, 1]^D, and its posterior over latents is vMF(mu(x), kappa(x)), where mu and kappa are
small random networks. Positives are x+ whose latent lies around x's as vMF(z, kappa_pos) says: by rejection.

Source: Kirchhof et al. 2023 (MCInfoNCE), appendix B.1 and B.2. Where the authors' code does something that the text
leaves out, it says so here: their generator is trained to spread over the sphere before anything else. Without that the
construction of the text gives a cone (mean cosine 0.95 between two mu), far from the uniform latents of the theory.
"""

import itertools
import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from scoring.distributions import vmf
from trainers.methods.contrast import Contrast

SPREAD = 0.5  # some pair of 1000 mu must have a cosine below this, or the generator is drawn again
SMOOTHING_STEPS = 5000
LARGEST = 1e12  # kappa of an encoder: draws then spread by 3e-6, not far from what float32 can separate
FAMILIES = ("vmf", "gaussian", "laplace")
TABLE_POINTS = 2**20  # of log C over kappa; the nearest is taken, which is good to 1e-4 up to kappa = 128


def network(widths: list[int]) -> nn.Sequential:
    """Return linear layers of these widths with leaky ReLU between them."""
    layers: list[nn.Module] = []
    for before, after in itertools.pairwise(widths):
        layers += [nn.Linear(before, after), nn.LeakyReLU()]
    return nn.Sequential(*layers[:-1])


class Concentration(nn.Module):
    """kappa(x) = exp(a softplus(net(x)) + c), where a and c make it span a range on 1000 points.

    The text has 1 + exp(net(x)); this is the authors' code, which keeps the range whatever the net.
    """

    def __init__(self, net: nn.Sequential, low: float, high: float) -> None:
        super().__init__()
        self.net, self.infinite = net, math.isinf(high)
        if self.infinite:
            return
        with torch.no_grad():
            raw = F.softplus(net(torch.rand(1000, net[0].in_features)))
        self.slope = math.log(high / low) / float(raw.max() - raw.min())
        self.offset = math.log(high) - self.slope * float(raw.max())

    def forward(self, x: Tensor) -> Tensor:
        """Return kappa, shape (N,), > 0, of x, shape (N, D)."""
        if self.infinite:
            return x.new_full((len(x),), torch.inf)
        return torch.exp(self.slope * F.softplus(self.net(x)).squeeze(1) + self.offset)


@dataclass(frozen=True)
class Pairs:
    """Observations and their positives.

    Attributes:
        x: shape (N, D).
        x_pos: shape (N, D).
        odds: probability of each positive (column) to be a negative of each x (row), shape (N, N); None where it is 1.
        unaccepted: of the pairs, how many found no positive and took the likeliest candidate; always 0 with patience.
    """

    x: Tensor
    x_pos: Tensor
    odds: Tensor | None
    unaccepted: Tensor


class Generator(nn.Module):
    """The process: x uniform, and z given x as vMF(mu(x), kappa(x)).

    Args:
        low: least kappa(x); inf for a process in which x shows z.
        high: largest kappa(x).
        dim: D, of x and of z.
        kappa_pos: concentration of the latent of a positive around its anchor's.
        accept: "exact": a candidate is accepted with probability proportional to vMF(z+; z, kappa_pos), equation 3,
            averaged over its posterior. "eq53": z+ is drawn and accepted with the probability of equation 53, as the
            paper has it; then a negative is accepted with one minus that, as in the authors' code, which ``Pairs.odds``
            holds.
        smoothing: steps that spread mu over the sphere; 0 for the construction as the text has it.
        family: of the posteriors: "vmf", or mu plus noise on the sphere, "gaussian" with variance 1/kappa or "laplace"
            with scale 1/kappa.
    """

    def __init__(
        self,
        low: float,
        high: float,
        *,
        dim: int = 10,
        kappa_pos: float = 20.0,
        accept: str = "exact",
        smoothing: int = SMOOTHING_STEPS,
        family: str = "vmf",
    ) -> None:
        super().__init__()
        if accept not in ("exact", "eq53"):
            raise ValueError(f"accept must be exact or eq53, got {accept!r}")
        if family not in FAMILIES:
            raise ValueError(f"family must be one of {', '.join(FAMILIES)}, got {family!r}")
        self.dim, self.kappa_pos, self.accept, self.family = dim, kappa_pos, accept, family
        self.direction, self.kappa = _spread_out(dim, low, high, smoothing)
        self.requires_grad_(False)
        uniform = vmf.log_normalizer(torch.zeros(()), dim)
        self.log_ratio = float(uniform - vmf.log_normalizer(torch.tensor(kappa_pos), dim))  # log C(0)/C(kappa_pos)
        self.top = (
            1.0 if math.isinf(high) else 1.25 * high
        )  # kappa(x) was fitted on 1000 points and goes a little beyond
        self.longest = self.top + kappa_pos  # of kappa+ mu+ + kappa_pos z
        grid = torch.linspace(0, self.longest, TABLE_POINTS, dtype=torch.float64)
        self.register_buffer("log_c", vmf.log_normalizer(grid, dim).float())
        at_top = vmf.log_normalizer(torch.tensor([self.top, self.longest]), dim)
        self.bound = float(at_top[0] - at_top[1])  # of log C(kappa) - log C(kappa + kappa_pos)

    def posterior(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return mu, unit vectors (N, D), and kappa (N,) of x, shape (N, D)."""
        return F.normalize(self.direction(x), dim=1), self.kappa(x)

    def latents(self, mu: Tensor, kappa: Tensor) -> Tensor:
        """Return a latent of each posterior, unit vectors (N, D)."""
        if self.family == "vmf":
            return vmf.sample(mu, kappa, 1)[0]
        if self.family == "gaussian":
            noise = torch.randn_like(mu) / kappa.sqrt().unsqueeze(1)
        else:
            noise = (torch.empty_like(mu).exponential_() - torch.empty_like(mu).exponential_()) / kappa.unsqueeze(1)
        return F.normalize(mu + noise, dim=1)

    @torch.no_grad()
    def spread(self, mu: Tensor, kappa: Tensor, draws: int = 256) -> Tensor:
        """Return the mean cosine distance of the latents from mu, shape (N,); of ``draws`` where it has no formula."""
        if self.family == "vmf":
            return 1 - vmf.mean_cosine(kappa, self.dim)
        return sum(1 - (mu * self.latents(mu, kappa)).sum(1) for _ in range(draws)) / draws

    def log_chance(self, z: Tensor, mu: Tensor, kappa: Tensor) -> Tensor:
        """Return the log of the probability, at most 1, that a candidate is accepted: all pairs, shape (N, K).

        The average of e^{kappa_pos (z.z+ - 1)} over z+ from vMF(mu, kappa) is C(kappa) / C(|kappa mu + kappa_pos z|)
        up to a constant, and largest where mu is z and kappa at its top.

        Args:
            z: latents of the anchors, shape (N, D).
            mu: of the candidates, shape (K, D).
            kappa: of the candidates, shape (K,).
        """
        cosine = z @ mu.T
        if self.kappa.infinite:
            return self.kappa_pos * (cosine - 1)
        length = (kappa.square() + self.kappa_pos**2 + 2 * kappa * self.kappa_pos * cosine).clamp(min=0).sqrt()
        return (self._log_c(kappa) - self._log_c(length) - self.bound).clamp(max=0)

    def _log_c(self, kappa: Tensor) -> Tensor:
        at = (kappa * ((TABLE_POINTS - 1) / self.longest)).add_(0.5).clamp_(max=TABLE_POINTS - 1)
        return self.log_c[at.long()]

    @torch.no_grad()
    def pairs(self, n: int, *, pool: int = 2048, patience: bool = True) -> Pairs:
        """Draw ``n`` observations, each with a positive.

        Candidates are uniform and shared by all anchors, each of which takes the first that it accepts. That leaves
        every pair exactly distributed, while two anchors of a batch may share a positive.

        Args:
            n: pairs.
            pool: candidates that are looked at together.
            patience: draw pools until every anchor has a positive. Without it, as in a CUDA graph, there is one pool.
        """
        device = self.log_c.device
        x = torch.rand(n, self.dim, device=device)
        z = self.latents(*self.posterior(x))
        x_pos, z_pos, is_accepted = self._candidates(z, pool)
        while patience and not is_accepted.all():
            rows = (~is_accepted).nonzero().squeeze(1)
            x_pos[rows], z_pos[rows], is_accepted[rows] = self._candidates(z[rows], pool)
        odds = torch.sigmoid(self.log_ratio - self.kappa_pos * (z @ z_pos.T)) if self.accept == "eq53" else None
        return Pairs(x, x_pos, odds, (~is_accepted).sum())

    def _candidates(self, z: Tensor, pool: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return for each latent an x, a latent or mu of it, and whether it was accepted or is only the likeliest."""
        x = torch.rand(pool, self.dim, device=z.device)
        mu, kappa = self.posterior(x)
        if self.accept == "eq53" or self.family != "vmf":
            mu = self.latents(mu, kappa)
            log_odds = self.kappa_pos * (z @ mu.T)
            exact = self.accept == "exact"
            chance = (log_odds - self.kappa_pos).exp() if exact else torch.sigmoid(log_odds - self.log_ratio)
        else:
            chance = self.log_chance(z, mu, kappa).exp_()
        accepted = torch.rand_like(chance) < chance
        first, is_accepted = accepted.int().argmax(1), accepted.any(1)
        chosen = torch.where(is_accepted, first, chance.argmax(1))
        return x[chosen], mu[chosen], is_accepted


def _spread_out(dim: int, low: float, high: float, smoothing: int) -> tuple[nn.Sequential, Concentration]:
    for _ in range(1000):
        direction = network([dim] * 4)
        kappa = Concentration(network([dim, dim, 1]), low, high)
        _smooth(direction, smoothing)
        with torch.no_grad():
            mu = F.normalize(direction(torch.rand(1000, dim)), dim=1)
        if float((mu @ mu.T).min()) <= SPREAD:
            return direction, kappa
    raise RuntimeError(f"no generator in 1000 has two mu of a cosine below {SPREAD}; use another seed or dimension")


def _smooth(direction: nn.Sequential, steps: int) -> None:
    """Train mu so that 1 - cos/2 of two points comes near their distance, most of all for near points.

    Source: the authors' code (its generator), restated; the text does not have it.
    """
    optimizer = torch.optim.Adam(direction.parameters(), lr=0.01)
    first, second = torch.tril_indices(64, 64)
    for _ in range(steps):
        x = torch.rand(64, direction[0].in_features)
        mu = F.normalize(direction(x), dim=1)
        apart = 1 - (mu @ mu.T)[first, second] / 2
        distance = torch.cdist(x, x)[first, second]
        loss = ((distance - apart).square() * (math.sqrt(2) - apart.detach()) ** 4).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


class Certainty(nn.Module):
    """kappa(x) = exp(a net(x) + c), where a and c make it span a range on 1000 points before it learns.

    It can go as low as a loss wants: ``Concentration`` has a floor at e^c, which the softplus never goes below. And it
    stays below ``LARGEST``, since a loss that wants kappa = inf ends in inf * 0 where float32 overflows: log kappa is
    log LARGEST - softplus(log LARGEST - a net - c), which leaves a kappa of 100 as it is, to ten digits.

    Args:
        net: to a single output.
        low: least kappa at the start.
        high: largest kappa at the start.
        inputs: what the net reads at the start, shape (N, D); by default 1000 uniform x.
    """

    def __init__(self, net: nn.Sequential, low: float, high: float, inputs: Tensor | None = None) -> None:
        super().__init__()
        self.net = net
        with torch.no_grad():
            raw = net(torch.rand(1000, net[0].in_features) if inputs is None else inputs)
        self.slope = math.log(high / low) / float(raw.max() - raw.min())
        self.offset = math.log(high) - self.slope * float(raw.max())

    def forward(self, x: Tensor) -> Tensor:
        """Return kappa, shape (N,), > 0 and at most ``LARGEST``, of x, shape (N, D)."""
        top = math.log(LARGEST)
        below = top - self.offset - self.slope * self.net(x).squeeze(1)
        return torch.exp(top - F.softplus(below))


class Encoder(nn.Module):
    """mu(x) and kappa(x) from two networks that share nothing, six hidden layers each (appendix B.1).

    Args:
        dim: of x.
        width: of the middle layers.
        low: least kappa at the start.
        high: largest kappa at the start.
        calm: start from centred inputs and outputs that fill the sphere.
        latent_dim: of mu; by default as of x.
        shared: kappa is a network of three layers on mu (B.8).
    """

    def __init__(
        self,
        dim: int,
        width: int,
        low: float,
        high: float,
        *,
        calm: bool,
        latent_dim: int | None = None,
        shared: bool = False,
    ) -> None:
        super().__init__()
        edge, self.shared = 10 * dim, shared
        widths, latent_dim = [dim, edge, *[width] * 4, edge], latent_dim or dim
        self.direction = network([*widths, latent_dim])
        net = network([latent_dim, edge, edge, 1] if shared else [*widths, 1])
        if calm:
            _calm(self.direction)
            if not shared:
                _calm(net)
            _fill(self.direction)
        inputs = F.normalize(self.direction(torch.rand(1000, dim)).detach(), dim=1) if shared else None
        self.kappa = Certainty(net, low, high, inputs)

    def forward(self, x: Tensor, *, learns: str = "both") -> tuple[Tensor, Tensor]:
        """Return mu, unit vectors (N, D), and kappa (N,); the one that is not to learn has no gradient."""
        with torch.set_grad_enabled(torch.is_grad_enabled() and learns != "kappa"):
            mu = F.normalize(self.direction(x), dim=1)
        with torch.set_grad_enabled(torch.is_grad_enabled() and learns != "mu"):
            kappa = self.kappa(mu if self.shared else x)
        return mu, kappa


@torch.no_grad()
def _calm(net: nn.Sequential) -> None:
    """Keep the variance through the layers, and have the first one centre and scale x from [0, 1]."""
    linear = [layer for layer in net if isinstance(layer, nn.Linear)]
    for layer in linear:
        nn.init.kaiming_normal_(layer.weight, a=0.01)
        nn.init.zeros_(layer.bias)
    linear[0].weight.mul_(math.sqrt(12))
    linear[0].bias.copy_(-linear[0].weight.sum(1) / 2)


@torch.no_grad()
def _fill(net: nn.Sequential) -> None:
    """Have the last layer give outputs of mean 0 and covariance 1, so that mu starts all over the sphere."""
    last = net[-1]
    out = net(torch.rand(4000, net[0].in_features))
    values, vectors = torch.linalg.eigh(torch.cov(out.T))
    whiten = (vectors / values.clamp(min=1e-6 * float(values[-1])).sqrt()) @ vectors.T
    last.weight.copy_(whiten @ last.weight)
    last.bias.copy_(whiten @ (last.bias - out.mean(0)))


def of_pairs(n: int, n_bank: int = 0, *, negatives: str = "batch", device: torch.device | None = None) -> Contrast:
    """Use item n + i as the positive of item i, and as negatives either the batch or a bank.

    Args:
        n: pairs, >= 2. Items are n anchors, their n positives, then ``n_bank`` others.
        n_bank: items that are only negatives.
        negatives: "batch": all items but the pair itself. "bank": the last ``n_bank`` items, for all anchors the same.
            "roll": the positive of the anchor before, and no other, as the paper trains mu (its "M = 0").
        device: where the result lives.
    """
    each = torch.arange(n, device=device)
    among = slice(None)
    if negatives == "batch":
        weights = torch.ones(n, 2 * n + n_bank, device=device)
        weights[each, each] = 0
        weights[each, n + each] = 0
    elif negatives == "bank" and n_bank > 0:
        weights, among = torch.ones(n, n_bank, device=device), slice(2 * n, 2 * n + n_bank)
    elif negatives == "roll" and n > 1:
        weights, among = torch.eye(n, device=device).roll(-1, 1), slice(n, 2 * n)
    else:
        raise ValueError(f"negatives must be batch, bank (with a bank) or roll, got {negatives!r} and {n_bank} in it")
    return Contrast(slice(0, n), slice(n, 2 * n), weights, among)
