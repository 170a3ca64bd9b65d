"""Eq. (1), its loss and its gradients in closed form.

Everything is written for what a sample's tokens look like through the weights: queries q_l = x_l^T W_Q, keys
k_l = x_l^T W_K (vectorized Q and K, Definition 5.1) and scalarized values V_l = x_l^T W_V w_O (Definition 5.2). The
full problem in d dimensions and the reduced one (`vitbo_lib.span`) share these functions; leading axes are free.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import softplus

EXACT_BEYOND = 40  # where log(1 + e^z) is z to the last bit; torch's own 20 is 2e-9 off


@dataclass(frozen=True)
class Weights:
    """Trained `w_q`, `w_k` (d h), `w_v` (d d_v) and the fixed read-out `w_o` (d_v); leading axes are free."""

    w_q: Tensor
    w_k: Tensor
    w_v: Tensor
    w_o: Tensor

    @property
    def value_direction(self) -> Tensor:
        """W_V w_O (d): all that the output ever sees of the values."""
        return (self.w_v @ self.w_o.unsqueeze(-1)).squeeze(-1)


def project(tokens: Tensor, weights: Weights) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys (N M h) and scalarized values (N M) of `tokens` (N M d): Definitions 5.1 and 5.2."""
    flat, samples = tokens.flatten(-3, -2), tokens.shape[-3:-1]
    values = (flat @ weights.value_direction.unsqueeze(-1)).squeeze(-1).unflatten(-1, samples)
    return (flat @ weights.w_q).unflatten(-2, samples), (flat @ weights.w_k).unflatten(-2, samples), values


def attention(queries: Tensor, keys: Tensor, offset: Tensor | None = None) -> Tensor:
    """phi: row l is the attention of query token l, softmax(q_l K^T + offset) (N M M); eq. (1), no 1/sqrt(d_h).

    >>> attention(torch.zeros(1, 2, 3), torch.zeros(1, 2, 3))
    tensor([[[0.5000, 0.5000],
             [0.5000, 0.5000]]])
    """
    logits = queries @ keys.mT
    return torch.softmax(logits if offset is None else logits + offset, dim=-1)


def outputs(phi: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    """What each query token reads, (phi V)_l (N M), and f, their mean over the M tokens (N); eq. (1)."""
    read = (phi @ values.unsqueeze(-1)).squeeze(-1)
    return read, read.mean(-1)


def sample_losses(f: Tensor, labels: Tensor) -> Tensor:
    """l(y f) = log(1 + e^(-y f)) of each sample (N), without overflow at any margin."""
    return softplus(-labels * f, 1, EXACT_BEYOND)


def errors(f: Tensor, labels: Tensor) -> Tensor:
    """1 where the sign of f is not that of the label, else 0 (N); f = 0 counts as an error."""
    return (labels * f <= 0).to(f.dtype)


@dataclass(frozen=True)
class TokenGradients:
    """Derivatives of the mean loss: of every logit `logits` (N M M) and of every scalarized value `values` (N M)."""

    logits: Tensor
    values: Tensor


def token_gradients(phi: Tensor, values: Tensor, labels: Tensor) -> tuple[Tensor, TokenGradients]:
    """Mean training loss L_S () and its derivatives at the tokens.

    With g_n = -y_n sigmoid(-y_n f_n) / N:  dL/dlogit_{n,l,j} = (g_n / M) phi_{n,l,j} (V_{n,j} - (phi_n V_n)_l)  and
    dL/dV_{n,j} = g_n mean_l phi_{n,l,j}. With respect to the queries the gradient is then `logits` @ keys, with
    respect to the keys `logits`^T @ queries (Lemma B.1, corrected: a plus before the noise queries' sum).
    """
    weighted = phi * values.unsqueeze(-2)
    read = weighted.sum(-1)
    wrong_way = -labels
    margin = wrong_way * read.mean(-1)  # -y f
    slope = (torch.sigmoid(margin) * wrong_way).div_(labels.shape[-1] * phi.shape[-1]).unsqueeze(-1)  # g_n / M
    at_logits = torch.addcmul(weighted, phi, read.unsqueeze(-1), value=-1).mul_(slope.unsqueeze(-1))
    return softplus(margin, 1, EXACT_BEYOND).mean(-1), TokenGradients(at_logits, phi.sum(-2).mul_(slope))


def forward(tokens: Tensor, weights: Weights) -> Tensor:
    """f(X, theta) of every sample (N): eq. (1).

    >>> ones = Weights(torch.ones(2, 1), torch.ones(2, 1), torch.ones(2, 1), torch.ones(1))
    >>> forward(torch.ones(1, 3, 2), ones)
    tensor([2.])
    """
    queries, keys, values = project(tokens, weights)
    return outputs(attention(queries, keys), values)[1]


def loss(tokens: Tensor, labels: Tensor, weights: Weights) -> Tensor:
    """L_S(theta) = mean_n log(1 + e^(-y_n f(X_n))) (Section 3)."""
    return sample_losses(forward(tokens, weights), labels).mean(-1)


def gradients(tokens: Tensor, labels: Tensor, weights: Weights) -> tuple[Tensor, Weights]:
    """Mean loss and its gradients with respect to W_Q, W_K, W_V; `w_o` of the answer is 0, the read-out being fixed.

    dW_Q = sum_n X_n^T (S_n K_n), dW_K = sum_n X_n^T (S_n^T Q_n), dW_V = (sum_n X_n^T u_n) w_O^T with S = `logits` and
    u = `values` of `token_gradients` (Lemma B.1, corrected; checked against autograd in the tests).
    """
    queries, keys, values = project(tokens, weights)
    mean_loss, at_tokens = token_gradients(attention(queries, keys), values, labels)
    flat = tokens.flatten(-3, -2).mT  # d N*M
    w_q = flat @ (at_tokens.logits @ keys).flatten(-3, -2)
    w_k = flat @ (at_tokens.logits.mT @ queries).flatten(-3, -2)
    w_v = (flat @ at_tokens.values.flatten(-2, -1).unsqueeze(-1)) * weights.w_o.unsqueeze(-2)
    return mean_loss, Weights(w_q, w_k, w_v, torch.zeros_like(weights.w_o))
