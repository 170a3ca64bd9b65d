"""Figures of the three stages: the order of events, V linear then logarithmic, gaps of logits, attention over d_h."""

import math

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from vitbo_lib.figures import style

MARKS = {"dominance": ("test", "D", "values: $3M$ times the others"), "attention": ("signal", "o", "attention 0.9"),
         "derivative": ("xi2", "s", "$-\\ell' < 0.4$"), "end": ("train", "^", r"loss $\epsilon$")}
CASES = {"regime": "theorem's regime", "App. A": "Appendix A, $w_O$ divided"}  # of `monotone`
FORMULAS = {"t_1": "$T_1$", "t_2": "$T_2$", "t_3": "$T_3$"}
GAPS = {"benign": (("lambda_signal", "signal", r"$\Lambda$, signal query"),
                   ("lambda_noise", "noise", r"$\Lambda$, noise queries")),
        "harmful": (("psi_signal", "signal", r"$\Psi$, signal query"),
                    ("psi_noise", "noise", r"$\Psi$, noise queries"))}


def _spread(ax: Axes, at: float, times: pd.Series, role: str, marker: str) -> None:
    """Median of the seeds with a line from the first to the last."""
    times = times.dropna()
    if len(times):
        ax.plot([times.min(), times.max()], [at, at], color=style.LIGHT[role], linewidth=1.5)
        ax.plot(times.median(), at, linestyle="none", marker=marker, color=style.LIGHT[role], markersize=7)


def _ticks(ax: Axes, row: float, ticks: dict[str, float]) -> None:
    """Ticks below a line with their labels, which step aside where two ticks are close."""
    for label, x in ticks.items():
        ax.plot([x, x], [row + 0.1, row + 0.28], color=style.PAPER, linewidth=1.6)
        near = [other for other in ticks.values() if other != x and abs(math.log(other / x)) < math.log(2)]
        side = "center" if not near else "right" if near[0] > x else "left"
        ax.annotate(label, (x, row + 0.28), textcoords="offset points", ha=side, fontsize=8.5, color=style.PAPER,
                    xytext=({"center": 0, "right": 3, "left": -3}[side], -11))


def timeline(events: pd.DataFrame, formulas: dict[str, dict[str, float]]) -> Figure:
    """When each event comes, one line a setting, in units of the time to epsilon.

    `events`: `setting` and the four events, one row a run; `formulas`: for each setting the paper's T_1, T_2, T_3 with
    their constants at 1 (ticks below the line; those outside the axis are left out).
    """
    names = list(events["setting"].unique())
    fig, ax = style.subplots(height=0.8 * len(names) + 1.4)
    low, high = 3e-6, 3.0
    for row, name in enumerate(names):
        runs = events[events["setting"] == name]
        end = runs["end"].median()
        ax.axhline(row, color=style.INK, linewidth=0.5, alpha=0.4)
        for event, (role, marker, _) in MARKS.items():
            _spread(ax, row, runs[event] / end, role, marker)
        ticks = {label: formulas.get(name, {}).get(key, math.nan) / end for key, label in FORMULAS.items()}
        _ticks(ax, row, {label: x for label, x in ticks.items() if low < x < high})
        ax.annotate(name, (low, row), textcoords="offset points", xytext=(2, 8), fontsize=9)
    for role, marker, label in MARKS.values():
        ax.plot([], [], linestyle="none", marker=marker, color=style.LIGHT[role], label=label)
    ax.plot([], [], color=style.PAPER, linewidth=1.6, label="formula, constant 1")
    ax.set(xscale="log", xlim=(low, high), ylim=(len(names) - 0.45, -0.4), yticks=[],
           xlabel=r"time / time to $\epsilon$")
    ax.spines["left"].set_visible(False)
    ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncol=3, columnspacing=1.0, handletextpad=0.3,
              handlelength=1.2, fontsize=8.5)
    return fig


def stages_over_hidden(rows: pd.DataFrame, formula: pd.DataFrame, slope: float = -0.25) -> Figure:
    """Event times over d_h: every run, with a guide of the slope that the lemmas give to T_1.

    `rows`: runs that differ by `d_h` and seed (`stage_scaling.along`); `formula`: columns `d_h`, `t_1`, `t_2` (one that
    is infinite is not drawn).
    """
    fig, ax = style.subplots(height=4.2)
    for event, (role, marker, label) in MARKS.items():
        means = rows.groupby("d_h")[event].median()
        look = style.look(role) | {"linewidth": 1.3, "markersize": 4.5}
        ax.plot(means.index, means, **look)
        ax.plot([], [], **look, marker=marker, label=label)
        ax.plot(rows["d_h"], rows[event], **look | {"linestyle": "none"}, marker=marker, alpha=0.6, markeredgewidth=0)
    for name, label in (("t_1", "$T_1$ of the paper"), ("t_2", "$T_2$, constant 1")):
        if np.isfinite(formula[name]).all():
            ax.plot(formula["d_h"], formula[name], color=style.PAPER, linewidth=1.3, label=label,
                    linestyle="-" if name == "t_1" else style.LINESTYLES["paper"])
    last = rows[rows["d_h"] == rows["d_h"].max()]["dominance"].median()
    at = np.array([rows["d_h"].max() / 1e6, rows["d_h"].max()], dtype=float)
    ax.plot(at, 0.5 * last * (at / at[-1]) ** slope, **style.look("ours"), linewidth=3, alpha=0.6,
            label="slope $-1/4$")
    ax.set(xscale="log", yscale="log", xlabel="$d_h$", ylabel=r"time $\eta t$")
    ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncol=3, columnspacing=1.0, fontsize=8.5)
    return fig


