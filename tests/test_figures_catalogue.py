"""`vitbo figures`: every entry draws something, and every figure of the book is an entry or known to be live only."""

import re
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from vitbo_lib.figures import catalogue, style

CHAPTERS = Path(__file__).resolve().parents[1] / "chapters"
OTHER_NAMES = {"cut-off-maps": "phase_cut_off", "phase-loss": "phase_test_loss", "phase-error": "phase_test_error",
               "laws-compared": "draw_in_law", "mnist-two-cells": "digits"}
LIVE_ONLY = {
    "inner-products": "one draw of the cell before it",
    "near-orthogonality": "draws of the page's own cell",
    "scalarized-moves": "the run that the page trains",
    "two-kinds": "the two runs that the page trains",
    "benign-way": "runs on the way, a minute each",
    "harmful-way": "runs on the way, a minute each",
    "mnist-digits": "reads the digits' files",
}
LIVE_RUNS = {"steps_over_eta", "transition_classes", "symmetric_overlay", "symmetric_queries", "coefficient_sizes",
             "lemma_5_1", "frozen", "lower_order", "concentration_dimension", "concentration_values",
             "figure_1_ladder", "figure_1_classes"}


def figure_names() -> list[str]:
    """The names that chapters give their figures, without fig-."""
    text = "\n".join(path.read_text(encoding="utf8") for path in sorted(CHAPTERS.glob("*.md")))
    return re.findall(r"^ +name: fig-([\w-]+)$", text, flags=re.MULTILINE)


def missing(names, entries) -> set[str]:
    """Figures of the book that are neither an entry nor live only."""
    return {name for name in names if name not in LIVE_ONLY
            and OTHER_NAMES.get(name, name.replace("-", "_")) not in entries}


def shows_data(figure: Figure) -> bool:
    return isinstance(figure, Figure) and any(ax.has_data() for ax in figure.axes)


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.slow if name in LIVE_RUNS else ())
                                  for name in catalogue.FIGURES])
def test_entry_draws(name):
    assert shows_data(catalogue.FIGURES[name]())


def test_an_empty_figure_would_be_seen():
    assert not shows_data(style.subplots()[0])
    assert not shows_data(Figure())


def test_every_figure_of_the_book_is_an_entry_or_live_only():
    names = figure_names()
    assert len(names) > 40
    assert len(set(names)) == len(names)
    assert missing(names, catalogue.FIGURES) == set()
    assert set(LIVE_ONLY) | set(OTHER_NAMES) <= set(names), "a figure that is no longer in the book"


def test_a_missing_entry_would_be_seen():
    assert missing(figure_names(), set(catalogue.FIGURES) - {"gaps_over_time"}) == {"gaps-over-time"}
    assert missing(["brand-new"], catalogue.FIGURES) == {"brand-new"}


def test_every_entry_is_in_the_book():
    known = {OTHER_NAMES.get(name, name.replace("-", "_")) for name in figure_names()}
    assert set(catalogue.FIGURES) <= known
    assert set(catalogue.FIGURES) >= LIVE_RUNS
