"""The symmetric limit as an explicit problem: orthogonal tokens, queries and keys built by hand, trained in full.

What `vitbo_lib.symmetric_flow` says with 37 numbers, `vitbo_lib.flow.gradient_flow` finds with every coefficient.
"""

import math

import numpy as np
import torch

from vitbo_lib.errors import UserError
from vitbo_lib.flow import gradient_flow
from vitbo_lib.observables import view
from vitbo_lib.span import Problem, Seen, stack
from vitbo_lib.symmetric_flow import MU, OTHER, WEAK, XI2, Flow, Limit

MOST_TOKENS = 4000  # distinct ones; its matrices have the square of that, several times


def explicit_problem(limit: Limit) -> Problem:
    """The problem of one run (R = 1), and one fresh point of each class whose noise the network has never seen.

    Token x is ||x|| times a unit vector of its own, its query and its key are gain^(1/2) ||x|| times two more.

    >>> explicit_problem(Limit(n_samples=4, tokens=3, ratio=3.0, gain=30.0)).train.start.queries.shape
    torch.Size([1, 12, 20])
    """
    size = 2 + limit.n_samples * (limit.tokens - 1)
    if limit.gain == math.inf or size > MOST_TOKENS:
        raise UserError(f"gain {limit.gain:g} and {size} distinct tokens cannot be written out; give a finite gain and "
                        f"at most {MOST_TOKENS} tokens")
    by_type = limit.energies[[XI2] + [WEAK] * limit.weak]
    energies = np.concatenate([[1.0, 1.0], np.tile(by_type, limit.n_samples)])
    axes, size = np.diag(np.sqrt(energies * limit.gain)), len(energies)
    nothing = np.zeros_like(axes)
    training = Seen(*_tensors(np.hstack([axes, nothing]), np.hstack([nothing, axes]), np.zeros(size),
                              np.diag(energies), np.repeat([1.0, -1.0], limit.n_samples // 2)))
    fresh = 2 + 2 * (limit.tokens - 1)
    seen = {name: np.zeros((fresh, width)) for name, width in (("q", 2 * size), ("k", 2 * size), ("x", size))}
    for name, matrix in (("q", training.queries), ("k", training.keys), ("x", training.inner_products)):
        seen[name][:2] = matrix[:2].numpy()  # mu_+ and mu_-; all else is orthogonal to what was seen
    test = Seen(*_tensors(seen["q"], seen["k"], np.zeros(fresh), seen["x"], np.array([1.0, -1.0])))
    return Problem(stack(training, training), stack(test, training), torch.ones(1, dtype=torch.float64))


def _tensors(*arrays: np.ndarray) -> list[torch.Tensor]:
    return [torch.as_tensor(array, dtype=torch.float64) for array in arrays]


def disagreement(limit: Limit, epsilon: float = 0.01, tolerance: float = 1e-9) -> float:
    """Largest difference between the closed flow and the flow of the explicit problem, both at loss `epsilon`.

    Over values, attention of all queries of all samples, test loss, and time (relative).
    """
    state = Flow(limit).to_loss(epsilon, tolerance=tolerance)[0]
    problem = explicit_problem(limit)
    trained = gradient_flow(problem, epsilon=epsilon, tolerance=tolerance)
    seen, fresh = (view(points, trained.coefficients) for points in (problem.train, problem.test))
    columns = [MU, XI2] + [WEAK] * limit.weak
    values = seen.labels[0, :, None].numpy() * seen.values[0].numpy()
    attention = np.stack([state.attention[row, columns] for row in columns])
    if limit.weak:
        attention[2:, 2:] = state.attention[WEAK, OTHER]
        np.fill_diagonal(attention[2:, 2:], state.attention[WEAK, WEAK])
    off = [np.abs(values - state.values[columns]).max(), np.abs(seen.phi[0].numpy() - attention).max(),
           abs(float(fresh.loss) - state.test_loss), abs(float(trained.time) / state.time - 1)]
    return float(max(off))
