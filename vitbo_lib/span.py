"""The exact reduction: gradient descent on eq. (1) never leaves the span of the training tokens.

Stack the tokens of all samples as rows of Z (N*M d). Every gradient is Z^T times something (Lemma B.1), so that after t
steps W_Q(t) = W_Q(0) + Z^T A_Q, and likewise for W_K and for W_V w_O. What the network sees of any token x is then

    x^T W_Q(t) = x^T W_Q(0) + (x^T Z^T) A_Q ,

an initial part and inner products with the training tokens: d appears nowhere. A_Q, A_K (N*M h) and A_v (N*M), the
`coefficients`, zeros at t = 0, are the whole state of training, and `Points` holds the rest.

Queries and keys meet only in inner products, so hidden space may be rotated: where d_h > 2K, an orthonormal basis of
the 2K initial queries and keys of the K distinct training tokens is enough (h = 2K), because training moves queries
only by keys and keys only by queries. Of a fresh token the part outside that basis never changes; it adds a constant
to the logits between fresh noise tokens (`outside_logits`).
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from vitbo_lib.data import DataSet, token_rows
from vitbo_lib.errors import UserError
from vitbo_lib.transformer import Weights


@dataclass(frozen=True)
class Seen:
    """Distinct tokens through the initial weights: mu_+, mu_-, then noise tokens sample by sample (K rows).

    `queries`, `keys` (K h), `values` (K), `inner_products` with the distinct training tokens (K K_train), and the
    samples' `labels` (N).
    """

    queries: Tensor
    keys: Tensor
    values: Tensor
    inner_products: Tensor
    labels: Tensor

    @property
    def n_tokens(self) -> int:
        """M."""
        return (len(self.values) - 2) // len(self.labels) + 1


@dataclass(frozen=True)
class Triple:
    """Something for queries, keys (R N*M h) and scalarized values (R N*M): what tokens look like, or `coefficients`."""

    queries: Tensor
    keys: Tensor
    values: Tensor

    def map(self, function) -> "Triple":
        """`function` of each part."""
        return Triple(function(self.queries), function(self.keys), function(self.values))

    @property
    def parts(self) -> tuple[Tensor, Tensor, Tensor]:
        """The three parts, in order."""
        return self.queries, self.keys, self.values


@dataclass(frozen=True)
class Points:
    """Samples as the network sees them, before and during training, in R runs at once.

    `start`: query, key and scalarized value of every token at t = 0;
    `cross` (R N*M N_train*M): inner products with the stacked training tokens; `labels` (R N);
    `outside_logits` (R N M M): the constant part of the logits, or None where there is none.
    """

    start: Triple
    cross: Tensor
    labels: Tensor
    outside_logits: Tensor | None = None

    @property
    def n_tokens(self) -> int:
        """M."""
        return self.cross.shape[1] // self.labels.shape[1]

    def run(self, index) -> "Points":
        """The points of some of the runs."""
        outside = None if self.outside_logits is None else self.outside_logits[index]
        return Points(self.start.map(lambda part: part[index]), self.cross[index], self.labels[index], outside)


@dataclass(frozen=True)
class Problem:
    """Training points, fresh points and ||w_O||^2 (`w_o_norm_squared`, R) of R runs; all that training depends on.

    `hidden_basis` (R d_h h), orthonormal columns, leads back to the full weights where hidden space was rotated.
    """

    train: Points
    test: Points
    w_o_norm_squared: Tensor
    hidden_basis: Tensor | None = None

    @property
    def runs(self) -> int:
        """R."""
        return len(self.w_o_norm_squared)

    def run(self, index) -> "Problem":
        """The problem of some of the runs."""
        basis = None if self.hidden_basis is None else self.hidden_basis[index]
        return Problem(self.train.run(index), self.test.run(index), self.w_o_norm_squared[index], basis)


def by_sample(triple: Triple, n_tokens: int) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys (R N M h) and scalarized values (R N M), as views."""
    return tuple(part.unflatten(1, (-1, n_tokens)) for part in triple.parts)


