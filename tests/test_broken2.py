"""Attempts to break the parts that came later: impossible numbers, states of other problems, tables edited by hand."""

import dataclasses
import math
import os
import signal
import subprocess
import sys
import time

import pytest
import torch

from vitbo_lib import (
    claims,
    coefficients,
    corrections,
    finite_size,
    flow,
    gaps,
    observables,
    recheck,
    regime,
    simulation,
    stages,
    statements,
    store,
    symmetric,
    symmetric_drawn,
    symmetric_explicit,
    symmetric_flow,
    theory,
    training,
    transition_map,
)
from vitbo_lib.errors import UserError
from vitbo_lib.store import Table

NAN, INF = math.nan, math.inf
LAB = regime.lab_setting("benign")
SMALL = dataclasses.replace(LAB, law=dataclasses.replace(LAB.law, d=50), d_h=10, d_v=10, n_samples=4)
PROBLEM = simulation.build(SMALL, "reduced", [0])
OTHER = simulation.build(dataclasses.replace(SMALL, n_samples=6), "reduced", [0])
ZERO, OTHER_ZERO = (one.train.start.map(torch.zeros_like) for one in (PROBLEM, OTHER))
NOTHING = theory.Parameters()
LIMIT = symmetric_flow.Limit(n_samples=4, tokens=2, ratio=2.0, gain=10.0)
WAY = finite_size.WAYS["M = 2"]

