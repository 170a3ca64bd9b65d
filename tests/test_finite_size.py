"""From the lab to the regime: its problems, how its table is read, the ladder from Figure 1, and the figures."""

import dataclasses
import math

import numpy as np
import pandas as pd
import pytest
import torch

from vitbo_lib import figure_1_shift, finite_size, phase_diagram, regime, simulation, theory
from vitbo_lib.errors import UserError
from vitbo_lib.evidence import finite_size as evidence
from vitbo_lib.figures import finite_size as figures
from vitbo_lib.figures import style
from vitbo_lib.finite_size import RUNGS, WAYS, Cell
from vitbo_lib.observables import view


def stairs(middle=2.0, steepness=20.0, seeds=4, path="M = 2", d=1000) -> pd.DataFrame:
    """A made-up transition: loss from 0.7 to 0.1 and share from 0 to 1, logistic in log ratio, the same for all."""
    ratios = np.geomspace(0.02, 200, 400)
    rise = 1 / (1 + np.exp(-steepness * np.log(ratios / middle)))
    one = pd.DataFrame({"path": path, "M": 2, "N": 40, "d": d, "ratio": ratios, "test_loss": 0.7 - 0.6 * rise,
                        "test_error": 0.5 * (1 - rise), "attention_signal": rise, "attention_xi2": 1 - rise})
    return finite_size.derived(pd.concat([one.assign(seed=seed) for seed in range(seeds)], ignore_index=True))


# ------------------------------------------------------------------------------------------------------------ problems

@pytest.mark.parametrize("path", WAYS)
@pytest.mark.parametrize("ratio", [0.05, 2.0, 50.0])
def test_problems_have_the_ratio_and_the_weights_that_are_said(path, ratio):
    way = WAYS[path]
    for d in way.dimensions:
        p = finite_size.parameters(way, d, ratio)
        met = {item.number: item.met for item in theory.condition_4_1(p)}
        assert p.n_snr2 / p.c_p**2 == pytest.approx(ratio, rel=1e-5)
        assert all(met[number] for number in (4, 5, 6, 7, 8, 10))
        assert p.d == d


def test_only_the_way_of_item_2_meets_all_ten_items_and_only_at_the_largest_d():
    met = {(path, d): finite_size.items_met(path, d, 2.0) for path, way in WAYS.items() for d in way.dimensions}
    assert [key for key, count in met.items() if count == 10] == [("M = 2 d_h of item (2)", 10**16)]


def test_ways_differ_where_they_say():
    def setting(path):
        cell = Cell(path, 2, 40, 10**16, finite_size.even_seeds(40, 1)[0], (2.0,))
        return finite_size.problem_of(cell, 2.0)[0]

    zero, cap, condition = (setting(path) for path in ("M = 2", "M = 2 values at cap", "M = 2 d_h of item (2)"))
    assert zero.init.sigma_v == condition.init.sigma_v == 0 < cap.init.sigma_v
    assert dataclasses.replace(cap.init, sigma_v=0.0) == zero.init
    assert condition.d_h < zero.d_h == cap.d_h == 5 * 10**15


def test_seeds_have_even_classes():
    for n in (4, 10, 16, 40):
        for seed in finite_size.even_seeds(n, 2):
            setting = dataclasses.replace(RUNGS["flow"], n_samples=n).setting("divided", 1.0)
            problem = simulation.build(dataclasses.replace(setting, n_test=1), "drawn", [seed])
            assert problem.train.labels.sum() == 0
    with pytest.raises(UserError, match="even one"):
        finite_size.even_seeds(5, 1)


def test_base_of_the_ladder_is_figure_1():
    ours = RUNGS["descent"].setting("undivided", phase_diagram.LAW.snr**2 * 10 / 400)
    assert dataclasses.replace(ours.law, signal_norm=1.0) == phase_diagram.LAW
    assert ours.law.signal_norm == pytest.approx(1.0)
    assert (ours.d_h, ours.eta, ours.epsilon) == (phase_diagram.D_H, phase_diagram.ETA, phase_diagram.EPSILON)
    assert ours.init.sigma_h == ours.init.sigma_v == pytest.approx(1 / 16 / math.sqrt(3 * 1024))
    norms = [RUNGS["flow"].setting(reading, 1.0).init.w_o_norm for reading in ("undivided", "divided")]
    assert norms == pytest.approx([3**-0.5, 3**-0.5 / 16])


