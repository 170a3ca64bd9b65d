"""From the lab to the regime: one transition at many d, its width and position, and the ladder from Figure 1."""

import math

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from vitbo_lib.figures import style
from vitbo_lib.regime import over_seeds

RATIO_AXIS = r"$N \cdot \mathrm{SNR}^2 \,/\, C_p^2$"
ROLES = ("xi2", "paper", "ours", "train", "signal", "test")  # of d, from small to large
LINES = ((0, (3, 1.5)), (0, (7, 2, 1.2, 2)), "-", (0, (1, 1.2)), (0, (8, 1.5)), "-")  # solid: a light one, a dark one
READINGS = {"undivided": "$w_O$ not divided", "divided": "$w_O$ divided by 16"}
SIDE_BY_SIDE = {"M = 2": "$W_V$ from 0", "M = 2 values at cap": "$\\sigma_V$ at the cap (7)"}  # of `maps`
OVER_DIMENSION = {"M = 2": "$M = 2$", "M = 2 values at cap": "$M = 2$, $\\sigma_V$ at the cap", "M = 4": "$M = 4$",
                  "M = 16": "$M = 16$"}  # of `width_and_position`
RUNG_NAMES = {
    "as in Figure 1": "as in Figure 1", "descent": "classes of equal size", "flow": "gradient flow (base)",
    "noise projected": "noise projected", "d": "$d = 10^{12}$", "d_h": "$d_h = 10^9$",
    "logits from 0": "logits from 0", "values from 0": "values from 0",
    "N": "$N = 4$", "M": "$M = 2$",
    "regime": "regime, $d = 10^{16}$"}


def power(d: float) -> str:
    """d as a power of ten.

    >>> power(1e16)
    '10^{16}'
    """
    return f"10^{{{round(math.log10(d))}}}"


def _curves(ax: Axes, rows: pd.DataFrame, value: str, roles: dict) -> None:
    for d, part in rows.groupby("d"):
        found = over_seeds(part, "ratio", value)
        look = {"color": style.LIGHT[roles[d]], "linestyle": LINES[ROLES.index(roles[d])]}
        ax.plot(found["ratio"], found["mean"], **look, linewidth=1.5, label=f"${power(d)}$")
        ax.fill_between(found["ratio"], found["low"], found["high"], color=look["color"], alpha=0.15, linewidth=0)


def maps(rows: pd.DataFrame, paths: dict[str, str], xlim: tuple[float, float] = (0.3, 5.0)) -> Figure:
    """Test loss, test error and attention over N SNR^2 / C_p^2, one line a d (mean, interval); one column a way.

    `rows`: the stored table (`vitbo_lib.finite_size.load`); `paths`: its ways, at most two, with their titles.
    """
    fig, axes = style.subplots(3, len(paths), height=7.2, sharex=True, sharey="row", squeeze=False)
    chosen = rows[rows["path"].isin(paths)]
    roles = dict(zip(sorted(chosen["d"].unique()), ROLES))
    for column, (path, title) in enumerate(paths.items()):
        part = chosen[chosen["path"] == path]
        for ax, value in zip(axes[:, column], ("test_loss", "test_error", "share")):
            _curves(ax, part, value, roles)
            ax.axvline(2, color=style.INK, linewidth=0.8, linestyle=":")
        axes[0, column].set_title(title, fontsize=style.FONT_SIZE, loc="left")
        axes[2, column].set(xscale="log", xlim=xlim, xlabel=RATIO_AXIS)
        axes[2, column].set_xticks([0.5, 1, 2, 4], ["0.5", "1", "2", "4"], minor=False)
        axes[2, column].minorticks_off()
    for ax, name in zip(axes[:, 0], ("test loss", "test error", "attention:\nsignal / (signal + $\\xi_2$)")):
        ax.set_ylabel(name)
    handles, labels = axes[0, 0].get_legend_handles_labels()
    fig.legend(handles, labels, loc="outside upper center", ncols=6, title="$d$", handlelength=2.4, columnspacing=0.9)
    return fig


