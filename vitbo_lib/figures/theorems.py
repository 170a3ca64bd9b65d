"""Figures of Theorems 4.1 and 4.2: the way of a training, its length, and where benign turns into harmful."""

import math

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from vitbo_lib.figures import style
from vitbo_lib.regime import over_seeds, predicted_benign_loss

ROWS = (("loss", ("train_loss", "test_loss"), ("train", "test"), ("training", "test")),
        ("attention", ("attention_signal", "attention_xi2"), ("signal", "xi2"), ("on signal", r"on $\xi_2$")),
        ("value $y V$", ("v_signal", "v_xi2"), ("signal", "xi2"), ("of signal", r"of $\xi_2$")))
RATIO_AXIS = r"$N \cdot \mathrm{SNR}^2 \,/\, C_p^2$"
REACHED = 1.0


def _note(ax: Axes, text: str, at: tuple[float, float], **options) -> None:
    ax.annotate(text, at, textcoords="offset points", fontsize=9, **({"xytext": (3, 3)} | options))


def _guessing(ax: Axes, x: float) -> None:
    """The loss of a constant guess."""
    ax.axhline(math.log(2), color=style.INK, linewidth=0.8, linestyle=":")
    _note(ax, "guessing: log 2", (x, math.log(2)))


def trajectories(regime: pd.DataFrame, lab: pd.DataFrame) -> Figure:
    """Losses, attention and values over time in units of the predicted T: the regime left, the laboratory right.

    Tables of `vitbo_lib.regime.regime_trajectory` and `lab_trajectory`; one thin line a seed.
    """
    fig, axes = style.subplots(3, 2, height=6.6, sharex="col", sharey="row")
    for column, (table, title) in enumerate(((regime, "theorem's regime"), (lab, "Appendix A"))):
        for ax, (name, columns, roles, labels) in zip(axes[:, column], ROWS):
            for value, role, label in zip(columns, roles, labels):
                for _, run in table[table["progress"] > 0].groupby("seed"):
                    (line,) = ax.plot(run["progress"], run[value], **style.look(role), linewidth=1.2, alpha=0.75)
                line.set_label(label)
            ax.axvline(REACHED, color=style.INK, linewidth=0.8, linestyle=":")
            ax.set(xscale="log")
            if column == 0:
                ax.set_ylabel(name)
                ax.legend(loc="center left" if name == "loss" else "upper left")
        axes[0, column].set_title(title, fontsize=style.FONT_SIZE, loc="left")
        _guessing(axes[0, column], table.loc[table["progress"] > 0, "progress"].min())
    axes[0, 0].set_ylim(0, 0.85)
    axes[1, 0].set_ylim(-0.04, 1.04)
    fig.supxlabel("time / predicted $T$", fontsize=style.FONT_SIZE)
    return fig


def training_times(rows: pd.DataFrame) -> Figure:
    """Measured against predicted T of all runs well inside a phase; below, their ratio across the transition.

    `rows`: the stored table (`vitbo_lib.regime.load`); the prediction below is that of the side that is faster.
    """
    fig, (above, below) = style.subplots(2, 1, height=6.0)
    for side, role, label, inside in (("benign", "signal", "Theorem 4.1: through the signal", rows["ratio"] >= 4),
                                      ("harmful", "xi2", r"Theorem 4.2: through $\xi_2$", rows["ratio"] <= 0.4)):
        runs = rows[inside]
        above.plot(runs[f"predicted_{side}"], runs["time"], linestyle="none", marker=style.MARKERS[role],
                   markersize=4.5, alpha=0.5, markeredgewidth=0, color=style.look(role)["color"], label=label)
    above.axline((1, 1), slope=1, color=style.INK, linewidth=0.8)
    above.set(xscale="log", yscale="log", xlabel=r"predicted time $\eta T$", ylabel=r"measured time $\eta T$")
    above.legend(loc="upper left")
    one = rows[(rows["N"] == 64) & (rows["epsilon"] == 0.01) & (rows["w_o_norm"] == 1) & (rows["ratio"] < 25)]
    below.plot(one["ratio"], one["time"] / one[["predicted_benign", "predicted_harmful"]].min(axis=1), linestyle="none",
               marker=style.MARKERS["noise"], markersize=4, alpha=0.5, markeredgewidth=0, color=style.NOISE)
    below.axhline(1, color=style.INK, linewidth=0.8)
    below.axvline(2, **style.look("ours"), linewidth=1.2)
    below.set(xscale="log", ylim=(0, None), xlabel=RATIO_AXIS, ylabel="measured / predicted")
    return fig


