"""Every figure that stored tables or short runs give, by name: what `vitbo figures` writes.

Names from the chapters on proofs and on the transition are those of the figures in the book (`fig-gaps-over-time`:
`gaps_over_time`). The proof map is not among them: it is a page's own SVG, with links.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from vitbo_lib import (
    augmentation,
    concentration,
    draw_check,
    figure_1_shift,
    finite_size,
    mnist_experiment,
    phase_diagram,
    population,
    regime,
    stage_events,
    stage_scaling,
    stages,
    store,
    symmetric,
    symmetric_drawn,
    theory,
    transition_map,
    vectorized,
)
from vitbo_lib.coefficients import token_names
from vitbo_lib.errors import UserError
from vitbo_lib.evidence.finite_size import CURVE
from vitbo_lib.evidence.population import FLOOR
from vitbo_lib.evidence.vectorized import walked
from vitbo_lib.figures import concentration as concentration_figures
from vitbo_lib.figures import finite_size as finite_size_figures
from vitbo_lib.figures import mnist, phase, setting, style, theorems
from vitbo_lib.figures import population as population_figures
from vitbo_lib.figures import stages as stage_figures
from vitbo_lib.figures import symmetric as symmetric_figures
from vitbo_lib.figures import theory as theory_figures
from vitbo_lib.figures import transition as transition_figures
from vitbo_lib.figures import vectorized as vectorized_figures

SIDES = ("benign", "harmful")


# ------------------------------------------------------------------------- setting, theorems, experiments

def _phase_tables() -> dict:
    return {reading: store.load(phase_diagram.table(reading).path, f"vitbo results --only figure_1_{reading}")[0]
            for reading in phase_diagram.READINGS}


def _phase_maps() -> Figure:
    tables = _phase_tables()
    return phase.phase_maps(tables, {name: phase_diagram.boundary_points(rows, phase_diagram.middle_level(rows))
                                     for name, rows in tables.items()})


SETTING_AND_THEOREMS: dict[str, Callable[[], Figure]] = {
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


# ---------------------------------------------------------------------------------------------- sharp transition

def _transition(draw: Callable[[pd.DataFrame], Figure]) -> Callable[[], Figure]:
    """A figure of the map's runs with classes of equal size."""
    return lambda: draw(transition_map.even(transition_map.load()))


def _steps_over_eta() -> Figure:
    return transition_figures.steps_over_eta(
        pd.concat([transition_map.eta_runs(side).assign(side=side) for side in SIDES]))


def _transition_classes() -> Figure:
    tables = transition_map.as_drawn(transition_map.load()), transition_map.calm_uneven_runs()
    return transition_figures.classes(*map(transition_map.class_positions, tables))


def _symmetric_overlay() -> Figure:
    curves = [symmetric.curve(n, m, np.geomspace(0.25, 12, 160)) for n, m in symmetric_drawn.SIZES]
    return symmetric_figures.overlay(symmetric_drawn.load(), pd.concat(curves, ignore_index=True))


def _width_and_position() -> Figure:
    rows = finite_size.load()
    return finite_size_figures.width_and_position({label: finite_size.by_dimension(rows, path) for path, label
                                                   in finite_size_figures.OVER_DIMENSION.items()})


TRANSITION: dict[str, Callable[[], Figure]] = {
    "transition_times": _transition(transition_figures.times),
    "steps_over_eta": _steps_over_eta,
    "transition_outcome": _transition(transition_figures.outcome),
    "transition_place": _transition(transition_figures.place),
    "transition_seeds": _transition(transition_figures.seeds),
    "transition_classes": _transition_classes,
    "symmetric_overlay": _symmetric_overlay,
    "symmetric_queries": lambda: symmetric_figures.by_query(symmetric.curve(64, 4, np.geomspace(1.0, 9.0, 120))),
    "symmetric_constants": lambda: symmetric_figures.constants(symmetric.load(), symmetric.REACHABLE),
    "lab_to_regime": lambda: finite_size_figures.maps(finite_size.load(), finite_size_figures.SIDE_BY_SIDE),
    "width_and_position": _width_and_position,
    "figure_1_ladder": lambda: finite_size_figures.ladder(
        figure_1_shift.ladder(finite_size.load(), "attention"), CURVE),
    "figure_1_classes": lambda: finite_size_figures.classes(
        pd.concat([figure_1_shift.classes(reading) for reading in phase_diagram.READINGS])),
}


