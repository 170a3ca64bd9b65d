"""Figures of the symmetric limit: beside drawn runs, by type of query, and its transition constant over N."""

import math

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from vitbo_lib.figures import style

RATIO_AXIS = r"$N \cdot \mathrm{SNR}^2 \,/\, C_p^2$"
PANELS = (("attention on signal", (("attention_signal", "signal", "attention"),)),
          ("value $y V$", (("v_signal", "signal", "signal"), ("v_xi2", "xi2", r"$\xi_2$"))),
          ("test loss", (("test_loss", "test", "test loss"),)))
QUERIES = (("mu_query", "signal", r"query $\mu$"), ("xi2_query", "xi2", r"query $\xi_2$"),
           ("weak_query", "noise", "weak queries"))
ROLES = {2: "noise", 3: "train", 4: "test", 8: "paper", 16: "ours"}  # of M
MARKERS = {2: "^", 3: "o", 4: "s", 8: "D", 16: "v"}  # of M, so that grey is enough


def overlay(drawn: pd.DataFrame, curves: pd.DataFrame) -> Figure:
    """Attention, values and test loss at the end of training over the ratio: limit (line) and drawn runs (markers).

    `drawn`: `vitbo_lib.symmetric_drawn.load`; `curves`: `vitbo_lib.symmetric.curve` of the same N and M. Full markers:
    runs that start near 0; hollow ones: as Condition 4.1 has them.
    """
    sizes = list(curves[["N", "M"]].drop_duplicates().itertuples(index=False, name=None))
    fig, axes = style.subplots(3, len(sizes), height=6.8, sharex="col", sharey="row", squeeze=False)
    for column, (n, m) in enumerate(sizes):
        curve = curves[(curves["N"] == n) & (curves["M"] == m)].sort_values("ratio")
        runs = drawn[(drawn["N"] == n) & (drawn["M"] == m)]
        for ax, (name, lines) in zip(axes[:, column], PANELS):
            for value, role, _ in lines:
                look = style.look(role)
                ax.plot(curve["ratio"], curve[value], **look, linewidth=1.6)
                for start, face in (("asked", style.BACKGROUND), ("both", look["color"])):
                    at = runs[runs["start"] == start]
                    ax.plot(at["ratio"], at[value], linestyle="none", marker=style.MARKERS[role], markersize=4,
                            color=look["color"], markerfacecolor=face, markeredgewidth=0.8, alpha=0.9)
            ax.set(xscale="log", xlabel=RATIO_AXIS if name == "test loss" else None)
            ax.set_xticks([0.3, 1, 3, 10], ["0.3", "1", "3", "10"])
            if column == 0:
                ax.set_ylabel(name)
        axes[0, column].set_title(f"$N = {n}$, $M = {m}$", fontsize=style.FONT_SIZE, loc="left")
    ink = {"linestyle": "none", "color": style.INK, "marker": "o", "markersize": 4}
    fig.legend(handles=[Line2D([], [], color=style.INK, label="limit"),
                        Line2D([], [], **ink, label="drawn, start near 0"),
                        Line2D([], [], **ink, markerfacecolor=style.BACKGROUND, label="drawn, start of Condition 4.1")],
               loc="outside upper center", ncols=3, columnspacing=1.0, handletextpad=0.4)
    axes[1, -1].legend(handles=[Line2D([], [], **style.look(role), label=label) for _, role, label in PANELS[1][1]],
                       loc="center left")
    return fig


def by_query(curve: pd.DataFrame) -> Figure:
    """Above, attention of each type of training query on the signal at the end; below, the test loss.

    `curve`: `vitbo_lib.symmetric.curve` of one N and M above 2.
    """
    fig, (above, below) = style.subplots(2, 1, height=5.4, sharex=True)
    for name, role, label in QUERIES:
        above.plot(curve["ratio"], curve[name], **style.look(role), label=label)
    below.plot(curve["ratio"], curve["test_loss"], **style.look("test"))
    _guessing(below, float(curve["ratio"].max()))
    above.set(ylabel="attention on signal", ylim=(-0.04, 1.04))
    below.set(xscale="log", xlabel=RATIO_AXIS, ylabel="test loss", ylim=(0, 0.78))
    ticks = [1, 2, 3, 5, 8]
    below.set_xticks(ticks, [str(tick) for tick in ticks])
    below.set_xticks([], minor=True)
    above.legend(loc="upper left")
    return fig


def _guessing(ax: Axes, right: float) -> None:
    """The loss of a constant guess."""
    ax.axhline(math.log(2), color=style.INK, linewidth=0.8, linestyle=":")
    ax.annotate("guessing: log 2", (right, math.log(2)), xytext=(0, 3), textcoords="offset points", fontsize=9,
                ha="right")


def constants(rows: pd.DataFrame, reachable: tuple[float, float]) -> Figure:
    """The transition constant over N for each M: lines where attention turns, hollow markers where the test loss does.

    `rows`: `vitbo_lib.symmetric.load` (lines: infinite gain). Dotted: 2 (M - 1). The band: `reachable` N.
    """
    fig, ax = style.subplots(height=4.4)
    for tokens, group in rows.sort_values("N").groupby("M"):
        look = style.look(ROLES[int(tokens)])
        ax.plot(group["N"], group["infinite"], color=look["color"], linewidth=1.8)
        ax.plot(group["N"], group["loss"], linestyle="none", marker=MARKERS[int(tokens)], markersize=4.5,
                color=look["color"], markerfacecolor=style.BACKGROUND)
        ax.axhline(2 * (tokens - 1), color=look["color"], linewidth=1.0, linestyle=(0, (1, 1.5)))
        ax.annotate(f"$M = {tokens}$", (float(group["N"].max()), float(group["infinite"].iloc[-1])), xytext=(0, -4),
                    textcoords="offset points", fontsize=9, ha="right", va="top", color=style.INK)
    ax.axvspan(*reachable, color=style.INK, alpha=0.07, linewidth=0)
    ax.set(xscale="log", yscale="log", xlabel="training samples $N$", ylabel=f"transition at {RATIO_AXIS}")
    ticks = [2, 3, 4, 6, 10, 14, 20, 30]
    ax.set_yticks(ticks, [str(tick) for tick in ticks])
    ax.set_yticks([], minor=True)
    return fig