def check_state(points: Points, state: Triple) -> None:
    """`UserError` unless `state` has the shapes of a state of the problem that `points` belong to."""
    runs, _, trained = points.cross.shape
    hidden = points.start.queries.shape[-1]
    found, expected = [tuple(part.shape) for part in state.parts], [(runs, trained, hidden)] * 2 + [(runs, trained)]
    if found != expected:
        raise UserError(f"a state of shapes {found} is of another problem than these points, where it has {expected}; "
                        "give a state of the same one")


def projections(points: Points, coefficients: Triple) -> Triple:
    """Query, key and scalarized value of every token of `points` at the state `coefficients`: start + cross A."""
    check_state(points, coefficients)
    return Triple(torch.baddbmm(points.start.queries, points.cross, coefficients.queries),
                  torch.baddbmm(points.start.keys, points.cross, coefficients.keys),
                  points.start.values + (points.cross @ coefficients.values.unsqueeze(-1)).squeeze(-1))


def look(data: DataSet, weights: Weights, train: DataSet | None = None) -> Seen:
    """`data` through the initial `weights`, with inner products to the tokens of `train` (to its own, if None)."""
    tokens = data.distinct_tokens
    others = tokens if train is None else train.distinct_tokens
    values = tokens @ weights.value_direction
    return Seen(tokens @ weights.w_q, tokens @ weights.w_k, values, tokens @ others.T, data.labels)


def first_samples(seen: Seen, n_samples: int) -> Seen:
    """The same training points, only the first `n_samples` of them; inner products among those that are left."""
    kept = 2 + n_samples * (seen.n_tokens - 1)
    return Seen(seen.queries[:kept], seen.keys[:kept], seen.values[:kept], seen.inner_products[:kept, :kept],
                seen.labels[:n_samples])


def hidden_basis(seen: Seen) -> Tensor | None:
    """Orthonormal basis (d_h 2K) of the span of all queries and keys; None where it would not be smaller."""
    stacked = torch.cat([seen.queries, seen.keys])
    return None if len(stacked) >= stacked.shape[1] else torch.linalg.qr(stacked.T).Q


def rotate(seen: Seen, basis: Tensor | None) -> Seen:
    """Queries and keys in the coordinates of `basis`; what lies outside it is dropped."""
    return seen if basis is None else replace(seen, queries=seen.queries @ basis, keys=seen.keys @ basis)


def sample_logits(seen: Seen) -> Tensor:
    """<q_l, k_j> inside every sample (N M M)."""
    rows = token_rows(seen.labels, seen.n_tokens)
    return seen.queries[rows] @ seen.keys[rows].mT


def stack(seen: Seen, train: Seen, outside_logits: Tensor | None = None) -> Points:
    """Points of one run (R = 1) from distinct tokens: rows are repeated as the samples use them."""
    rows = token_rows(seen.labels, seen.n_tokens).flatten()
    train_rows = token_rows(train.labels, train.n_tokens).flatten()
    start = Triple(seen.queries, seen.keys, seen.values).map(lambda part: part[rows].unsqueeze(0))
    cross = seen.inner_products[rows][:, train_rows]
    outside = None if outside_logits is None else outside_logits.unsqueeze(0)
    return Points(start, cross.unsqueeze(0), seen.labels.unsqueeze(0), outside)


def assemble(train: Seen, test: Seen, w_o_norm_squared: Tensor) -> Problem:
    """The problem of one run from its training and fresh tokens, hidden space rotated where that makes it smaller."""
    basis = hidden_basis(train)
    train_rotated, test_rotated = rotate(train, basis), rotate(test, basis)
    outside = None if basis is None else sample_logits(test) - sample_logits(test_rotated)
    return Problem(stack(train_rotated, train_rotated), stack(test_rotated, train_rotated, outside),
                   w_o_norm_squared.reshape(1), None if basis is None else basis.unsqueeze(0))


