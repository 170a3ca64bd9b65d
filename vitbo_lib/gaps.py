"""Logits and their gaps (Lambda and Psi of Table 1), cross logits, norms of queries and keys, and how fast all move.

Everything follows from the reduced problem and a state of training, for a batch of runs: no vector of length d or d_h.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from vitbo_lib.span import Points, Problem, Triple, by_sample, projections
from vitbo_lib.transformer import attention, token_gradients


@dataclass(frozen=True)
class Gaps:
    """Inner products of queries and keys at a state, for R runs.

    `logits` (R N M M): <q_l, k_j> inside each sample, row l the query; `query_norms`, `key_norms` (R N M): squared
    norms; `cross_sample` (R): the largest |<q_{n,i}, k_{m,j}>| of noise tokens of different samples; `cross_class`
    (R): the larger of |<q_+, k_->| and |<q_-, k_+>|, 0 where a class is absent; `like_products` (R): the largest
    |<q, q'>| or |<k, k'>| of different tokens.
    """

    logits: Tensor
    query_norms: Tensor
    key_norms: Tensor
    cross_sample: Tensor
    cross_class: Tensor
    like_products: Tensor

    @property
    def to_signal(self) -> Tensor:
        """Lambda (R N M M-1): <q_l, k_pm> - <q_l, k_{n,j}> for j = 2..M.

        Row l = 0 is Lambda_{n,pm,j}, row l = i - 1 > 0 is Lambda_{n,i,pm,j} (Section D.2).
        """
        return self.logits[..., :1] - self.logits[..., 1:]

    @property
    def to_xi2(self) -> Tensor:
        """Psi (R N M M-1): <q_l, k_{n,2}> minus the logit at the signal, then at xi_{n,j}, j = 3..M.

        Row l = 0 is Psi_pm and Psi_{n,pm,j}, the others Psi_{n,i,pm} and Psi_{n,i,j} (Section E.2). Needs M >= 2.
        """
        others = torch.cat([self.logits[..., :1], self.logits[..., 2:]], dim=-1)
        return self.logits[..., 1:2] - others


def same_token(points: Points) -> Tensor:
    """Which of the N*M stacked tokens are one and the same (R N*M N*M): signals of one class, and each with itself."""
    tokens, (runs, samples) = points.n_tokens, points.labels.shape
    number = torch.arange(2, 2 + samples * tokens, device=points.labels.device).repeat(runs, 1).view(runs, samples, -1)
    number[..., 0] = (points.labels < 0).to(number.dtype)
    number = number.flatten(1)
    return number.unsqueeze(-1) == number.unsqueeze(-2)


def gaps(points: Points, state: Triple) -> Gaps:
    """Queries against keys at the state `state` of training (its coefficients).

    >>> import torch
    >>> from vitbo_lib import regime, simulation
    >>> setting = simulation.setting_of(regime.parameters(8, 3), n_test=1)
    >>> problem = simulation.build(setting, "drawn", [0, 1])
    >>> found = gaps(problem.train, problem.train.start.map(torch.zeros_like))
    >>> found.to_signal.shape, found.cross_class.shape
    (torch.Size([2, 8, 3, 2]), torch.Size([2]))
    """
    seen = projections(points, state)
    queries, keys, _ = by_sample(seen, points.n_tokens)
    same = same_token(points)
    every = seen.queries @ seen.keys.mT
    like = torch.maximum((seen.queries @ seen.queries.mT).abs(), (seen.keys @ seen.keys.mT).abs())
    return Gaps(queries @ keys.mT, queries.square().sum(-1), keys.square().sum(-1),
                *_across(points, every.abs()), like.masked_fill(same, 0).amax((-2, -1)))


def _across(points: Points, every: Tensor) -> tuple[Tensor, Tensor]:
    """The largest of all logits `every` (R N*M N*M) between noise of different samples, and between the classes."""
    tokens, samples = points.n_tokens, points.labels.shape[1]
    sample = torch.arange(samples, device=every.device).repeat_interleave(tokens)
    signal = torch.arange(samples * tokens, device=every.device) % tokens == 0
    noise = (sample.unsqueeze(-1) != sample) & ~signal.unsqueeze(-1) & ~signal
    label = points.labels.repeat_interleave(tokens, dim=1)
    classes = (label.unsqueeze(-1) != label.unsqueeze(-2)) & signal.unsqueeze(-1) & signal
    return tuple(every.masked_fill(~kept, 0).amax((-2, -1)) for kept in (noise, classes))


@dataclass(frozen=True)
class Rates:
    """Derivatives in time along the flow: of in-sample `logits` (R N M M) and scalarized `values` (R N M).

    One small step of descent changes them by eta times as much.
    """

    logits: Tensor
    values: Tensor


def rates(problem: Problem, state: Triple) -> Rates:
    """How fast logits and scalarized values move at a state of training.

    d<q, k>/dt = <dq/dt, k> + <q, dk/dt> with dQ/dt = -cross S K and dK/dt = -cross S^T Q, dV/dt = -||w_O||^2 cross u
    (the letters of `vitbo_lib.training`). The term <dq, dk> of Lemma B.3 is of second order and drops out.
    """
    points = problem.train
    tokens = points.n_tokens
    queries, keys, values = by_sample(projections(points, state), tokens)
    _, at_tokens = token_gradients(attention(queries, keys), values, points.labels)
    moved_q = -points.cross @ (at_tokens.logits @ keys).flatten(1, 2)
    moved_k = -points.cross @ (at_tokens.logits.mT @ queries).flatten(1, 2)
    moved_v = -(points.cross @ at_tokens.values.flatten(1).unsqueeze(-1)).squeeze(-1)
    moved_q, moved_k = (part.unflatten(1, (-1, tokens)) for part in (moved_q, moved_k))
    logits = moved_q @ keys.mT + queries @ moved_k.mT
    return Rates(logits, (problem.w_o_norm_squared.unsqueeze(-1) * moved_v).unflatten(1, (-1, tokens)))
