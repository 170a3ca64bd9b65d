"""The laws of the initial weights."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

from vitbo_lib.errors import UserError
from vitbo_lib.initialization import GaussianInit, TorchInit, sample_weights
from vitbo_lib.seeds import stream

LEVEL = 1e-6


def weights(init, d=60, d_h=40, d_v=50):
    return sample_weights(init, d, d_h, d_v, stream(0, "weights"))


def law_p_values(drawn, scales, law="norm") -> list[float]:
    parts = [part.flatten().numpy() for part in (drawn.w_q, drawn.w_k, drawn.w_v)]
    return [stats.kstest(part / scale, law).pvalue for part, scale in zip(parts, scales)]


def test_gaussian_entries():
    drawn = weights(GaussianInit(sigma_h=0.3, sigma_v=2.0, w_o_norm=1.7))
    assert min(law_p_values(drawn, (0.3, 0.3, 2.0))) > LEVEL
    assert min(law_p_values(drawn, (0.3, 0.3, 0.3))) < LEVEL  # sigma_h in the place of sigma_v
    assert float(drawn.w_o.norm()) == pytest.approx(1.7, rel=1e-14)
    assert not torch.equal(drawn.w_q, drawn.w_k)


def test_gaussian_read_out_has_no_preferred_direction():
    """Its first coordinate over the norm, squared, is Beta(1/2, (d_v - 1)/2)."""
    rng = stream(0, "read-out")
    first = np.array([GaussianInit(sigma_h=1, sigma_v=1, w_o_norm=3).read_out(5, rng)[0] / 3 for _ in range(2000)])
    assert stats.kstest(first**2, stats.beta(0.5, 2).cdf).pvalue > LEVEL
    assert stats.binomtest(int((first > 0).sum()), 2000).pvalue > LEVEL


def test_torch_entries_are_those_of_a_linear_layer():
    """The same law as torch.nn.Linear's weight, whose fan-in is d: two-sample test, and the exact bound."""
    drawn, scale = weights(TorchInit(scale=1 / 16)), 1 / 16
    torch.manual_seed(0)
    layer = torch.nn.Linear(60, 40, bias=False).weight.detach().flatten().numpy() * scale
    assert stats.ks_2samp(drawn.w_q.flatten().numpy(), layer).pvalue > LEVEL
    assert stats.ks_2samp(drawn.w_q.flatten().numpy(), layer * math.sqrt(60 / 40)).pvalue < LEVEL  # fan-in d_h
    bound = scale / math.sqrt(60)
    for part in (drawn.w_q, drawn.w_k, drawn.w_v):
        assert 0.99 * bound < float(part.abs().max()) <= bound
    assert float(drawn.w_o.abs().max()) <= scale / math.sqrt(50)


def test_torch_read_out_of_either_size():
    undivided = weights(TorchInit(scale=1 / 16, w_o_scale=1))
    divided = weights(TorchInit(scale=1 / 16))
    assert torch.allclose(undivided.w_o, 16 * divided.w_o)
    assert torch.equal(undivided.w_v, divided.w_v)
    assert float(weights(TorchInit(w_o_norm=0.5)).w_o.norm()) == pytest.approx(0.5)


def test_zero_scales_are_allowed_and_give_zero():
    assert weights(GaussianInit(sigma_h=0, sigma_v=0)).w_q.abs().max() == 0


def test_user_errors():
    for wrong in ({"sigma_h": -1}, {"sigma_v": math.nan}, {"w_o_norm": 0}):
        with pytest.raises(UserError, match="is not possible"):
            GaussianInit(**({"sigma_h": 1, "sigma_v": 1} | wrong))
    with pytest.raises(UserError, match="both fix the size"):
        TorchInit(w_o_scale=1, w_o_norm=1)
    with pytest.raises(UserError, match="scale = 0 is not possible"):
        TorchInit(scale=0)
    with pytest.raises(UserError, match="do not fit in memory"):
        weights(GaussianInit(sigma_h=1, sigma_v=1), d=10**9)
