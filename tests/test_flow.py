"""Gradient flow: the limit of descent, at first order in eta; closed form where there is one; tolerance."""

import math

import pytest
import torch

from vitbo_lib.data import SignalNoise
from vitbo_lib.errors import UserError
from vitbo_lib.flow import gradient_flow
from vitbo_lib.initialization import GaussianInit
from vitbo_lib.observables import observe
from vitbo_lib.simulation import Setting, build
from vitbo_lib.training import Descent, gradient_descent

LAW = SignalNoise(n_tokens=3, d=60, signal_norm=3, sigma_p=0.2, sigma_p_tilde=0.5)
SETTING = Setting(law=LAW, n_samples=4, d_h=40, init=GaussianInit(sigma_h=0.12, sigma_v=0.1, w_o_norm=1.3),
                  epsilon=0.1, n_test=50)
ONE_TOKEN = Setting(law=SignalNoise(n_tokens=1, d=10, signal_norm=2, sigma_p=1, sigma_p_tilde=1), n_samples=1, d_h=3,
                    init=GaussianInit(sigma_h=0, sigma_v=0, w_o_norm=1.5), n_test=1)


def order_in_eta(problem, time_factor=1.0) -> list[float]:
    """log2 of the ratio of errors of descent at eta and eta / 2, of two quantities; 1 is first order."""
    end = gradient_flow(problem, epsilon=0.1, tolerance=1e-8)
    wanted = float(end.time) * time_factor
    expected = observe(problem, end.coefficients)
    errors = []
    for steps in (200, 400):
        found = gradient_descent(problem, eta=wanted / steps, epsilon=1e-300, max_steps=steps)
        seen = observe(problem, found.coefficients)
        errors.append([float((seen[name] - expected[name]).abs()) for name in ("train_loss", "test_loss", "v_signal")])
    return [math.log2(a / b) for a, b in zip(*errors)]


def test_descent_approaches_flow_at_first_order():
    """Halving eta halves the error of final losses and V at the same time eta t."""
    for slope in order_in_eta(build(SETTING, "drawn", [0])):
        assert slope == pytest.approx(1, abs=0.1)


def test_a_flow_at_another_speed_is_caught(monkeypatch):
    """With the time off by 1 %, or one part of the velocity off by 5 %, errors no longer vanish with eta."""
    problem = build(SETTING, "drawn", [0])
    assert max(abs(slope - 1) for slope in order_in_eta(problem, time_factor=1.01)) > 0.2
    right = Descent.velocity

    def velocity(self, into):
        right(self, into)
        into[1].mul_(1.05)

    monkeypatch.setattr(Descent, "velocity", velocity)
    assert max(abs(slope - 1) for slope in order_in_eta(problem)) > 0.2


def test_time_to_the_target_is_that_of_flow():
    """Descent that needs about 1000 steps ends within 3 of them."""
    problem = build(SETTING, "drawn", [1])
    time = float(gradient_flow(problem, epsilon=0.1).time)
    assert int(gradient_descent(problem, eta=time / 1000, epsilon=0.1).steps) == pytest.approx(1000, abs=3)


def test_a_closed_form():
    """M = N = 1: f' = -l'(f) ||w_O||^2 ||mu||^2 from 0, so e^f + f - 1 = ||w_O||^2 ||mu||^2 time."""
    end = gradient_flow(build(ONE_TOKEN, "drawn", [0]), epsilon=0.01, tolerance=1e-8)
    f = -math.log(math.expm1(0.01))  # log(1 + e^-f) = 0.01
    assert float(end.time) == pytest.approx((math.exp(f) + f - 1) / (1.5**2 * 2**2), rel=1e-6)
    assert bool(end.reached)


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_units_make_no_difference(scale):
    """Tokens times s, W_Q, W_K, W_V over s: the same network, with time in units of s^-2 (Condition 4.1 (6))."""
    def at(s):
        law = SignalNoise(n_tokens=3, d=60, signal_norm=3 * s, sigma_p=0.2 * s, sigma_p_tilde=0.5 * s)
        init = GaussianInit(sigma_h=0.12 / s, sigma_v=0.1 / s)
        problem = build(Setting(law=law, n_samples=4, d_h=40, init=init, n_test=20), "drawn", [0])
        end = gradient_flow(problem, epsilon=0.1)
        return float(end.time) * s**2, float(observe(problem, end.coefficients)["test_loss"])

    assert at(scale) == pytest.approx(at(1.0), rel=1e-4)


def test_the_default_tolerance_is_enough():
    """Against a tolerance 10^4 times smaller: times, losses and V to 10^-4."""
    problem = build(SETTING, "drawn", [0, 1, 2])
    usual, fine = (gradient_flow(problem, epsilon=0.01, tolerance=tolerance) for tolerance in (1e-6, 1e-10))
    assert torch.allclose(usual.time, fine.time, rtol=1e-4)
    a, b = (observe(problem, end.coefficients) for end in (usual, fine))
    for name in ("test_loss", "attention_signal", "v_signal", "v_xi2"):
        assert torch.allclose(a[name], b[name], rtol=1e-4, atol=1e-5), name


def test_flow_never_increases_the_loss_and_stops_at_the_target():
    problem = build(SETTING, "drawn", [0, 1])
    end = gradient_flow(problem, epsilon=0.1, snapshots=12)
    losses = torch.stack([observe(problem, end.snapshots[k])["train_loss"] for k in range(1, 13)])
    assert (losses.diff(dim=0) < 0).all()
    assert torch.allclose(losses[-1], torch.full((2,), 0.1, dtype=torch.float64), rtol=1e-4)
    assert torch.allclose(end.train_loss, torch.full((2,), 0.1, dtype=torch.float64), rtol=1e-6)
    assert end.reached.all()
    assert end.steps is None


def test_a_target_that_holds_at_the_start():
    end = gradient_flow(build(SETTING, "drawn", [0]), epsilon=2.0, snapshots=3)
    assert float(end.time) == 0
    assert float(end.coefficients.values.abs().max()) == 0
    assert len(end.snapshots) == 3


def test_too_few_evaluations_is_a_user_error():
    with pytest.raises(UserError, match="needs more than 30 evaluations; raise --max-steps"):
        gradient_flow(build(SETTING, "drawn", [0]), epsilon=0.01, max_evaluations=30)


def test_snapshots_do_not_use_up_the_evaluations():
    """A budget that suffices without snapshots suffices with them: the second pass is not counted."""
    problem = build(SETTING, "drawn", [0])
    needed = next(n for n in range(20, 20_000, 20) if _suffices(problem, n))
    assert len(gradient_flow(problem, epsilon=0.1, max_evaluations=needed, snapshots=5).snapshots) == 5


def _suffices(problem, n) -> bool:
    try:
        gradient_flow(problem, epsilon=0.1, max_evaluations=n)
    except UserError:
        return False
    return True


def test_single_precision_flow():
    problem = build(SETTING, "drawn", [0], dtype=torch.float32)
    end = gradient_flow(problem, epsilon=0.1)
    assert end.coefficients.keys.dtype == end.time.dtype == torch.float32
    double = gradient_flow(build(SETTING, "drawn", [0]), epsilon=0.1)
    assert float(end.time) == pytest.approx(float(double.time), rel=1e-3)
