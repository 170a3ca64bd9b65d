"""The data of Definition 3.1: one signal token, one strong and otherwise weak noise tokens."""

import itertools
import math
from collections.abc import Collection, Hashable
from dataclasses import dataclass
from numbers import Real

import numpy as np
import torch

from vitbo_lib.errors import UserError
from vitbo_lib.seeds import stream

LARGEST_DIMENSION = 1e21  # beyond it, differences such as d - 2 - n lose their meaning even as ratios
MOST_EVEN_SAMPLES = 10**6  # beyond it, seeds of even classes are too rare to look for
LARGEST_LENGTH = 1e30  # of a signal or of noise; products of four, times d, are far from overflow in float64


def whole(name: str, value, least: int = 1, most: float = LARGEST_DIMENSION) -> int:
    """`value` as an int, if it is a whole number between `least` and `most`; a UserError that names it otherwise.

    >>> whole("d", 1e16)
    10000000000000000
    """
    if not _finite(value) or value != int(value):
        raise UserError(f"{name} = {value} is not possible; give a whole number, at least {least}")
    if not least <= value <= most:
        shown = int(value) if abs(value) < LARGEST_DIMENSION else f"{float(value):g}"
        raise UserError(f"{name} = {shown} is not possible; give a whole number from {least} to {most:g}")
    return int(value)


def positive(name: str, value, *, zero: bool = False, most: float = math.inf) -> float:
    """`value` as a float, if it is finite and above 0 (or 0, where `zero`); a UserError that names it otherwise.

    With `most`, numbers above it or below its inverse are refused too: they would overflow later.
    """
    if not _finite(value) or not (value > 0 or (zero and value == 0)):
        raise UserError(f"{name} = {value} is not possible; give a finite number {'at least' if zero else 'above'} 0")
    if value and not 1 / most <= value <= most:
        raise UserError(f"{name} = {value:g} is not possible; give a number from {1 / most:g} to {most:g}")
    return float(value)


def one_of(name: str, value, known: Collection) -> None:
    """`UserError` that lists what is `known`, unless `value` is among it.

    >>> one_of("side", "good", ("benign", "harmful"))
    Traceback (most recent call last):
        ...
    vitbo_lib.errors.UserError: no side 'good'; choose one of benign, harmful
    """
    if not isinstance(value, Hashable) or value not in known:
        raise UserError(f"no {name} {value!r}; choose one of {', '.join(map(str, known))}")


def _finite(value) -> bool:
    """Whether `value` is a real number (no truth value) that a float can hold."""
    try:
        return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:  # a whole number beyond 1e308
        return False


@dataclass(frozen=True, kw_only=True)
class SignalNoise:
    """The law of one data point (X, y), X of M tokens in R^d (Definition 3.1).

    y is +1 or -1 with equal chances; token 1 is mu_+ or mu_- accordingly, orthogonal signals of norm `signal_norm`;
    token 2 is xi_2 ~ N(0, sigma_p_tilde^2 Pi), tokens 3 to M are xi_i ~ N(0, sigma_p^2 Pi). `project` = True takes
    for Pi the projector onto the complement of both signals (the definition), False the identity (the paper's
    experiments). The signals are ||mu|| e_1 and ||mu|| e_2, which loses nothing: the noise is isotropic around them.

    >>> law = SignalNoise(n_tokens=4, d=2048, signal_norm=25, sigma_p=0.05, sigma_p_tilde=1)
    >>> round(law.snr, 2), law.c_p
    (11.05, 20.0)
    """

    n_tokens: int
    d: int
    signal_norm: float
    sigma_p: float
    sigma_p_tilde: float
    project: bool = True

    def __post_init__(self):
        checked = {"n_tokens": whole("M", self.n_tokens, 1, 10_000), "d": whole("d", self.d, 3)}
        checked |= {name: positive(name, getattr(self, name), most=LARGEST_LENGTH)
                    for name in ("signal_norm", "sigma_p", "sigma_p_tilde")}
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    @property
    def snr(self) -> float:
        """||mu|| / (sigma_p sqrt(d)): with sigma_p, not sigma_p_tilde (Section 3)."""
        return self.signal_norm / (self.sigma_p * math.sqrt(self.d))

    @property
    def c_p(self) -> float:
        """C_p = sigma_p_tilde / sigma_p (Condition 4.1 (10))."""
        return self.sigma_p_tilde / self.sigma_p

    def noise_scales(self) -> np.ndarray:
        """Standard deviation of each noise token of one point: sigma_p_tilde, then sigma_p (M - 1)."""
        return np.array([self.sigma_p_tilde, *[self.sigma_p] * (self.n_tokens - 2)])[: self.n_tokens - 1]