def loss_over_epsilon(rows: pd.DataFrame, tokens: int = 2) -> Figure:
    """Test loss at the end over the target training loss, both sides; hollow where not all ten items are met.

    `rows`: `side`, `epsilon`, `test_loss`, `items` (met, of ten), one row a run (`vitbo_lib.regime.epsilon_runs`).
    """
    fig, ax = style.subplots(height=3.9)
    for side, role, label in (("harmful", "xi2", "test loss, harmful"), ("benign", "signal", "test loss, benign")):
        runs = rows[rows["side"] == side]
        found = over_seeds(runs, "epsilon", "test_loss")
        ax.plot(found["epsilon"], found["mean"], **style.look(role), linewidth=1.2, label=label)
        met = found["epsilon"].map(runs.groupby("epsilon")["items"].min()) == 10
        for full, part in found.groupby(met):
            colour = style.look(role)["color"]
            ax.errorbar(part["epsilon"], part["mean"], [part["mean"] - part["low"], part["high"] - part["mean"]],
                        linestyle="none", color=colour, marker=style.MARKERS[role], markersize=5.5, capsize=2,
                        markerfacecolor=colour if full else style.BACKGROUND)
    at = np.array([rows["epsilon"].min(), rows["epsilon"].max()])
    ax.plot(at, at, **style.look("train"), linewidth=1.2, label="training loss")
    ax.plot(at, 3 * at ** (1 / (2 * tokens**2)), **style.look("paper"), linewidth=1.2,
            label="bound of D.10 ($C_{20}$ = 1)")
    ax.plot(at, [predicted_benign_loss(epsilon, tokens) for epsilon in at], **style.look("ours"), linewidth=3.5,
            alpha=0.5, label=r"ours: $\epsilon^{(2M-1)/M^2}$")
    ax.set(xscale="log", yscale="log", xlabel=r"target training loss $\epsilon$", ylabel="loss")
    ax.invert_xaxis()
    ax.legend(loc="lower left")
    return fig


def transition(rows: pd.DataFrame, boundary: float = 2.0) -> Figure:
    """Above, test loss and test error over N SNR^2 / C_p^2; below, attention on the signal: mean, interval, every run.

    `rows`: runs that differ by SNR and seed (`vitbo_lib.regime.transition`). The line marks equal initial rates.
    """
    rows = rows[rows["ratio"] < 25]
    fig, (above, below) = style.subplots(2, 1, height=6.0)
    for ax, value, role, label in ((above, "test_loss", "test", "test loss"),
                                   (above, "test_error", "noise", "test error"),
                                   (below, "attention_signal", "signal", "attention on signal")):
        found = over_seeds(rows, "ratio", value)
        ax.plot(found["ratio"], found["mean"], **style.look(role, marker=True), markersize=4, label=label)
        ax.fill_between(found["ratio"], found["low"], found["high"], color=style.look(role)["color"], alpha=0.2,
                        linewidth=0)
        ax.plot(rows["ratio"], rows[value], linestyle="none", marker=style.MARKERS[role], markersize=2.5, alpha=0.35,
                markeredgewidth=0, color=style.look(role)["color"])
    for ax in (above, below):
        ax.axvline(boundary, **style.look("ours"), linewidth=1.2)
        ax.set(xscale="log", xlabel=RATIO_AXIS)
    _guessing(above, 3.0)
    above.legend(loc="lower left")
    above.set(ylim=(-0.02, 0.8), ylabel="test loss, test error")
    below.set(ylim=(-0.04, 1.04), ylabel="attention on signal\n(training points)")
    return fig
