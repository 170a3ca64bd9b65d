"""The coefficients of Definition B.3 against a step on the full weights, autograd, and the formulas of F.1 in loops."""

import functools

import pytest
import torch

from vitbo_lib import coefficients, simulation, span, transformer
from vitbo_lib.data import SignalNoise
from vitbo_lib.initialization import GaussianInit
from vitbo_lib.training import gradient_descent
from vitbo_lib.transformer import Weights

ETA = 0.3
ROUNDING = 1e-12


def setting(project=True):
    law = SignalNoise(n_tokens=3, d=60, signal_norm=3.0, sigma_p=0.2, sigma_p_tilde=0.6, project=project)
    return simulation.Setting(law=law, n_samples=4, d_h=30, d_v=5, n_test=2, eta=ETA, epsilon=1e-9, max_steps=6,
                              init=GaussianInit(sigma_h=0.1, sigma_v=0.1, w_o_norm=1.5))


@functools.cache
def problems(project=True, seeds=(1, 2, 3)):
    """Full draws, their reduced problems joined, and the state after six steps (labels differ between runs)."""
    full = [simulation.sample_full(setting(project), seed) for seed in seeds]
    problem = span.concatenate([span.reduce(one.train, one.test, one.weights) for one in full])
    return full, problem, gradient_descent(problem, eta=ETA, epsilon=1e-9, max_steps=6).coefficients


def full_step(one, weights, gradient=transformer.gradients):
    slope = gradient(one.train.tokens, one.train.labels, weights)[1]
    return Weights(weights.w_q - ETA * slope.w_q, weights.w_k - ETA * slope.w_k, weights.w_v - ETA * slope.w_v,
                   weights.w_o)


def autograd(tokens, labels, weights):
    parts = [part.clone().requires_grad_() for part in (weights.w_q, weights.w_k, weights.w_v)]
    logits = (tokens @ parts[0]) @ (tokens @ parts[1]).mT
    f = (torch.softmax(logits, -1) @ tokens @ parts[2] @ weights.w_o).mean(-1)
    loss = torch.log1p(torch.exp(-labels * f)).mean()
    return loss, Weights(*torch.autograd.grad(loss, parts), weights.w_o)


def residuals(found, full, problem, state, gradient=transformer.gradients):
    """Largest error of q, k and V after a step, over the largest change, by the decomposition of Definition B.3."""
    worst = 0.0
    for run, one in enumerate(full):
        before = span.restore(problem.run(slice(run, run + 1)), state.map(lambda part, r=run: part[r:r + 1]), one.train,
                              one.weights)
        after = full_step(one, before, gradient)
        z = one.train.distinct_tokens
        steps = {"q": z @ (after.w_q - before.w_q), "k": z @ (after.w_k - before.w_k),
                 "v": z @ (after.value_direction - before.value_direction)}
        v = torch.cat([found.gamma[run], found.rho[run].flatten()]) * (one.weights.w_o @ one.weights.w_o)
        said = {"q": found.alpha[run] @ (z @ before.w_k), "k": found.beta[run] @ (z @ before.w_q), "v": v}
        worst = max(worst, *(float((said[name] - steps[name]).abs().max() / steps[name].abs().max()) for name in said))
    return worst


@pytest.mark.parametrize("project", [True, False])
@pytest.mark.parametrize("gradient", [transformer.gradients, autograd])
def test_a_step_on_the_full_weights(project, gradient):
    full, problem, state = problems(project)
    assert len({tuple(one.train.labels.tolist()) for one in full}) > 1
    found = coefficients.coefficients(problem.train, state, ETA)
    assert residuals(found, full, problem, state, gradient) < ROUNDING


def by_loops(one, weights, eta=ETA, sign=1):
    """alpha, beta, gamma, rho as F.1 writes them out, entry by entry; `sign` = -1 plants the printed minus of B.1."""
    queries, keys, values = transformer.project(one.train.tokens, weights)
    n_samples, m = values.shape
    noise, labels = one.train.noise, one.train.labels
    mu2 = float(one.train.signals[0] @ one.train.signals[0])
    size = 2 + n_samples * (m - 1)

    def row(n, i):
        return 2 + n * (m - 1) + i - 1  # i from 1 (the paper's 2)

    alpha, beta = torch.zeros(size, size, dtype=values.dtype), torch.zeros(size, size, dtype=values.dtype)
    gamma, rho = torch.zeros(2, dtype=values.dtype), torch.zeros(n_samples, m - 1, dtype=values.dtype)
    for n in range(n_samples):
        p = torch.softmax(queries[n] @ keys[n].T, -1)
        g = p * (values[n] - (p @ values[n])[:, None])
        y, s = float(labels[n]), int(labels[n] < 0)
        slope = -1 / (1 + torch.exp(y * (p @ values[n]).mean()))  # l'_n
        c = -eta * y * slope / (n_samples * m)
        gamma[s] += c * mu2 * p[:, 0].sum()
        alpha[s, s] += c * mu2 * g[0, 0]
        beta[s, s] += c * mu2 * g[0, 0]
        for i in range(1, m):
            alpha[s, row(n, i)] += c * mu2 * g[0, i]
            beta[s, row(n, i)] += c * mu2 * g[i, 0]
        for other in range(n_samples):
            for i in range(1, m):
                for j in range(1, m):
                    product = float(noise[other, i - 1] @ noise[n, j - 1]) * sign
                    rho[other, i - 1] += c * product * p[:, j].sum() * sign
                    alpha[row(other, i), s] += c * product * g[j, 0]
                    beta[row(other, i), s] += c * product * g[0, j]
                    for k in range(1, m):
                        alpha[row(other, i), row(n, k)] += c * product * g[j, k]
                        beta[row(other, i), row(n, k)] += c * product * g[k, j]
    return coefficients.Coefficients(alpha, beta, gamma, rho)


