"""Descent: where it stops, what it keeps, what it does when numbers grow, and that batches change nothing."""

import math

import pytest
import torch

from vitbo_lib import training
from vitbo_lib.data import DataSet, SignalNoise
from vitbo_lib.draw import draw
from vitbo_lib.errors import UserError
from vitbo_lib.initialization import GaussianInit
from vitbo_lib.observables import view
from vitbo_lib.simulation import Setting, build, sample_full
from vitbo_lib.span import reduce, restore
from vitbo_lib.training import Descent, full_gradient_descent, gradient_descent

LAW = SignalNoise(n_tokens=3, d=40, signal_norm=3, sigma_p=0.2, sigma_p_tilde=0.6)
SETTING = Setting(law=LAW, n_samples=4, d_h=60, d_v=3, init=GaussianInit(sigma_h=0.12, sigma_v=0.1, w_o_norm=1.3),
                  eta=0.05, epsilon=0.1, n_test=6)


def problem(seeds=(0, 1, 2, 3), **options):
    return build(SETTING, "drawn", seeds, **options)


def largest_gap(a, b) -> float:
    return max(float((x - y).abs().max()) for x, y in zip(a.parts, b.parts))


def test_reduced_descent_is_full_descent():
    """Steps, losses and every weight, at the end of runs of some hundred steps."""
    for seed in range(3):
        one = sample_full(SETTING, seed)
        weights, steps, loss = full_gradient_descent(one.train, one.weights, eta=0.05, epsilon=0.1)
        small = reduce(one.train, one.test, one.weights)
        found = gradient_descent(small, eta=0.05, epsilon=0.1)
        mine = restore(small, found.coefficients, one.train, one.weights)
        assert steps == int(found.steps) > 20
        assert float(found.train_loss) == pytest.approx(loss, rel=1e-11)
        for name in ("w_q", "w_k", "w_v"):
            assert torch.allclose(getattr(mine, name), getattr(weights, name), rtol=0, atol=1e-12), name


def test_runs_that_end_at_different_steps_equal_those_run_alone():
    together = problem(range(8))
    joint = gradient_descent(together, eta=0.05, epsilon=0.1)
    assert len(set(joint.steps.tolist())) > 4
    for r in range(8):
        alone = gradient_descent(together.run([r]), eta=0.05, epsilon=0.1)
        assert int(alone.steps) == int(joint.steps[r])
        assert float(alone.train_loss) == pytest.approx(float(joint.train_loss[r]), rel=1e-13)
        assert largest_gap(alone.coefficients, joint.coefficients.map(lambda part: part[[r]])) < 1e-13  # noqa: B023


def test_ended_runs_that_go_on_are_caught():
    """Training all runs to the end of the longest would be seen."""
    together = problem()
    right = gradient_descent(together, eta=0.05, epsilon=0.1)
    late = gradient_descent(together, eta=0.05, epsilon=1e-300, max_steps=int(right.steps.max()))
    assert largest_gap(right.coefficients, late.coefficients) > 1e-4


def test_each_run_stops_at_its_first_step_below_epsilon():
    found = gradient_descent(problem(), eta=0.05, epsilon=0.1, snapshot_steps=range(400))
    for r, end in enumerate(found.steps.tolist()):
        losses = [float(view(problem().train, found.snapshots[t]).loss[r]) for t in (end - 1, end, end + 1)
                  if t in found.snapshots]
        assert losses[0] > 0.1 >= losses[1]
        assert losses[-1] == losses[1]  # stays at its end
    assert found.reached.all()
    assert torch.allclose(found.time, found.steps.double() * 0.05)


def test_snapshots_are_states_of_descents_of_that_length():
    found = gradient_descent(problem(), eta=0.05, epsilon=0.01, snapshot_steps=[0, 7, 30])
    assert sorted(found.snapshots) == [0, 7, 30]
    assert largest_gap(found.snapshots[0], found.snapshots[0].map(torch.zeros_like)) == 0
    for t in (7, 30):
        stopped = gradient_descent(problem(), eta=0.05, epsilon=1e-300, max_steps=t)
        assert largest_gap(found.snapshots[t], stopped.coefficients) < 1e-14


def test_one_step_by_hand():
    """M = N = 1, V = 0: A_v becomes eta ||w_O||^2 y / 2, and V follows: y V = eta ||w_O||^2 ||mu||^2 / 2."""
    law = SignalNoise(n_tokens=1, d=10, signal_norm=2, sigma_p=1, sigma_p_tilde=1)
    one = draw(law, 1, 3, GaussianInit(sigma_h=1, sigma_v=0, w_o_norm=1.5), 1, seed=0)
    found = gradient_descent(one, eta=0.1, epsilon=1e-300, max_steps=1)
    y = float(one.train.labels)
    assert float(found.coefficients.values) == pytest.approx(0.1 * 1.5**2 * y / 2)
    assert y * float(view(one.train, found.coefficients).values) == pytest.approx(0.1 * 1.5**2 * 4 / 2)
    assert float(found.coefficients.queries.abs().max()) == 0


