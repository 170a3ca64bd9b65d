"""The laws of the initial weights: Gaussian as in the theory, uniform as in the experiments."""

import math
from dataclasses import dataclass

import numpy as np
import torch

from vitbo_lib.data import positive
from vitbo_lib.errors import UserError
from vitbo_lib.transformer import Weights

LARGEST_SCALE = 1e100  # of weights: their products with tokens of any law are far from overflow in float64

@dataclass(frozen=True, kw_only=True)
class GaussianInit:
    """Entries of W_Q, W_K ~ N(0, sigma_h^2), of W_V ~ N(0, sigma_v^2), and a fixed w_O of norm `w_o_norm` (Section 3).

    >>> GaussianInit(sigma_h=0.01, sigma_v=0.001).w_o_norm
    1.0
    """

    sigma_h: float
    sigma_v: float
    w_o_norm: float = 1.0

    def __post_init__(self):
        for name, zero in (("sigma_h", True), ("sigma_v", True), ("w_o_norm", False)):
            object.__setattr__(self, name, positive(name, getattr(self, name), zero=zero, most=LARGEST_SCALE))

    def entries(self, shape: tuple[int, int], name: str, rng: np.random.Generator) -> np.ndarray:
        """A weight matrix of this law; `name` is w_q, w_k or w_v."""
        return rng.standard_normal(shape) * (self.sigma_v if name == "w_v" else self.sigma_h)

    def read_out(self, d_v: int, rng: np.random.Generator) -> np.ndarray:
        """w_O: a uniformly random direction; only its norm matters, the law of W_V being isotropic (d_v)."""
        direction = rng.standard_normal(d_v)
        return direction * (self.w_o_norm / np.linalg.norm(direction))


@dataclass(frozen=True, kw_only=True)
class TorchInit:
    """PyTorch's default for a linear layer, times `scale`: W_Q, W_K, W_V ~ U(-1/sqrt(d), 1/sqrt(d)) scale (Section 6).

    w_O ~ U(-1/sqrt(d_v), 1/sqrt(d_v)) times `w_o_scale`, then made of norm `w_o_norm` where that is given. The paper
    divides "all ViT parameters" by 16 and does not say whether w_O is one of them: `w_o_scale` = `scale` (the default)
    or 1.

    >>> TorchInit(scale=1/16).w_o_scale
    0.0625
    """

    scale: float = 1 / 16
    w_o_scale: float | None = None
    w_o_norm: float | None = None

    def __post_init__(self):
        if self.w_o_scale is not None and self.w_o_norm is not None:
            raise UserError("w_o_scale and w_o_norm both fix the size of w_O; give one of them")
        w_o_scale = self.scale if self.w_o_scale is None else self.w_o_scale
        for name, value in (("scale", self.scale), ("w_o_scale", w_o_scale)):
            object.__setattr__(self, name, positive(name, value, most=LARGEST_SCALE))
        if self.w_o_norm is not None:
            object.__setattr__(self, "w_o_norm", positive("w_o_norm", self.w_o_norm, most=LARGEST_SCALE))

    def entries(self, shape: tuple[int, int], name: str, rng: np.random.Generator) -> np.ndarray:  # noqa: ARG002
        """A weight matrix of this law (`name` makes no difference)."""
        bound = self.scale / math.sqrt(shape[0])
        return rng.uniform(-bound, bound, size=shape)

    def read_out(self, d_v: int, rng: np.random.Generator) -> np.ndarray:
        """w_O (d_v)."""
        bound = 1 / math.sqrt(d_v)
        w_o = rng.uniform(-bound, bound, size=d_v) * self.w_o_scale
        return w_o if self.w_o_norm is None else w_o * (self.w_o_norm / np.linalg.norm(w_o))


Initialization = GaussianInit | TorchInit


def sample_weights(init: Initialization, d: int, d_h: int, d_v: int, rng: np.random.Generator,
                   dtype: torch.dtype = torch.float64, device: torch.device | str = "cpu") -> Weights:
    """Draw W_Q, W_K (d h), W_V (d d_v) and w_O (d_v).

    >>> weights = sample_weights(TorchInit(), d=8, d_h=4, d_v=2, rng=np.random.default_rng(0))
    >>> weights.w_q.shape, bool(weights.w_q.abs().max() <= 1 / 16 / 8**0.5)
    (torch.Size([8, 4]), True)
    """
    if d * (2 * d_h + d_v) > 2**30:
        raise UserError(f"weights of d = {d}, d_h = {d_h}, d_v = {d_v} do not fit in memory; "
                        "draw the reduced problem instead (--engine drawn), whose cost does not depend on d or d_h")
    parts = [init.entries((d, size), name, rng) for name, size in (("w_q", d_h), ("w_k", d_h), ("w_v", d_v))]
    parts.append(init.read_out(d_v, rng))
    return Weights(*(torch.as_tensor(part, dtype=dtype, device=device) for part in parts))
