"""The coefficients of one step of gradient descent (Definition B.3), in closed form from the reduced problem.

One row a distinct token: mu_+, mu_-, then the noise tokens sample by sample (K = 2 + N(M-1)). With G their inner
products and S_ab the derivative of the loss at the logit <q_a, k_b>, summed over the samples that hold both tokens,

    S_ab = sum_n y_n l'_n / (N M) * p_{n,a,b} (V_{n,b} - sum_j p_{n,a,j} V_{n,j}),

a step moves queries by alpha times the old keys and keys by beta times the old queries:

    q <- q + alpha k,  alpha = -eta G S;      k <- k + beta q,  beta = -eta G S^T.

With projected noise G has no entries between signals and noise, and alpha, beta are the coefficients that Appendix F.1
writes out one by one; with noise that is not projected they are still exact, and no longer sparse.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from vitbo_lib.data import positive
from vitbo_lib.span import Points, Triple, by_sample, check_state, projections
from vitbo_lib.transformer import attention, outputs, token_gradients


@dataclass(frozen=True)
class Coefficients:
    """What one step does: `alpha`, `beta` (R K K), `gamma` (R 2) and `rho` (R N M-1).

    Row a, column b: `alpha` is how much of the key of token b is added to the query of token a; `beta`, how much of
    the query of b is added to the key of a. `gamma` (mu_+, mu_-) and `rho` are the increments of the scalarized values
    in units of ||w_O||^2 (Definition 5.2).
    """

    alpha: Tensor
    beta: Tensor
    gamma: Tensor
    rho: Tensor


@dataclass(frozen=True)
class Movement:
    """How far weights are from their start: ||W_Q - W_Q(0)||_F, ||W_K - W_K(0)||_F, ||(W_V - W_V(0)) w_O||_2 (R each).

    W_V moves by a multiple of w_O^T only, so that ||W_V - W_V(0)||_F is the last one over ||w_O||.
    """

    w_q: Tensor
    w_k: Tensor
    value_direction: Tensor


def distinct_rows(points: Points) -> Tensor:
    """For each sample and token its row among the distinct tokens (R N M): 0 for mu_+, 1 for mu_-, then the noise.

    >>> labels = torch.tensor([[1., -1.]])
    >>> distinct_rows(Points(Triple(*[torch.zeros(1, 6, 1)] * 2, torch.zeros(1, 6)), torch.zeros(1, 6, 6), labels))
    tensor([[[0, 2, 3],
             [1, 4, 5]]])
    """
    labels, noise_tokens = points.labels, points.n_tokens - 1
    runs, samples = labels.shape
    noise = torch.arange(samples * noise_tokens, device=labels.device).view(1, samples, noise_tokens) + 2
    return torch.cat([(labels < 0).long().unsqueeze(-1), noise.expand(runs, -1, -1)], dim=-1)


def stacked_rows(points: Points) -> tuple[Tensor, Tensor]:
    """For each distinct token a row of the stacked ones that holds it (R K), and whether there is one (R K).

    Only a signal can be missing, where a run has no sample of its class; its row is then 0.
    """
    labels, tokens = points.labels, points.n_tokens
    runs, samples = labels.shape
    of_class = torch.stack([labels > 0, labels < 0], dim=1)  # R 2 N
    signals = of_class.long().argmax(-1) * tokens
    noise = torch.arange(samples * tokens, device=labels.device).view(samples, tokens)[:, 1:].flatten()
    present = torch.cat([of_class.any(-1), torch.ones_like(noise, dtype=torch.bool).expand(runs, -1)], dim=1)
    return torch.cat([signals, noise.expand(runs, -1)], dim=1), present


def vectorized(points: Points, state: Triple) -> Triple:
    """Query, key (R K h) and scalarized value (R K) of every distinct token at `state` (Definitions 5.1 and 5.2).

    q_pm = mu_pm^T W_Q and q_{n,i} = xi_{n,i}^T W_Q, likewise k, and V = x^T W_V w_O. NaN for a signal that no sample of
    the run carries: the reduced problem does not hold it.

    >>> from vitbo_lib.simulation import build
    >>> problem = build(_example(), "drawn", [0, 1])
    >>> vectorized(problem.train, problem.train.start.map(torch.zeros_like)).queries.shape  # K = 2 + 4 * 2
    torch.Size([2, 10, 20])
    """
    rows, present = stacked_rows(points)
    seen = projections(points, state)

    def pick(part: Tensor) -> Tensor:
        index, there = (one if part.ndim == 2 else one.unsqueeze(-1) for one in (rows, present))
        found = part.gather(1, index if part.ndim == 2 else index.expand(-1, -1, part.shape[-1]))
        return torch.where(there, found, torch.nan)

    return seen.map(pick)


def gram(points: Points) -> Tensor:
    """G: inner products of the distinct tokens (R K K); 0 for a signal that no sample carries (it is not there)."""
    rows, present = stacked_rows(points)
    size = rows.shape[1]
    found = points.cross.gather(1, rows.unsqueeze(-1).expand(-1, -1, points.cross.shape[2]))
    found = found.gather(2, rows.unsqueeze(1).expand(-1, size, -1))
    return found * (present.unsqueeze(1) & present.unsqueeze(2))


@torch.no_grad()
def loss_at_tokens(points: Points, state: Triple) -> tuple[Tensor, Tensor]:
    """S (R K K) and u (R K): derivatives of the loss at the logits <q_a, k_b> and at the values V_a of distinct tokens.

    S is 0 where no sample holds both tokens.

    >>> from vitbo_lib.simulation import build
    >>> problem = build(_example(), "drawn", [0, 1])
    >>> [part.shape for part in loss_at_tokens(problem.train, problem.train.start.map(torch.zeros_like))]
    [torch.Size([2, 10, 10]), torch.Size([2, 10])]
    """
    queries, keys, values = by_sample(projections(points, state), points.n_tokens)
    _, at_tokens = token_gradients(attention(queries, keys, points.outside_logits), values, points.labels)
    rows = distinct_rows(points)
    runs, size = len(rows), 2 + rows[:, :, 1:].numel() // len(rows)
    pairs = (rows.unsqueeze(-1) * size + rows.unsqueeze(-2)).flatten(1)
    at_logits = values.new_zeros(runs, size * size).scatter_add_(1, pairs, at_tokens.logits.flatten(1))
    at_values = values.new_zeros(runs, size).scatter_add_(1, rows.flatten(1), at_tokens.values.flatten(1))
    return at_logits.view(runs, size, size), at_values


@torch.no_grad()
def coefficients(points: Points, state: Triple, eta: float) -> Coefficients:
    """The coefficients of the step of gradient descent that starts at `state` (Definition B.3, Appendix F.1).

    `points` are the training points of R runs, `eta` the learning rate. In the paper's names: alpha_{+,+} is
    `alpha[:, 0, 0]`, alpha_{n,+,i} is row 0 and the column of xi_{n,i}, alpha_{n,i,+} the other way round. The sums of
    alpha over keys of a sample vanish, as do those of S: raising all logits of a query changes nothing.

    >>> from vitbo_lib.simulation import build
    >>> problem = build(_example(), "drawn", [0, 1])
    >>> found = coefficients(problem.train, problem.train.start.map(torch.zeros_like), eta=0.1)
    >>> found.alpha.shape, found.gamma.shape, found.rho.shape
    (torch.Size([2, 10, 10]), torch.Size([2, 2]), torch.Size([2, 4, 2]))
    >>> bool((found.alpha.sum(-1).abs() < 1e-12).all())
    True
    """
    eta, tokens, products = positive("eta", eta), points.n_tokens, gram(points)
    at_logits, at_values = loss_at_tokens(points, state)
    moved = -eta * (products @ at_values.unsqueeze(-1)).squeeze(-1)
    noise = moved[:, 2:].view(len(moved), points.labels.shape[1], tokens - 1)
    return Coefficients(-eta * products @ at_logits, -eta * products @ at_logits.mT, moved[:, :2], noise)


@torch.no_grad()
def loss_derivatives(points: Points, state: Triple) -> Tensor:
    """-l'_n = 1 / (1 + e^(y_n f_n)) of every sample (R N), between 0 and 1 (Section 3)."""
    queries, keys, values = by_sample(projections(points, state), points.n_tokens)
    f = outputs(attention(queries, keys, points.outside_logits), values)[1]
    return torch.sigmoid(-points.labels * f)


