"""Figures of fresh points after training, and of noisy copies of samples."""

import math
from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from vitbo_lib.figures import style
from vitbo_lib.intervals import mean_interval

NAMES = {"N = 64": "N = 64, M = 2", "N = 16": "N = 16, M = 4", "App. A": "App. A"}


def _label(case: str) -> str:
    side, size = case.split(", ", 1)
    return f"{side}\n{NAMES[size]}"


def _sorted(rows: pd.DataFrame) -> list[str]:
    order = [f"{side}, {size}" for side in ("benign", "harmful") for size in NAMES]
    return [case for case in order if (rows["case"] == case).any()]


def margins(rows: pd.DataFrame, bounds: Mapping[str, float], most: int = 400) -> Figure:
    """Every fresh point's y f, one line a case: a bar from 5 to 95 %, points jittered, Lemma 5.5's bound as a tick.

    `rows`: `case`, `margin` (`vitbo_lib.population.load`); `bounds`: Lemma 5.5 by case. The dotted line is E.6's 1/2.
    """
    fig, ax = style.subplots(height=4.2)
    cases = _sorted(rows)
    for k, case in enumerate(cases[::-1]):
        values = rows.loc[rows["case"] == case, "margin"].to_numpy()
        role = "signal" if case.startswith("benign") else "xi2"
        shown = values[:: max(1, len(values) // most)]
        jitter = (np.arange(len(shown)) * 0.618034 % 1 - 0.5) * 0.5
        ax.plot(shown, k + jitter, linestyle="none", marker=style.MARKERS[role], markersize=2, alpha=0.35,
                markeredgewidth=0, color=style.look(role)["color"])
        ax.plot(np.quantile(values, [0.05, 0.95]), [k, k], color=style.look(role)["color"], linewidth=4,
                solid_capstyle="butt")
        ax.plot([bounds[case]] * 2, [k - 0.3, k + 0.3], color=style.PAPER, linewidth=2.4,
                label="Lemma 5.5, C = 1" if k == 0 else None)
    ax.axvline(0, color=style.INK, linewidth=0.8)
    ax.axvline(0.5, color=style.INK, linewidth=0.8, linestyle=":", label="Lemma E.6: 1/2")
    ax.set_yticks(range(len(cases)), [_label(case) for case in cases[::-1]])
    ax.set(xlabel="margin $y f$ of a fresh point")
    ax.legend(loc="lower right")
    return fig


def parts(rows: pd.DataFrame) -> Figure:
    """Mean margin of each case: the part of the query mu and that of the noise queries, as bars side by side.

    `rows`: `case`, `margin`, `through_mu`. The mark is the largest that the query mu could give, V / M.
    """
    fig, ax = style.subplots(height=3.6)
    cases = _sorted(rows)
    means = rows.assign(through_noise=rows["margin"] - rows["through_mu"],
                        most=rows["signal_value"] / rows["M"]).groupby("case").mean(numeric_only=True)
    for k, case in enumerate(cases[::-1]):
        row = means.loc[case]
        for offset, value, role, label in ((0.17, row["through_mu"], "signal", r"through the query $\mu$"),
                                           (-0.17, row["through_noise"], "noise", "through the noise queries")):
            ax.barh(k + offset, value, height=0.3, color=style.look(role)["color"], label=label if k == 0 else None)
        ax.plot([row["most"]] * 2, [k + 0.02, k + 0.34], color=style.INK, linewidth=1.6,
                label="all attention on signal: $yV/M$" if k == 0 else None)
    ax.axvline(0, color=style.INK, linewidth=0.8)
    ax.set_yticks(range(len(cases)), [_label(case) for case in cases[::-1]])
    ax.set(xlabel="mean part of the margin $y f$")
    ax.legend(loc="lower right")
    return fig


def loss_and_bounds(rows: pd.DataFrame, tokens: int, floor: float) -> Figure:
    """Test loss over epsilon, both sides, with the bounds of D.10 and of E.6.

    `rows`: `side`, `epsilon`, `test_loss`, `lemma_loss` (runs that differ by these); `floor`: Lemma E.6's 0.237.
    """
    fig, ax = style.subplots(height=3.9)
    epsilons = np.array(sorted(rows["epsilon"].unique()))
    for side, role, label in (("harmful", "xi2", "test loss, harmful"), ("benign", "signal", "test loss, benign")):
        means = rows[rows["side"] == side].groupby("epsilon")["test_loss"].mean()
        ax.plot(means.index, means, **style.look(role, marker=True), label=label)
    means = rows[rows["side"] == "benign"].groupby("epsilon")["lemma_loss"].mean()
    ax.plot(means.index, means, **style.look("ours", marker=True), linewidth=1.2,
            label="benign, by D.10's bound on each margin")
    ax.plot(epsilons, 3 * epsilons ** (1 / (2 * tokens**2)), **style.look("paper"), linewidth=1.2,
            label="bound of D.10 ($C_{20}$ = 1)")
    ax.axhline(floor, color=style.look("xi2")["color"], linewidth=1.2, linestyle=":", label="harmful, bound of E.6")
    ax.set(xscale="log", yscale="log", xlabel=r"target training loss $\epsilon$", ylabel="loss")
    ax.invert_xaxis()
    ax.legend(loc="lower left", fontsize=style.FONT_SIZE - 2)
    return fig


def fresh_logits(by_d_h: pd.DataFrame, by_lg: pd.DataFrame) -> Figure:
    """Size of the logits of the query mu with fresh noise, and how far W_K moved, over d_h and over lg.

    Tables of `vitbo_lib.population.along(rows, "benign", ...)`.
    """
    fig, (left, right) = style.subplots(1, 2, height=3.3, sharey=True)
    for ax, rows, x, label in ((left, by_d_h, "d_h", "$d_h$ (and $d$)"), (right, by_lg, "lg", r"lg")):
        means = rows.assign(ratio=rows["moved_k"] / rows["scale_k"]).groupby(x)[["logit_std", "ratio"]].mean()
        ax.plot(means.index, means["logit_std"], **style.look("noise", marker=True),
                label="logit of fresh $\\xi_2$")
        ax.plot(means.index, means["ratio"], **style.look("ours", marker=True),
                label=r"$W_K$ moved / $\sigma_h d_h^{1/2}$")
        ax.set(xscale="log", yscale="log", xlabel=label)
    ticks = sorted(by_lg["lg"].unique())
    right.set_xticks(ticks, [f"{tick:.0f}" for tick in ticks])
    right.minorticks_off()
    at = np.array([min(ticks), max(ticks)])
    first = by_lg.groupby("lg")["logit_std"].mean().iloc[0]
    right.plot(at, 1.25 * first * (at / at[0]) ** -1.75, color=style.INK, linewidth=0.8, linestyle="--",
               label="lg$^{-7/4}$")
    left.set_ylabel("standard deviation, ratio")
    right.legend(loc="best", fontsize=style.FONT_SIZE - 2)
    return fig


def augmentation(rows: pd.DataFrame, arms: Mapping[str, tuple[str, float]], break_even: Mapping[str, float]) -> Figure:
    """Test loss over N SNR^2 / C_p^2 of the samples as they were: nothing added, noisy copies, as many fresh samples.

    `rows`: `ratio`, `arm`, `seed`, `test_loss`; `arms`: what is trained on and the strength s, by arm; `break_even`:
    where the initial rates put the transition (vertical lines). One panel a strength.
    """
    strengths = sorted({s for kind, s in arms.values() if kind != "none"})
    roles = {"none": ("noise", "the samples as they are"), "copies": ("xi2", "4 noisy copies of each"),
             "fresh": ("signal", "4 times as many fresh samples")}
    fig, axes = style.subplots(len(strengths), 1, height=2.9 * len(strengths), sharex=True, squeeze=False)
    for ax, strength in zip(axes[:, 0], strengths):
        for arm, (kind, s) in arms.items():
            if kind != "none" and s != strength:
                continue
            role, label = roles[kind]
            found = [(at, mean_interval(group["test_loss"])) for at, group in rows[rows["arm"] == arm].groupby("ratio")]
            x = [at for at, _ in found]
            ax.plot(x, [i.mean for _, i in found], **style.look(role, marker=True), label=label)
            ax.fill_between(x, [i.low for _, i in found], [i.high for _, i in found], alpha=0.2, linewidth=0,
                            color=style.look(role)["color"])
            ax.axvline(break_even[arm], color=style.look(role)["color"], linewidth=1, linestyle=":")
        ax.axhline(math.log(2), color=style.INK, linewidth=0.8, linestyle=":")
        ax.set(xscale="log", ylim=(0, 0.78), ylabel=f"test loss\nextra noise s = {strength:g}")
    ratios = [tick for tick in (0.25, 0.5, 1, 2, 3, 5, 10) if rows["ratio"].min() <= tick <= rows["ratio"].max()]
    axes[-1, 0].set_xticks(ratios, [f"{ratio:g}" for ratio in ratios])
    axes[-1, 0].minorticks_off()
    axes[-1, 0].set_xlabel(r"$N \cdot \mathrm{SNR}^2 \,/\, C_p^2$ of the samples as they are")
    axes[-1, 0].legend(loc="lower left")
    return fig
