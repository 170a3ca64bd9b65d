"""Definition 3.1: signals, noise, their positions and scales, by hand and by chi-square."""

import dataclasses
import math

import numpy as np
import pytest
import torch
from scipy import stats

from vitbo_lib import data
from vitbo_lib.data import SignalNoise, sample, sample_labels, token_rows, whole
from vitbo_lib.errors import UserError
from vitbo_lib.seeds import stream

LAW = SignalNoise(n_tokens=4, d=30, signal_norm=3.0, sigma_p=0.5, sigma_p_tilde=2.0)
LEVEL = 1e-6  # false alarm rate of each statistical check; the seeds are fixed


def draw(law=LAW, n=200, seed=0):
    return sample(law, n, stream(seed, "labels"), stream(seed, "noise"))


def scale_p_values(drawn, law) -> list[float]:
    """For token 2, 3, ...: p-value of sum of squares / sigma^2 ~ chi^2 with N (d - 2, or d) degrees of freedom."""
    degrees = len(drawn.labels) * (law.d - 2 * law.project)
    squares = [float((drawn.noise[:, i] ** 2).sum()) for i in range(law.n_tokens - 1)]
    scales = [law.sigma_p_tilde] + [law.sigma_p] * (law.n_tokens - 2)
    below = [stats.chi2.cdf(square / scale**2, degrees) for square, scale in zip(squares, scales)]
    return [2 * min(p, 1 - p) for p in below]


@pytest.mark.parametrize("project", [True, False])
def test_noise_has_the_laws_scales(project):
    law = dataclasses.replace(LAW, project=project)
    assert min(scale_p_values(draw(law), law)) > LEVEL


@pytest.mark.parametrize("fault", ["tokens swapped", "tilde everywhere", "projection ignored"])
def test_wrong_noise_is_caught(monkeypatch, fault):
    law = LAW
    if fault == "projection ignored":
        drawn = draw(dataclasses.replace(law, project=False))
    else:
        scales = law.noise_scales()[::-1] if fault == "tokens swapped" else np.full(3, law.sigma_p_tilde)
        monkeypatch.setattr(data.SignalNoise, "noise_scales", lambda _: scales)
        drawn = draw(law)
    assert min(scale_p_values(drawn, law)) < LEVEL


def test_signals_are_orthogonal_and_noise_orthogonal_to_them():
    drawn = draw()
    assert torch.equal(drawn.signals @ drawn.signals.T, 9 * torch.eye(2, dtype=torch.float64))
    assert (drawn.noise @ drawn.signals.T == 0).all()
    unprojected = draw(dataclasses.replace(LAW, project=False))
    assert 0.4 < float((unprojected.noise[:, 1:] @ unprojected.signals.T / 3).std()) < 0.6


def test_noise_is_gaussian_and_isotropic():
    flat = draw(n=400).noise[:, 0, 2:].flatten().numpy()
    assert stats.kstest(flat / 2, "norm").pvalue > LEVEL


def test_the_signal_stands_first_and_follows_the_label():
    drawn = draw(n=20)
    for x, noise, y in zip(drawn.tokens, drawn.noise, drawn.labels):
        expected = [3.0, 0.0] if y == 1 else [0.0, 3.0]
        assert x[0, :2].tolist() == expected
        assert torch.equal(x[1:], noise)
    assert set(drawn.labels.tolist()) == {-1.0, 1.0}


def test_labels_are_fair():
    labels = sample_labels(10_000, stream(0, "fair"))
    assert stats.binomtest(int((labels == 1).sum()), 10_000).pvalue > LEVEL


def test_the_first_samples_do_not_depend_on_n():
    few, many = draw(n=3), draw(n=50)
    assert torch.equal(few.tokens, many.tokens[:3])
    assert torch.equal(few.labels, many.labels[:3])
    assert not torch.equal(few.tokens, draw(n=3, seed=1).tokens)


def test_snr_by_hand():
    assert LAW.snr == pytest.approx(3 / (0.5 * math.sqrt(30)))
    assert LAW.c_p == 4


def test_one_token_and_one_sample():
    drawn = draw(dataclasses.replace(LAW, n_tokens=1), n=1)
    assert drawn.tokens.shape == (1, 1, 30)
    assert token_rows(torch.tensor([-1.0]), 1).tolist() == [[1]]


@pytest.mark.parametrize("wrong", [
    {"n_tokens": 0}, {"d": 2}, {"d": 10.5}, {"d": math.inf}, {"d": 1e22}, {"d": "many"}, {"signal_norm": 0},
    {"signal_norm": -1}, {"sigma_p": math.nan}, {"sigma_p": 0}, {"sigma_p_tilde": math.inf}, {"sigma_p": True},
    {"n_tokens": True}, {"sigma_p": None}])
def test_impossible_laws(wrong):
    with pytest.raises(UserError, match="is not possible; give"):
        dataclasses.replace(LAW, **wrong)


def test_impossible_samples():
    with pytest.raises(UserError, match="N = 0"):
        draw(n=0)
    with pytest.raises(UserError, match="do not fit in memory"):
        draw(dataclasses.replace(LAW, d=1e12))
    assert whole("d", np.float64(1e16)) == 10**16
    assert whole("N", np.int64(3)) == 3