@pytest.mark.parametrize("name", RUNGS)
def test_a_rung_changes_one_thing(name):
    base, other = (RUNGS[rung].setting("undivided", 2.0) for rung in ("flow", name))
    changed = [field.name for field in dataclasses.fields(RUNGS[name]) if field.name != "seeds"
               and getattr(RUNGS[name], field.name) != getattr(RUNGS["flow"], field.name)]
    assert len(changed) == (name != "flow")
    for setting in (base, other):  # what a rung keeps: the ratio and the energy of noise
        law = setting.law
        assert setting.n_samples * law.snr**2 / law.c_p**2 == pytest.approx(2.0)
        assert law.sigma_p**2 * law.d == pytest.approx(40.96)
    if name == "d_h":
        assert other.init.sigma_h**2 * other.d_h**0.5 == pytest.approx(base.init.sigma_h**2 * base.d_h**0.5)


def test_logits_from_0_keep_norms_and_angles():
    setting = dataclasses.replace(RUNGS["flow"].setting("undivided", 2.0), n_samples=4, n_test=3)
    before = simulation.build(setting, "drawn", [0])
    after = finite_size.without_initial_logits(before)
    for name in ("queries", "keys"):
        old, new = (getattr(problem.train.start, name) for problem in (before, after))
        assert torch.allclose(old @ old.mT, new @ new.mT)
    zeros = after.train.start.map(torch.zeros_like)
    assert torch.allclose(view(after.train, zeros).phi, torch.tensor(1 / 16, dtype=torch.float64))
    assert torch.allclose(view(after.test, zeros).phi, torch.tensor(1 / 16, dtype=torch.float64))
    assert not torch.allclose(view(before.train, before.train.start.map(torch.zeros_like)).phi,
                              torch.tensor(1 / 16, dtype=torch.float64))


def test_a_cell_gives_its_rows_and_the_tolerance_is_small_enough(monkeypatch):
    cell = Cell("M = 2", 2, 40, 10**6, finite_size.even_seeds(40, 1)[0], (1.6, 4.5))
    rows = finite_size.compute(cell)
    assert [row["ratio"] for row in rows] == [1.6, 4.5]
    assert all(set(row) == {*finite_size.KEY, *finite_size.COLUMNS} for row in rows)
    assert rows[0]["attention_xi2"] > 0.9 > 0.1 > rows[1]["attention_xi2"]
    monkeypatch.setattr(finite_size, "TOLERANCE", 1e-6)
    for loose, exact in zip(rows, finite_size.compute(cell)):
        assert loose["test_loss"] == pytest.approx(exact["test_loss"], abs=1e-3)


def test_plan_is_complete_and_smoke_is_small(tmp_path):
    lab, smoke = finite_size.plan(tmp_path), finite_size.plan(tmp_path, "smoke")
    assert len({(cell.path, cell.d, cell.seed) for cell in lab.cells}) == len(lab.cells)
    assert {cell.path for cell in lab.cells} >= set(WAYS)
    assert sum(len(cell.ratio) for cell in smoke.cells) < 20
    assert len(finite_size.plan(tmp_path, "paper").cells) == 2 * len(lab.cells)


# ------------------------------------------------------------------------------------------------------------- reading

@pytest.mark.parametrize("middle", [1.0, 2.5])
def test_position_and_width_of_a_known_curve(middle):
    rows = stairs(middle, steepness=10)
    for criterion in ("attention", "loss"):
        assert finite_size.position(rows, criterion).mean == pytest.approx(middle, rel=0.01)
        # a logistic takes 2 log(9) / steepness from 10 to 90 %
        assert finite_size.width(rows, criterion).mean == pytest.approx(2 * math.log10(9) / 10, rel=0.02)
    assert finite_size.plateaus(rows) == pytest.approx((0.7, 0.1), abs=1e-6)
    assert finite_size.position(rows, "cut-off").mean > middle


def test_slope_of_a_known_law():
    rows = pd.concat([stairs(steepness=d**0.25, d=d) for d in (10**3, 10**5, 10**7)])
    assert finite_size.width_slope(rows, "M = 2").mean == pytest.approx(-0.25, abs=0.02)


