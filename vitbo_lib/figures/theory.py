"""Figures of the introduction and of Condition 4.1."""

import math

import pandas as pd
from matplotlib.figure import Figure

from vitbo_lib.figures import style
from vitbo_lib.theory import Item

NAMES = {1: "$d_h$", 2: "$d$", 3: "$N$", 4: "$M$", 5: r"$\Vert w_O\Vert$", 6: r"$\eta$", 7: r"$\sigma_V$",
         8: r"$\sigma_h^2$", 9: r"$\epsilon$", 10: "$C_p$"}


def two_kinds_of_overfitting(table: pd.DataFrame) -> Figure:
    """Training and test loss over the steps, one panel a phase, one line a run.

    `table` is tidy: `phase` ("benign" or "harmful"), `seed`, `t`, `train_loss`, `test_loss`.
    """
    fig, axes = style.subplots(2, 1, height=5.2, sharex=True, sharey=True)
    for ax, phase in zip(axes, ("benign", "harmful")):
        runs = table[table["phase"] == phase]
        for role in ("train", "test"):
            for _, run in runs.groupby("seed"):
                lines = ax.plot(run["t"] + 1, run[f"{role}_loss"], **style.look(role), linewidth=1.3, alpha=0.8)
            lines[0].set_label({"train": "training loss", "test": "test loss"}[role])
        ax.axhline(math.log(2), color=style.INK, linewidth=0.8, linestyle=":")
        ax.annotate("guessing: log 2", (1, math.log(2)), xytext=(0, 3), textcoords="offset points", fontsize=9.5)
        ax.annotate(phase, (0.02, 0.06), xycoords="axes fraction", fontweight="bold")
        ax.set(xscale="log", ylabel="loss", ylim=(0, 0.8))
    axes[0].legend(loc="center left")
    axes[1].set(xlabel="gradient descent step $t$ + 1")
    return fig


def condition_margins(experiments: dict[str, tuple[Item, ...]]) -> Figure:
    """Orders of magnitude by which each item of Condition 4.1 is met (right of 0) or missed (left of it).

    `experiments` maps a name to the items of `vitbo_lib.theory.condition_4_1`; at most three.
    """
    fig, ax = style.subplots(height=4.6)
    for shift, role, (name, items) in zip((-0.22, 0, 0.22), ("signal", "xi2", "noise"), experiments.items()):
        shown = [item for item in items if item.margin is not None]
        ax.plot([item.margin for item in shown], [item.number + shift for item in shown], linestyle="none",
                color=style.look(role)["color"], marker=style.MARKERS[role], markersize=6, label=name)
    ax.axvline(0, color=style.INK, linewidth=0.8)
    ax.set(yticks=list(NAMES), yticklabels=[f"{name}  ({number})" for number, name in NAMES.items()], ylim=(10.6, 0.4),
           xlabel="missed   ←   orders of magnitude   →   met")
    ax.grid(axis="x")
    fig.legend(loc="outside upper center", ncols=1)
    return fig
