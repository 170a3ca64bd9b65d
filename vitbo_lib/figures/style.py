"""The looks of every figure: one vector image that is right in the light and in the dark, and on a phone.

A figure is drawn once, in the colours of the light theme. On its way into SVG each named colour becomes a CSS variable
whose value follows the reader's theme, and ink becomes ``currentColor``. Nothing else is translated: use the names
below (or a colour map, which reads the same in both themes), not colours of your own.

A figure function takes a table and gives a figure, without pyplot and so without global state::

    def loss_curves(table: pd.DataFrame) -> Figure:
        fig, ax = style.subplots()
        ax.plot(table["t"], table["train_loss"], **style.look("train"), label="training loss")
        ax.set(xlabel="gradient descent step $t$", ylabel="loss")
        ax.legend()
        return fig

A chapter shows it in a cell that gives a caption, a name and the alternative text for those who do not see it::

    ```{code-cell} ipython3
    ---
    tags: [hide-input]
    mystnb:
      image:
        alt: The training loss falls to zero while the test loss levels off near log 2.
      figure:
        name: fig-loss-curves
        caption: |
          Training loss and test loss of eq. (1). What to see: ...
    ---
    loss_curves(table)
    ```

The figure is the last expression of its cell. No title stands inside the image.
"""

import io
import os
import re
import tempfile
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh
from matplotlib.figure import Figure

from vitbo_lib.errors import UserError

# Chosen by search so that, with normal colour vision and with each of the three dichromacies, any two of the tokens
# (signal, xi2, noise) and any two of the curves (train, test, paper, ours) are at least 30 CIELAB units apart, and
# each has 3:1 against the page; tests/test_style.py holds them to it.
LIGHT = {"signal": "#3068a0", "xi2": "#a22400", "noise": "#414245", "train": "#2a9c79", "test": "#76156b",
         "paper": "#b47c24", "ours": "#9684dd"}
DARK = {"signal": "#79a4e9", "xi2": "#e47047", "noise": "#dce2f1", "train": "#99f6be", "test": "#d46fa5",
        "paper": "#f9d153", "ours": "#957ffe"}
SIGNAL, XI2, NOISE, TRAIN, TEST, PAPER, OURS = LIGHT.values()

# Colour is never the only difference between two lines.
LINESTYLES = {"signal": "-", "xi2": (0, (5, 1.5)), "noise": (0, (1, 1.2)), "train": "-", "test": (0, (5, 1.5)),
              "paper": (0, (7, 2, 1.2, 2)), "ours": "-"}
MARKERS = {"signal": "o", "xi2": "s", "noise": "^", "train": "o", "test": "s", "paper": "D", "ours": "o"}

INK, BACKGROUND = "#010203", "#fdfcfb"  # drawn by nobody else, so that they can be told apart in the SVG
INK_LIGHT, INK_DARK = "#1f2328", "#d6dae0"
PAGE_LIGHT, PAGE_DARK = "#ffffff", "#121212"

SEQUENTIAL, DIVERGING = "cividis", "vlag"  # both read the same with any colour vision

WIDTH = 5.6  # inches: 10.5 pt type is then about 9 px on a phone of 390 px, 14 px on a desktop
FONT_SIZE = 10.5

RC = {
    "svg.fonttype": "path", "svg.hashsalt": "vitbo", "figure.figsize": (WIDTH, 3.4), "figure.dpi": 100,
    "figure.facecolor": "none", "axes.facecolor": "none", "savefig.facecolor": "none",
    "figure.constrained_layout.use": True, "font.size": FONT_SIZE, "axes.labelsize": FONT_SIZE,
    "xtick.labelsize": FONT_SIZE - 1, "ytick.labelsize": FONT_SIZE - 1, "legend.fontsize": FONT_SIZE - 1,
    "font.family": "sans-serif", "font.sans-serif": ["DejaVu Sans"], "mathtext.fontset": "dejavusans",
    "text.color": INK, "axes.edgecolor": INK, "axes.labelcolor": INK, "axes.titlecolor": INK, "xtick.color": INK,
    "ytick.color": INK, "patch.edgecolor": INK, "hatch.color": INK, "grid.color": INK, "grid.alpha": 0.15,
    "grid.linewidth": 0.6, "axes.linewidth": 0.8, "axes.spines.top": False, "axes.spines.right": False,
    "axes.grid": False, "lines.linewidth": 1.8, "lines.markersize": 5, "legend.frameon": False,
    "legend.handlelength": 2.6, "image.cmap": SEQUENTIAL,
    "axes.prop_cycle": mpl.cycler(color=[SIGNAL, XI2, TRAIN, TEST, PAPER, OURS]),
}