def test_no_steps():
    found = gradient_descent(problem(), eta=0.05, epsilon=0.1, max_steps=0)
    assert found.steps.tolist() == [0] * 4
    assert not found.reached.any()
    assert (found.train_loss > 0.1).all()


def test_a_target_above_log_2_is_met_at_once():
    found = gradient_descent(problem(), eta=0.05, epsilon=math.log(2) + 1)
    assert found.steps.tolist() == [0] * 4
    assert found.reached.all()
    assert float(found.coefficients.values.abs().max()) == 0


def test_out_of_steps_says_so():
    found = gradient_descent(problem(), eta=0.05, epsilon=1e-9, max_steps=5)
    assert found.steps.tolist() == [5] * 4
    assert not found.reached.any()


def test_time_keeps_its_digits():
    """eta t in the problem's precision, not in the single precision of whole numbers times a float."""
    found = gradient_descent(problem(), eta=0.1, epsilon=1e-300, max_steps=71)
    assert found.time.dtype == torch.float64
    assert float(found.time[0]) == 0.1 * 71
    assert float(torch.tensor([71]) * 0.1) != 0.1 * 71  # the slip


@pytest.mark.parametrize("cache", [1, 2**40])
def test_groups_do_not_change_the_answer(monkeypatch, cache):
    """One run at a time or all side by side: ends and states on the way are the same."""
    alike = [gradient_descent(problem(range(5)), eta=0.05, epsilon=0.05, snapshot_steps=[0, 3, 40, 10**6])]
    monkeypatch.setattr(training, "CACHE", cache)
    alike.append(gradient_descent(problem(range(5)), eta=0.05, epsilon=0.05, snapshot_steps=[0, 3, 40, 10**6]))
    one, other = alike
    assert one.steps.tolist() == other.steps.tolist()
    assert list(one.snapshots) == list(other.snapshots)
    for state in (lambda t: t.coefficients, *(lambda t, k=k: t.snapshots[k] for k in one.snapshots)):
        for a, b in zip(state(one).parts, state(other).parts):
            assert torch.allclose(a, b, rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("sizes", [{"signal_norm": 1e4}, {"signal_norm": 1e8, "sigma_p": 1e8, "sigma_p_tilde": 1e8}])
def test_huge_logits_and_margins_stay_finite(sizes):
    """Logits of 10^6 and 10^14, margins likewise: a hard attention, a large loss, no NaN."""
    law = SignalNoise(**(vars(LAW) | sizes))
    one = draw(law, 4, 60, GaussianInit(sigma_h=0.3, sigma_v=1.0), 5, seed=0)
    found = gradient_descent(one, eta=1e-20, epsilon=1e-300, max_steps=3)
    for part in (*found.coefficients.parts, found.train_loss, view(one.test, found.coefficients).loss):
        assert part.isfinite().all()


def test_divergence_is_a_user_error():
    """One run of NaN among good ones is enough, whether or not the others have ended."""
    with pytest.raises(UserError, match=r"diverged at step .* give a smaller --eta"):
        gradient_descent(problem(), eta=1e200, epsilon=0.1, max_steps=100)
    broken = problem()
    broken.train.start.values[2] = torch.nan
    for epsilon in (0.1, 5.0):
        with pytest.raises(UserError, match="nan before the first step"):
            gradient_descent(broken, eta=0.05, epsilon=epsilon)


def test_full_divergence_is_a_user_error():
    one = sample_full(SETTING, 0)
    bad = DataSet(one.train.signals, one.train.noise * math.inf, one.train.labels)
    with pytest.raises(UserError, match="nan before the first step"):
        full_gradient_descent(bad, one.weights, eta=0.05, epsilon=0.1)


@pytest.mark.parametrize("wrong", [{"eta": 0}, {"eta": math.nan}, {"epsilon": 0}, {"epsilon": -1}, {"max_steps": -1},
                                   {"max_steps": 1.5}])
def test_impossible_options(wrong):
    with pytest.raises(UserError, match="is not possible; give"):
        gradient_descent(problem([0]), **({"eta": 0.1, "epsilon": 0.1} | wrong))


def test_the_problem_is_not_changed():
    given = problem()
    kept = [part.clone() for part in (*given.train.start.parts, given.train.cross)]
    gradient_descent(given, eta=0.05, epsilon=0.1)
    for a, b in zip(kept, (*given.train.start.parts, given.train.cross)):
        assert torch.equal(a, b)


def test_resuming_a_descent():
    """`Descent` from given coefficients goes on as the one that led there."""
    given = problem()
    first = gradient_descent(given, eta=0.05, epsilon=1e-300, max_steps=10)
    resumed = Descent(given, first.coefficients.map(torch.clone))
    for _ in range(5):
        resumed.evaluate()
        resumed.step(0.05)
    whole = gradient_descent(given, eta=0.05, epsilon=1e-300, max_steps=15)
    assert largest_gap(resumed.coefficients, whole.coefficients) < 1e-14

