"""Gradient flow on the reduced problem: the limit of small steps, in units of time = eta t.

Condition 4.1 (6) makes eta so small that descent follows dA/dtime = -(S K, S^T Q, ||w_O||^2 u) (the letters of
`vitbo_lib.training`), over 10^6 to 10^12 steps. An adaptive integrator needs a few hundred evaluations.
"""

import math
from collections import deque
from collections.abc import Iterator

import numpy as np
import torch
from scipy.integrate import RK45
from scipy.optimize import brentq

from vitbo_lib.data import positive, whole
from vitbo_lib.errors import UserError
from vitbo_lib.span import Problem, Triple
from vitbo_lib.training import MOST_STEPS, Descent, Trained, not_finite

FIRST_SNAPSHOT = 1e-4  # of the final time
MOST_SNAPSHOTS = 10**6
TIGHTEST = 1e-13  # a few times the rounding of float64
SMALLEST = math.ulp(0.0)  # the smallest float above 0


def checked_tolerance(tolerance: float) -> float:
    """`tolerance` of an integrator, once it is sure that float64 has room for it; a `UserError` otherwise."""
    if not TIGHTEST <= (tolerance := positive("tolerance", tolerance)) < 1:
        raise UserError(f"tolerance = {tolerance:g} is not possible; give a number from {TIGHTEST:g}, below 1")
    return tolerance


