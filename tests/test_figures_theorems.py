"""The figures of Theorems 4.1 and 4.2 show what their tables hold."""

import numpy as np
import pandas as pd
import pytest

from vitbo_lib.figures import style, theorems


def way(progress=(0.0, 0.01, 1.0), seeds=2) -> pd.DataFrame:
    columns = [name for _, names, _, _ in theorems.ROWS for name in names]
    return pd.DataFrame([{"seed": seed, "progress": at, **{name: i + at for i, name in enumerate(columns)}}
                         for seed in range(seeds) for at in progress])


def runs() -> pd.DataFrame:
    """A made-up table: T as predicted at both ends, three times that at the transition."""
    rows = [(64, 0.01, 1.0, ratio, seed) for ratio in (0.1, 2.0, 8.0) for seed in range(3)]
    table = pd.DataFrame(rows, columns=["N", "epsilon", "w_o_norm", "ratio", "seed"])
    table = table.assign(predicted_benign=200.0, predicted_harmful=100 * table["ratio"], items=10)
    fastest = table[["predicted_benign", "predicted_harmful"]].min(axis=1)
    return table.assign(time=fastest * table["ratio"].map({0.1: 1, 2.0: 3, 8.0: 1}),
                        test_loss=0.7 / (1 + table["ratio"]) + 0.01 * table["seed"],
                        test_error=0.1 / table["ratio"], attention_signal=table["ratio"] / 8)


def drawn(ax, colour):
    return [line for line in ax.lines if line.get_color() == colour]


def test_every_run_is_drawn_and_time_zero_is_not():
    fig = theorems.trajectories(way(), way(seeds=3))
    for column, seeds in ((0, 2), (1, 3)):
        for row, (_, names, roles, _) in enumerate(theorems.ROWS):
            ax = fig.axes[2 * row + column]
            for name, role in zip(names, roles):
                lines = drawn(ax, style.look(role)["color"])
                assert len(lines) == seeds
                assert all(min(line.get_xdata()) > 0 for line in lines)
                assert lines[0].get_ydata()[-1] == way()[name].iloc[-1]


def test_times_lie_where_they_were_measured():
    above, below = theorems.training_times(runs()).axes
    (benign,), (harmful,) = drawn(above, style.SIGNAL), drawn(above, style.XI2)
    assert set(benign.get_ydata()) == {200.0}
    assert set(harmful.get_xdata()) == {10.0}
    (ratios,) = drawn(below, style.NOISE)
    assert sorted(set(np.round(ratios.get_ydata(), 9))) == [1, 3]


def test_transition_shows_means_and_runs():
    above, below = theorems.transition(runs()).axes
    mean, single = drawn(above, style.TEST)
    assert mean.get_ydata()[0] == pytest.approx(0.7 / 1.1 + 0.01)
    assert len(single.get_xdata()) == 9
    assert drawn(below, style.SIGNAL)[0].get_ydata()[-1] == 1
    assert drawn(above, style.OURS)[0].get_xdata()[0] == 2


def test_what_misses_an_item_is_hollow():
    rows = pd.DataFrame([(side, epsilon, seed, epsilon**0.75 * (1 + 0.1 * seed), 9 if epsilon > 0.05 else 10)
                         for side in ("benign", "harmful") for epsilon in (0.1, 0.01) for seed in range(3)],
                        columns=["side", "epsilon", "seed", "test_loss", "items"])
    ax = theorems.loss_over_epsilon(rows).axes[0]
    faces = {(float(line.get_xdata()[0]), line.get_markerfacecolor()) for line in drawn(ax, style.SIGNAL)
             if line.get_marker() == "o"}
    assert {(0.1, style.BACKGROUND), (0.01, style.SIGNAL)} <= faces