def values(rows: pd.DataFrame, side: str, events: dict[str, float], slopes: dict[str, float]) -> Figure:
    """V of the winner over time: above, stage II on a linear axis; below, e^V to the end; with the predicted lines.

    `rows`: one run of `stage_events`; `slopes`: `linear`, the fitted slope of V in stage II, `low` and `high`, the
    envelopes of the proof, and `exponential`, the predicted slope of e^V.
    """
    columns = {"benign": (("v_plus", r"$\mu_+^\top W_V w_O$"), ("v_minus", r"$-\mu_-^\top W_V w_O$")),
               "harmful": (("v_xi2", r"mean $y\,\xi_2^\top W_V w_O$"),)}[side]
    roles = ("signal", "noise") if side == "benign" else ("xi2",)
    fig, (above, below) = style.subplots(2, 1, height=6.2)
    stage = rows[rows["time"] <= events["derivative"]]
    for (name, label), role in zip(columns, roles):
        above.plot(stage["time"], stage[name], **style.look(role), label=label)
        grown = np.exp(rows[name]) if side == "benign" else rows["exp_v_xi2"]
        below.plot(rows["time"], grown, **style.look(role), label=f"exp of {label}" if side == "benign" else
                   r"mean $e^{y\,\xi_2^\top W_V w_O}$")
    t = np.array([events["dominance"], events["derivative"]])
    start = float(np.interp(t[0], rows["time"], rows[columns[0][0]]))
    above.plot(t, start + slopes["linear"] * (t - t[0]), **style.look("ours"), linewidth=3, alpha=0.5,
               label="fitted line")
    above.fill_between(t, start + slopes["low"] * (t - t[0]), start + slopes["high"] * (t - t[0]), color=style.PAPER,
                       alpha=0.15, linewidth=0, label="between the proof's lines")
    above.axvline(events["dominance"], color=style.INK, linewidth=0.8, linestyle=":")
    above.set(xlabel=r"time $\eta t$, to the end of stage II", ylabel="$V$",
              ylim=(stage[columns[0][0]].min() - 0.02, 1.8 * stage[columns[0][0]].max()))
    end = rows["time"].max()
    late = np.array([events["derivative"], end])
    base = float(np.exp(rows["v_plus"]).iloc[-1] if side == "benign" else rows["exp_v_xi2"].iloc[-1])
    below.plot(late, base + slopes["exponential"] * (late - end), **style.look("ours"), linewidth=3, alpha=0.5,
               label="predicted slope")
    below.set(xlabel=r"time $\eta t$, to the end", ylabel="$e^V$")
    for ax in (above, below):
        ax.legend(loc="upper left", fontsize=8.5, frameon=True, facecolor=style.BACKGROUND, edgecolor="none",
                  framealpha=0.85)
    return fig


def gaps(rows: pd.DataFrame, side: str, events: dict[str, float]) -> Figure:
    """Gaps of logits over time: above, the gaps with log(1 + c t^2); below, e^gap - 1 on logarithmic axes.

    c is set where the time is half of the end of stage II; every seed of `rows` is a thin line.
    """
    fig, (above, below) = style.subplots(2, 1, height=6.4, sharex=True)
    until = events["derivative"] / 2
    for name, role, label in GAPS[side]:
        coefficient = []
        for _, run in rows.groupby("seed"):
            run = run[run["time"] > 0]
            grown = np.expm1(run[name] - run[name].iloc[0])
            (line,) = above.plot(run["time"], run[name], **style.look(role), linewidth=1.1)
            up = run["time"][grown > 1e-3]
            below.plot(up, grown[grown > 1e-3], **style.look(role), linewidth=1.1)
            coefficient.append(float(np.interp(until, run["time"], grown)) / until**2)
        line.set_label(label)
        t = np.geomspace(rows.loc[rows["time"] > 0, "time"].min() * 30, rows["time"].max(), 200)
        c = float(np.median(coefficient))
        above.plot(t, np.log1p(c * t**2), **style.look("ours"), linewidth=3.2, alpha=0.4,
                   label=r"$\log(1 + c\,t^2)$" if name == GAPS[side][0][0] else None)
        shown = t[c * t**2 > 1e-3]
        below.plot(shown, c * shown**2, **style.look("ours"), linewidth=3.2, alpha=0.4)
    for ax in (above, below):
        for event in ("dominance", "derivative"):
            ax.axvline(events[event], color=style.INK, linewidth=0.8, linestyle=":")
    above.set(xscale="log", ylabel="gap of logits", xlim=(t.min(), t.max()))
    below.set(yscale="log", ylabel=r"$e^{\mathrm{gap}} - 1$", xlabel=r"time $\eta t$")
    above.legend(loc="upper left", fontsize=8.5)
    return fig