# ---------------------------------------------------------------------------------------- proofs, stage by stage

def _lemma_5_1() -> Figure:
    return vectorized_figures.lemma_5_1(*({side: walked(side, place)["lemma"] for side in SIDES}
                                          for place in ("lab", "regime")))


def _coefficients() -> Figure:
    _, found = vectorized.matrix_step()
    return vectorized_figures.matrices(found.alpha[0].numpy(), found.beta[0].numpy(), token_names(4, 3), 4)


def _values(side: str) -> Figure:
    _, one, ends = stage_events.own_runs(stage_events.load(), side)
    return stage_figures.values(one, side, ends, stage_scaling.values_figure_slopes(one, side, ends))


def _gaps(side: str) -> Figure:
    own, _, ends = stage_events.own_runs(stage_events.load(), side)
    return stage_figures.gaps(own, side, ends)


def _monotone() -> Figure:
    return stage_figures.monotone(stage_events.load().query("side == 'benign'"), stage_figures.CASES)


def _over_d_h(side: str) -> pd.DataFrame:
    return stage_scaling.along(stage_scaling.load(), side, "d_h")


def _of_side(side: str, end: str) -> dict[str, Callable[[], Figure]]:
    """What both chapters on stages show; `end` ends the names."""
    return {
        f"stage_timeline{end}": lambda: stage_figures.timeline(*stage_scaling.order_of_events(side)),
        f"stages_over_d_h{end}": lambda: stage_figures.stages_over_hidden(_over_d_h(side),
                                                                          stage_scaling.formula_times(side)),
        f"values_over_time{end}": lambda: _values(side),
        f"gaps_over_time{end}": lambda: _gaps(side),
        f"leak_over_d_h{end}": lambda: stage_figures.leaks(_over_d_h(side)),
    }


STAGES: dict[str, Callable[[], Figure]] = {
    "coefficients": _coefficients,
    "coefficient_sizes": lambda: vectorized_figures.sizes_on_the_way(walked("benign", "lab")["sizes"]),
    "lemma_5_1": _lemma_5_1,
    "lower_order": lambda: vectorized_figures.lower_order(*map(vectorized.leading_order, ("d_h", "d"))),
    "frozen": lambda: vectorized_figures.frozen(vectorized.freezing_in_lab(1000)),
    **_of_side("benign", ""),
    "monotone": _monotone,
    "appendix_a": lambda: stage_figures.appendix_a(stage_events.load().query("case == 'App. A'")),
    **_of_side("harmful", "_harmful"),
}


# ------------------------------------------------------------------------------- concentration, population loss

def _concentration_dimension() -> Figure:
    tables = {lemma: concentration.frequencies(lemma, sets=250) for lemma in concentration.LEMMAS}
    return concentration_figures.failure_frequencies(tables, concentration.DELTA)


def _concentration_values() -> Figure:
    least = {name: concentration.least_constant(place) for name, place in concentration.PLACES.items()}
    return concentration_figures.value_constants(concentration.value_frequencies(np.geomspace(0.02, 1, 18)), least,
                                                 concentration.DELTA)


def _fresh_margins() -> Figure:
    bounds = {case: population.lemma_5_5(regime.EPSILON, tokens) for case, tokens in population.TOKENS.items()}
    return population_figures.margins(population.load(), bounds)


def _margin_parts() -> Figure:
    rows = population.load()
    return population_figures.parts(rows.assign(M=rows["case"].map(population.TOKENS)))


def _along(what: str, side: str = "benign") -> pd.DataFrame:
    return population.along(population.load_scaling(), side, what)


def _augmentation() -> Figure:
    even = {arm: augmentation.break_even(arm) for arm in augmentation.ARMS}
    return population_figures.augmentation(augmentation.load(), augmentation.ARMS, even)


POPULATION: dict[str, Callable[[], Figure]] = {
    "concentration_dimension": _concentration_dimension,
    "concentration_values": _concentration_values,
    "fresh_margins": _fresh_margins,
    "fresh_logits": lambda: population_figures.fresh_logits(_along("d_h"), _along("delta")),
    "margin_parts": _margin_parts,
    "loss_and_bounds": lambda: population_figures.loss_and_bounds(
        pd.concat([_along("epsilon", side) for side in population.SCALING_SNR]), regime.M, FLOOR),
    "augmentation": _augmentation,
}

FIGURES: dict[str, Callable[[], Figure]] = SETTING_AND_THEOREMS | TRANSITION | STAGES | POPULATION


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
