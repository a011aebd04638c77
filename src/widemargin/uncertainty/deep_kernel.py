"""Deep kernels: a Gaussian process on learned features, confident only near training data (DUE, van Amersfoort et al.
2021)."""

from __future__ import annotations

import warnings
from types import ModuleType
from typing import Any, final

import torch
from jaxtyping import Float
from torch import Tensor, nn

from widemargin.data.optional import import_optional
from widemargin.rng import Rng
from widemargin.shapes import Encoded, MemberLogits, Points
from widemargin.uncertainty.cuts import Cut
from widemargin.uncertainty.drawn import SAME, Drawn, Renewal

_LLOYD_ITERATIONS = 20

Features = Float[Tensor, "B F"]
Centers = Float[Tensor, "Z F"]
Marginal = Float[Tensor, "C B"]


@final
class DeepKernel(Drawn):
    """One sparse variational process per class (Hensman et al. 2015), softmax of their values; `draws` as members.

    Member m of a point is mean + deviation * noise[m, class]: the right marginal, which is all that a prediction or the
    variational bound asks for, smooth in the point, and independent of its batch.  In eval mode the noise is fixed.
    Training descends the negative bound: the criterion is the expected cross-entropy, `penalty` is KL / examples.
    """

    replicas = 1

    def __init__(
        self,
        cut: Cut,
        process: nn.Module,
        examples: int,
        draws: int,
        renewal: Renewal = SAME,
        seed: int = 0,
    ) -> None:
        super().__init__(draws, renewal, seed)
        if examples < 1:
            raise ValueError(f"examples counts the training points and must be at least 1, got {examples}")
        self.encoder, self.features = cut
        self.process = process
        self.examples = examples

    def encode(self, inputs: Points) -> Encoded:
        return self.encoder(inputs)  # type: ignore[no-any-return]

    def logits(self, encoded: Encoded) -> MemberLogits:
        mean, variance = marginals(self.process, self.features(encoded))
        members: Tensor = mean + variance.clamp_min(0).add(1e-12).sqrt() * self._noise(mean)
        return members.mT

    def _noise(self, mean: Marginal) -> Tensor:
        if self.training:
            return torch.randn(self.draws, *mean.shape, dtype=mean.dtype, device=mean.device)
        return self.fixed_noise(mean)

    def fixed_noise(self, mean: Marginal) -> Tensor:
        """[draws, classes, 1]: what makes the members in eval mode."""
        # In single precision and on the processor: the same members in every dtype and on every device.
        rng = Rng.seeded(self.member_seed(), purpose="process")
        return rng.normal(torch.empty(self.draws, mean.shape[0], 1)).to(mean)

    def penalty(self) -> Tensor:
        _forget(self.process)
        return self.process.variational_strategy.kl_divergence().sum() / self.examples  # type: ignore[no-any-return, union-attr, operator]


def check_deep_kernel() -> ModuleType:
    """gpytorch, or one sentence if it is missing."""
    with warnings.catch_warnings():
        # It uses torch.jit when it is imported.
        warnings.simplefilter("ignore", DeprecationWarning)
        return import_optional("gpytorch", "'widemargin[gp]'", "a deep kernel")


def gaussian_process(centers: Centers, classes: int, length: float, seed: int = 0) -> nn.Module:
    """Independent processes with a scaled RBF kernel each, on the same inducing points, which are learned further."""
    gpytorch = check_deep_kernel()
    batch = torch.Size([classes])

    class Process(gpytorch.models.ApproximateGP):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            around = gpytorch.variational.CholeskyVariationalDistribution(len(centers), batch_shape=batch)
            places = centers.expand(classes, *centers.shape).clone()
            super().__init__(gpytorch.variational.VariationalStrategy(self, places, around))
            self.mean = gpytorch.means.ConstantMean(batch_shape=batch)
            self.kernel = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel(batch_shape=batch), batch_shape=batch)
            self.kernel.base_kernel.lengthscale = length

        def forward(self, features: Tensor) -> Any:
            return gpytorch.distributions.MultivariateNormal(self.mean(features), self.kernel(features))

    # gpytorch draws its first variational mean at the first call, from the global generator: have it done here.
    with Rng.seeded(seed, purpose="variational mean").as_global(), torch.no_grad():
        process: nn.Module = Process()
        process(centers)
    return process


def marginals(process: Any, features: Features) -> tuple[Marginal, Marginal]:
    """Mean and variance of every process at every point: what gpytorch answers, in a third of its time.

    With Z the inducing points, K_ZZ = L L' and A = L^-1 K_Zx, the whitened posterior N(m, S S') of their values gives
    the mean c + A' m and the variance k(x, x) - |A|^2 + |S' A|^2 (Hensman et al. 2015).
    """
    strategy, kernel = process.variational_strategy, process.kernel
    scale, length = kernel.outputscale[:, None, None], kernel.base_kernel.lengthscale
    places, points = strategy.inducing_points / length, features / length
    near = scale * _rbf(places, places) + strategy.jitter_val * torch.eye(places.shape[1]).to(features)
    # In double precision, as gpytorch does: many inducing points are nearly the same.
    factor = torch.linalg.cholesky(near.double())
    whitened = torch.linalg.solve_triangular(factor, (scale * _rbf(places, points)).double(), upper=False).to(features)
    values = strategy._variational_distribution
    spread = values.chol_variational_covar.tril().mT @ whitened
    mean = process.mean.constant[:, None] + (values.variational_mean[:, None] @ whitened)[:, 0]
    prior = kernel.outputscale[:, None] + strategy.jitter_val
    return mean, prior - whitened.square().sum(1) + spread.square().sum(1)


def _rbf(ones: Tensor, others: Tensor) -> Tensor:
    return torch.cdist(ones, others, compute_mode="donot_use_mm_for_euclid_dist").square().mul(-0.5).exp()


def first_places(features: Features, count: int, rng: Rng) -> tuple[Centers, float]:
    """Inducing points by k-means, and a length scale: where a deep kernel begins.

    The length is the mean distance between features, as in DUE, but at least half their mean norm.  An untrained LeNet
    differs between digits by a tenth of that norm, and its first updates move all features by more than that: with the
    distance alone the kernel is zero between every digit and every inducing point from then on, and so are all
    gradients.
    """
    centers = k_means(features, count, rng)
    length = max(float(torch.pdist(features[:1000]).mean()), float(features.norm(dim=1).mean()) / 2)
    return centers, length if length > 0 else 1.0


def k_means(points: Features, count: int, rng: Rng) -> Centers:
    """Lloyd's algorithm from `count` points drawn without repetition; a centre without points does not move."""
    if not 1 <= count <= len(points):
        raise ValueError(f"k-means needs 1..{len(points)} centres for {len(points)} points, got {count}")
    centers = points[rng.permutations(len(points))[0, :count].to(points.device)].clone()
    for _ in range(_LLOYD_ITERATIONS):
        nearest = torch.cdist(points, centers).argmin(1)
        taken = torch.zeros(count, len(points), dtype=points.dtype, device=points.device)
        taken[nearest, torch.arange(len(points), device=points.device)] = 1.0
        sizes = taken.sum(1, keepdim=True)
        centers = torch.where(sizes > 0, taken @ points / sizes.clamp_min(1), centers)
    return centers


def _forget(process: nn.Module) -> None:
    """gpytorch caches a Cholesky factor between calls, also after the optimiser has changed the matrix."""
    for module in process.modules():
        getattr(module, "_memoize_cache", {}).clear()
