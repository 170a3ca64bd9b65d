"""What is measured of a network: losses, errors, attention and scalarized values."""

from dataclasses import dataclass

import torch
from torch import Tensor

from vitbo_lib.span import Points, Problem, Triple, by_sample, projections
from vitbo_lib.transformer import attention, errors, outputs, sample_losses


@dataclass(frozen=True)
class View:
    """A state of the network at points: attention `phi` (R N M M), scalarized `values` (R N M), output `f` (R N)."""

    phi: Tensor
    values: Tensor
    f: Tensor
    labels: Tensor

    @property
    def loss(self) -> Tensor:
        """Mean of log(1 + e^(-y f)) (R): L_S on training points, an estimate of L_D on fresh ones."""
        return sample_losses(self.f, self.labels).mean(-1)

    @property
    def error(self) -> Tensor:
        """Share of points with the wrong sign (R)."""
        return errors(self.f, self.labels).mean(-1)

    def attention_on(self, token: int) -> Tensor:
        """Attention on key token `token` (0: the signal, 1: xi_2), mean over samples and queries (R)."""
        return self.phi[..., token].mean((-2, -1))

    def signed_v(self, token: int) -> Tensor:
        """y V of token `token`, mean over samples (R)."""
        return (self.labels * self.values[..., token]).mean(-1)


def by_token_type(train: View) -> dict[str, Tensor]:
    """Attention on the signal by type of query, and y V of weak noise, each (R): means over samples.

    `mu_query`, `xi2_query`, `weak_query` (tokens 3 to M) and `v_weak`, which are NaN for M = 2. Needs M >= 2.
    """
    on_signal, nothing = train.phi[..., 0], torch.full_like(train.loss, torch.nan)
    weak = train.values.shape[-1] > 2
    signed = train.labels.unsqueeze(-1) * train.values
    return {"mu_query": on_signal[..., 0].mean(-1), "xi2_query": on_signal[..., 1].mean(-1),
            "weak_query": on_signal[..., 2:].mean((-2, -1)) if weak else nothing,
            "v_weak": signed[..., 2:].mean((-2, -1)) if weak else nothing}


def view(points: Points, coefficients: Triple) -> View:
    """The network with the state `coefficients`, looking at `points`."""
    queries, keys, values = by_sample(projections(points, coefficients), points.n_tokens)
    phi = attention(queries, keys, points.outside_logits)
    return View(phi, values, outputs(phi, values)[1], points.labels)


@torch.no_grad()
def observe(problem: Problem, coefficients: Triple) -> dict[str, Tensor]:
    """The observables of ``vitbo simulate`` at a state, each (R).

    `train_loss`, `test_loss`, `test_error`; on training points, averaged over samples (and queries): attention on the
    signal and on xi_2, scalarized V of the signal and of xi_2 signed by y. With M = 1 there is no xi_2: NaN.
    """
    return summary(view(problem.train, coefficients), view(problem.test, coefficients))


def summary(train: View, test: View) -> dict[str, Tensor]:
    """The observables of `observe` from the two views."""
    nothing = torch.full_like(train.loss, torch.nan)
    has_xi2 = train.values.shape[-1] > 1
    return {"train_loss": train.loss, "test_loss": test.loss, "test_error": test.error,
            "attention_signal": train.attention_on(0), "attention_xi2": train.attention_on(1) if has_xi2 else nothing,
            "v_signal": train.signed_v(0), "v_xi2": train.signed_v(1) if has_xi2 else nothing}
