"""Gradient flow on the reduced problem: the limit of small steps, in units of time = eta t.

Condition 4.1 (6) makes eta so small that descent follows dA/dtime = -(S K, S^T Q, ||w_O||^2 u) (the letters of
`vitbo_lib.training`), over 10^6 to 10^12 steps. An adaptive integrator needs a few hundred evaluations.
"""

import math

import numpy as np
import torch
from scipy.integrate import solve_ivp

from vitbo_lib.data import positive, whole
from vitbo_lib.errors import UserError
from vitbo_lib.span import Problem, Triple
from vitbo_lib.training import MOST_STEPS, Descent, Trained, not_finite

FIRST_SNAPSHOT = 1e-4  # of the final time
SMALLEST = math.ulp(0.0)  # the smallest float above 0


@torch.no_grad()
def gradient_flow(problem: Problem, *, epsilon: float, max_evaluations: int = 100_000, tolerance: float = 1e-6,
                  snapshots: int = 0) -> Trained:
    """Gradient flow of every run until L_S = `epsilon`.

    Adaptive Runge-Kutta of order 5 (SciPy); `tolerance` bounds the local error of logits and scalarized values.
    `snapshots` = n keeps n states, at times that are even on a logarithmic scale from 1e-4 of the final time; their
    keys are 1 to n. `UserError` when `max_evaluations` of the gradient do not suffice.
    """
    epsilon, max_evaluations = positive("epsilon", epsilon), whole("max_steps", max_evaluations, 1, MOST_STEPS)
    runs = [_Flow(problem.run([r]), max_evaluations, tolerance).until(epsilon, snapshots) for r in range(problem.runs)]
    ends, times, losses, ways = zip(*runs)
    like = problem.w_o_norm_squared

    def join(triples):
        return Triple(*(torch.cat(parts) for parts in zip(*(triple.parts for triple in triples))))

    losses = torch.tensor(losses, dtype=like.dtype, device=like.device)
    states = {k + 1: join(states) for k, states in enumerate(zip(*ways))}
    return Trained(join(ends), None, torch.tensor(times, dtype=like.dtype, device=like.device), losses,
                   losses <= epsilon * (1 + 10 * tolerance), states)


class _Flow:
    """A single run as an ordinary differential equation for one long vector."""

    def __init__(self, problem: Problem, max_evaluations: int, tolerance: float):
        self.descent = Descent(problem)
        self.tolerance, self.left, self.allowed = tolerance, max_evaluations, max_evaluations
        self.error_scale = self._error_scale(problem)
        self.started = False

    def to_vector(self, triple: Triple) -> np.ndarray:
        return torch.cat([part.flatten() for part in triple.parts]).numpy(force=True).astype(float)

    def to_triple(self, vector: np.ndarray) -> Triple:
        like = self.descent.start
        ends = np.cumsum([part.numel() for part in like.parts])[:-1]
        return Triple(*(torch.as_tensor(piece, dtype=part.dtype, device=part.device).view(part.shape).clone()
                        for piece, part in zip(np.split(vector, ends), like.parts)))

    def loss(self, vector: np.ndarray) -> float:
        self.left -= 1
        if self.left < 0:
            raise UserError(f"gradient flow needs more than {self.allowed} evaluations; raise --max-steps or --epsilon")
        for kept, new in zip(self.descent.coefficients.parts, self.to_triple(vector).parts):
            kept.copy_(new)
        loss = float(self.descent.evaluate())
        if not math.isfinite(loss):
            raise not_finite(loss, self.descent.cross.dtype, "on the flow's way: its numbers overflow; give smaller "
                             "signals, noise or initial weights" if self.started else "")
        self.started = True
        return loss

    def velocity(self, _, vector: np.ndarray) -> np.ndarray:
        self.loss(vector)
        for part in self.descent.coefficients.parts:
            part.zero_()
        self.descent.step(1.0)
        return self.to_vector(self.descent.coefficients)

    def until(self, epsilon: float, snapshots: int) -> tuple[Triple, float, float, list[Triple]]:
        """Final state, time, loss, and states on the way."""
        origin = np.zeros(len(self.error_scale))

        def to_target(_, vector):
            return math.log(self.loss(vector) / epsilon or SMALLEST)  # a loss may round to 0

        to_target.terminal, to_target.direction = True, -1
        if to_target(0.0, origin) <= 0:
            return self.to_triple(origin), 0.0, self.loss(origin), [self.to_triple(origin)] * snapshots
        solution = self._solve(origin, 1e300, events=to_target)
        if not solution.t_events[0].size:
            raise UserError("gradient flow did not reach epsilon; raise --epsilon, or use --method gd")
        time, end = solution.t_events[0][0], solution.y_events[0][0]
        way = []
        if snapshots:
            times = np.geomspace(FIRST_SNAPSHOT * time, time, snapshots)
            times[-1] = time
            self.left = self.allowed  # this second pass takes the same way as the first
            way = [self.to_triple(vector) for vector in self._solve(origin, time, t_eval=times).y.T]
        return self.to_triple(end), float(time), self.loss(end), way

    def _solve(self, origin: np.ndarray, until: float, **options):
        with np.errstate(all="ignore"):  # a loss that is not finite is reported by `loss`, in words
            return solve_ivp(self.velocity, (0.0, until), origin, method="RK45", rtol=self.tolerance,
                             atol=self.error_scale, **options)

    def _error_scale(self, problem: Problem) -> np.ndarray:
        """Error allowed in each coefficient, so that logits and scalarized values are off by about `tolerance`.

        A coefficient moves its own token by ||x||^2 times itself; a moved query moves logits by the norm of keys.
        """
        train = problem.train
        norm_squared = train.cross.diagonal(dim1=1, dim2=2)
        floor = 1e-12 * norm_squared.max().sqrt() + torch.finfo(norm_squared.dtype).tiny
        reach = [part.norm(dim=-1).max().clamp(min=floor) for part in (train.start.keys, train.start.queries)]
        hidden = torch.ones_like(train.start.queries) * self.tolerance / norm_squared.unsqueeze(-1)
        return self.to_vector(Triple(hidden / reach[0], hidden / reach[1], self.tolerance / norm_squared))