MISTAKES = {
    **{f"eta {eta}": (lambda eta=eta: coefficients.coefficients(PROBLEM.train, ZERO, eta))
       for eta in (-1, 0, NAN, INF, "a", None)},
    **{f"state of another problem, {look.__name__}": (lambda look=look, of=of: look(of, OTHER_ZERO)) for look, of in (
        (coefficients.vectorized, PROBLEM.train), (coefficients.loss_at_tokens, PROBLEM.train),
        (coefficients.movement, PROBLEM.train), (coefficients.loss_derivatives, PROBLEM.train),
        (gaps.gaps, PROBLEM.train), (gaps.rates, PROBLEM), (observables.observe, PROBLEM))},
    **{f"steps {steps}": (lambda steps=steps: next(training.states(PROBLEM, eta=0.1, steps=steps)))
       for steps in ([], [-1], [10**16], [NAN], ["a"], 5, None, "12")},
    **{f"rate {eta}": (lambda eta=eta: next(training.states(PROBLEM, eta=eta, steps=[0])))
       for eta in (NAN, -1, 0, "x")},
    **{f"snapshot steps {steps}": (lambda steps=steps: training.gradient_descent(
        PROBLEM, eta=0.1, epsilon=0.5, max_steps=2, snapshot_steps=steps)) for steps in ([-1], [1.5], ["a"], 5, None)},
    **{f"snapshots {n}": (lambda n=n: flow.gradient_flow(PROBLEM, epsilon=0.5, snapshots=n))
       for n in (-1, NAN, 2.5, "a", None, 10**9)},
    **{f"tolerance {x}": (lambda x=x: flow.gradient_flow(PROBLEM, epsilon=0.5, tolerance=x))
       for x in (-1, 0, NAN, "a", None, 1e-30, 1.0)},
    **{f"trajectory {method} {n}": (lambda method=method, n=n: simulation.trajectory(SMALL, [0], "reduced", method, n))
       for method in ("gd", "flow") for n in (0, -1, NAN, "a")},
    **{f"regime {given}": (lambda given=given: regime.parameters(**given)) for given in (
        {"n_samples": 0}, {"n_samples": None}, {"tokens": 0}, {"tokens": None}, {"snr": NAN}, {"snr": None},
        {"w_o_norm": "a"}, {"w_o_norm": NAN}, {"signal_norm": None}, {"epsilon": None})},
    **{f"snr_at {given}": (lambda given=given: regime.snr_at(*given))
       for given in ((NAN,), (-1,), (0,), (1, 0), (1, 64, 0), ("a",), (INF,))},
    "side of the lab": lambda: regime.lab_setting("x"), "reading": lambda: regime.lab_setting("benign", "x"),
    "predicted": lambda: regime.lab_predicted_steps("benign", "x"), "winning": lambda: regime.winning(None, "x"),
    "benign loss": lambda: regime.predicted_benign_loss(-1, 2),
    "no tokens": lambda: regime.predicted_benign_loss(0.1, 0),
    "ratio of nothing": lambda: regime.ratio(NOTHING), "weights": lambda: theory.at_condition(NOTHING),
    "sizes of nothing": lambda: symmetric_drawn.initial_sizes(NOTHING),
    **{f"even seeds {given} {module.__name__}": (lambda module=module, given=given: module.even_seeds(*given))
       for module in (transition_map, finite_size, symmetric_drawn)
       for given in ((3, 1), (1, 1), (0, 1), (-2, 1), (2.5, 1), ("a", 1), (None, 1), (2, -1), (2, NAN), (10**9, 1))},
    "map, N = 0": lambda: transition_map.compute(transition_map.Cell(2, 0, 1.0, 0)),
    "map, ratio -1": lambda: transition_map.compute(transition_map.Cell(2, 8, -1, 0)),
    **{f"way {d} {ratio}": (lambda d=d, ratio=ratio: finite_size.parameters(WAY, d, ratio))
       for d, ratio in ((0, 2.0), ("a", 2.0), (1000, 0), (1000, NAN), (1000, "a"))},
    "way, N = 0": lambda: finite_size.parameters(dataclasses.replace(WAY, n_samples=0), 1000, 2.0),
    "way unknown": lambda: finite_size.items_met("x", 1000, 2.0), "ways": lambda: finite_size.cells(ways=("x",)),
    "rungs": lambda: finite_size.cells(rungs=("x",)), "rung": lambda: finite_size.RUNGS["d"].setting("x", 1.0),
    "path": lambda: finite_size.compute(finite_size.Cell("Figure 1 divided: x", 2, 4, 10, 0, (1.0,))),
    "criterion": lambda: finite_size.crossings(finite_size.load(), "x"),
    "plateaus": lambda: finite_size.plateaus(finite_size.load()[:0]),
    "column": lambda: transition_map.positions(transition_map.load(), "x"),
    **{f"gain {given}": (lambda given=given: symmetric.condition_gain(*given)) for given in (
        (0, 2, 1.0), (4, 0, 1.0), (4, 2, 0), (4, 2, -1.0), (4, 2, NAN), ("a", 2, 1.0), (4, 2, 1.0, 0),
        (4, 2, 1.0, 0.01, 0), (4, 2, 1.0, 0.01, NAN), (4, 2, 1.0, 0.01, 1e3))},
    **{f"limit {given}": (lambda given=given: symmetric.constants(*given))
       for given in ((5, 2), (2, 2), (4, 1), (4, 0), (4, 2, 0), (4, 2, NAN))},
    "C_p": lambda: symmetric.infinite_gain_constant(4, 2, NAN), "text": lambda: symmetric.ends(4, 2, ["a"]),
    "loss": lambda: symmetric.middle_loss(0), "tokens": lambda: symmetric.largest_constant(0),
    "fits": lambda: symmetric.fits([4] * 4, [1.0, 2, 3, 4]), "lengths": lambda: symmetric.fits([1, 2, 3, 4], [1.0] * 5),
    "fits of text": lambda: symmetric.fits(["a"] * 4, [1.0] * 4),
    "fits NaN": lambda: symmetric.fits([NAN, 1, 2, 3], [1.0] * 4),
    "to loss": lambda: symmetric_flow.Flow(LIMIT).to_loss(0.1, 1e-20),
    "sure": lambda: symmetric_flow.Flow(LIMIT).to_decision(NAN),
    "unsure": lambda: symmetric_flow.Flow(LIMIT).to_decision(0),
    "explicit": lambda: symmetric_explicit.explicit_problem(dataclasses.replace(LIMIT, gain=INF)),
    "too many": lambda: symmetric_explicit.explicit_problem(dataclasses.replace(LIMIT, n_samples=10**12)),
    "curve": lambda: symmetric_drawn.limit_curve(3, 3),
    "no runs": lambda: symmetric_drawn.against_limit(symmetric_drawn.load()[:0]),
    "boundary": lambda: stages.predicted_boundary("a"), "share": lambda: stages.predicted_boundary(20.0, None),
    "ends": lambda: statements.supports(statements.all_statements().values(), ["x"]),
    "layer": lambda: statements.listing("x"), "group": lambda: corrections.definition_list("x"),
    "verdict": lambda: claims.badge("x"), "list": lambda: claims.badge([]),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_one_line(name):
    with pytest.raises(UserError, match=r"^[^\n]+$"):
        MISTAKES[name]()


def test_what_is_possible_still_is():
    assert transition_map.even_seeds(2, 0) == []
    assert len(flow.gradient_flow(PROBLEM, epsilon=0.5, snapshots=1).snapshots) == 1
    assert regime.parameters(n_samples=1, tokens=2).N == 1


def test_text_among_numbers_is_seen_though_the_checksum_is_right(tmp_path):
    table = Table(tmp_path / "t.csv", key=("n",), columns=("loss", "name"), command="make it")
    table.append([{"n": 1, "loss": 0.5, "name": "a"}, {"n": 2, "loss": None, "name": "b"}])
    assert len(store.load(table.path)[0]) == 2
    table.append([{"n": 3, "loss": "abc", "name": "c"}])
    with pytest.raises(UserError, match="text among the numbers of its column loss"):
        store.load(table.path)


@pytest.mark.parametrize(("old", "new", "agree"), [
    (INF, 1.0, False), (1.0, INF, False), (INF, INF, True), (INF, -INF, False), (NAN, NAN, True), (NAN, 1.0, False)])
def test_an_infinite_number_agrees_with_itself_alone(old, new, agree):
    assert (recheck.differences({"a": old}, {"a": new}, ("a",), 1e-3) == []) is agree


SLOW_ROWS = """
import os, sys, time
from functools import partial
from pathlib import Path
from vitbo_lib import claims, cli, recheck, results, sweep
from vitbo_lib.store import Table

def slow(cell, then=None):
    if then == "die":
        os._exit(1)
    if then:
        time.sleep(600)
    return {"n": cell["n"], "x": 1.0}

def plan(then, folder, profile):
    table = Table(Path(sys.argv[1]) / "t.csv", key=("n",), columns=("x",), command="none")
    return sweep.Plan(table, [{"n": n} for n in range(4)], partial(slow, then=then))

if __name__ == "__main__":
    plan(None, None, "lab").run(1)
    results.TABLES.clear()
    results.TABLES["t"] = results.Stored("t", "", partial(plan, sys.argv[2]))
    claims.check = lambda *_: []
    print("ready", flush=True)
    sys.exit(cli.main(["claims", "--all", "--workers", "2"]))
"""


@pytest.mark.slow
@pytest.mark.parametrize(("then", "number", "code"), [
    ("sleep", signal.SIGINT, 130), ("sleep", signal.SIGTERM, -15), ("sleep", signal.SIGKILL, -9), ("die", None, 2)])
def test_rows_cut_short_leave_no_worker(then, number, code, tmp_path):
    """The planted fault: leaving the pool the usual way waits for what the workers compute, here ten minutes."""
    script = tmp_path / "rows.py"
    script.write_text(SLOW_ROWS)
    process = subprocess.Popen([sys.executable, script, tmp_path, then], stdout=subprocess.PIPE, text=True,
                               stderr=subprocess.PIPE, start_new_session=True)
    assert process.stdout.readline() == "ready\n"
    if number is not None:
        time.sleep(8)  # workers are loading or asleep
        process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == code, err
    assert "Traceback" not in err
    if code > 0:
        assert err.count("\n") == 1, err
    until = time.monotonic() + 10
    while _alive(process.pid) and time.monotonic() < until:
        time.sleep(0.1)
    assert not _alive(process.pid)


def _alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True
