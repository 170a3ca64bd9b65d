"""The direct draw: a reduced problem at any d and d_h, exactly in law, without a vector of either length.

With Gaussian noise and Gaussian weights only inner products matter, and Bartlett's decomposition gives those: an n x m
standard Gaussian matrix is L U, with L lower triangular, L_ii ~ chi(m - i) (i from 0) and N(0, 1) below the diagonal,
and U with orthonormal rows, independent of L. So we draw tokens in coordinates of an orthonormal basis of their own
span (L), then the weights on the axes of that basis (isotropic, hence standard Gaussian there), then, by the same
decomposition, queries and keys in a basis of their span. No cost depends on d or d_h.

Fresh points are drawn given the training problem, each with its exact law and independently of one another. Their
joint law differs from that of a real test set only in the inner products of their residual parts, of relative size
1 / sqrt(d); no mean over fresh points is affected.
"""

import numpy as np
import torch

from vitbo_lib.data import SignalNoise, sample_labels, whole
from vitbo_lib.errors import UserError
from vitbo_lib.initialization import GaussianInit
from vitbo_lib.seeds import stream
from vitbo_lib.span import Problem, Seen, stack


def gaussian_factor(rows: int, columns: float, rng: np.random.Generator, batch: tuple[int, ...] = ()) -> np.ndarray:
    """A matrix F with F F^T distributed as G G^T, G standard Gaussian of `rows` x `columns`.

    Bartlett's triangular factor (rows x rows) where `columns` >= `rows`, G itself (rows x columns) where not. Leading
    axes `batch` hold independent draws.

    >>> (gaussian_factor(3, 1e16, np.random.default_rng(0)).diagonal() / 1e8).round(6)
    array([1., 1., 1.])
    >>> gaussian_factor(3, 2, np.random.default_rng(0)).shape
    (3, 2)
    """
    if columns < rows:
        return rng.standard_normal((*batch, rows, int(columns)))
    factor = np.tril(rng.standard_normal((*batch, rows, rows)), -1)
    index = np.arange(rows)
    factor[..., index, index] = np.sqrt(rng.chisquare(float(columns) - index, size=(*batch, rows)))
    return factor


