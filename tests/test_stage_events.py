"""Event times, ways, sums of coefficients, sweeps and their figures."""

import math

import numpy as np
import pandas as pd
import pytest
import torch

from vitbo_lib import regime, simulation, stage_events, stage_scaling
from vitbo_lib.errors import UserError
from vitbo_lib.figures import stages as figures
from vitbo_lib.stage_scaling import Cell


@pytest.fixture(scope="module")
def small():
    """One flow in a small problem of the regime, with its record."""
    setting = simulation.setting_of(regime.parameters(8, 2, 8.0, epsilon=0.05), n_test=3)
    way = stage_events.flow_way(setting, [0], 30)
    return way, stage_events.record(way, [0])


@pytest.mark.parametrize(("values", "expected"), [
    ([0, 0, 2], 2.0),  # half way between 1 and 4, in log time
    ([2, 2, 2], 0.25), ([0, 0, 0], math.nan), ([2, 0, math.nan], math.nan), ([math.nan, 2, 2], 1.0),
    ([2, 0, 2], 2.0),  # for good: the first crossing does not count
])
def test_first_time(values, expected):
    assert stage_events.first_time([0.25, 1.0, 4.0], values, 1.0) == pytest.approx(expected, nan_ok=True)


def test_first_time_of_nothing():
    assert math.isnan(stage_events.first_time([], [], 1.0))


def test_events_of_a_made_up_run():
    times = np.array([1.0, 2.0, 4.0, 8.0])
    run = pd.DataFrame({"time": times, "dominance_signal": [0, 100, 100, 100], "dominance_xi2": 0.0,
                        "attention_signal_smallest": [0.5, 0.5, 1, 1], "attention_xi2_smallest": 0.1,
                        "derivative": [0.5, 0.5, 0.5, 0.1]})
    found = stage_events.events(run, "benign", 2)
    assert 1 < found["dominance"] < 2 < found["attention"] < 4 < found["derivative"] < 8 == found["end"]
    assert math.isnan(stage_events.events(run, "harmful", 2)["dominance"])


def test_record_has_its_columns_and_ends_at_epsilon(small):
    _, rows = small
    assert set(rows.columns) == {"seed", "time", *stage_events.COLUMNS}
    assert rows["time"].is_monotonic_increasing
    assert rows["time"].iloc[0] == 0
    assert rows["train_loss"].iloc[-1] == pytest.approx(0.05, rel=1e-3)
    assert rows["train_loss"].is_monotonic_decreasing
    assert rows["norm_highest"].iloc[0] == 1
    assert (rows["off_half"] <= 1).all()


def test_rates_in_a_record_are_the_growth_of_v(small):
    """The integral of the signal's rate is its V: an independent way to the same number."""
    _, rows = small
    both = rows["v_plus"] + rows["v_minus"]  # the two classes are the slowest and the fastest
    grown = np.trapezoid(rows["gamma_slowest"] + rows["gamma_fastest"], rows["time"])
    assert grown == pytest.approx(both.iloc[-1] - both.iloc[0], rel=0.1)


def test_descent_way_stops_each_run_at_its_end():
    rows = stage_events.record(stage_events.way("App. A, undivided", "benign", [0], 12), [0])
    assert rows["train_loss"].iloc[-1] <= 0.01 < rows["train_loss"].iloc[-2]
    assert not rows["time"].duplicated().any()


def test_smoke_plan_and_its_rows(tmp_path):
    plan = stage_events.plan(tmp_path, "smoke")
    assert plan.run(1).computed == 2
    assert stage_events.plan(tmp_path, "smoke").run(1).computed == 0


def test_unknown_case():
    with pytest.raises(UserError, match="nowhere"):
        stage_events.parameters("nowhere", "benign")


def test_line_and_stages_of_a_known_way():
    times = pd.Series(np.linspace(0.1, 10, 50))
    run = pd.DataFrame({"time": times, "v": np.log1p(3 * times)})
    ends = {"dominance": 0.0, "derivative": 1.0}
    assert stage_events.exponential_stage(run, "v", ends).slope == pytest.approx(3)
    assert stage_events.exponential_stage(run, "v", ends).r2 == pytest.approx(1)
    assert stage_events.linear_stage(run, "v", ends).slope < 3
    assert math.isnan(stage_events.line(times[:2], times[:2]).slope)


