"""The direct draw against simulation in full: same laws, in every branch, and every wrong index seen to be wrong.

The fresh points of one draw are independent given the training problem, those of a full simulation share the weights
outside it. So each run here has one fresh point, whose law then is exact.

Rate of false alarms: 7 branches of 14 quantities, each with a z-test (|z| < 4: 6.3e-5) and a Kolmogorov-Smirnov test
(p > 1e-5): for all together below 7 * 14 * 7.3e-5 = 0.7 %, over the choice of seeds; the seeds are fixed.
"""

import dataclasses
import functools
import math

import numpy as np
import pytest
import torch
from scipy import stats

from vitbo_lib import draw as draw_module
from vitbo_lib.data import SignalNoise
from vitbo_lib.draw import draw, gaussian_factor
from vitbo_lib.errors import UserError
from vitbo_lib.initialization import GaussianInit, TorchInit
from vitbo_lib.observables import observe, view
from vitbo_lib.seeds import stream
from vitbo_lib.simulation import Setting, build, train
from vitbo_lib.span import by_sample

RUNS, LARGEST_Z, SMALLEST_P, CAUGHT_P = 400, 4.0, 1e-5, 1e-8
LAW = SignalNoise(n_tokens=3, d=12, signal_norm=1.5, sigma_p=0.4, sigma_p_tilde=0.8)
N, K = 3, 8  # noise tokens: 6


def setting(d: int, d_h: int, project: bool = True) -> Setting:
    """Sizes at which every degree of freedom counts: logits, values and steps of order 1."""
    law = dataclasses.replace(LAW, d=d, project=project)
    init = GaussianInit(sigma_h=0.6 / d_h**0.25, sigma_v=0.4, w_o_norm=1.5)
    return Setting(law=law, n_samples=N, d_h=d_h, d_v=2, init=init, eta=0.3, epsilon=0.2, max_steps=150, n_test=1)


BRANCHES = {
    "room everywhere": setting(d=40, d_h=40),
    "more noise tokens than d - 2": setting(d=6, d_h=20),
    "d_h below 2 K": setting(d=14, d_h=5),
    "noise not projected": setting(d=14, d_h=24, project=False),
    "d_h and d barely above": setting(d=9, d_h=17),  # 1 residual axis, 1 outside hidden axis
    "residual of 4 axes": setting(d=12, d_h=24),  # d_h - 2 K = 8
    "outside of 4 axes": setting(d=60, d_h=20),
}


def quantities(problem, setting) -> dict[str, np.ndarray]:
    """What is compared, each (R): observables after training, what the fresh point sees, and the start itself."""
    start = problem.train.start.map(torch.zeros_like)
    trained = train(setting, problem)
    observed = observe(problem, trained.coefficients)
    kept = {name: observed[name] for name in ("test_loss", "attention_signal", "attention_xi2", "v_signal", "v_xi2")}
    kept |= {"steps": trained.steps.double()}
    scales = torch.as_tensor(setting.law.noise_scales())
    for when, state in (("first", start), ("last", trained.coefficients)):
        fresh = view(problem.test, state)
        kept[f"fresh phi {when}"] = fresh.phi[:, 0, 1, 2] + fresh.phi[:, 0, 2, 1]
        kept[f"fresh V^2 {when}"] = (fresh.values[:, 0, 1:] / scales).square().sum(1).log()
    queries, keys, _ = (part[:, 0, 1:] for part in by_sample(problem.test.start, 3))
    outside = 0 if problem.test.outside_logits is None else problem.test.outside_logits[:, 0, 1:, 1:]
    logits = (queries @ keys.mT + outside) / torch.outer(scales, scales)
    kept["fresh logits"] = logits.square().sum((1, 2)).log()
    queries, keys, _ = by_sample(problem.train.start, 3)
    norms = problem.train.cross.diagonal(dim1=1, dim2=2)
    kept |= {"token norms": norms.mean(1), "last token norm": norms[:, -1],
             "query norms": queries.square().sum((1, 2, 3))}
    return {name: part.numpy() for name, part in kept.items()}


@functools.cache
def in_full(branch: str) -> dict[str, np.ndarray]:
    """`RUNS` simulations with every coordinate."""
    return quantities(build(BRANCHES[branch], "reduced", range(RUNS)), BRANCHES[branch])


def drawn(branch: str, wrong: Setting | None = None) -> dict[str, np.ndarray]:
    """`RUNS` direct draws (other seeds), perhaps of a wrong setting."""
    return quantities(build(wrong or BRANCHES[branch], "drawn", range(10**6, 10**6 + RUNS)), BRANCHES[branch])