def _noise_coordinates(law: SignalNoise, n_samples: int, on_axes: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Noise tokens on (axis of mu_+, axis of mu_-, the training noise's axes), scaled (N*(M-1) 2+axes)."""
    on_signals = np.zeros((len(on_axes), 2)) if law.project else rng.standard_normal((len(on_axes), 2))
    return np.concatenate([on_signals, on_axes], axis=1) * np.tile(law.noise_scales(), n_samples)[:, None]


class _TrainingDraw:
    """Coordinates of the training tokens and the weights on the axes of their span."""

    def __init__(self, law: SignalNoise, n_samples: int, d_h: int, init: GaussianInit, seed: int):
        rng = stream(seed, "train", "noise")
        n_noise = n_samples * (law.n_tokens - 1)
        noise = _noise_coordinates(law, n_samples, gaussian_factor(n_noise, law.d - 2, rng), rng)
        self.axes = noise.shape[1]
        self.signals = np.eye(2, self.axes) * law.signal_norm
        self.coordinates = np.concatenate([self.signals, noise])
        weights = stream(seed, "weights", "training axes")
        hidden = gaussian_factor(2 * self.axes, d_h, weights) * init.sigma_h
        self.w_q, self.w_k = hidden[: self.axes], hidden[self.axes :]
        self.values = weights.standard_normal(self.axes) * (init.sigma_v * init.w_o_norm)
        self.labels = sample_labels(n_samples, stream(seed, "train", "labels"))

    def seen(self) -> tuple:
        """The fields of `Seen` for the training tokens."""
        z = self.coordinates
        return z @ self.w_q, z @ self.w_k, z @ self.values, z @ z.T, self.labels


def _fresh_noise(law: SignalNoise, n_test: int, d_h: int, init: GaussianInit, training: _TrainingDraw,
                 seed: int) -> tuple[np.ndarray, ...]:
    """Fresh noise tokens: coordinates on the training axes, and what the residual axes add to (q, k, V, logits)."""
    rng, weights = stream(seed, "test", "noise"), stream(seed, "weights", "fresh axes")
    per_point = law.n_tokens - 1
    on_axes = rng.standard_normal((n_test * per_point, training.axes - 2))
    coordinates = _noise_coordinates(law, n_test, on_axes, rng)
    residual = gaussian_factor(per_point, law.d - training.axes, rng, (n_test,)) * law.noise_scales()[:, None]
    axes, hidden = residual.shape[-1], training.w_q.shape[1]
    inside = weights.standard_normal((n_test, 2 * axes, hidden)) * init.sigma_h
    outside = gaussian_factor(2 * axes, d_h - hidden, weights, (n_test,)) * init.sigma_h
    on_values = weights.standard_normal((n_test, axes, 1)) * (init.sigma_v * init.w_o_norm)
    logits = np.zeros((n_test, law.n_tokens, law.n_tokens))
    logits[:, 1:, 1:] = (residual @ outside[:, :axes]) @ (residual @ outside[:, axes:]).swapaxes(1, 2)
    added = (residual @ inside[:, :axes], residual @ inside[:, axes:], residual @ on_values)
    return coordinates, *(part.reshape(n_test * per_point, part.shape[-1]) for part in added), logits


def draw(law: SignalNoise, n_samples: int, d_h: float, init: GaussianInit, n_test: int, seed: int,
         dtype: torch.dtype = torch.float64, device: torch.device | str = "cpu") -> Problem:
    """One reduced problem (R = 1) with `n_test` fresh points, exactly in law, at any `law.d` and `d_h` up to 1e21.

    >>> law = SignalNoise(n_tokens=2, d=1e16, signal_norm=2e7, sigma_p=0.1, sigma_p_tilde=0.7)
    >>> problem = draw(law, n_samples=8, d_h=1e9, init=GaussianInit(sigma_h=1e-11, sigma_v=1e-12), n_test=5, seed=0)
    >>> problem.train.start.queries.shape  # 16 tokens, 10 of them distinct; h = 2 * 10
    torch.Size([1, 16, 20])
    """
    if not isinstance(init, GaussianInit):
        raise UserError("the direct draw needs Gaussian weights; use --engine reduced, or --init gaussian")
    n_samples, n_test, d_h = whole("N", n_samples), whole("n_test", n_test), whole("d_h", d_h)
    if n_samples * law.n_tokens > 2**13:
        raise UserError(f"N M = {n_samples * law.n_tokens} training tokens are too many for dense inner products; "
                        f"keep N M at most {2**13}")
    training = _TrainingDraw(law, n_samples, d_h, init, seed)
    coordinates, queries, keys, values, logits = _fresh_noise(law, n_test, d_h, init, training, seed)
    fresh = np.concatenate([training.signals, coordinates])
    moved = [np.concatenate([np.zeros((2, part.shape[1])), part]) for part in (queries, keys, values)]
    test = (fresh @ training.w_q + moved[0], fresh @ training.w_k + moved[1], fresh @ training.values + moved[2][:, 0],
            fresh @ training.coordinates.T, sample_labels(n_test, stream(seed, "test", "labels")))
    as_tensor = [[torch.as_tensor(part, dtype=dtype, device=device) for part in parts]
                 for parts in (training.seen(), test, (logits, init.w_o_norm**2))]
    train_seen, test_seen, (outside, w_o_norm_squared) = Seen(*as_tensor[0]), Seen(*as_tensor[1]), as_tensor[2]
    outside = None if training.w_q.shape[1] >= d_h else outside
    return Problem(stack(train_seen, train_seen), stack(test_seen, train_seen, outside),
                   w_o_norm_squared.reshape(1))
