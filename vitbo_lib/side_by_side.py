"""Many small differential equations of one shape, side by side: adaptive Runge-Kutta of order 5, a step size for each.

SciPy's `solve_ivp` takes one equation, with some 0.1 ms around every evaluation. A few hundred equations of 50 numbers
cost about the same when numpy does them at once, if each keeps a time and a step of its own.
"""

from collections.abc import Callable

import numpy as np
from scipy.integrate import RK45

from vitbo_lib.errors import UserError

MOST_STEPS = 20_000
EXACTLY = 1e-9  # an event this near to 0 is met
SAFETY, SHRINK, GROW = 0.9, 0.2, 10.0  # as SciPy's
Velocity = Callable[[np.ndarray, np.ndarray], np.ndarray]


def integrate(velocity: Velocity, event: Velocity, start: np.ndarray, first_step: np.ndarray, longest: np.ndarray,
              tolerance: float, absolute: np.ndarray, overshoot: float = EXACTLY,
              watch: Callable[[np.ndarray, np.ndarray], None] | None = None) -> tuple[np.ndarray, ...]:
    """Times (R), states (R n) and whether `event` was met (R), for R equations from time 0.

    `velocity(rows, states)` and `event(rows, states)` are asked for some of the rows (indices) at a time; an equation
    ends where its event falls to 0, or below by at most `overshoot`, or at the time `longest`. `absolute` (R n) is the
    error allowed beside `tolerance` times the state. `watch(times, states)` sees every accepted step. `UserError` when
    a step has no length any more.

    >>> ends = integrate(lambda rows, y: -y, lambda rows, y: y[:, 0] - 0.5, np.ones((2, 1)), np.full(2, 0.1),
    ...                  np.array([9.0, 0.3]), 1e-8, np.full((2, 1), 1e-10))
    >>> ends[0].round(6), ends[2]
    (array([0.693147, 0.3     ]), array([ True, False]))
    """
    t, y, h = np.zeros(len(start)), start.astype(float).copy(), np.minimum(first_step, longest)
    met = np.zeros(len(start), dtype=bool)
    near = np.zeros(len(start), dtype=bool)  # a step has already gone beyond the event
    rows = np.arange(len(start))
    slopes, at_event = velocity(rows, y), event(rows, y)
    for _ in range(MOST_STEPS):
        if not len(rows):
            return t, y, met
        new, new_slope, error = _step(velocity, rows, y[rows], slopes[rows], h[rows])
        scale = absolute[rows] + tolerance * np.maximum(np.abs(y[rows]), np.abs(new))
        size = np.sqrt(np.mean((error / scale) ** 2, axis=1))
        size = np.where(np.isfinite(size), size, 1e10)
        value = event(rows, new)
        before, step = at_event[rows], h[rows]
        beyond = (value < -overshoot) & (size < 1)
        secant = step * before / np.where(before - value > 0, before - value, np.inf)
        taken = (size < 1) & ~beyond
        factor = np.clip(SAFETY * np.maximum(size, 1e-10) ** -0.2, SHRINK, GROW)
        grown = step * np.where(taken, factor, np.minimum(factor, 1))
        following = np.where(beyond, np.maximum(secant, 0.01 * step), grown)
        near[rows] |= beyond
        to_event = step * value / np.where(before - value > 0, before - value, np.inf)
        following = np.where(taken & near[rows] & (to_event > 0), np.minimum(following, to_event), following)
        kept = rows[taken]
        t[kept] += step[taken]
        y[kept], slopes[kept], at_event[kept] = new[taken], new_slope[taken], value[taken]
        if watch is not None and len(kept):
            watch(t, y)
        met[kept] = value[taken] <= EXACTLY
        h[rows] = np.minimum(following, longest[rows] - t[rows])
        done = met[rows] | (t[rows] >= longest[rows] * (1 - 1e-14))
        if (~done & (h[rows] <= 1e-15 * t[rows])).any():
            raise UserError("a step of the integrator has no length any more; change the problem a little")
        rows = rows[~done]
    raise UserError(f"more than {MOST_STEPS} steps of the integrator; change the problem a little")


def _step(velocity: Velocity, rows: np.ndarray, y: np.ndarray, slope: np.ndarray,
          h: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The state after one step of Dormand and Prince, the velocity there, and the estimated error."""
    stages, length = [slope], h[:, None]
    for row in RK45.A[1:]:
        stages.append(velocity(rows, y + length * sum(a * k for a, k in zip(row, stages))))
    new = y + length * sum(b * k for b, k in zip(RK45.B, stages))
    stages.append(velocity(rows, new))
    return new, stages[-1], length * sum(e * k for e, k in zip(RK45.E, stages) if e)
