"""Figure 1: maps of the test loss over N and SNR, where the boundary runs, and slices with intervals."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure

from vitbo_lib.figures import style
from vitbo_lib.intervals import mean_interval
from vitbo_lib.phase_diagram import CUT_OFF, LAW, PAPER_CURVE, SAMPLES, means, snr
from vitbo_lib.stages import predicted_boundary

TITLES = {"divided": "$w_O$ divided by 16", "undivided": "$w_O$ not divided"}
SHOWN_N = (4, 8, 12, 20)


def _curves(ax: Axes, label: bool) -> None:
    """N SNR^2 = 1000 (the paper's) and 2 C_p^2 (even initial rates), each on an edge of the page's colour."""
    n, even = np.linspace(min(SAMPLES) - 0.5, max(SAMPLES) + 0.5, 200), predicted_boundary(LAW.c_p)
    for constant, role, name in ((PAPER_CURVE, "paper", f"paper: {PAPER_CURVE:.0f}"),
                                 (even, "ours", f"$2C_p^2$ = {even:.0f}")):
        x = np.sqrt(constant / n)
        inside = x <= snr(100) + 0.3
        ax.plot(x[inside], n[inside], color=style.BACKGROUND, linewidth=4.2)
        ax.plot(x[inside], n[inside], **style.look(role), linewidth=2.2, label=name if label else None)


def _map(ax: Axes, rows: pd.DataFrame, value: str, **options) -> None:
    grid = means(rows, value)
    style.heat_map(ax, grid.columns.to_numpy(), grid.index.to_numpy(), grid.to_numpy(), **options)
    ax.set(xlabel="SNR", ylabel="training samples $N$", yticks=range(2, 21, 3))


def phase_maps(tables: dict[str, pd.DataFrame], boundaries: dict[str, pd.DataFrame]) -> Figure:
    """Mean test loss over (SNR, N), one panel a reading, with both curves and the measured boundary (points).

    `tables`: rows of `vitbo_lib.phase_diagram` by reading; `boundaries`: `boundary_points` by reading.
    """
    fig, axes = style.subplots(len(tables), 1, height=3.3 * len(tables), sharex=True)
    for ax, (reading, rows) in zip(axes, tables.items()):
        _map(ax, rows, "test_loss", label="test loss", vmin=0, vmax=0.72)
        _curves(ax, label=True)
        middle = boundaries[reading].groupby("N")["snr"].agg(["median", "count"])
        middle = middle[middle["count"] == middle["count"].max()]
        ax.plot(middle["median"], middle.index, linestyle="none", marker="o", markersize=5, color=style.INK,
                markeredgecolor=style.BACKGROUND, markeredgewidth=1, label="measured")
        ax.set_title(TITLES[reading], fontsize=style.FONT_SIZE, loc="left")
    axes[0].set_xlabel("")
    handles, labels = axes[0].get_legend_handles_labels()
    fig.legend(handles, labels, loc="outside upper center", ncols=3)
    return fig


def cut_off_maps(tables: dict[str, pd.DataFrame]) -> Figure:
    """The same with the paper's cut-off: mean test loss above or below 0.2."""
    fig, axes = style.subplots(len(tables), 1, height=3.1 * len(tables), sharex=True)
    two = ListedColormap(["#16325c", "#e8d86b"])
    for ax, (reading, rows) in zip(axes, tables.items()):
        grid = means(rows)
        ax.pcolormesh(grid.columns, grid.index, (grid > CUT_OFF).astype(float), cmap=two, vmin=0, vmax=1,
                      shading="nearest", rasterized=True)
        _curves(ax, label=True)
        ax.set(xlabel="SNR", ylabel="training samples $N$", yticks=range(2, 21, 3))
        ax.set_title(TITLES[reading], fontsize=style.FONT_SIZE, loc="left")
    axes[0].set_xlabel("")
    handles, labels = axes[0].get_legend_handles_labels()
    fig.legend(handles, labels, loc="outside upper center", ncols=2)
    return fig


def slices(tables: dict[str, pd.DataFrame], value: str = "test_loss", name: str = "test loss") -> Figure:
    """`value` against N SNR^2 for a few N: mean over seeds with its 95 % interval; one panel a reading."""
    fig, axes = style.subplots(len(tables), 1, height=2.9 * len(tables), sharex=True, sharey=True)
    for ax, (reading, rows) in zip(axes, tables.items()):
        for role, n in zip(("xi2", "train", "test", "signal"), SHOWN_N):
            part = rows[(rows["init"] == "uniform") & (rows["N"] == n)]
            found = [(n * snr(norm) ** 2, mean_interval(group[value])) for norm, group in part.groupby("signal_norm")]
            x = [at for at, _ in found]
            ax.plot(x, [i.mean for _, i in found], **style.look(role, marker=True), markersize=3.5, label=f"$N$ = {n}")
            ax.fill_between(x, [i.low for _, i in found], [i.high for _, i in found], color=style.look(role)["color"],
                            alpha=0.18, linewidth=0)
        for constant, role in ((PAPER_CURVE, "paper"), (predicted_boundary(LAW.c_p), "ours")):
            ax.axvline(constant, **style.look(role), linewidth=1.2)
        ax.set(xscale="log", xlim=(20, 6000), ylim=(-0.02, 0.75), ylabel=name)
        ax.set_title(TITLES[reading], fontsize=style.FONT_SIZE, loc="left")
    axes[-1].set_xlabel(r"$N \cdot \mathrm{SNR}^2$")
    handles, labels = axes[0].get_legend_handles_labels()
    fig.legend(handles, labels, loc="outside upper center", ncols=4)
    return fig


def two_initialisations(tables: dict[str, pd.DataFrame]) -> Figure:
    """Mean test loss of Gaussian weights drawn directly against that of uniform weights drawn in full, cell by cell."""
    fig, ax = style.subplots(height=3.6)
    for role, (reading, rows) in zip(("signal", "xi2"), tables.items()):
        uniform, gaussian = means(rows, init="uniform").stack(), means(rows, init="gaussian").stack()
        both = pd.concat([uniform.rename("uniform"), gaussian.rename("gaussian")], axis=1).dropna()
        ax.plot(both["uniform"], both["gaussian"], linestyle="none", marker=style.MARKERS[role], markersize=4,
                alpha=0.6, color=style.look(role)["color"], markeredgewidth=0, label=TITLES[reading])
    ax.axline((0, 0), slope=1, color=style.INK, linewidth=0.8)
    ax.set(xlabel="test loss, uniform weights, drawn in full", ylabel="test loss, Gaussian weights,\ndrawn directly")
    ax.legend()
    return fig
