"""Every figure that stored tables or short runs give, by name: what `vitbo figures` writes."""

from collections.abc import Callable, Sequence
from pathlib import Path

from matplotlib.figure import Figure

from vitbo_lib import draw_check, mnist_experiment, phase_diagram, regime, stages, store, theory
from vitbo_lib.errors import UserError
from vitbo_lib.figures import mnist, phase, setting, style, theorems
from vitbo_lib.figures import theory as theory_figures


def _phase_tables() -> dict:
    return {reading: store.load(phase_diagram.table(reading).path, f"vitbo results --only figure_1_{reading}")[0]
            for reading in phase_diagram.READINGS}


def _phase_maps() -> Figure:
    tables = _phase_tables()
    return phase.phase_maps(tables, {name: phase_diagram.boundary_points(rows, phase_diagram.middle_level(rows))
                                     for name, rows in tables.items()})


FIGURES: dict[str, Callable[[], Figure]] = {
    "draw_in_law": lambda: setting.laws_compared(draw_check.load()),
    "condition_margins": lambda: theory_figures.condition_margins(
        {name: theory.condition_4_1(p) for name, p in theory.paper_experiments().items()}),
    "training_times": lambda: theorems.training_times(regime.load()),
    "loss_over_epsilon": lambda: theorems.loss_over_epsilon(regime.epsilon_runs(regime.load())),
    "transition": lambda: theorems.transition(regime.transition(regime.load()), stages.predicted_boundary(1.0)),
    "phase_maps": _phase_maps,
    "phase_cut_off": lambda: phase.cut_off_maps(_phase_tables()),
    "phase_test_loss": lambda: phase.slices(_phase_tables()),
    "phase_test_error": lambda: phase.slices(_phase_tables(), "test_error", "test error"),
    "two_initialisations": lambda: phase.two_initialisations(_phase_tables()),
    "digits": lambda: mnist.two_cells(store.load(mnist_experiment.PATH, mnist_experiment.COMMAND)[0]),
}


def draw_all(out: str | Path, only: Sequence[str] | None = None, kind: str = "svg",
             progress: Callable[[str], None] | None = None) -> dict[str, Path]:
    """Draw the figures `only` (None: all) into the folder `out`; returns the files by name.

    `UserError` for an unknown name, a missing table, or a folder that cannot be written; no file is left half-written.
    """
    unknown = [name for name in only or () if name not in FIGURES]
    if unknown:
        raise UserError(f"no figure {unknown[0]!r}; choose among {', '.join(FIGURES)}")
    written = {}
    for name in only or FIGURES:
        written[name] = style.save(FIGURES[name](), Path(out) / f"{name}.{kind}")
        if progress is not None:
            progress(str(written[name]))
    return written
