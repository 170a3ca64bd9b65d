"""The map of the transition: its runs, how positions and widths are read, and its figures."""

import dataclasses
import math

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit

from vitbo_lib import regime, transition_map
from vitbo_lib.errors import UserError
from vitbo_lib.evidence import transition as evidence
from vitbo_lib.figures import style
from vitbo_lib.figures import transition as figures
from vitbo_lib.transition_map import Cell

CLAIMS = {claim.id: claim for claim in evidence.CLAIMS}


def made_up(places, steepness=20.0, seeds=3, high=0.7, low=0.1) -> pd.DataFrame:
    """A map in which seed s of (M, N) changes sides at places[M, N] * 1.01^s, along a logistic curve in log ratio."""
    rows = []
    for (m, n), place in places.items():
        for seed in range(7000, 7000 + seeds):
            for ratio in np.geomspace(0.01, 100, 81):
                share, of_xi2 = (expit(steepness * math.log(ratio / at)) for at in (place * 1.01 ** (seed - 7000),
                                                                                    2 * place))
                rows.append({"M": m, "N": n, "seed": seed, "ratio": ratio, "share": share,
                             "test_loss": high - (high - low) * share, "attention_signal": share,
                             "attention_xi2": 1 - share, "samples_between": float(0.1 < share < 0.9),
                             "test_error": 0.5 * (1 - share), "time": 100 * max(2.0, ratio), "positives": n // 2,
                             "share_plus": share, "share_minus": share, "train_loss": 0.01, "mu_query": share,
                             "xi2_query": of_xi2})
    return transition_map.derived(pd.DataFrame(rows))


def drawn(ax, role):
    return [line for line in ax.lines if line.get_color() == style.look(role)["color"]]


# ------------------------------------------------------------------------------------------------------------ the runs

def test_a_run_is_what_the_library_says_of_the_same_problem():
    cell = Cell(3, 8, 20.0, transition_map.even_seeds(8, 1)[0])
    row = transition_map.compute(cell)
    p = regime.parameters(8, 3, regime.snr_at(20.0, 8, 3), 0.01)
    assert p.n_snr2 / p.c_p**2 == pytest.approx(20, rel=1e-5)
    assert row["items"] == regime.items_met(p) == 9  # item (3) fails at N = 8
    assert row["train_loss"] == pytest.approx(0.01, rel=1e-4)
    assert row["positives"] == 4
    by_query = np.mean([row["mu_query"], row["xi2_query"], row["weak_query"]])  # M = 3: one weak token
    assert row["attention_signal"] == pytest.approx(by_query, rel=1e-9)
    both = row["attention_signal"] + row["attention_xi2"]
    assert (row["share_plus"] + row["share_minus"]) / 2 == pytest.approx(row["attention_signal"] / both, abs=0.02)
    assert row["v_signal"] > 3 > 1 > abs(row["v_xi2"])


def test_with_two_tokens_there_is_no_weak_one():
    row = transition_map.compute(Cell(2, 8, 0.05, transition_map.even_seeds(8, 1)[0]))
    assert (row["weak_query"], row["v_weak"]) == (None, None)
    assert row["v_xi2"] > 3
    assert row["time"] == pytest.approx(0.05 / 0.01, rel=0.1)  # Theorem 4.2 with our constant


def test_even_seeds_are_even_and_the_grid_has_no_run_twice():
    cells = transition_map.cells()
    assert len({dataclasses.astuple(cell) for cell in cells}) == len(cells)
    assert len({(cell.M, cell.N, cell.ratio) for cell in cells if cell.seed < transition_map.FIRST_AS_DRAWN}) > 300
    assert {cell.M for cell in cells} == {2, 3, 4, 8}
    assert (min(transition_map.RATIOS), max(transition_map.RATIOS)) == (0.01, 100)
    assert {*transition_map.FEWER_RATIOS, *transition_map.LARGE_RATIOS} <= {*transition_map.RATIOS}


def test_plan_runs_and_continues(tmp_path):
    plan = transition_map.plan(tmp_path, "smoke")
    assert plan.run(1).computed == 4
    assert plan.run(1).skipped == 4
    assert set(plan.table.rows()["M"]) == {2, 3}


# -------------------------------------------------------------------------------------------------- reading the table

def test_positions_and_widths_are_those_planted():
    rows = made_up({(2, 8): 2.0, (8, 16): 4.0})
    for value in ("share", "test_loss"):
        found = transition_map.summary(rows, value).set_index("M")
        assert found.loc[2, "mean"] == pytest.approx(2.02, rel=0.01)
        assert found.loc[8, "mean"] == pytest.approx(4.04, rel=0.01)
        assert found.loc[2, "spread"] == pytest.approx(math.log(1.01), rel=0.2)
        assert found.loc[2, "width"] == pytest.approx(81 ** (1 / 20), rel=0.05)  # logistic: 0.1 to 0.9 is a factor 81


def test_a_jump_has_no_width_beyond_the_grid():
    width = transition_map.summary(made_up({(2, 8): 2.0}, steepness=1000.0), "share")["width"]
    assert float(width.iloc[0]) < 1.13


@pytest.mark.parametrize(("law", "best"), [(lambda _: 3.0, 0), (lambda n: 1 + math.log(n), 1),
                                           (lambda n: n**0.5, 2)])