def setup() -> None:
    """Take on the book's looks; in a notebook, show every figure as one SVG for both themes."""
    mpl.rcParams.update(RC)
    shell = _notebook_shell()
    if shell is None:
        return
    from matplotlib_inline.backend_inline import set_matplotlib_formats

    set_matplotlib_formats()  # no PNG beside the SVG
    shell.display_formatter.formatters["image/svg+xml"].for_type(Figure, themed_svg)


def _notebook_shell():
    """The running IPython kernel, or None in plain Python."""
    import sys

    ipython = sys.modules.get("IPython")
    return None if ipython is None else ipython.get_ipython()


def subplots(rows: int = 1, cols: int = 1, *, height: float | None = None, width: float = WIDTH, **kwargs):
    """Figure and axes like ``pyplot.subplots``, without pyplot; sizes in inches.

    `height` is that of the whole figure (default 3.4 a row for one column, 2.6 a row for more). More than two
    columns are too small to read on a phone: stack the panels, or make two figures.
    """
    setup()
    if cols > 2:
        raise UserError(f"{cols} columns of panels are illegible on a phone; use at most 2, or two figures")
    if height is None:
        height = rows * (3.4 if cols == 1 else 2.6)
    fig = Figure(figsize=(width, height), layout="constrained")
    return fig, fig.subplots(rows, cols, **kwargs)


def look(role: str, *, marker: bool = False) -> dict:
    """Keywords for ``ax.plot``: colour and line style of one of the named roles.

    >>> look("train")
    {'color': '#2a9c79', 'linestyle': '-'}
    """
    if role not in LIGHT:
        raise UserError(f"no role {role!r}; choose one of {', '.join(LIGHT)}")
    return {"color": LIGHT[role], "linestyle": LINESTYLES[role]} | ({"marker": MARKERS[role]} if marker else {})


def heat_map(ax: Axes, x, y, values, *, label: str, cmap: str = SEQUENTIAL, **kwargs) -> QuadMesh:
    """Draw `values` (len(y), len(x)) at the centres `x`, `y`, with a colour bar named `label`.

    Values that are missing (NaN) stay empty. Further keywords (`norm`, `vmin`, `vmax`) go to ``pcolormesh``.
    """
    if cmap == DIVERGING:
        import seaborn  # noqa: F401  registers the map
    values = np.asarray(values, dtype=float)
    mesh = ax.pcolormesh(x, y, np.ma.masked_invalid(values), cmap=cmap, shading="nearest", rasterized=True, **kwargs)
    bar = ax.figure.colorbar(mesh, ax=ax, label=label, pad=0.02)
    bar.outline.set_linewidth(0.6)
    bar.solids.set_rasterized(True)
    ax.spines[["top", "right"]].set_visible(True)
    return mesh


def _theme_rules() -> str:
    """CSS of a themed SVG: the value of each variable in the light, in the dark and on paper."""

    def rule(ink: str, page: str, palette: dict[str, str]) -> str:
        variables = "".join(f"--{role}:{colour};" for role, colour in palette.items())
        return f"svg{{color:{ink};--page:{page};{variables}}}"

    light, dark = rule(INK_LIGHT, PAGE_LIGHT, LIGHT), rule(INK_DARK, PAGE_DARK, DARK)
    return f"<style>{light}@media screen and (prefers-color-scheme:dark){{{dark}}}</style>"


def themed_svg(fig: Figure) -> str:
    """The figure as one SVG text whose colours follow the reader's theme; same figure, same text."""
    buffer = io.StringIO()
    with mpl.rc_context({key: RC[key] for key in ("svg.fonttype", "svg.hashsalt")}):
        fig.savefig(buffer, format="svg", dpi=200, metadata={"Date": None, "Creator": None})
    text = buffer.getvalue().replace(INK, "currentColor").replace(BACKGROUND, "var(--page)")
    for role, colour in LIGHT.items():
        text = text.replace(colour, f"var(--{role})")
    return re.sub(r"(<svg[^>]*>)", lambda match: match[1] + _theme_rules(), text, count=1)


def save(fig: Figure, path: str | os.PathLike) -> Path:
    """Write the figure: ``.svg`` follows the theme, ``.pdf`` and ``.png`` are on white; never a half-written file."""
    path = Path(path)
    kind = path.suffix.lower()
    if kind not in (".svg", ".pdf", ".png"):
        raise UserError(f"cannot save a figure as {path.name!r}; end the name in .svg, .pdf or .png")
    if kind == ".svg":
        content = themed_svg(fig).encode()
    else:
        buffer = io.BytesIO()
        metadata = {"CreationDate": None} if kind == ".pdf" else None
        fig.savefig(buffer, format=kind[1:], dpi=200, facecolor="white", metadata=metadata)
        content = buffer.getvalue()
    unfinished = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, unfinished = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.chmod(unfinished, 0o644)
        os.replace(unfinished, path)
    except OSError as error:
        if unfinished is not None:
            os.unlink(unfinished)
        raise UserError(f"cannot write {path}: {error.strerror}; choose a folder that you may write to") from error
    return path
