"""Figures of the chapter on digits with a noisy border: the images, and what two signal-to-noise ratios lead to."""

import math

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from vitbo_lib.figures import style
from vitbo_lib.mnist_experiment import summary

GREY_LIMIT = 1.0  # pixel values beyond it, one noise pixel in four at SNR 0.2, take the last colour


def digit_rows(images_by_snr: dict[float, np.ndarray], limit: float = GREY_LIMIT) -> Figure:
    """The same digits once for each SNR, as the network gets them, with one colour scale for all.

    `images_by_snr` maps an SNR to images (n, 28, 28), n the same for all. The scale diverges from 0 (an empty pixel)
    and is cut off at +-`limit`; the colours are read as numbers, so they are the same in both themes.
    """
    n = len(next(iter(images_by_snr.values())))
    half = math.ceil(n / 2)
    fig, axes = style.subplots(len(images_by_snr), 1, height=0.7 + 2.2 * len(images_by_snr))
    for ax, (snr, images) in zip(np.atleast_1d(axes), images_by_snr.items()):
        mesh = ax.imshow(_tile(images, half), cmap=_diverging(), vmin=-limit, vmax=limit, interpolation="nearest")
        ax.set(xticks=[], yticks=[], ylabel=f"SNR {snr:g}")
        ax.spines[:].set_visible(False)
    bar = fig.colorbar(mesh, ax=axes, orientation="horizontal", label="pixel value", extend="both", shrink=0.7,
                       aspect=40, ticks=[-limit, -limit / 2, 0, limit / 2, limit])
    bar.outline.set_linewidth(0.6)
    bar.solids.set_rasterized(True)
    return fig


def _diverging():
    import seaborn  # noqa: F401  registers the map

    return style.DIVERGING


def _tile(images: np.ndarray, columns: int, gap: int = 3) -> np.ma.MaskedArray:
    """Images side by side in rows of `columns`, with empty (masked) gaps between them."""
    n, side, _ = images.shape
    rows = math.ceil(n / columns)
    sheet = np.ma.masked_all((rows * (side + gap) - gap, columns * (side + gap) - gap))
    for i, image in enumerate(images):
        top, left = i // columns * (side + gap), i % columns * (side + gap)
        sheet[top:top + side, left:left + side] = image
    return sheet


# column, label, role, what to compare with: (value, words)
PANELS = (("test_loss", "test loss", "test", (math.log(10), "guessing")),
          ("test_error", "test error", "test", (0.9, "guessing")),
          ("train_loss", "training loss", "train", (0.01, "target")))


def two_cells(rows: pd.DataFrame) -> Figure:
    """Test loss, test error and training loss at each SNR: every run a dot, beside it mean and 95 % t interval.

    `rows` is tidy: `setting`, `snr`, `seed` and the three measured columns; one column of panels a setting, at most
    two. Runs of one seed, which share digits, noise and initial weights, are joined by a thin line. Every axis starts
    at 0 and has a scale of its own.
    """
    settings = list(dict.fromkeys(rows["setting"]))
    fig, axes = style.subplots(len(PANELS), len(settings), height=6.6, sharex=True, squeeze=False)
    snrs = sorted(rows["snr"].unique())
    for column, setting in enumerate(settings):
        runs = rows[rows["setting"] == setting]
        for ax, (name, label, role, level) in zip(axes[:, column], PANELS):
            _panel(ax, runs, name, role, snrs)
            _reference(ax, *level)
            ax.set_ylabel(label if column == 0 else "")
        axes[0, column].annotate(setting, (0.5, 1.02), xycoords="axes fraction", ha="center", fontweight="bold")
        axes[-1, column].set(xlabel="SNR", xticks=range(len(snrs)), xticklabels=[f"{snr:g}" for snr in snrs],
                             xlim=(-0.5, len(snrs) - 0.5))
    return fig


def _panel(ax, runs: pd.DataFrame, name: str, role: str, snrs: list[float]) -> None:
    colour = style.look(role)["color"]
    for _, run in runs.sort_values("snr").groupby("seed"):
        ax.plot([snrs.index(snr) - 0.08 for snr in run["snr"]], run[name], color=colour, linewidth=0.6, alpha=0.5,
                marker=style.MARKERS[role], markersize=4)
    for (_, snr), interval in summary(runs, name).items():
        around = [[interval.mean - interval.low], [interval.high - interval.mean]]
        ax.errorbar(snrs.index(snr) + 0.14, interval.mean, yerr=np.nan_to_num(around), color=style.INK, marker="D",
                    markersize=5, capsize=4, linewidth=1.4)
    ax.grid(axis="y")
    ax.set_ylim(0, ax.get_ylim()[1])


def _reference(ax, value: float, words: str) -> None:
    """A dotted line at `value`, where the axis reaches it."""
    if value > ax.get_ylim()[1] * 1.15:
        return
    ax.set_ylim(0, max(ax.get_ylim()[1], value * 1.12))
    ax.axhline(value, color=style.INK, linewidth=0.8, linestyle=":")
    ax.annotate(words, (0.5, value), xytext=(0, 2), textcoords="offset points", fontsize=9, ha="center")