def leaks(rows: pd.DataFrame) -> Figure:
    """Attention off the winner when stage II ends, over d_h, for the signal's query and for noise queries."""
    fig, ax = style.subplots(height=3.9)
    for name, role, label in (("leak_signal", "signal", "signal query"), ("leak_noise", "noise", "noise queries")):
        means = rows.groupby("d_h")[name].median()
        look = style.look(role, marker=True) | {"linewidth": 1.2, "markersize": 4.5}
        ax.plot(means.index, means, **look | {"marker": "none"})
        ax.plot([], [], **look, label=label)
        ax.plot(rows["d_h"], rows[name], **look | {"linestyle": "none"}, alpha=0.6, markeredgewidth=0)
    at = np.array([rows["d_h"].max() / 1e6, rows["d_h"].max()], dtype=float)
    level = rows[rows["d_h"] == rows["d_h"].max()][["leak_signal", "leak_noise"]].median().min()
    ax.plot(at, 0.4 * level * (at / at[-1]) ** -0.5, **style.look("ours"), linewidth=3, alpha=0.6, label="slope $-1/2$")
    ax.set(xscale="log", yscale="log", xlabel="$d_h$", ylabel="attention off the winner\nat the end of stage II")
    ax.legend(loc="lower left")
    return fig


def appendix_a(rows: pd.DataFrame) -> Figure:
    """Mean logits, mean attention and mean values over descent steps, benign left, harmful right; 2-sigma bands.

    `rows`: `stage_events` of one reading of Appendix A, both sides; time = eta t with eta = 0.1.
    """
    panels = ((("logit_signal", "logit_xi2"), "mean logit"), (("attention_signal", "attention_xi2"), "attention"),
              (("v_signal", "v_xi2"), "$yV$"))
    fig, axes = style.subplots(3, 2, height=6.4, sharex="col")
    for column, side in enumerate(("benign", "harmful")):
        for ax, (names, title) in zip(axes[:, column], panels):
            for name, role, label in zip(names, ("signal", "xi2"), ("signal", r"$\xi_2$")):
                steps, mean, deviation = _band(rows[rows["side"] == side], name)
                ax.plot(steps, mean, **style.look(role), label=label)
                ax.fill_between(steps, mean - 2 * deviation, mean + 2 * deviation, color=style.LIGHT[role], alpha=0.2,
                                linewidth=0)
            ax.set(xscale="log")
            if column == 0:
                ax.set_ylabel(title)
        axes[0, column].set_title(side, fontsize=style.FONT_SIZE, loc="left")
        axes[2, column].set_xlabel("descent step $t$")
    axes[0, 0].legend(loc="upper left")
    return fig


def _band(rows: pd.DataFrame, name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean and standard deviation over seeds on a common grid of steps, up to the first seed's end."""
    runs = [run.sort_values("time") for _, run in rows[rows["time"] > 0].groupby("seed")]
    grid = np.geomspace(max(run["time"].min() for run in runs), min(run["time"].max() for run in runs), 60)
    found = np.array([np.interp(np.log(grid), np.log(run["time"]), run[name]) for run in runs])
    deviation = found.std(axis=0, ddof=1) if len(runs) > 1 else np.zeros(len(grid))
    return grid / 0.1, found.mean(axis=0), deviation


def monotone(rows: pd.DataFrame, labels: dict[str, str]) -> Figure:
    """Share of logits that move as the proof says, over time in units of the end: mean over seeds, one panel a case."""
    fig, axes = style.subplots(len(labels), 1, height=2.1 * len(labels) + 0.6, sharex=True, squeeze=False)
    for ax, (case, label) in zip(axes[:, 0], labels.items()):
        runs = rows[(rows["case"] == case) & (rows["time"] > 0)]
        for name, role, text in (("signal_up", "signal", "signal logits that rise"),
                                 ("noise_down", "noise", "noise logits that fall")):
            for _, run in runs.groupby("seed"):
                (line,) = ax.plot(run["time"] / run["time"].max(), run[name], **style.look(role), linewidth=1.0,
                                  alpha=0.8)
            line.set_label(text)
        ax.set(xscale="log", ylim=(-0.03, 1.06), ylabel="share")
        ax.set_title(label, fontsize=style.FONT_SIZE, loc="left")
    axes[-1, 0].set_xlabel(r"time / time to $\epsilon$")
    axes[0, 0].legend(loc="lower right")
    return fig
