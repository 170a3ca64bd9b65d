"""Gaps, norms, cross logits and rates against full weights, brute force and small steps."""

import numpy as np
import pytest
import torch

from vitbo_lib import gaps, simulation, span, training
from vitbo_lib.data import SignalNoise
from vitbo_lib.initialization import GaussianInit
from vitbo_lib.simulation import Setting
from vitbo_lib.span import Triple
from vitbo_lib.transformer import project

LAW = SignalNoise(n_tokens=4, d=60, signal_norm=3.0, sigma_p=0.1, sigma_p_tilde=0.5)
SETTING = Setting(law=LAW, n_samples=5, d_h=40, init=GaussianInit(sigma_h=0.1, sigma_v=0.1), eta=0.5, n_test=1)


@pytest.fixture(scope="module")
def trained():
    """Two runs after 20 steps, their problem, and the full draw and weights of each."""
    problem = simulation.build(SETTING, "reduced", [0, 1])
    state = training.gradient_descent(problem, eta=0.5, epsilon=1e-9, max_steps=20).coefficients
    full = [simulation.sample_full(SETTING, seed) for seed in (0, 1)]
    weights = [span.restore(problem.run([r]), state.map(lambda part: part[[r]]), one.train, one.weights)  # noqa: B023
               for r, one in enumerate(full)]
    return problem, state, full, weights


def brute(one, weights):
    """Queries and keys of all tokens (N M h) from full weights."""
    return [part.numpy() for part in project(one.train.tokens, weights)[:2]]


def test_gaps_are_those_of_the_full_weights(trained):
    problem, state, full, weights = trained
    found = gaps.gaps(problem.train, state)
    for r in range(2):
        q, k = brute(full[r], weights[r])
        for n in range(5):
            for i in range(4):
                logits = [q[n, i] @ k[n, j] for j in range(4)]
                np.testing.assert_allclose(found.to_signal[r, n, i], [logits[0] - x for x in logits[1:]], atol=1e-9)
                np.testing.assert_allclose(found.to_xi2[r, n, i], [logits[1] - logits[j] for j in (0, 2, 3)], atol=1e-9)
        np.testing.assert_allclose(found.query_norms[r], (q**2).sum(-1), rtol=1e-9)
        np.testing.assert_allclose(found.key_norms[r], (k**2).sum(-1), rtol=1e-9)


def cross_by_hand(q, k, labels):
    """Largest logit between noise of different samples, between classes, largest product of like kind."""
    tokens = [(n, i) for n in range(len(q)) for i in range(4)]
    noise = max(abs(q[a] @ k[b]) for a in tokens for b in tokens if a[0] != b[0] and a[1] and b[1])
    classes = max((abs(q[a] @ k[b]) for a in tokens for b in tokens
                   if a[1] == b[1] == 0 and labels[a[0]] != labels[b[0]]), default=0.0)
    different = [(a, b) for a in tokens for b in tokens
                 if a != b and not (a[1] == b[1] == 0 and labels[a[0]] == labels[b[0]])]
    return noise, classes, max(max(abs(q[a] @ q[b]), abs(k[a] @ k[b])) for a, b in different)


def test_cross_products_by_hand(trained):
    problem, state, full, weights = trained
    found = gaps.gaps(problem.train, state)
    for r in range(2):
        by_hand = cross_by_hand(*brute(full[r], weights[r]), full[r].train.labels.tolist())
        ours = [float(part[r]) for part in (found.cross_sample, found.cross_class, found.like_products)]
        assert ours == pytest.approx(by_hand, rel=1e-9)


def test_same_token_knows_the_signals():
    points = simulation.build(SETTING, "reduced", [0]).train
    same = gaps.same_token(points)[0]
    labels = points.labels[0].tolist()
    assert all(bool(same[4 * a, 4 * b]) == (labels[a] == labels[b]) for a in range(5) for b in range(5))
    assert int(same[1::4, 1::4].sum()) == 5


def step_difference(problem, state, eta, quantity):
    """(quantity after one small step - before) / eta."""
    descent = training.Descent(problem, state.map(torch.clone))
    descent.evaluate()
    before = quantity(state)
    descent.step(eta)
    return (quantity(descent.coefficients) - before) / eta


def errors_of_rates(trained):
    problem, state, *_ = trained
    moving = gaps.rates(problem, state)
    of_logits = step_difference(problem, state, 1e-6, lambda s: gaps.gaps(problem.train, s).logits)
    of_values = step_difference(problem, state, 1e-6, lambda s: span.projections(problem.train, s).values.view(2, 5, 4))
    return [float((a - b).abs().max() / b.abs().max()) for a, b in
            ((moving.logits, of_logits), (moving.values, of_values))]


def test_rates_are_those_of_a_small_step(trained):
    assert max(errors_of_rates(trained)) < 1e-4


def test_planted_fault_in_rates_is_seen(trained, monkeypatch):
    def key_side_lost(original):
        def token_gradients(*args):
            loss, found = original(*args)
            return loss, type(found)(found.logits.mT.clone(), -found.values)

        return token_gradients

    monkeypatch.setattr(gaps, "token_gradients", key_side_lost(gaps.token_gradients))
    assert min(errors_of_rates(trained)) > 0.1


def test_one_class_has_no_cross_class_logit():
    problem = simulation.build(SETTING, "reduced", [0])
    points = span.Points(problem.train.start, problem.train.cross, torch.ones_like(problem.train.labels))
    assert float(gaps.gaps(points, Triple(*map(torch.zeros_like, problem.train.start.parts))).cross_class) == 0
