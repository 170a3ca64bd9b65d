"""Noisy copies: paired draws, and the break-even of initial rates against a first step of training."""

import math

import numpy as np
import pytest
import torch

from vitbo_lib import augmentation
from vitbo_lib.errors import UserError
from vitbo_lib.figures import population as figures
from vitbo_lib.training import Descent

SMALL = {"N_TEST": 2, "D_H": 64, "D_V": 8}


@pytest.fixture
def small(monkeypatch):
    for name, value in SMALL.items():
        monkeypatch.setattr(augmentation, name, value)


def first_step(problem):
    """Growth of y V by the first step: of the signal, and of xi_2, mean over samples."""
    descent = Descent(problem)
    descent.evaluate()
    descent.step(1.0)
    moved = (problem.train.cross @ descent.coefficients.values.unsqueeze(-1)).squeeze(-1)
    signed = moved.view(-1, augmentation.M) * problem.train.labels.view(-1, 1)
    return float(signed[:, 0].mean()), float(signed[:, 1].mean())


def rates_meet(arm, ratio):
    signal, noise = first_step(augmentation.problems(ratio, 0)[arm])
    return signal == pytest.approx(noise, rel=0.12)


@pytest.mark.parametrize("arm", augmentation.ARMS)
def test_initial_rates_meet_at_break_even_and_not_elsewhere(small, arm):
    at = augmentation.break_even(arm)
    assert rates_meet(arm, at)
    assert not rates_meet(arm, 1.5 * at)


@pytest.mark.parametrize("arm", ["none", "copies, s = 1", "copies, s = 2"])
def test_initial_rates_are_those_of_the_argument(small, arm):
    """Signal: ||mu||^2 ||w_O||^2 / (4 M), being in half of the samples; noise: sigma^2 d (1 + s^2 / k) / (2 N M)."""
    problem, s = augmentation.problems(2.0, 0)[arm], augmentation.ARMS[arm][1]
    signal, noise = (rate / float(problem.w_o_norm_squared) for rate in first_step(problem))
    energy = augmentation.SIGMA_P_TILDE**2 * augmentation.D
    assert signal == pytest.approx(augmentation.signal_norm(2.0) ** 2 / (4 * augmentation.M), rel=0.03)
    assert noise == pytest.approx(energy * (1 + s**2 / augmentation.COPIES) / (2 * augmentation.N * augmentation.M),
                                  rel=0.1)


def test_arms_are_paired(small):
    drawn = augmentation.problems(3.0, 1)
    first = slice(0, augmentation.N * augmentation.M)
    none, fresh = (drawn[arm].train.cross[0][first, first] for arm in ("none", "fresh, s = 1"))
    noise = torch.ones(augmentation.M, dtype=torch.bool)
    noise[0] = False
    noise = noise.repeat(augmentation.N)
    assert torch.allclose(2 * none[noise][:, noise], fresh[noise][:, noise])
    assert torch.equal(none[~noise][:, ~noise], fresh[~noise][:, ~noise])
    assert drawn["copies, s = 2"].train.labels.sum() == 0


def test_copies_share_their_noise():
    noise = np.ones((2, 1, 5))
    extra = np.arange(20.0).reshape(2, 2, 1, 5)
    copies = augmentation.with_copies(noise, extra, 0.5)
    assert copies.shape == (4, 1, 5)
    assert (copies[1, 0] == 1 + 0.5 * np.arange(5, 10)).all()
    assert (augmentation.with_copies(noise, extra, 0.0) == 1).all()


def test_a_cell_gives_a_row_for_each_arm_and_seed(small, monkeypatch):
    monkeypatch.setattr(augmentation, "EPSILON", 0.6)
    rows = augmentation.compute({"ratio": 10.0, "arm": tuple(augmentation.ARMS), "seeds": (0, 1)})
    assert {(row["arm"], row["seed"]) for row in rows} == {(arm, seed) for arm in augmentation.ARMS for seed in (0, 1)}
    assert set(rows[0]) == {*augmentation.KEY, *augmentation.COLUMNS}
    assert all(row["reached"] for row in rows)


def test_counting_copies_as_samples():
    assert augmentation.counted(1.0) == 2
    assert augmentation.signal_norm(2.0) == pytest.approx(math.sqrt(2 * 2048 / 6))
    with pytest.raises(UserError, match="mixup"):
        augmentation.break_even("mixup")


def test_figure_takes_the_stored_table():
    rows = augmentation.load()
    assert set(rows["arm"]) == set(augmentation.ARMS)
    at = {arm: augmentation.break_even(arm) for arm in augmentation.ARMS}
    assert len(figures.augmentation(rows, augmentation.ARMS, at).axes) == 2