# -------------------------------------------------------------------------------------------------------------- sweeps

def test_a_sweep_cell_has_its_columns():
    found = stage_scaling.compute(Cell("benign", 16, 2, 14.0, 1.0, 10**15, 0))
    assert set(found) == {*stage_scaling.KEY, *stage_scaling.COLUMNS}
    assert 0 < found["dominance"] < found["attention"] < found["end"]
    assert found["c_signal"] > 0
    assert found["own_3"] > 0


def test_integral_of_a_line_is_exact():
    times = [0.0, 1.0, 3.0, 10.0]
    found = stage_scaling._integral(times, [torch.tensor(2 * t) for t in times], 0.5, 7.0)
    assert float(found) == pytest.approx(49 - 0.25)
    assert stage_scaling._integral(times, [], 3.0, 1.0) is None


def test_kinds_of_coefficients_are_disjoint(small):
    way, _ = small
    masks = [stage_scaling._kind(name, way)[1] for name in ("own", "signal_keys", "to_signal", "same", "cross")]
    assert int(sum(mask.int() for mask in masks).max()) == 1
    assert int(sum(mask.int() for mask in masks).sum()) == 10 * 10 - 2  # all but mu_+ in mu_-


def test_scaled_numbers_meet_the_condition_at_large_hidden():
    p = stage_scaling.scaled(64, 2, 8.0, 10**13)
    assert regime.items_met(p) == 10
    assert regime.items_met(stage_scaling.scaled(64, 2, 8.0, 10**6)) < 10


def made_up_run(power):
    times = np.geomspace(0.01, 10, 60)
    return pd.DataFrame({"time": times, "lambda_signal": np.log1p(100 * times**power)})


def test_growth_finds_power_and_coefficient():
    ends = {"dominance": 0.02, "derivative": 8.0}
    found = stage_scaling.growth(made_up_run(2), "lambda_signal", ends)
    assert found["c"] == pytest.approx(100, rel=0.01)
    assert found["power_from_0"] == pytest.approx(2, abs=0.01)
    assert stage_scaling.growth(made_up_run(3), "lambda_signal", ends)["power_from_0"] == pytest.approx(3, abs=0.01)
    late = stage_scaling.growth(made_up_run(2), "lambda_signal", {"dominance": 5.0, "derivative": 8.0})
    assert all(math.isnan(value) for value in late.values())


def test_power_of_a_made_up_sweep():
    rows = pd.DataFrame([{"side": "benign", "N": 64, "snr": 8.0, "w_o_norm": 1.0, "d_h": d_h, "seed": seed,
                          "c_signal": 3 * d_h**0.5} for d_h in stage_scaling.HIDDEN for seed in (0, 1)])
    assert stage_scaling.power(rows, "benign", "d_h", "c_signal").mean == pytest.approx(0.5)
    assert math.isnan(stage_scaling.power(rows.iloc[:0], "benign", "d_h", "c_signal").mean)


# ------------------------------------------------------------------------------------------------------------- figures

def test_figures_draw(small):
    _, rows = small
    events = stage_events.events(rows, "benign", 2)
    rows = rows.assign(case="regime", side="benign")
    both = pd.concat([rows, rows.assign(side="harmful")])
    columns = (*stage_events.EVENTS, "leak_signal", "leak_noise")
    sweep = pd.DataFrame([dict.fromkeys(columns, 1.0) | {"d_h": d_h} for d_h in (1e4, 1e6)])
    slopes = {"linear": 0.1, "low": 0.05, "high": 0.7, "exponential": 0.5}
    for figure in (figures.timeline(pd.DataFrame([events | {"setting": "one"}]), {"one": {"t_1": 0.1}}),
                   figures.stages_over_hidden(sweep, sweep.assign(t_1=1.0, t_2=0.1)),
                   figures.values(rows, "benign", events, slopes), figures.values(rows, "harmful", events, slopes),
                   figures.gaps(rows, "benign", events), figures.leaks(sweep), figures.appendix_a(both),
                   figures.monotone(rows, {"regime": "a regime"})):
        assert all(ax.has_data() for ax in figure.axes)
