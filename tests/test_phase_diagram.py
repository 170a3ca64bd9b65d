"""Figure 1: the grid's problems are those of the definition, cells can be continued, the fit finds what was put in."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from matplotlib.figure import Figure

from vitbo_lib import phase_diagram, results, store
from vitbo_lib.data import DataSet, sample
from vitbo_lib.errors import UserError
from vitbo_lib.figures import catalogue, phase
from vitbo_lib.initialization import TorchInit, sample_weights
from vitbo_lib.observables import observe
from vitbo_lib.phase_diagram import Cell, boundary_points, compute, crossing, fit_boundary, uniform_problem
from vitbo_lib.seeds import stream
from vitbo_lib.training import full_gradient_descent, gradient_descent


def full_problem(reading: str, n_samples: int, norm: float, seed: int):
    """The same cell without any reduction: data of the definition with a signal of this norm, full weights."""
    law = replace(phase_diagram.LAW, signal_norm=norm)
    data = sample(law, 20, stream(seed, "train", "labels"), stream(seed, "train", "noise"))
    init = TorchInit(scale=1 / 16, w_o_scale={"divided": 1 / 16, "undivided": 1.0}[reading])
    weights = sample_weights(init, law.d, 512, 512, stream(seed, "weights"))
    return DataSet(data.signals, data.noise[:n_samples], data.labels[:n_samples]), weights


@pytest.mark.parametrize(("n_samples", "norm"), [(3, 40.0), (2, 90.0)])
def test_a_cell_is_gradient_descent_on_the_full_problem(n_samples, norm):
    problem = uniform_problem("undivided", n_samples, norm, seed=1)
    reduced = gradient_descent(problem, eta=0.1, epsilon=0.01, max_steps=6)
    data, weights = full_problem("undivided", n_samples, norm, seed=1)
    _, steps, loss = full_gradient_descent(data, weights, eta=0.1, epsilon=0.01, max_steps=6)
    assert int(reduced.steps) == steps
    assert float(reduced.train_loss) == pytest.approx(loss, rel=1e-10)


def test_a_wrong_signal_norm_would_be_seen(monkeypatch):
    monkeypatch.setattr(phase_diagram, "with_signal_norm", lambda seen, _: seen)
    with pytest.raises(AssertionError):
        test_a_cell_is_gradient_descent_on_the_full_problem(3, 40.0)


def test_cells_of_a_seed_share_noise_and_weights():
    small, large = (uniform_problem("divided", n, 20.0, seed=0) for n in (2, 3))
    kept = small.train.cross.shape[1]
    assert torch.equal(small.train.cross[0], large.train.cross[0, :kept, :kept])
    assert torch.equal(small.train.labels[0], large.train.labels[0, :2])
    assert torch.equal(small.test.labels, large.test.labels)


def test_no_fresh_noise_is_training_noise():
    problem = uniform_problem("divided", 3, 1.0, seed=0)
    products = problem.test.cross[0].view(100, 16, 3, 16)[:, 1:, :, 1:]
    norms = problem.train.cross[0].diagonal().view(3, 16)[:, 1:]
    assert float(((products - norms).abs() / norms).min()) > 1e-6  # 0 where a fresh token is a training token


def test_rows_of_a_cell():
    rows = compute(Cell("undivided", "gaussian", 2, 0, (50.0, 100.0)))
    assert [row["signal_norm"] for row in rows] == [50.0, 100.0]
    assert all(row["train_loss"] <= 0.01 for row in rows)
    assert set(rows[0]) == {*phase_diagram.KEY, *phase_diagram.COLUMNS}


def test_observables_do_not_depend_on_the_batch():
    problem = uniform_problem("undivided", 2, 60.0, seed=3)
    trained = gradient_descent(problem, eta=0.1, epsilon=0.01)
    row = next(r for r in compute(Cell("undivided", "uniform", 2, 3, (30.0, 60.0))) if r["signal_norm"] == 60.0)
    assert float(observe(problem, trained.coefficients)["test_loss"]) == row["test_loss"]


def diagram(constant=900.0, slope=-2.0, noise=0.0, seeds=4) -> pd.DataFrame:
    """A made-up table whose loss falls from 0.7 to 0.1 across N = constant SNR^slope."""
    rng = np.random.default_rng(0)
    rows = []
    for seed in range(seeds):
        for n in phase_diagram.SAMPLES:
            shift = noise * rng.standard_normal()
            for norm in phase_diagram.SIGNAL_NORMS:
                at = math.log(n / constant) - slope * math.log(phase_diagram.snr(norm)) + shift
                rows.append({"reading": "divided", "init": "uniform", "N": n, "signal_norm": norm, "seed": seed,
                             "test_loss": 0.1 + 0.6 / (1 + math.exp(4 * at)), "test_error": 0.0})
    return pd.DataFrame(rows)


@pytest.mark.parametrize(("constant", "slope"), [(900.0, -2.0), (500.0, -2.0), (200.0, -1.5)])
def test_the_fit_finds_the_boundary_that_was_put_in(constant, slope):
    rows = diagram(constant, slope, noise=0.05)
    found = fit_boundary(boundary_points(rows, 0.4))
    assert found.slope.mean == pytest.approx(slope, abs=0.15)
    if slope == -2.0:
        assert found.n_snr2.mean == pytest.approx(constant, rel=0.05)


def test_a_flat_map_has_no_boundary():
    rows = diagram().assign(test_loss=0.7)
    assert fit_boundary(boundary_points(rows, 0.4)).smallest_n is None


def test_crossing_takes_the_last_fall():
    snr = np.array([1.0, 2.0, 4.0, 8.0])
    assert 4.0 < crossing(snr, np.array([0.5, 0.2, 0.6, 0.1]), 0.3) < 8.0
    assert math.isnan(crossing(snr, np.array([0.7, 0.7, 0.6, 0.5]), 0.3))
    assert math.isnan(crossing(snr, np.array([0.2, 0.2, 0.1, 0.1]), 0.3))


def test_figures_are_functions_of_tables():
    tables = {"divided": diagram(noise=0.05), "undivided": diagram(700, noise=0.05)}
    both = {name: pd.concat([rows, rows.assign(init="gaussian")]) for name, rows in tables.items()}
    points = {name: boundary_points(rows, 0.4) for name, rows in tables.items()}
    for figure in (phase.phase_maps(tables, points), phase.cut_off_maps(tables), phase.slices(tables),
                   phase.two_initialisations(both)):
        assert isinstance(figure, Figure)


@pytest.mark.slow
def test_smoke_results_can_be_continued(tmp_path):
    said = []
    for _ in range(2):
        results.compute_tables("smoke", ["figure_1_undivided"], tmp_path, workers=1, say=said.append)
    assert "8 cells computed, 0 found finished" in said[0]
    assert "0 cells computed, 8 found finished" in said[1]
    rows, provenance = store.load(tmp_path / "figure_1_undivided.csv")
    assert len(rows) == 16
    assert provenance["command"] == "vitbo results --only figure_1_undivided"


def test_unknown_tables_and_figures(tmp_path):
    with pytest.raises(UserError, match="profile"):
        results.compute_tables("huge")
    with pytest.raises(UserError, match="figure_9"):
        results.compute_tables(only=["figure_9"])
    with pytest.raises(UserError, match="figure_9"):
        catalogue.draw_all(tmp_path, ["figure_9"])


def test_figures_are_written(tmp_path):
    written = catalogue.draw_all(tmp_path, ["condition_margins"], "png")
    assert written["condition_margins"].read_bytes().startswith(b"\x89PNG")
    assert [path.name for path in tmp_path.iterdir()] == ["condition_margins.png"]