@torch.no_grad()
def movement(points: Points, state: Triple) -> Movement:
    """How far the weights are from their start: W(t) - W(0) = Z^T A, so its squared norm is tr(A^T Z Z^T A).

    `points` are the training points: Z Z^T is their `cross`. The start has not moved:

    >>> from vitbo_lib.simulation import build
    >>> problem = build(_example(), "drawn", [0, 1])
    >>> movement(problem.train, problem.train.start.map(torch.zeros_like)).w_q
    tensor([0., 0.], dtype=torch.float64)
    """
    def norm(part: Tensor) -> Tensor:
        columns = part if part.ndim == 3 else part.unsqueeze(-1)
        return (columns * (points.cross @ columns)).sum((1, 2)).clamp(min=0).sqrt()

    check_state(points, state)
    return Movement(*(norm(part) for part in state.parts))


def token_names(n_samples: int, n_tokens: int) -> list[str]:
    """The distinct tokens in their order, as TeX without dollars: mu_+, mu_-, xi_{n,i}.

    >>> token_names(1, 3)
    ['\\\\mu_+', '\\\\mu_-', '\\\\xi_{1,2}', '\\\\xi_{1,3}']
    """
    return [r"\mu_+", r"\mu_-"] + [rf"\xi_{{{n},{i}}}" for n in range(1, n_samples + 1) for i in range(2, n_tokens + 1)]


def _example():
    """A small setting for the examples in docstrings: N = 4, M = 3."""
    from vitbo_lib.data import SignalNoise
    from vitbo_lib.initialization import GaussianInit
    from vitbo_lib.simulation import Setting

    law = SignalNoise(n_tokens=3, d=200, signal_norm=2.0, sigma_p=0.1, sigma_p_tilde=0.5)
    return Setting(law=law, n_samples=4, d_h=50, init=GaussianInit(sigma_h=0.05, sigma_v=0.05), n_test=1)