@dataclass(frozen=True)
class DataSet:
    """N points of one law: `signals` (2 d: mu_+, mu_-), `noise` (N M-1 d: xi_{n,2}, ...), `labels` (N, +1 or -1)."""

    signals: torch.Tensor
    noise: torch.Tensor
    labels: torch.Tensor

    @property
    def rows(self) -> torch.Tensor:
        """For each sample and token, its row among the distinct tokens (N M)."""
        return token_rows(self.labels, self.noise.shape[1] + 1)

    @property
    def distinct_tokens(self) -> torch.Tensor:
        """Z: mu_+, mu_-, then every noise token, sample by sample (K d), K = 2 + N(M-1)."""
        return torch.cat([self.signals, self.noise.flatten(0, 1)])

    @property
    def tokens(self) -> torch.Tensor:
        """X of every sample (N M d), the signal first."""
        return self.distinct_tokens[self.rows]


def token_rows(labels: torch.Tensor, n_tokens: int) -> torch.Tensor:
    """Rows of each sample's tokens among the distinct ones: 0 for mu_+, 1 for mu_-, then the noise (N M).

    >>> token_rows(torch.tensor([1., -1.]), 3)
    tensor([[0, 2, 3],
            [1, 4, 5]])
    """
    n_samples = len(labels)
    noise = torch.arange(n_samples * (n_tokens - 1), device=labels.device).view(n_samples, n_tokens - 1) + 2
    return torch.cat([(labels < 0).long().unsqueeze(1), noise], dim=1)


def sample_labels(n_samples: int, rng: np.random.Generator) -> np.ndarray:
    """N labels, +1 or -1 with equal chances (Definition 3.1); a class may stay empty."""
    return rng.integers(0, 2, size=n_samples) * 2.0 - 1.0


def seeds_of_even_classes(first: int, n_samples: int, count: int) -> tuple[int, ...]:
    """The first `count` seeds from `first` on whose N training labels are half +1 and half -1; `UserError` for odd N.

    >>> seeds_of_even_classes(7000, 8, 2)
    (7003, 7005)
    """
    n_samples, count = whole("N", n_samples, 2, MOST_EVEN_SAMPLES), whole("count", count, 0, MOST_EVEN_SAMPLES)
    if n_samples % 2:
        raise UserError(f"N = {n_samples} has no classes of equal size; give an even one")
    even = (seed for seed in itertools.count(first)
            if sample_labels(n_samples, stream(seed, "train", "labels")).sum() == 0)
    return tuple(itertools.islice(even, count))


def sample(law: SignalNoise, n_samples: int, label_rng: np.random.Generator, noise_rng: np.random.Generator,
           dtype: torch.dtype = torch.float64, device: torch.device | str = "cpu") -> DataSet:
    """Draw N points in full, d coordinates a token. The first samples do not depend on N.

    >>> law = SignalNoise(n_tokens=3, d=50, signal_norm=2, sigma_p=0.1, sigma_p_tilde=1)
    >>> data = sample(law, 4, np.random.default_rng(0), np.random.default_rng(1))
    >>> data.tokens.shape, float((data.noise @ data.signals.T).abs().max())
    (torch.Size([4, 3, 50]), 0.0)
    """
    n_samples = whole("N", n_samples)
    shape = (n_samples, law.n_tokens - 1, law.d)
    if math.prod(shape) > 2**30:
        raise UserError(f"{n_samples} samples of {law.n_tokens} tokens in d = {law.d} do not fit in memory; "
                        "draw the reduced problem instead (--engine drawn), whose cost does not depend on d")
    noise = noise_rng.standard_normal(shape) * law.noise_scales()[:, None]
    if law.project:
        noise[..., :2] = 0.0
    signals = np.eye(2, law.d) * law.signal_norm
    labels = sample_labels(n_samples, label_rng)
    return DataSet(*(torch.as_tensor(part, dtype=dtype, device=device) for part in (signals, noise, labels)))