def reduce(train: DataSet, test: DataSet, weights: Weights) -> Problem:
    """The exact reduction of one given problem; training on it is training on eq. (1) (R = 1).

    >>> import numpy as np, torch
    >>> from vitbo_lib.data import SignalNoise, sample
    >>> from vitbo_lib.initialization import GaussianInit, sample_weights
    >>> law = SignalNoise(n_tokens=3, d=200, signal_norm=2, sigma_p=0.1, sigma_p_tilde=1)
    >>> rng = np.random.default_rng(0)
    >>> train, test = sample(law, 4, rng, rng), sample(law, 50, rng, rng)
    >>> weights = sample_weights(GaussianInit(sigma_h=0.01, sigma_v=0.01), 200, 100, 8, rng)
    >>> problem = reduce(train, test, weights)
    >>> problem.train.start.queries.shape  # 12 tokens, 10 of them distinct; h = 2 * 10
    torch.Size([1, 12, 20])
    """
    _check_shapes(train, test, weights)
    return assemble(look(train, weights), look(test, weights, train), weights.w_o @ weights.w_o)


def _check_shapes(train: DataSet, test: DataSet, weights: Weights) -> None:
    """`UserError` unless tokens and weights are of one d, both sets have M tokens, and W_Q, W_K and W_V, w_O agree."""
    for name, data in (("training", train), ("test", test)):
        if data.noise.ndim != 3 or data.labels.shape != data.noise.shape[:1] or not len(data.labels):
            raise UserError(f"{name} noise of shape {tuple(data.noise.shape)} and labels of shape "
                            f"{tuple(data.labels.shape)} are no samples; give (N, M - 1, d) and (N,), N at least 1")
        if not data.labels.is_meta and not bool((data.labels.abs() == 1).all()):  # a meta tensor has no numbers
            raise UserError(f"{name} labels are not all +1 or -1; give one of these for each sample")
    shapes = [tuple(part.shape) for part in (weights.w_q, weights.w_k, weights.w_v, weights.w_o)]
    d, d_h, d_v = train.noise.shape[2], weights.w_q.shape[-1], weights.w_o.shape[-1]
    if shapes != [(d, d_h), (d, d_h), (d, d_v), (d_v,)]:
        raise UserError(f"weights of shapes {', '.join(map(str, shapes))} do not fit tokens of dimension {d}; give "
                        "W_Q, W_K (d, d_h), W_V (d, d_v) and w_O (d_v,)")
    if test.noise.shape[1:] != train.noise.shape[1:]:
        raise UserError(f"test noise of shape {tuple(test.noise.shape)} does not fit training noise of shape "
                        f"{tuple(train.noise.shape)}; give the same M and d")


def concatenate(problems: list[Problem]) -> Problem:
    """Several problems of the same shapes as one of R runs; `UserError` for none, or for different shapes."""
    shapes = {tuple(None if part is None else part.shape[1:] for points in (p.train, p.test)
                    for part in (*points.start.parts, points.cross, points.labels, points.outside_logits))
              for p in problems}
    if len(shapes) != 1:
        raise UserError(f"{len(problems)} problems of {len(shapes)} different shapes cannot be joined; give at least "
                        "one, all with the same N, M, number of fresh points and hidden basis")

    def join(parts):
        return None if parts[0] is None else torch.cat(parts)

    def join_points(points):
        start = Triple(*(join(parts) for parts in zip(*(p.start.parts for p in points))))
        return Points(start, *(join([getattr(p, name) for p in points])
                               for name in ("cross", "labels", "outside_logits")))

    return Problem(join_points([p.train for p in problems]), join_points([p.test for p in problems]),
                   join([p.w_o_norm_squared for p in problems]), join([p.hidden_basis for p in problems]))


def restore(problem: Problem, coefficients: Triple, train: DataSet, weights: Weights) -> Weights:
    """The full weights of a single run at the state `coefficients`: W_Q(t) = W_Q(0) + Z^T A_Q.

    The increment of W_V is a multiple of w_O^T, Z^T A_v w_O^T / ||w_O||^2, because W_V is seen only through W_V w_O.
    """
    stacked = train.tokens.flatten(0, 1).T
    w_q, w_k, values = (stacked @ part[0] for part in coefficients.parts)
    if problem.hidden_basis is not None:
        w_q, w_k = w_q @ problem.hidden_basis[0].T, w_k @ problem.hidden_basis[0].T
    w_v = values.unsqueeze(-1) * weights.w_o / problem.w_o_norm_squared[0]
    return Weights(weights.w_q + w_q, weights.w_k + w_k, weights.w_v + w_v, weights.w_o)