def _points(ax: Axes, found: pd.DataFrame, value: str, role: str, shift: float, **options) -> None:
    ax.errorbar(found["d"] * shift, found[value], [found[value] - found[f"{value}_low"],
                                                   found[f"{value}_high"] - found[value]],
                **style.look(role, marker=True), markersize=4.5, linewidth=1.2, elinewidth=1, capsize=2, **options)


def width_and_position(ways: dict[str, pd.DataFrame]) -> Figure:
    """Over d: above, decades of N SNR^2 that the test loss takes from 90 to 10 %; below, where attention changes sides.

    `ways`: tables of `vitbo_lib.finite_size.by_dimension` by label, at most four.
    """
    fig, (above, below) = style.subplots(2, 1, height=6.4, sharex=True)
    for k, ((label, found), role) in enumerate(zip(ways.items(), ("signal", "xi2", "noise", "paper"))):
        shift = 10 ** (0.12 * (k - 1.5))
        _points(above, found, "width", role, shift, label=label)
        _points(below, found, "attention", role, shift)
    below.axhline(2, color=style.INK, linewidth=0.8, linestyle=":")
    above.set(xscale="log", yscale="log", ylabel="width of the transition\n(decades, test loss 90 to 10 %)")
    below.set(xscale="log", xlabel="$d$", ylabel=f"{RATIO_AXIS}\nwhere attention changes sides", ylim=(1.25, None))
    fig.legend(*above.get_legend_handles_labels(), loc="outside upper center", ncols=2)
    return fig


def ladder(found: pd.DataFrame, paper: float = 2.5) -> Figure:
    """Position of the boundary in Figure 1's setting with one thing changed at a time, both readings of w_O.

    `found`: `vitbo_lib.finite_size.ladder`; lines at 2 (equal initial rates) and at the paper's curve, 1000 / 400.
    """
    fig, ax = style.subplots(height=5.4)
    rungs = [rung for rung in RUNG_NAMES if rung in set(found["rung"])]
    heights = {rung: -k for k, rung in enumerate(rungs)}
    for (reading, label), role, shift in zip(READINGS.items(), ("signal", "xi2"), (0.14, -0.14)):
        part = found[(found["reading"] == reading) & found["mean"].notna()]
        ax.errorbar(part["mean"], part["rung"].map(heights) + shift, xerr=[part["mean"] - part["low"],
                                                                         part["high"] - part["mean"]],
                    linestyle="none", color=style.look(role)["color"], marker=style.MARKERS[role], markersize=5,
                    capsize=2, elinewidth=1.2, label=label)
    for x, role, label in ((2.0, "ours", "$2 C_p^2$ (equal initial rates)"), (paper, "paper", "Figure 1: 1000")):
        ax.axvline(x, **style.look(role), linewidth=1.4, label=label)
    ax.set_yticks(list(heights.values()), [RUNG_NAMES[rung] for rung in rungs])
    ticks = np.array([1, 1.5, 2, 2.5, 3, 4, 6, 10])
    ax.set(xscale="log", xlabel=RATIO_AXIS + " on the boundary")
    ax.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    ax.minorticks_off()
    ax.grid(axis="y")
    fig.legend(*ax.get_legend_handles_labels(), loc="outside upper center", ncols=2)
    return fig


def classes(found: pd.DataFrame) -> Figure:
    """Where attention changes sides in Figure 1's own runs, against the inverse share of the larger class.

    `found`: `vitbo_lib.figure_1_shift.classes` of both readings; the line is the break-even of that class alone.
    """
    fig, ax = style.subplots(height=3.8)
    for (low, high), role, marker in zip(((2, 6), (7, 13), (14, 20)), ("train", "signal", "test"), "o^s"):
        part = found[found["N"].between(low, high)]
        ax.plot(1 / part["share"], part["ratio"], linestyle="none", marker=marker, markersize=5, alpha=0.6,
                markeredgewidth=0, color=style.look(role)["color"], label=f"$N$ = {low} to {high}")
    at = np.array([1.0, 2.0])
    ax.plot(at, at, **style.look("ours"), label="equal initial rates")
    ax.set(xlabel="1 / share of the larger class", ylabel=f"{RATIO_AXIS}\non the boundary")
    ax.legend(loc="upper left")
    return fig