def largest_difference(found, said):
    return max(float((getattr(found, name) - getattr(said, name)).abs().max() / getattr(said, name).abs().max())
               for name in ("alpha", "beta", "gamma", "rho"))


def test_the_formulas_of_f_1_written_out_in_loops():
    full, problem, state = problems()
    for run, one in enumerate(full):
        here = span.restore(problem.run(slice(run, run + 1)), state.map(lambda part, r=run: part[r:r + 1]), one.train,
                            one.weights)
        found = coefficients.coefficients(problem.train.run(slice(run, run + 1)),
                                          state.map(lambda part, r=run: part[r:r + 1]), ETA)
        single = coefficients.Coefficients(*(getattr(found, name)[0] for name in ("alpha", "beta", "gamma", "rho")))
        assert largest_difference(single, by_loops(one, here)) < ROUNDING
        assert largest_difference(single, by_loops(one, here, sign=-1)) > 0.1


@pytest.mark.parametrize("fault", ["transposed", "sign", "gram"])
def test_a_planted_fault_is_seen(fault, monkeypatch):
    full, problem, state = problems()
    if fault == "gram":  # cross terms between noise tokens forgotten
        gram = coefficients.gram
        monkeypatch.setattr(coefficients, "gram",
                            lambda points: torch.diag_embed(gram(points).diagonal(dim1=1, dim2=2)))
    else:
        token_gradients = coefficients.token_gradients
        change = {"transposed": lambda part: part.mT, "sign": torch.neg}[fault]

        def faulty(*args):
            loss, at = token_gradients(*args)
            return loss, transformer.TokenGradients(change(at.logits), at.values)

        monkeypatch.setattr(coefficients, "token_gradients", faulty)
    assert residuals(coefficients.coefficients(problem.train, state, ETA), full, problem, state) > 1e-3


def test_vectorized_queries_keys_and_values():
    full, problem, state = problems()
    seen = coefficients.vectorized(problem.train, state)
    for run, one in enumerate(full):
        here = span.restore(problem.run(slice(run, run + 1)), state.map(lambda part, r=run: part[r:r + 1]), one.train,
                            one.weights)
        z = one.train.distinct_tokens
        logits = seen.queries[run] @ seen.keys[run].T
        expected = (z @ here.w_q) @ (z @ here.w_k).T
        assert torch.allclose(logits, expected, rtol=0, atol=ROUNDING * float(expected.abs().max()))
        assert torch.allclose(seen.values[run], z @ here.value_direction, rtol=0, atol=1e-12)


def test_a_class_without_samples_is_missing_and_does_not_move():
    full = problems()[0]
    one = full[0].train
    kept = (one.labels > 0).nonzero().flatten()
    alone = type(one)(one.signals, one.noise[kept], one.labels[kept])
    points = span.reduce(alone, alone, full[0].weights).train
    zero = points.start.map(torch.zeros_like)
    seen = coefficients.vectorized(points, zero)
    assert bool(seen.queries[0, 1].isnan().all())
    assert not bool(seen.queries[0, [0, 2, 3]].isnan().any())
    found = coefficients.coefficients(points, zero, ETA)
    assert not found.alpha[0, 1].any()
    assert not found.alpha[0, :, 1].any()
    assert not bool(found.gamma[0, 1])
    assert not bool(found.alpha.isnan().any())


def test_movement_is_that_of_the_full_weights():
    full, problem, state = problems()
    moved = coefficients.movement(problem.train, state)
    for run, one in enumerate(full):
        here = span.restore(problem.run(slice(run, run + 1)), state.map(lambda part, r=run: part[r:r + 1]), one.train,
                            one.weights)
        assert float(moved.w_q[run]) == pytest.approx(float((here.w_q - one.weights.w_q).norm()), rel=1e-10)
        assert float(moved.w_k[run]) == pytest.approx(float((here.w_k - one.weights.w_k).norm()), rel=1e-10)
        direction = (here.value_direction - one.weights.value_direction).norm()
        assert float(moved.value_direction[run]) == pytest.approx(float(direction), rel=1e-10)
        w_v = float((here.w_v - one.weights.w_v).norm())
        assert float(moved.value_direction[run] / one.weights.w_o.norm()) == pytest.approx(w_v, rel=1e-10)


def test_loss_derivatives():
    full, problem, state = problems()
    found = coefficients.loss_derivatives(problem.train, state)
    one = full[1]
    here = span.restore(problem.run(slice(1, 2)), state.map(lambda part: part[1:2]), one.train, one.weights)
    f = transformer.forward(one.train.tokens, here).requires_grad_()
    slope = torch.autograd.grad(torch.log1p(torch.exp(-one.train.labels * f)).sum(), f)[0] * one.train.labels
    assert torch.allclose(found[1], -slope, rtol=0, atol=1e-12)


def test_one_token_has_no_noise():
    law = SignalNoise(n_tokens=1, d=30, signal_norm=1.0, sigma_p=0.1, sigma_p_tilde=0.5)
    problem = simulation.build(simulation.Setting(law=law, n_samples=3, d_h=8, init=GaussianInit(sigma_h=0.1,
                                                                                                 sigma_v=0.1)),
                               "drawn", [0])
    found = coefficients.coefficients(problem.train, problem.train.start.map(torch.zeros_like), ETA)
    assert found.alpha.shape == (1, 2, 2)
    assert not found.alpha.any()
    assert found.rho.shape == (1, 3, 0)