def test_what_never_happens_has_no_position():
    rows = stairs()
    never = rows.assign(share=0.3)
    assert math.isnan(finite_size.position(never).mean)
    assert math.isnan(finite_size.width(never, "attention").mean)
    assert math.isnan(finite_size.position(rows.assign(test_loss=rows["test_loss"] + 0.2), "cut-off").mean)
    assert math.isnan(finite_size.geometric([]).mean)


def test_table_by_dimension():
    rows = pd.concat([stairs(d=d, steepness=s) for d, s in ((10**3, 5), (10**16, 100))])
    found = finite_size.by_dimension(rows, "M = 2").set_index("d")
    assert found.loc[1e16, "items"] == 9
    assert found.loc[1e16, "width"] < found.loc[1e3, "width"] / 10
    assert found.loc[1e3, "attention"] == pytest.approx(2, rel=0.01)


def test_ladder_says_by_what_factor_the_boundary_moved(monkeypatch):
    base, moved = (stairs(middle, path=finite_size.rung_path("undivided", rung), seeds=3)
                   for middle, rung in ((2.0, "flow"), (3.0, "d_h")))
    monkeypatch.setattr(figure_1_shift, "figure_1_rows", lambda *_: base.iloc[:0])
    found = figure_1_shift.ladder(pd.concat([base, moved])).set_index("rung")
    assert found.loc["d_h", "factor"] == pytest.approx(1.5, rel=0.01)
    assert found.loc["flow", "factor"] == 1


def test_classes_of_figure_1():
    found = pd.DataFrame([(seed, n, share, 1.2 / share * n**0.1) for seed in range(3) for n in (4, 8, 16)
                          for share in (0.5, 0.75)], columns=["seed", "N", "share", "ratio"])
    by_share, by_n = figure_1_shift.class_effect(found)
    assert (by_share.mean, by_n.mean) == (pytest.approx(1.0), pytest.approx(0.1))
    problem = phase_diagram.uniform_problem("undivided", 7, 1.0, 4)
    share = float((problem.train.labels > 0).double().mean())
    assert figure_1_shift.larger_class(4, 7) == pytest.approx(max(share, 1 - share))


# ------------------------------------------------------------------------------------------------------------- figures

def test_figures_show_the_tables():
    rows = pd.concat([stairs(d=d) for d in (10**3, 10**16)])
    fig = figures.maps(rows, {"M = 2": "from 0"})
    assert len([line for line in fig.axes[0].lines if len(line.get_xdata()) > 2]) == 2
    ways = {"one": finite_size.by_dimension(rows, "M = 2")}
    _, below = figures.width_and_position(ways).axes
    assert below.lines[0].get_ydata() == pytest.approx([2, 2], rel=0.01)
    found = pd.DataFrame([("divided", "flow", 2.2, 2.0, 2.4), ("undivided", "flow", np.nan, np.nan, np.nan)],
                         columns=["reading", "rung", "mean", "low", "high"])
    (ax,) = figures.ladder(found).axes
    assert style.OURS in {line.get_color() for line in ax.lines}
    assert [label.get_text() for label in ax.get_yticklabels()] == [figures.RUNG_NAMES["flow"]]


def test_every_rung_has_a_name_in_the_figure():
    assert {"as in Figure 1", *RUNGS, "regime"} == set(figures.RUNG_NAMES)


# ------------------------------------------------------------------------------------------------------------ evidence

@pytest.mark.parametrize("rows", ["empty", "missing"])
def test_no_claim_passes_without_numbers(rows, monkeypatch):
    full = finite_size.load()
    numbers = full.select_dtypes("number").columns.difference(["M", "N", "d", "ratio", "seed"])
    bare = full.iloc[:0] if rows == "empty" else full.assign(**dict.fromkeys(numbers, np.nan))
    monkeypatch.setattr(finite_size, "load", lambda: bare)
    if rows == "empty":
        monkeypatch.setattr(figure_1_shift, "figure_1_rows", lambda *_: bare)
    else:
        original = figure_1_shift.figure_1_rows
        monkeypatch.setattr(figure_1_shift, "figure_1_rows", lambda *args: original(*args).assign(share=np.nan))
    for claim in evidence.CLAIMS:
        try:
            verdict = claim.check().verdict
        except (ValueError, KeyError, IndexError, UserError):
            continue
        assert verdict in ("differs from print", "not checkable at this scale"), claim.id


def test_regime_is_met_by_the_stored_problems():
    assert regime.items_met(finite_size.parameters(WAYS["M = 2 d_h of item (2)"], 10**16, 2.0)) == 10
