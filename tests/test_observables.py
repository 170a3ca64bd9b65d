"""Observables by hand, and against the full network."""

import math

import pytest
import torch

from vitbo_lib.data import SignalNoise
from vitbo_lib.initialization import GaussianInit
from vitbo_lib.observables import View, observe, summary, view
from vitbo_lib.simulation import Setting, look_at, sample_full
from vitbo_lib.span import reduce

PHI = torch.tensor([[[[0.5, 0.25, 0.25], [0.1, 0.9, 0.0], [0.3, 0.3, 0.4]],
                     [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]]], dtype=torch.float64)
VALUES = torch.tensor([[[2.0, -1.0, 0.5], [-3.0, 4.0, 0.0]]], dtype=torch.float64)
LABELS = torch.tensor([[1.0, -1.0]], dtype=torch.float64)
BY_HAND = View(PHI, VALUES, torch.tensor([[math.log(3), math.log(7)]], dtype=torch.float64), LABELS)


def test_by_hand():
    """Losses log(1 + 1/3) and log(1 + 7), errors 0 and 1; key tokens are columns; y V of token 2: -1 and -4."""
    assert float(BY_HAND.loss) == pytest.approx((math.log(4 / 3) + math.log(8)) / 2)
    assert float(BY_HAND.error) == 0.5
    assert float(BY_HAND.attention_on(0)) == pytest.approx((0.5 + 0.1 + 0.3 + 1) / 6)
    assert float(BY_HAND.attention_on(1)) == pytest.approx((0.25 + 0.9 + 0.3 + 1) / 6)
    assert float(BY_HAND.signed_v(0)) == 2.5
    assert float(BY_HAND.signed_v(1)) == -2.5


def test_rows_taken_for_columns_and_unsigned_values_are_caught():
    """The two likely slips give other numbers on the example above."""
    assert float(PHI[:, :, 0].mean()) != pytest.approx(float(BY_HAND.attention_on(0)))
    assert float(VALUES[..., 1].mean()) != pytest.approx(float(BY_HAND.signed_v(1)))


def test_summary_takes_training_and_fresh_points_apart():
    other = View(PHI, VALUES, torch.full_like(BY_HAND.f, 5.0), LABELS)
    found = summary(BY_HAND, other)
    assert float(found["train_loss"]) == float(BY_HAND.loss)
    assert float(found["test_loss"]) == float(other.loss)
    assert float(found["v_signal"]) == 2.5


def full_and_reduced(n_tokens):
    law = SignalNoise(n_tokens=n_tokens, d=20, signal_norm=2, sigma_p=0.3, sigma_p_tilde=0.6)
    setting = Setting(law=law, n_samples=3, d_h=50, d_v=2, init=GaussianInit(sigma_h=0.2, sigma_v=0.3), n_test=5)
    full = sample_full(setting, 0)
    problem = reduce(full.train, full.test, full.weights)
    return full, problem, problem.train.start.map(torch.zeros_like)


def test_views_of_the_reduced_network_are_those_of_the_full_one():
    full, problem, start = full_and_reduced(3)
    expected = summary(look_at(full.train, full.weights), look_at(full.test, full.weights))
    for name, value in observe(problem, start).items():
        assert float(value) == pytest.approx(float(expected[name]), rel=1e-12), name
    seen = view(problem.test, start)
    assert torch.allclose(seen.f, seen.phi.mean(-2).mul(seen.values).sum(-1), rtol=1e-12)


def test_one_token_has_no_xi2():
    _, problem, start = full_and_reduced(1)
    observed = observe(problem, start)
    assert observed["attention_xi2"].isnan().all()
    assert observed["v_xi2"].isnan().all()
    assert float(observed["attention_signal"]) == 1