def test_dependence_on_n_is_the_one_planted(law, best):
    rows = made_up({(3, n): law(n) for n in (8, 16, 32, 64)}, steepness=200.0, seeds=2)
    found = transition_map.dependence(rows)[3]
    if best == 0:
        assert abs(found.power.mean) < 0.01
    else:
        assert np.argmin(found.residuals) == best
    if best == 2:
        assert found.power.mean == pytest.approx(0.5, abs=0.02)


def test_a_pair_counts_once_all_of_its_runs_are_there():
    rows = made_up({(2, 8): 2.0, (2, 16): 2.0, (2, 10): 2.0})
    few = rows[(rows["N"] != 16) | (rows["seed"] == 7000)]
    assert set(transition_map.even(few)["N"]) == {8}  # N = 10 is not in the plan
    assert transition_map.as_drawn(few).empty
    assert set(transition_map.even(few.iloc[:0])["N"]) == set()


def test_each_class_changes_sides_at_its_own_place():
    rows = made_up({(2, 32): 2.0}, seeds=2).assign(positives=8)
    rows["share_plus"] = (rows["ratio"] > 4) * 1.0
    rows["share_minus"] = (rows["ratio"] > 4 / 3) * 1.0
    points = transition_map.class_positions(rows)
    assert len(points) == 4
    assert set(points["predicted"].round(6)) == {4.0, round(4 / 3, 6)}
    assert np.allclose(points["position"], points["predicted"], rtol=0.15)


def test_times_are_in_the_units_of_the_theorems():
    rows = transition_map.derived(pd.DataFrame({"attention_signal": [0.6], "attention_xi2": [0.2], "time": [300.0],
                                                "ratio": [3.0], "N": [16], "positives": [8]}))
    assert rows[["share", "time_benign", "time_harmful"]].iloc[0].tolist() == pytest.approx([0.75, 3.0, 1.0])


def test_small_initial_values_sharpen_and_classes_part():
    rows = transition_map.calm_runs(1)
    assert transition_map.summary(rows, "share")["mean"].iloc[0] == pytest.approx(2, abs=0.1)
    assert np.allclose(rows["share_plus"] + rows["share_minus"], 2 * rows["share"])
    points = transition_map.class_positions(transition_map.calm_uneven_runs(1))
    assert sorted(points["predicted"]) == pytest.approx([4 / 3, 4])
    assert points["position"].to_numpy() == pytest.approx(points["predicted"].to_numpy(), rel=0.15)


def test_exponent_of_eta():
    rows = pd.DataFrame([(seed, eta, 7 / eta) for seed in range(3) for eta in (0.1, 0.01)],
                        columns=["seed", "eta", "steps"])
    assert transition_map.eta_exponent(rows).mean == pytest.approx(-1)
    with pytest.raises(UserError, match="sideways"):
        transition_map.eta_parameters("sideways")


# ------------------------------------------------------------------------------------------------------------- claims

@pytest.mark.parametrize("name", CLAIMS)
@pytest.mark.parametrize("change", ["empty", "nan"])
def test_no_claim_passes_on_nothing(name, change, monkeypatch):
    rows = made_up({(m, n): 2.0 for m in (2, 3, 4, 8) for n in (8, 16)})
    rows = rows.iloc[:0] if change == "empty" else rows.assign(**{
        column: np.nan for column in rows.columns if column not in ("M", "N", "seed", "ratio")})
    steps = pd.DataFrame({"seed": [1, 1], "eta": [1.0, 0.1], "steps": [np.nan, np.nan]})
    monkeypatch.setattr(transition_map, "load", lambda: rows)
    monkeypatch.setattr(transition_map, "eta_runs", lambda _: steps.iloc[:0] if change == "empty" else steps)
    try:
        verdict = CLAIMS[name].check().verdict
    except Exception:  # a complaint is no pass
        return
    assert verdict == "differs from print" != CLAIMS[name].expected


# ------------------------------------------------------------------------------------------------------------ figures

def test_figures_show_what_the_table_holds():
    rows = made_up({(m, n): 2.0 for m in (2, 3, 4, 8) for n in (8, 16)})
    above, below = figures.outcome(rows).axes
    (line,) = drawn(above, "test")
    assert line.get_ydata()[[0, -1]] == pytest.approx([0.7, 0.1])
    assert drawn(below, "test")[0].get_ydata()[0] == pytest.approx(0.5)
    above, below = figures.times(rows).axes
    assert drawn(above, "train")[0].get_ydata()[0] == pytest.approx(2.0)
    assert drawn(below, "train")[0].get_ydata()[-1] == pytest.approx(1.0)
    axes = figures.seeds(rows).axes
    assert [len(drawn(ax, "train")) for ax in axes] == [3, 0, 3, 0]
    above, below = figures.place(rows).axes
    for ax in (above, below):
        assert drawn(ax, "train")[0].get_ydata() == pytest.approx([2.02, 2.02], rel=0.01)
    at = transition_map.class_positions(rows)
    ax = figures.classes(at, at.assign(predicted=3.0)).axes[0]
    assert set(drawn(ax, "noise")[0].get_xdata()) == {2.0}
    assert set(drawn(ax, "signal")[0].get_xdata()) == {3.0}
    steps = pd.DataFrame({"side": ["benign"] * 2 + ["harmful"] * 2, "eta": [1.0, 0.1] * 2, "steps": [5, 50, 1, 10]})
    ax = figures.steps_over_eta(steps.assign(seed=1)).axes[0]
    assert sorted(drawn(ax, "signal")[0].get_ydata()) == [5, 50]
