"""Figures of the chapter on vectorized queries and keys."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.colors import SymLogNorm
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator

from vitbo_lib.figures import style

LINEAR = 0.02
KINDS = {"all trained": "train", "$W_Q$, $W_K$ frozen": "paper", "$W_V$ frozen": "test"}
PANELS = (("train_loss", "training loss"), ("attention_signal", "attention on signal"), ("v_signal", "$y V$ of signal"))
SIZES = {"alpha_{+,+}": ("signal", "o", 1, r"$\alpha_{+,+}$"), "alpha_{n,i,+}": ("train", "v", 1, r"$\alpha_{n,i,+}$"),
         "alpha_{n,+,i}": ("xi2", "s", -1, r"$-\alpha_{n,+,i}$"),
         "alpha_{n,i,n,j}": ("test", "D", -1, r"$-\alpha_{n,i,n,j}$"),
         "other samples": ("noise", "^", 1, r"$|\alpha_{n,i,n',j}|$, $n' \neq n$")}


def matrices(alpha: np.ndarray, beta: np.ndarray, names: Sequence[str], samples: int) -> Figure:
    """alpha and beta of one step (K K each) as images, relative to the largest entry, tokens in their order.

    Colours are linear up to `LINEAR` of it and logarithmic beyond; negative entries beyond it have a minus. `names` are
    the tokens' (TeX, without dollars); lines separate the signals and the `samples`.
    """
    fig, axes = style.subplots(2, 1, height=9.2)
    at = np.arange(len(names))
    labels = [f"${name}$" for name in names]
    edges = 1.5 + (len(names) - 2) // samples * np.arange(samples)
    for ax, matrix, moved, by in zip(axes, (alpha, beta), ("query", "key"), ("key", "query")):
        largest = np.abs(matrix).max()
        name = r"$\alpha$" if by == "key" else r"$\beta$"
        style.heat_map(ax, at, at, matrix / largest, label=f"{name} / largest", cmap=style.DIVERGING,
                       norm=SymLogNorm(LINEAR, vmin=-1, vmax=1))
        for row, column in np.argwhere(matrix < -LINEAR * largest):  # red and blue are one grey
            ax.annotate("−", (column, row), ha="center", va="center", color=style.BACKGROUND, fontweight="bold")
        for edge in edges:
            ax.axhline(edge, color=style.INK, linewidth=0.5)
            ax.axvline(edge, color=style.INK, linewidth=0.5)
        ax.set(xlabel=f"by the {by} of", ylabel=f"{moved} that moves", aspect="equal")
        ax.set_xticks(at, labels, rotation=90)
        ax.set_yticks(at, labels)
        ax.invert_yaxis()
    return fig


def sizes_on_the_way(sizes: pd.DataFrame) -> Figure:
    """Mean coefficients of a step (per unit of eta) over the training loss; a line ends where its sign turns.

    Table of `vitbo_lib.vectorized.on_the_way` ("sizes"), mean over runs.
    """
    fig, ax = style.subplots(height=4.2)
    means = sizes.groupby("progress").mean(numeric_only=True)
    means = means[means.index > 0]
    for column, (role, marker, sign, label) in SIZES.items():
        value = sign * means[column]
        ax.plot(means.index, value.where(value > 0), **style.look(role), marker=marker, label=label)
    ax.set(xscale="log", yscale="log", xlabel="gradient descent step $t$", ylabel=r"mean coefficient / $\eta$",
           ylim=(1e-9, 3))
    ax.legend(loc="lower left")
    return fig


def frozen(table: pd.DataFrame) -> Figure:
    """Loss, attention and the signal's value with all weights trained, W_Q and W_K frozen, W_V frozen.

    Table of `vitbo_lib.vectorized.freezing`; one thin line a seed.
    """
    fig, axes = style.subplots(3, 1, height=6.6, sharex=True)
    for ax, (column, label) in zip(axes, PANELS):
        for kind, role in KINDS.items():
            for _, run in table[(table["kind"] == kind) & (table["t"] > 0)].groupby("seed"):
                (line,) = ax.plot(run["t"], run[column], **style.look(role), alpha=0.8)
            line.set_label(kind)
        ax.set(xscale="log", ylabel=label)
    axes[0].legend(loc="lower left")
    axes[1].set_ylim(-0.04, 1.04)
    axes[-1].set_xlabel("gradient descent step $t$")
    return fig


def lemma_5_1(lab: dict[str, pd.DataFrame], regime: dict[str, pd.DataFrame]) -> Figure:
    """The largest |Delta rho| over its bound, by token, as training goes on: benign above, harmful below.

    Tables of `vitbo_lib.vectorized.on_the_way` ("lemma") by side: Appendix A, and the theorems' regime.
    """
    fig, axes = style.subplots(2, 1, height=6.2, sharex=True)
    for ax, side in zip(axes, lab):
        for table, words, marker in ((lab[side], "App. A", True), (regime[side], "regime", False)):
            for strong, role, token in ((True, "xi2", r"$\xi_2$"), (False, "noise", r"$\xi_i$, $i \geq 3$")):
                rows = table[(table["i"] == 2) == strong]
                worst = rows.groupby("progress").agg(loss=("loss", "mean"), ratio=("ratio", "max"))
                looks = style.look(role, marker=marker) | ({} if marker else {"linewidth": 1.0})
                ax.plot(worst["loss"], worst["ratio"], **looks, label=f"{token}, {words}")
        ax.axhline(1, color=style.INK, linewidth=0.8)
        ax.set(xscale="log", yscale="log", ylabel=r"largest $|\Delta\rho|$ / bound", ylim=(2e-3, 1000))
        ax.set_title(side, fontsize=style.FONT_SIZE, loc="left")
    ticks = (0.6, 0.3, 0.1, 0.03, 0.01)
    axes[0].xaxis.set_major_locator(FixedLocator(ticks))
    axes[0].xaxis.set_minor_locator(NullLocator())
    axes[1].set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes[0].invert_xaxis()
    axes[0].set_ylim(2e-3, 100)
    axes[0].annotate("Lemma 5.1 fails above", (0.01, 1), xytext=(0, 4), textcoords="offset points", fontsize=9,
                     ha="right")
    axes[1].legend(loc="upper left", ncols=2, fontsize=style.FONT_SIZE - 1.5)
    axes[1].set_xlabel("training loss (time runs to the right)")
    return fig


def lower_order(by_d_h: pd.DataFrame, by_d: pd.DataFrame) -> Figure:
    """Lower order over leading order: other terms of eq. (16) against d_h; other samples in alpha_{n,i,+} against d.

    Tables of `vitbo_lib.vectorized.leading_order`; a dot a draw, lines of slope -1/2 through the middle.
    """
    fig, axes = style.subplots(1, 2, height=3.0)
    for ax, table, column, role, label, axis in (
            (axes[0], by_d_h, "first", "signal", "other terms / leading", "$d_h$"),
            (axes[1], by_d, "cross", "xi2", "other samples / own", "$d$")):
        ax.plot(table["value"], table[column], linestyle="none", marker=style.MARKERS[role], markersize=4,
                color=style.look(role)["color"], markeredgewidth=0, alpha=0.7)
        middle = np.exp(np.log(table[[column, "value"]]).mean())
        ends = np.array([table["value"].min(), table["value"].max()])
        ax.plot(ends, middle[column] * (ends / middle["value"]) ** -0.5, color=style.INK, linewidth=0.8)
        ax.set(xscale="log", yscale="log", xlabel=axis, ylabel=label)
    return fig
