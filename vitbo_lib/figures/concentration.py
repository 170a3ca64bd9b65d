"""Figures of the concentration lemmas: how often their bounds fail."""

from collections.abc import Mapping

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from vitbo_lib.figures import style

ROLES = {"App. A": "paper", "regime": "ours"}
NAMES = {"App. A": "N = 16, M = 4", "regime": "N = 64, M = 2"}
LOWEST = 8e-4


def _delta(ax: Axes, delta: float, x: float) -> None:
    ax.axhline(delta, color=style.INK, linewidth=0.8, linestyle=":")
    ax.annotate(rf"$\delta$ = {delta:g}", (x, delta), textcoords="offset points", xytext=(3, 3), fontsize=9)


def _shares(ax: Axes, x: str, rows: pd.DataFrame, role: str, label: str) -> None:
    """Shares with intervals; where no draw failed, a hollow triangle at the interval's upper end."""
    look = style.look(role)
    seen, none = rows[rows["mean"] > 0], rows[rows["mean"] == 0]
    ax.errorbar(seen[x], seen["mean"], [seen["mean"] - seen["low"].clip(lower=LOWEST), seen["high"] - seen["mean"]],
                linestyle="none", marker=style.MARKERS[role], color=look["color"], capsize=2, label=label)
    ax.plot(none[x], none["high"], linestyle="none", marker="v", markerfacecolor=style.BACKGROUND,
            color=look["color"])


def failure_frequencies(tables: Mapping[str, pd.DataFrame], delta: float) -> Figure:
    """Share of draws in which some length is off by more than half, over d_h (Lemma C.3) and d (Lemma C.4).

    `tables`: {"C.3": ..., "C.4": ...} of `vitbo_lib.concentration.frequencies`. Lines: union over exact tails.
    """
    fig, axes = style.subplots(2, 1, height=5.8, sharex=True, sharey=True)
    for ax, (lemma, axis) in zip(axes, (("C.3", "$d_h$, queries and keys (Lemma C.3)"),
                                        ("C.4", "$d$, noise tokens (Lemma C.4)"))):
        table = tables[lemma]
        for place, rows in table[table["part"] == "norms"].groupby("place"):
            _shares(ax, "dimension", rows, ROLES[place], NAMES[place])
            ax.plot(rows["dimension"], rows["tail"], **style.look(ROLES[place]), linewidth=1.2)
        _delta(ax, delta, table["dimension"].min())
        ax.set(xscale="log", yscale="log", ylim=(LOWEST, 1.4), xlabel=axis, ylabel="share of draws\nthat fail")
        ticks = sorted(table["dimension"].unique())[::2]
        ax.set_xticks(ticks, [f"{tick:g}" for tick in ticks], minor=False)
        ax.minorticks_off()
        ax.tick_params(labelbottom=True)
    axes[0].legend(loc="upper right")
    return fig


def value_constants(table: pd.DataFrame, least: Mapping[str, float], delta: float) -> Figure:
    """Share of draws that break Lemma C.2 over the constant c in sigma_V = c x bound of item (7).

    `table` of `vitbo_lib.concentration.value_frequencies`; `least`: the c that exact tails give, by place.
    """
    fig, ax = style.subplots(height=3.6)
    for place, rows in table.groupby("place"):
        _shares(ax, "constant", rows, ROLES[place], NAMES[place])
        ax.axvline(least[place], **style.look(ROLES[place]), linewidth=1.2)
    _delta(ax, delta, table["constant"].max() / 2.5)
    ax.set(xscale="log", yscale="log", ylim=(LOWEST, 1.4), ylabel="share of draws that fail",
           xlabel=r"$\sigma_V$ / bound of item (7)")
    ax.legend(loc="lower right")
    return fig
