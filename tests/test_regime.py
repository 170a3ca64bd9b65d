"""The theorems' regime: its problems, how its table is read, and a fault for each of its claims."""

import dataclasses

import numpy as np
import pandas as pd
import pytest

from vitbo_lib import regime, simulation, theory
from vitbo_lib.evidence import regime as evidence
from vitbo_lib.theory import smallest_configuration

CLAIMS = {claim.id: claim for claim in evidence.CLAIMS}


@pytest.mark.parametrize("snr", [regime.HARMFUL_SNR, 1.0, 2.0, regime.BENIGN_SNR])
def test_problems_of_the_regime_are_the_smallest_that_meet_the_condition(snr):
    p = regime.parameters(snr=snr)
    assert p == smallest_configuration(64, 2, snr, 0.01, 0.01)
    assert regime.items_met(p) == 10
    assert regime.items_met(dataclasses.replace(p, d_h=p.d_h // 2)) == 9


def test_where_the_condition_cannot_be_met_one_item_is_missing():
    missing = {epsilon: [item.number for item in theory.condition_4_1(regime.parameters(snr=2.0, epsilon=epsilon))
                         if not item.met] for epsilon in (0.1, 0.025, 0.001, 1e-4)}
    assert missing == {0.1: [9], 0.025: [], 0.001: [], 1e-4: [2]}
    cut = regime.parameters(snr=2.0, epsilon=1e-4)
    assert cut.d == regime.LARGEST_D
    assert (cut.snr, cut.c_p) == (pytest.approx(2.0), pytest.approx(5 * 2**0.5))


def test_explicit_constants_are_met_where_it_is_said():
    assert theory.hypothesis_4_1(regime.parameters(snr=regime.BENIGN_SNR)).explicit_met
    assert theory.hypothesis_4_2(regime.parameters(snr=regime.HARMFUL_SNR)).explicit_met


def test_tokens_three_times_as_long_train_alike_nine_times_as_fast():
    """What lets one set of runs speak for both ||mu|| and sigma_p; not so when only the signal is longer."""
    base = regime.parameters(snr=5.0)
    scaled, only_signal = regime.parameters(snr=5.0, signal_norm=3.0), dataclasses.replace(base, signal_norm=3.0)
    one, three, other = (simulation.simulate(simulation.setting_of(p, n_test=50), [0], "drawn", "flow").iloc[0]
                         for p in (base, scaled, only_signal))
    assert three["time"] == pytest.approx(one["time"] / 9, rel=1e-4)
    assert three["test_loss"] == pytest.approx(one["test_loss"], rel=1e-3)
    assert other["test_loss"] != pytest.approx(one["test_loss"], rel=1e-3)


def test_a_cell_gives_a_row_of_the_table():
    row = regime.compute(regime.Cell(64, 2, 5.0, 0.1, 1.0, 0))
    assert set(row) == {*regime.KEY, *regime.COLUMNS}
    assert row["train_loss"] == pytest.approx(0.1, rel=1e-4)
    assert row["test_error"] == 0
    assert row["attention_signal"] > 0.9


def test_cells_are_different():
    cells = regime.cells(2, 1)
    assert len(set(cells)) == len(cells)


def test_crossing_is_found_where_the_loss_falls_for_good():
    rows = pd.DataFrame({"seed": 0, "ratio": [0.5, 1.0, 2.0, 4.0, 8.0], "test_loss": [0.7, 0.2, 0.6, 0.2, 0.1]})
    assert regime.crossings(rows, 0.4) == [pytest.approx(np.sqrt(8))]


def made_up(side: str) -> pd.DataFrame:
    """Runs that follow the prediction to the letter."""
    snrs = (regime.SCALING_SNR[side], *((0.2, 0.3) if side == "harmful" else (3.0, 4.0, 5.0)))
    rows = [(n, 2, snr, epsilon, norm, seed) for snr in snrs for n in (48, 64, 96) for epsilon in (0.1, 0.01)
            for norm in (0.3, 1.0) for seed in range(2)]
    rows = regime.derived(pd.DataFrame(rows, columns=list(regime.KEY)))
    return rows.assign(time=1.1 * rows[f"predicted_{side}"])


@pytest.mark.parametrize("side", ["benign", "harmful"])
def test_slopes_of_made_up_runs_are_the_theorems(side):
    rows = made_up(side)
    for interval, exponent in regime.slopes(rows, side).values():
        assert interval.mean == pytest.approx(exponent, abs=1e-9)
    assert regime.time_ratio(rows, side).mean == pytest.approx(1.1)
    bent = regime.slopes(rows.assign(time=rows["time"] * rows["N"] ** 0.5), side)
    assert bent["N"][0].mean == pytest.approx(bent["N"][1] + 0.5)


def test_predicted_times_are_those_of_the_stages():
    p = regime.parameters(snr=2.0, epsilon=0.001, w_o_norm=3.0)
    row = regime.derived(pd.DataFrame([(64, 2, 2.0, 0.001, 3.0, 0)], columns=list(regime.KEY))).iloc[0]
    for side in ("benign", "harmful"):
        assert row[f"predicted_{side}"] == pytest.approx(regime.predicted_steps(p, side) * p.eta)


@pytest.mark.parametrize(("crossings", "verdict"), [
    ([1.0, 1.1, 0.9], "holds up to a constant"), ([300.0, 310.0, 320.0], "differs from print"),
    ([1.0], "differs from print")])
def test_a_threshold_beyond_the_proofs_constant_does_not_hold(crossings, verdict, monkeypatch):
    """The proof's 12,000 is 240 C_p^2 at M = 2; a single seed has no interval."""
    monkeypatch.setattr(evidence.regime, "crossings", lambda *_: crossings)
    assert CLAIMS["thm-4.1-omega"].check().verdict == verdict
