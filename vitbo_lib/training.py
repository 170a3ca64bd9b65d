"""Training the reduced problem: gradient descent in batches of runs, and its flow.

The state is `coefficients`, A = [A_Q | A_K | A_v] (R N*M 2h+1; see `vitbo_lib.span`), zeros at t = 0. With S and u the
derivatives of the loss at logits and at scalarized values (`token_gradients`), one step of gradient descent is

    A_Q <- A_Q - eta S K,    A_K <- A_K - eta S^T Q,    A_v <- A_v - eta ||w_O||^2 u,

all from old values, and gradient flow is dA/dtime = -(S K, S^T Q, ||w_O||^2 u) with time = eta t.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np
import torch
from scipy.integrate import solve_ivp
from torch import Tensor

from vitbo_lib.data import DataSet, positive, whole
from vitbo_lib.errors import UserError
from vitbo_lib.span import Problem
from vitbo_lib.transformer import Weights, attention, gradients, token_gradients


@dataclass(frozen=True)
class Trained:
    """Where training ended, for R runs.

    `coefficients` (R N*M 2h+1) at the end; `steps` (R) taken, None for flow; `time` (R) = eta t; `train_loss` (R) at
    the end; `reached` (R): whether it is at most epsilon; `snapshots`: states on the way by step or time (a run that has
    ended stays at its end).
    """

    coefficients: Tensor
    steps: Tensor | None
    time: Tensor
    train_loss: Tensor
    reached: Tensor
    snapshots: dict[float, Tensor] = field(default_factory=dict)


class Descent:
    """Coefficients of a batch of runs and the buffers of a step; `evaluate`, then `step`."""

    def __init__(self, problem: Problem, coefficients: Tensor | None = None):
        train = problem.train
        runs, rows, width = train.start.shape
        tokens, hidden = train.n_tokens, width // 2
        self.start, self.cross, self.labels = train.start, train.cross, train.labels
        self.coefficients = torch.zeros_like(train.start) if coefficients is None else coefficients
        self._scale = problem.w_o_norm_squared.view(runs, 1, 1)
        self._logits_shape = (runs, rows // tokens, tokens, tokens)
        self._seen = torch.empty_like(train.start)
        seen, moved = (part.view(-1, tokens, width) for part in (self._seen, self.coefficients))
        self._queries, self._keys = seen[..., :hidden], seen[..., hidden:-1]
        self._values = seen[..., -1].view(self._logits_shape[:3])
        self._moved_q, self._moved_k = moved[..., :hidden], moved[..., hidden:-1]
        self._moved_v = moved[..., -1].view(self._logits_shape[:3])

    def evaluate(self) -> Tensor:
        """Training loss of every run (R) at the present coefficients."""
        torch.baddbmm(self.start, self.cross, self.coefficients, out=self._seen)
        phi = attention(self._queries, self._keys).view(self._logits_shape)
        loss, self._at_tokens = token_gradients(phi, self._values, self.labels)
        return loss

    def step(self, eta: float) -> None:
        """One step of gradient descent from where `evaluate` looked; all changes use the old queries and keys."""
        at_logits = self._at_tokens.logits.view(-1, *self._logits_shape[2:])
        self._moved_q.baddbmm_(at_logits, self._keys, alpha=-eta)
        self._moved_k.baddbmm_(at_logits.mT, self._queries, alpha=-eta)
        self._moved_v.addcmul_(self._at_tokens.values, self._scale, value=-eta)


@torch.no_grad()
def gradient_descent(problem: Problem, *, eta: float, epsilon: float, max_steps: int = 100_000,
                     snapshot_steps: Iterable[int] = (), progress: Callable[[int], None] | None = None) -> Trained:
    """Full-batch gradient descent of every run until L_S <= `epsilon`, or `max_steps` (Section 3).

    The answer equals gradient descent on eq. (1) up to rounding. `progress(step)` is called at each step. `UserError`
    when a loss is no longer finite.
    """
    eta, epsilon, max_steps = positive("eta", eta), positive("epsilon", epsilon), whole("max_steps", max_steps, 0)
    wanted, snapshots = set(snapshot_steps), {}
    final = torch.zeros_like(problem.train.start)
    steps = torch.full((problem.runs,), max_steps, device=final.device)
    losses = torch.zeros_like(problem.w_o_norm_squared)
    active = torch.arange(problem.runs, device=final.device)
    descent = Descent(problem)
    for t in range(max_steps + 1):
        loss = descent.evaluate()
        if t in wanted:
            final[active] = descent.coefficients
            snapshots[t] = final.clone()
        if progress is not None:
            progress(t)
        if t < max_steps and bool((loss > epsilon).all()):
            descent.step(eta)
            continue
        if not bool(loss.isfinite().all()):
            raise UserError(f"training diverged at step {t} with eta = {eta:g}; give a smaller --eta")
        done = (loss <= epsilon) | (t == max_steps)
        ended = active[done]
        final[ended], losses[ended], steps[ended] = descent.coefficients[done], loss[done], t
        if bool(done.all()):
            break
        active = active[~done]
        descent = Descent(problem.run(active), descent.coefficients[~done])
        descent.evaluate()
        descent.step(eta)
    return Trained(final, steps, steps * eta, losses, losses <= epsilon, snapshots)


@torch.no_grad()
def gradient_flow(problem: Problem, *, epsilon: float, max_evaluations: int = 100_000, tolerance: float = 1e-6,
                  snapshots: int = 0) -> Trained:
    """Gradient flow of every run until L_S = `epsilon`: the limit of small eta, in units of time = eta t.

    An adaptive Runge-Kutta method of order 5 (SciPy) on the coefficients; `tolerance` bounds the local error of
    logits and scalarized values. `snapshots` = n keeps n states, at fractions of the final time that are even on a
    logarithmic scale from 1e-4; their keys are 1 to n. `UserError` when `max_evaluations` do not suffice.
    """
    epsilon = positive("epsilon", epsilon)
    ends = [_flow_one(problem.run([r]), epsilon, max_evaluations, tolerance, snapshots) for r in range(problem.runs)]
    dtype, device = problem.train.start.dtype, problem.train.start.device

    def tensor(parts):
        return torch.as_tensor(np.array(parts), dtype=dtype, device=device)

    shape = problem.train.start.shape
    states = {k + 1: tensor([states[k] for *_, states in ends]).view(shape) for k in range(snapshots)}
    losses = tensor([loss for _, _, loss, _ in ends])
    return Trained(tensor([state for state, *_ in ends]).view(shape), None, tensor([time for _, time, *_ in ends]),
                   losses, losses <= epsilon * (1 + 1e-6), states)


def _flow_one(problem: Problem, epsilon: float, max_evaluations: int, tolerance: float, snapshots: int) -> tuple:
    """Final state, time, loss and the states on the way of a single run."""
    descent, count = Descent(problem), 0
    shape = descent.coefficients.shape

    def loss_at(state: np.ndarray) -> float:
        nonlocal count
        count += 1
        if count > max_evaluations:
            raise UserError(f"gradient flow needs more than {max_evaluations} evaluations; raise --max-steps, "
                            "or use --method gd")
        descent.coefficients.copy_(torch.from_numpy(state).view(shape))
        return float(descent.evaluate())

    def velocity(_, state: np.ndarray) -> np.ndarray:
        loss_at(state)
        descent.coefficients.zero_()
        descent.step(1.0)
        return descent.coefficients.reshape(-1).numpy(force=True).astype(float)

    def to_target(_, state: np.ndarray) -> float:
        return math.log(loss_at(state) / epsilon)

    to_target.terminal, to_target.direction = True, -1
    origin, scale = np.zeros(shape.numel()), _error_scale(problem, tolerance)
    if to_target(0.0, origin) <= 0:
        return origin, 0.0, loss_at(origin), [origin] * snapshots

    def solve(until: float, times=None):
        return solve_ivp(velocity, (0.0, until), origin, method="RK45", rtol=tolerance, atol=scale, t_eval=times,
                         events=to_target if times is None else None)

    solution = solve(1e300)
    if not len(solution.t_events[0]):
        raise UserError("gradient flow did not reach epsilon; raise --epsilon, or use --method gd")
    time, state = solution.t_events[0][0], solution.y_events[0][0]
    states = [origin] * snapshots
    if snapshots:
        times = time * np.geomspace(1e-4, 1, snapshots)
        states = list(solve(time, times).y.T)
    return state, time, loss_at(state), states


def _error_scale(problem: Problem, tolerance: float) -> np.ndarray:
    """Absolute error allowed in each coefficient, so that logits and scalarized values are off by about `tolerance`.

    A coefficient acts on its own token by ||x||^2 times itself; a change of a query acts on logits by the norm of keys.
    """
    train = problem.train
    hidden = train.start.shape[-1] // 2
    norm_squared = train.cross[0].diagonal().numpy(force=True).astype(float)[:, None]
    start = train.start[0].numpy(force=True).astype(float)
    reach = [np.linalg.norm(start[:, part], axis=1).max() for part in (slice(hidden, -1), slice(hidden))]
    floor = np.sqrt(norm_squared.max()) * 1e-12 + 1e-300
    columns = np.concatenate([np.full(hidden, tolerance / max(r, floor)) for r in reach] + [[tolerance]])
    return (columns / norm_squared).reshape(-1)


@torch.no_grad()
def full_gradient_descent(data: DataSet, weights: Weights, *, eta: float, epsilon: float,
                          max_steps: int = 100_000) -> tuple[Weights, int, float]:
    """The same descent on the full weights, d coordinates and all: the slow reference (final weights, steps, loss)."""
    eta, epsilon, max_steps = positive("eta", eta), positive("epsilon", epsilon), whole("max_steps", max_steps, 0)
    tokens = data.tokens
    for t in range(max_steps + 1):
        loss, gradient = gradients(tokens, data.labels, weights)
        if not math.isfinite(float(loss)):
            raise UserError(f"training diverged at step {t} with eta = {eta:g}; give a smaller --eta")
        if loss <= epsilon or t == max_steps:
            break
        weights = Weights(weights.w_q - eta * gradient.w_q, weights.w_k - eta * gradient.w_k,
                          weights.w_v - eta * gradient.w_v, weights.w_o)
    return weights, t, float(loss)