def compare(a: dict, b: dict) -> dict[str, tuple[float, float]]:
    """(|z| of the difference of means, p of the Kolmogorov-Smirnov test) of every quantity."""
    result = {}
    for name in a:
        error = math.sqrt((a[name].var() + b[name].var()) / RUNS)
        difference = abs(a[name].mean() - b[name].mean())
        result[name] = (difference / error if error else 0.0 if difference < 1e-12 else math.inf,
                        stats.ks_2samp(a[name], b[name]).pvalue)
    return result


@pytest.mark.parametrize("branch", BRANCHES)
def test_drawn_is_direct_in_law(branch):
    found = compare(in_full(branch), drawn(branch))
    assert {name: pair for name, pair in found.items() if pair[0] > LARGEST_Z or pair[1] < SMALLEST_P} == {}


def test_the_quantities_vary():
    """A quantity that never moved would pass every test."""
    for name, values in in_full("residual of 4 axes").items():
        assert len(np.unique(values.round(12))) > 20, name


TRAIN_NOISE, HIDDEN, RESIDUAL, OUTSIDE = range(4)  # the calls of gaussian_factor in one draw, in order


def degrees_of_freedom(change):
    """`gaussian_factor` with chi(change(columns, i)) on the diagonal."""
    def wrong(rows, columns, rng, batch=()):
        factor = gaussian_factor(rows, columns, rng, batch)
        if columns >= rows:
            index = np.arange(rows)
            degrees = np.maximum(change(float(columns), index), 1e-9)
            factor[..., index, index] = np.sqrt(rng.chisquare(degrees, size=(*batch, rows)))
        return factor
    return wrong


def columns_of(call, change):
    """`gaussian_factor` with another number of columns in one of its calls."""
    count = iter(range(10**9))

    def wrong(rows, columns, rng, batch=()):
        return gaussian_factor(rows, change(columns) if next(count) % 4 == call else columns, rng, batch)
    return wrong


FACTORS = {
    "no fault": ("residual of 4 axes", lambda: degrees_of_freedom(lambda m, i: m - i)),
    "index ignored": ("residual of 4 axes", lambda: degrees_of_freedom(lambda m, i: m + 0 * i)),
    "index one too far": ("residual of 4 axes", lambda: degrees_of_freedom(lambda m, i: m - i - 1)),
    "index starts at -1": ("residual of 4 axes", lambda: degrees_of_freedom(lambda m, i: m - i + 1)),
    "residual of d - 2 axes": ("residual of 4 axes", lambda: columns_of(RESIDUAL, lambda m: m + 6)),
    "noise in d axes": ("residual of 4 axes", lambda: columns_of(TRAIN_NOISE, lambda m: m + 2)),
    "outside of d_h axes": ("outside of 4 axes", lambda: columns_of(OUTSIDE, lambda m: m + 16)),
    "outside missing": ("room everywhere", lambda: columns_of(OUTSIDE, lambda m: 0 * m)),
    "hidden of 2 d_h axes": ("residual of 4 axes", lambda: columns_of(HIDDEN, lambda m: 2 * m)),
}


def smallest_p(found) -> float:
    """The strongest evidence of a difference, the z-tests included."""
    return min(min(2 * stats.norm.sf(z), p) for z, p in found.values())


@pytest.mark.parametrize("fault", FACTORS)
def test_wrong_factors_are_caught(monkeypatch, fault):
    """The index of chi shows in norms (and in `steps`); what is wrong with a fresh point's residual or outside part
    shows in its logits only: losses and attention of 400 runs miss it."""
    branch, factor = FACTORS[fault]
    monkeypatch.setattr(draw_module, "gaussian_factor", factor())
    found = smallest_p(compare(in_full(branch), drawn(branch)))
    assert found > SMALLEST_P if fault == "no fault" else found < CAUGHT_P


def wrong_setting(fault: str) -> tuple[str, Setting]:
    branch = "noise not projected" if fault == "signal axes missing" else "residual of 4 axes"
    right = BRANCHES[branch]
    law, init = right.law, right.init
    if fault == "signal axes missing":
        law = dataclasses.replace(law, project=True)
    if fault == "sigma_p_tilde for all":
        law = dataclasses.replace(law, sigma_p=law.sigma_p_tilde)
    if fault == "w_O dropped":
        init = dataclasses.replace(init, sigma_v=init.sigma_v / init.w_o_norm)
    return branch, dataclasses.replace(right, law=law, init=init)


