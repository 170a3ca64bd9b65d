"""Figures of the setting: the tokens, their inner products, the scalarized values, and the draw checked in law."""

import numpy as np
import pandas as pd
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure

from vitbo_lib.figures import style

KINDS = {"direct": ("noise", "all coordinates"), "drawn": ("signal", "drawn directly"),
         "fault": ("xi2", "drawn with a wrong chi index")}


def inner_products(gram: np.ndarray, n_samples: int, n_tokens: int) -> Figure:
    """Absolute inner products of all pairs of distinct tokens, `gram` (K K), on a logarithmic scale; 0 stays empty.

    Tokens are ordered by kind: both signals, the N strong noise tokens, then the weak ones, sample by sample.
    """
    strong = 2 + (n_tokens - 1) * np.arange(n_samples)
    weak = np.setdiff1d(np.arange(2, len(gram)), strong)
    order = np.concatenate([[0, 1], strong, weak])
    shown = np.abs(np.asarray(gram, dtype=float))[np.ix_(order, order)]
    shown[shown == 0] = np.nan
    fig, ax = style.subplots(height=4.4)
    place = np.arange(len(order))
    style.heat_map(ax, place, place, shown, label="inner product, absolute", norm=LogNorm())
    middles = [0.5, 1.5 + n_samples / 2, (1.5 + n_samples + len(order)) / 2]
    names = [r"$\mu_\pm$", r"$\xi_{n,2}$", r"$\xi_{n,i}$"]
    ax.set(xticks=middles, xticklabels=names, yticks=middles, yticklabels=names, aspect="equal")
    ax.tick_params(length=0)
    for edge in (1.5, 1.5 + n_samples):
        ax.axhline(edge, color=style.INK, linewidth=0.8)
        ax.axvline(edge, color=style.INK, linewidth=0.8)
    ax.invert_yaxis()
    return fig


def near_orthogonality(table: pd.DataFrame) -> Figure:
    """Cosines between noise tokens against the dimension: root mean square and largest, and the line 1 / sqrt(d - 2).

    `table` is tidy: `d`, `source` ("direct" or "drawn"), `rms`, `largest`.
    """
    fig, ax = style.subplots()
    for source, rows in table.groupby("source", sort=True):
        role, name = KINDS[source]
        size = 8 if source == "direct" else 4
        for column, marker, label in (("largest", "^", "largest"), ("rms", "o", "root mean square")):
            ax.plot(rows["d"], rows[column], linestyle="none", color=style.look(role)["color"], marker=marker,
                    markersize=size, fillstyle="none" if source == "direct" else "full", label=f"{label}, {name}")
    line = np.array([table["d"].min(), table["d"].max()], dtype=float)
    ax.plot(line, 1 / np.sqrt(line - 2), color=style.INK, linewidth=0.9, label=r"$1/\sqrt{d-2}$")
    ax.set(xscale="log", yscale="log", xlabel="dimension $d$", ylabel="cosine, absolute")
    ax.legend()
    return fig


def scalarized_moves(table: pd.DataFrame) -> Figure:
    """Movement of scalarized values since the start: gamma of both signals above, rho of the strong noise tokens below.

    `table` is tidy: `t`, `token` ("mu_+", "mu_-" or "xi_2"), `sample` (0 for signals), `label`, `moved`.
    """
    fig, (above, below) = style.subplots(2, 1, height=4.8, sharex=True)
    for token, line, name in (("mu_+", "-", r"$\gamma_{V,+}$"), ("mu_-", (0, (5, 1.5)), r"$\gamma_{V,-}$")):
        rows = table[table["token"] == token]
        above.plot(rows["t"], rows["moved"], color=style.SIGNAL, linestyle=line, label=name)
    strong = table[table["token"] == "xi_2"]
    for label, line in ((1, "-"), (-1, (0, (5, 1.5)))):
        for number, (_, rows) in enumerate(strong[strong["label"] == label].groupby("sample")):
            below.plot(rows["t"], rows["moved"], color=style.XI2, linestyle=line, linewidth=1.2,
                       label=rf"$\rho_{{V,n,2}}$, $y_n = {label:+d}$" if number == 0 else None)
    for ax in (above, below):
        ax.axhline(0, color=style.INK, linewidth=0.6)
        ax.set(ylabel="moved since $t = 0$")
        ax.legend()
    below.set(xlabel="gradient descent step $t$")
    return fig


def laws_compared(table: pd.DataFrame) -> Figure:
    """Quantiles over runs, drawn directly against full coordinates: steps, test loss, attention on xi_2, signal's V.

    `table` is tidy, one row a run: `engine` ("full", "drawn", "fault") and the four quantities. Equal laws lie on the
    diagonal.
    """
    shown = {"steps": "steps to the target loss", "test_loss": "test loss", "attention_xi2": r"attention on $\xi_2$",
             "v_signal": "$y V$ of the signal"}
    shares = np.linspace(0.01, 0.99, 50)
    fig, axes = style.subplots(2, 2, height=5.4)
    for ax, (column, name) in zip(axes.flat, shown.items()):
        quantiles = {engine: rows[column].quantile(shares).to_numpy() for engine, rows in table.groupby("engine")}
        full = quantiles.pop("full")
        for engine, values in sorted(quantiles.items(), reverse=True):  # the drawn ones on top
            role, label = KINDS[engine]
            ax.plot(full, values, linestyle="none", color=style.look(role)["color"], marker=style.MARKERS[role],
                    markersize=3.5, label=label)
        ends = [full[0], full[-1]]
        ax.plot(ends, ends, color=style.INK, linewidth=0.9)
        ax.set_title(name, fontsize=style.FONT_SIZE)
        if column == "test_loss":
            ax.set(xscale="log", yscale="log")
    fig.supxlabel("quantile, all coordinates", fontsize=style.FONT_SIZE)
    fig.supylabel("quantile, drawn", fontsize=style.FONT_SIZE)
    fig.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside upper center", ncols=2)
    return fig