@torch.inference_mode()
def gradient_flow(problem: Problem, *, epsilon: float, max_evaluations: int = 100_000, tolerance: float = 1e-6,
                  snapshots: int = 0) -> Trained:
    """Gradient flow of every run until L_S = `epsilon`.

    Adaptive Runge-Kutta of order 5 (SciPy); `tolerance` bounds the local error of logits and scalarized values.
    `snapshots` = n keeps n states, at times that are even on a logarithmic scale from 1e-4 of the final time; their
    keys are 1 to n. `UserError` for an impossible number, and when `max_evaluations` of the gradient do not suffice.
    """
    epsilon, max_evaluations = positive("epsilon", epsilon), whole("max_steps", max_evaluations, 1, MOST_STEPS)
    snapshots, tolerance = whole("snapshots", snapshots, 0, MOST_SNAPSHOTS), checked_tolerance(tolerance)
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
    """A single run as an ordinary differential equation for one long vector: A_Q, A_K, A_v one after the other."""

    def __init__(self, problem: Problem, max_evaluations: int, tolerance: float):
        start = problem.train.start
        self._state, self._velocity = (torch.zeros(sum(part.numel() for part in start.parts), dtype=start.values.dtype,
                                                   device=start.values.device) for _ in range(2))
        self._precision = self._state.numpy(force=True).dtype
        self.descent = Descent(problem, self._parts_of(self._state, start))
        self._moving = self.descent.inside_samples(self._parts_of(self._velocity, start))
        self.tolerance, self.left, self.allowed = tolerance, max_evaluations, max_evaluations
        self.error_scale = self._error_scale(problem)
        self._seen, self._loss = None, math.nan  # where the loss was evaluated last, and what it was

    @staticmethod
    def _parts_of(vector: torch.Tensor, like: Triple) -> Triple:
        pieces = vector.split([part.numel() for part in like.parts])
        return Triple(*(piece.view(part.shape) for piece, part in zip(pieces, like.parts)))

    def to_triple(self, vector: np.ndarray) -> Triple:
        """A state of its own from a vector."""
        return self._parts_of(self._to_tensor(vector).clone(), self.descent.start)

    def _to_tensor(self, vector: np.ndarray) -> torch.Tensor:
        return torch.as_tensor(vector.astype(self._precision, copy=False), device=self._state.device)

    def loss(self, vector: np.ndarray) -> float:
        """Training loss at a state; the solver's last stage has been there already at the end of a step."""
        if vector is self._seen:
            return self._loss
        self.left -= 1
        if self.left < 0:
            raise UserError(f"gradient flow needs more than {self.allowed} evaluations; raise --max-steps or --epsilon")
        self._state.copy_(self._to_tensor(vector))
        loss = float(self.descent.evaluate())
        if not math.isfinite(loss):
            raise not_finite(loss, self._state.dtype, "" if self._seen is None else
                             "on the flow's way: its numbers overflow; give smaller signals, noise or initial weights")
        self._seen, self._loss = vector, loss
        return loss

    def velocity(self, _, vector: np.ndarray) -> np.ndarray:
        self.loss(vector)
        self.descent.velocity(self._moving)
        return self._velocity.numpy(force=True).astype(float)  # a copy: the solver keeps it

    def until(self, epsilon: float, snapshots: int) -> tuple[Triple, float, float, list[Triple]]:
        """Final state, time, loss, and states on the way."""
        origin = np.zeros(len(self.error_scale))
        if self.loss(origin) <= epsilon:
            return self.to_triple(origin), 0.0, self.loss(origin), [self.to_triple(origin)] * snapshots
        time, end = self._target(origin, epsilon)
        way = []
        if snapshots:
            times = np.geomspace(FIRST_SNAPSHOT * time, time, snapshots)
            self.left = self.allowed  # this second pass takes the same way as the first
            way = [*self._states(origin, times[:-1]), self.to_triple(end)]
        return self.to_triple(end), time, self.loss(end), way

    def _target(self, origin: np.ndarray, epsilon: float) -> tuple[float, np.ndarray]:
        """Time and state at which the loss is `epsilon`, found inside the step that passes it."""
        for solver in self._solver_steps(origin):
            if self.loss(solver.y) <= epsilon:
                return self._crossing(solver, epsilon)
        raise UserError("gradient flow did not reach epsilon; raise --epsilon, or use --method gd")

    def _crossing(self, solver: RK45, epsilon: float) -> tuple[float, np.ndarray]:
        between = solver.dense_output()

        def above(t: float) -> float:
            return math.log(self.loss(between(t)) / epsilon or SMALLEST)  # a loss may round to 0

        if above(solver.t) >= 0:  # by rounding: the end of the step is it
            return float(solver.t), solver.y
        time = brentq(above, solver.t_old, solver.t, xtol=1e-12 * solver.t, rtol=1e-12)
        return float(time), between(time)

    def _states(self, origin: np.ndarray, times: np.ndarray) -> list[Triple]:
        """States at ascending `times`."""
        found, waiting = [], deque(times)
        for solver in self._solver_steps(origin):
            between = None
            while waiting and waiting[0] <= solver.t:
                between = between or solver.dense_output()
                found.append(self.to_triple(between(waiting.popleft())))
            if not waiting:
                return found
        return found

    def _solver_steps(self, origin: np.ndarray) -> Iterator[RK45]:
        """The solver after each step, as far as it gets; only the present state is held."""
        with np.errstate(all="ignore"):  # a loss that is not finite is reported by `loss`, in words
            solver = RK45(self.velocity, 0.0, origin, 1e300, rtol=self.tolerance, atol=self.error_scale)
            while solver.status == "running":
                solver.step()
                if solver.status == "failed":
                    return
                yield solver

    def _error_scale(self, problem: Problem) -> np.ndarray:
        """Error allowed in each coefficient, so that logits and scalarized values are off by about `tolerance`.

        A coefficient moves its own token by ||x||^2 times itself; a moved query moves logits by the norm of keys.
        """
        train = problem.train
        norm_squared = train.cross.diagonal(dim1=1, dim2=2)
        floor = 1e-12 * norm_squared.max().sqrt() + torch.finfo(norm_squared.dtype).tiny
        reach = [part.norm(dim=-1).max().clamp(min=floor) for part in (train.start.keys, train.start.queries)]
        hidden = torch.ones_like(train.start.queries) * self.tolerance / norm_squared.unsqueeze(-1)
        scales = hidden / reach[0], hidden / reach[1], self.tolerance / norm_squared
        return torch.cat([scale.flatten() for scale in scales]).numpy(force=True).astype(float)