@pytest.mark.parametrize("fault", ["signal axes missing", "sigma_p_tilde for all", "w_O dropped"])
def test_wrong_settings_are_caught(fault):
    branch, wrong = wrong_setting(fault)
    assert smallest_p(compare(in_full(branch), drawn(branch, wrong))) < CAUGHT_P


# The factor itself


def second_moments(factors: np.ndarray, m: float) -> float:
    """Largest |z| of means of F F^T against m I, and of its squares against the Wishart variances 2 m and m."""
    gram = factors @ factors.swapaxes(1, 2)
    rows, count = gram.shape[1], len(gram)
    mean, variance = m * np.eye(rows), m * (1 + np.eye(rows))
    z = np.abs(gram.mean(0) - mean) / np.sqrt(variance / count)
    squares = (gram - mean) ** 2
    z_variance = np.abs(squares.mean(0) - variance) / (squares.std(0) / math.sqrt(count))
    return float(max(z.max(), z_variance.max()))


@pytest.mark.parametrize(("rows", "columns"), [(4, 4), (4, 5), (4, 30), (4, 2), (1, 1), (3, 1e6)])
def test_factors_have_wishart_moments(rows, columns):
    """At most 10 entries with two z-values each: above 5 once in 10^5."""
    factors = gaussian_factor(rows, columns, stream(0, "moments"), (20_000,))
    assert factors.shape == (20_000, rows, min(rows, int(columns)))
    assert second_moments(factors, columns) < 5


@pytest.mark.parametrize("change", [lambda m, i: m + 0 * i, lambda m, i: m - i - 1, lambda m, i: m - i + 1])
def test_wrong_factors_have_other_moments(change):
    assert second_moments(degrees_of_freedom(change)(4, 6, stream(0, "moments"), (20_000,)), 6) > 8


def test_factors_are_lower_triangular_with_positive_diagonal():
    factor = gaussian_factor(5, 9, stream(0, "triangle"))
    assert (np.triu(factor, 1) == 0).all()
    assert (factor.diagonal() > 0).all()


def test_factors_at_any_dimension():
    """Relative deviations of order 1 / sqrt(m), and no overflow: m = 10^21."""
    factor = gaussian_factor(3, 1e21, stream(0, "large"), (100,))
    gram = factor @ factor.swapaxes(1, 2) / 1e21
    assert np.abs(gram - np.eye(3)).max() < 1e-9


def test_no_rows_and_no_columns():
    assert gaussian_factor(0, 5, stream(0, "x"), (2,)).shape == (2, 0, 0)
    assert gaussian_factor(3, 0, stream(0, "x"), (2,)).shape == (2, 3, 0)


# Requests


def test_a_seed_gives_its_problem():
    one, again, other = (draw(LAW, 3, 20, GaussianInit(sigma_h=1, sigma_v=1), 2, seed=seed) for seed in (0, 0, 1))
    assert torch.equal(one.test.start.keys, again.test.start.keys)
    assert not torch.equal(one.test.start.keys, other.test.start.keys)


def test_fresh_signals_are_those_of_training():
    """A fresh point's signal token looks as the same class's in training: query, key, value and inner products."""
    problem = draw(LAW, 6, 20, GaussianInit(sigma_h=1, sigma_v=1), 6, seed=0)
    rows = {name: {float(y): r for r, y in enumerate(points.labels[0])}
            for name, points in (("train", problem.train), ("test", problem.test))}
    for y in set(rows["train"]) & set(rows["test"]):
        a, b = 3 * rows["train"][y], 3 * rows["test"][y]
        assert torch.allclose(problem.train.start.queries[0, a], problem.test.start.queries[0, b])
        assert torch.allclose(problem.train.start.values[0, a], problem.test.start.values[0, b])
        assert torch.allclose(problem.train.cross[0, a], problem.test.cross[0, b])
    assert set(rows["train"]) & set(rows["test"])


def test_impossible_draws():
    init = GaussianInit(sigma_h=1, sigma_v=1)
    with pytest.raises(UserError, match="needs Gaussian weights"):
        draw(LAW, 3, 20, TorchInit(), 2, seed=0)
    with pytest.raises(UserError, match="too many for dense inner products"):
        draw(LAW, 10_000, 20, init, 2, seed=0)
    for wrong in ({"n_samples": 0}, {"d_h": 0.5}, {"n_test": 0}):
        with pytest.raises(UserError, match="is not possible"):
            draw(**({"law": LAW, "n_samples": 3, "d_h": 20, "init": init, "n_test": 2, "seed": 0} | wrong))
