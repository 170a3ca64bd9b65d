"""Fresh points: their parts, bounds and tables against other ways to the same, and faults that show."""

import dataclasses

import numpy as np
import pandas as pd
import pytest
import torch

from vitbo_lib import population, simulation, span, training
from vitbo_lib.data import SignalNoise
from vitbo_lib.errors import UserError
from vitbo_lib.figures import population as figures
from vitbo_lib.initialization import GaussianInit
from vitbo_lib.observables import observe, view
from vitbo_lib.transformer import project

LAW = SignalNoise(n_tokens=3, d=200, signal_norm=4.0, sigma_p=0.1, sigma_p_tilde=0.6)
SETTING = simulation.Setting(law=LAW, n_samples=6, d_h=30, d_v=5, eta=0.2, epsilon=0.05, n_test=40,
                             init=GaussianInit(sigma_h=0.03, sigma_v=0.02))


@pytest.fixture(scope="module")
def trained():
    full = simulation.sample_full(SETTING, 0)
    problem = span.reduce(full.train, full.test, full.weights)
    return full, problem, simulation.train(SETTING, problem).coefficients


def test_parts_of_the_margin_agree_with_full_weights(trained):
    full, problem, end = trained
    weights = span.restore(problem, end, full.train, full.weights)
    queries, keys, values = project(full.test.tokens, weights)
    phi = torch.softmax(queries @ keys.mT, -1)
    read = (phi @ values.unsqueeze(-1)).squeeze(-1) * full.test.labels.unsqueeze(-1) / LAW.n_tokens
    seen = population.fresh(problem.test, end)
    assert seen.through_mu[0].tolist() == pytest.approx(read[:, 0].tolist(), rel=1e-9)
    assert seen.through_noise[0].tolist() == pytest.approx(read[:, 1:].sum(-1).tolist(), rel=1e-9)
    logits = (queries @ keys.mT)[:, 0, 1:]
    assert seen.logits[0].flatten().tolist() == pytest.approx(logits.flatten().tolist(), rel=1e-8)
    assert float(seen.loss.mean()) == pytest.approx(float(observe(problem, end)["test_loss"]))
    assert torch.equal(seen.attention, view(problem.test, end).phi[..., 0, 0])


def bound_holds(bound, trials=2000):
    """Whether a lower bound holds for random attention that satisfies D.8, and random values."""
    rng = np.random.default_rng(0)
    for _ in range(trials):
        tokens = int(rng.integers(2, 6))
        phi = rng.dirichlet(np.full(tokens, 0.3), size=tokens)
        if phi[0, 0] < 1 / (2 * tokens):
            continue
        values = np.concatenate([[rng.uniform(0, 5)], rng.uniform(-1, 1, tokens - 1)])
        if (phi @ values).mean() < bound(values[0], np.abs(values[1:]).max(), tokens) - 1e-12:
            return False
    return True


def test_the_bound_on_margins_holds_and_a_larger_one_does_not():
    assert bound_holds(population.margin_bound)
    assert not bound_holds(lambda signal, noise, tokens: signal / tokens - noise)
    assert not bound_holds(lambda signal, _, tokens: signal / (2 * tokens**2))


def test_scaled_problems_stay_at_their_bounds():
    base, large = (population.scaled_parameters("harmful", 0.01, 0.01, 1, f) for f in (1, 16))
    assert large.snr == pytest.approx(base.snr)
    assert large.sigma_h == pytest.approx(base.sigma_h)
    wide = population.scaled_parameters("harmful", 0.01, 0.01, 16, 16)
    assert wide.sigma_h**2 == pytest.approx(base.sigma_h**2 / 4)
    with pytest.raises(UserError, match="d ="):
        population.scaled_parameters("benign", 0.001, 0.01, 1, 64)


@pytest.mark.parametrize("side", ["benign", "harmful"])
def test_a_case_gives_rows_of_the_table(monkeypatch, side):
    monkeypatch.setitem(population.REGIME_CASES, f"{side}, N = 64", (8, 2, 3.0))
    small = dataclasses.replace(population.setting_of_case(f"{side}, N = 64", n_test=3), epsilon=0.3)
    monkeypatch.setattr(population, "setting_of_case", lambda _: small)
    rows = population.compute({"case": f"{side}, N = 64", "seeds": (0, 1)})
    assert len(rows) == 6
    assert set(rows[0]) == {*population.KEY, *population.COLUMNS}


def test_a_cell_of_the_scaling_gives_a_row():
    cell = population.scaling_plan(profile="smoke").cells[0] | {"epsilon": 0.1}
    row = population.compute_scaling(cell)
    assert set(row) == {*population.SCALING_KEY, *population.SCALING_COLUMNS}
    assert row["test_loss"] < row["lemma_loss"]


def test_stored_tables_are_read_by_what_differs():
    rows = population.load_scaling()
    for side in population.SCALING_SNR:
        assert set(population.along(rows, side, "epsilon")["epsilon"]) == set(population.EPSILONS)
        assert population.along(rows, side, "d_h")["d_h_factor"].tolist() == sorted([1, 4, 16, 64] * 3)
        assert population.along(rows, side, "delta")["lg"].nunique() == len(population.DELTAS)


def test_figures_take_tables():
    rows = population.load()
    rows = rows.assign(M=rows["case"].map(population.TOKENS))
    assert len(figures.margins(rows, dict.fromkeys(population.CASES, -0.5)).axes[0].get_yticks()) == 6
    assert figures.parts(rows).axes
    scaling = population.load_scaling()
    assert figures.fresh_logits(population.along(scaling, "benign", "d_h"),
                                population.along(scaling, "benign", "delta")).axes
    assert figures.loss_and_bounds(pd.concat([population.along(scaling, side, "epsilon")
                                              for side in population.SCALING_SNR]), 2, 0.237).axes


def test_unknown_case():
    with pytest.raises(UserError, match="nothing"):
        population.setting_of_case("nothing")


def test_training_leaves_fresh_points_alone(trained):
    """The Gram matrix of `moved` is that of training tokens only."""
    _, problem, end = trained
    assert problem.train.cross.shape[1] == end.keys.shape[1]
    assert training.Descent(problem).cross is problem.train.cross
