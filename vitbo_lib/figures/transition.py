"""Figures of the transition map: losses, errors, attention, times and the place of the transition, by M and N."""

import math

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from vitbo_lib import transition_map as reading
from vitbo_lib.figures import style
from vitbo_lib.intervals import mean_interval

RATIO_AXIS = r"$N \cdot \mathrm{SNR}^2 \,/\, C_p^2$"
ROLES = {2: "train", 3: "paper", 4: "ours", 8: "test"}  # of M, so that any two can be told apart
LINES = {2: "-", 3: (0, (7, 2, 1.2, 2)), 4: (0, (1, 1.2)), 8: (0, (5, 1.5))}
MARKERS = {2: "o", 3: "D", 4: "^", 8: "s"}
BREAK_EVEN = 2.0


def _look(m: int, marker: bool = True) -> dict:
    look = {"color": style.LIGHT[ROLES[m]], "linestyle": LINES[m], "linewidth": 1.4}
    return look | ({"marker": MARKERS[m], "markersize": 4} if marker else {})


def _over_ratio(ax: Axes, rows: pd.DataFrame, value: str) -> None:
    """For each M the median over N and seeds, in a band of all runs."""
    for m, group in rows.groupby("M"):
        by = group.groupby("ratio")[value]
        ax.plot(by.median().index, by.median(), label=f"M = {m}", **_look(m))
        ax.fill_between(by.median().index, by.min(), by.max(), color=_look(m)["color"], alpha=0.12, linewidth=0)


def _break_even(ax: Axes) -> None:
    ax.axvline(BREAK_EVEN, color=style.INK, linewidth=0.8, linestyle=":")
    ax.set(xscale="log", xlabel=RATIO_AXIS)


def outcome(rows: pd.DataFrame) -> Figure:
    """Test loss above and test error below over the ratio, for each M: median over N and seeds, band of all runs."""
    fig, (above, below) = style.subplots(2, 1, height=6.2, sharex=True)
    for ax, value in ((above, "test_loss"), (below, "test_error")):
        _over_ratio(ax, rows, value)
        _break_even(ax)
    above.axhline(math.log(2), color=style.INK, linewidth=0.8, linestyle=":")
    above.annotate("guessing: log 2", (rows["ratio"].max(), math.log(2)), xytext=(0, 3), textcoords="offset points",
                   fontsize=9, ha="right")
    above.set(ylim=(-0.02, 0.8), ylabel="test loss", xlabel="")
    below.set(ylim=(-0.02, 0.6), ylabel="test error")
    above.legend(loc="lower left")
    return fig


def times(rows: pd.DataFrame) -> Figure:
    """T in the unit of Theorem 4.1 above, in that of Theorem 4.2 below, for each M; the lines are our constants."""
    fig, (above, below) = style.subplots(2, 1, height=6.2, sharex=True)
    for ax, value, constant, label in (
            (above, "time_benign", 2, r"$T \cdot \eta\, \epsilon\, \|\mu\|^2 \|w_O\|^2$"),
            (below, "time_harmful", 1, r"$T \cdot \eta\, \epsilon\, C_p^2 \sigma_p^2 d\, \|w_O\|^2 /\, N$")):
        _over_ratio(ax, rows, value)
        _break_even(ax)
        ax.axhline(constant, color=style.INK, linewidth=0.8)
        ax.set(yscale="log", ylabel=label)
    above.set(xlabel="")
    below.legend(loc="lower left")
    return fig


def seeds(rows: pd.DataFrame, few: int = 2, many: int = 8) -> Figure:
    """Share of attention, one line a seed: M = `few` left, `many` right; smallest N above, largest below."""
    fig, axes = style.subplots(2, 2, height=4.8, sharex=True, sharey=True)
    for column, m in enumerate((few, many)):
        of_m = rows[rows["M"] == m]
        for ax, n in zip(axes[:, column], (of_m["N"].min(), of_m["N"].max())):
            for _, run in of_m[of_m["N"] == n].sort_values("ratio").groupby("seed"):
                ax.plot(run["ratio"], run["share"], **_look(m) | {"linestyle": "-", "linewidth": 1, "markersize": 3})
            _break_even(ax)
            ax.set_title(f"M = {m}, N = {n}", fontsize=style.FONT_SIZE, loc="left")
            ax.set(xlim=(0.4, 30), ylim=(-0.04, 1.04), xlabel="")
    for ax in axes[:, 0]:
        ax.set_ylabel("share on signal")
    fig.supxlabel(RATIO_AXIS, fontsize=style.FONT_SIZE)
    return fig


def place(rows: pd.DataFrame) -> Figure:
    """The place of the transition over N, by M, with 95 % intervals over seeds: by attention above, by loss below."""
    fig, axes = style.subplots(2, 1, height=6.4, sharex=True, sharey=True)
    for ax, value, label in zip(axes, ("share", "test_loss"), ("by attention", "by test loss")):
        for k, (m, group) in enumerate(reading.summary(rows, value).groupby("M")):
            at = group["N"] * (1 + 0.03 * (k - 1.5))  # side by side where they share N
            ax.errorbar(at, group["mean"], [group["mean"] - group["low"], group["high"] - group["mean"]], capsize=2,
                        label=f"M = {m}", **_look(m))
        ax.axhline(BREAK_EVEN, color=style.INK, linewidth=0.8, linestyle=":")
        ax.set(xscale="log", yscale="log", ylim=(0.6, 5.5), ylabel=f"{RATIO_AXIS}\n{label}")
        _plain_ticks(ax, sorted(rows["N"].unique()))
    axes[1].set_xlabel("number of samples $N$")
    axes[0].legend(loc="upper right", ncols=2)
    return fig


def _plain_ticks(ax: Axes, samples) -> None:
    """Powers of two below, plain numbers at the side."""
    at = [n for n in samples if n & (n - 1) == 0]
    ax.set_xticks(at, [str(n) for n in at])
    ax.set_xticks([], minor=True)
    at = [1.0, 1.5, 2.0, 3.0, 4.0]
    ax.set_yticks(at, [f"{x:g}" for x in at])
    ax.set_yticks([], minor=True)


def classes(drawn: pd.DataFrame, calm: pd.DataFrame) -> Figure:
    """Where each class changes sides, over N / |S_y|: runs as drawn, and with small initial values.

    Both are points of `vitbo_lib.transition_map.class_positions`.
    """
    fig, ax = style.subplots(height=3.8)
    for points, role, label, size in ((drawn, "noise", "as drawn", 5), (calm, "signal", "small initial values", 8)):
        ax.plot(points["predicted"], points["position"], linestyle="none", markersize=size, alpha=0.6,
                markeredgewidth=0, marker=style.MARKERS[role], color=style.look(role)["color"], label=label)
    ax.axline((BREAK_EVEN, BREAK_EVEN), slope=1, color=style.INK, linewidth=0.8)
    ax.set(xlabel=r"$N / |S_y|$", ylabel=f"{RATIO_AXIS}\nwhere the class changes sides")
    ax.legend(loc="upper left")
    return fig


def steps_over_eta(rows: pd.DataFrame) -> Figure:
    """Steps of gradient descent to epsilon over the step size; rows of `eta_runs` with their `side`."""
    fig, ax = style.subplots(height=3.6)
    for side, role in (("benign", "signal"), ("harmful", "xi2")):
        found = [(eta, mean_interval(one["steps"]).mean) for eta, one in rows[rows["side"] == side].groupby("eta")]
        eta, steps = np.array(found).T
        ax.plot(eta, steps, **style.look(role, marker=True), label=side)
    ax.set(xscale="log", yscale="log", xlabel=r"step size $\eta$", ylabel="steps $T$")
    ax.legend()
    return fig
