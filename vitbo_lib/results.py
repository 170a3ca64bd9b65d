"""The stored tables of the book, by name, and how each is computed at three sizes."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from vitbo_lib import (
    augmentation,
    draw_check,
    finite_size,
    mnist_experiment,
    phase_diagram,
    population,
    regime,
    stage_events,
    stage_scaling,
    symmetric,
    symmetric_drawn,
    transition_map,
)
from vitbo_lib.data import whole
from vitbo_lib.errors import UserError
from vitbo_lib.sweep import Plan

PROFILES = ("smoke", "lab", "paper")
RESULTS = phase_diagram.RESULTS
MOST_WORKERS = 1000


@dataclass(frozen=True)
class Stored:
    """One table: its file `name`.csv, what it holds, and `plan(folder, profile)`, the grid that fills it.

    `tolerance`: how far a number computed anew, elsewhere, may be from the stored one, relative to its size, absolute
    below 1; above rounding where training is long and in single precision. `seconds`: about how long the dearest row
    takes.
    """

    name: str
    holds: str
    plan: Callable[[Path, str], Plan]
    tolerance: float = 1e-5
    seconds: float = 1.0


FLOW = 1e-3  # adaptive steps: rounding decides where they end; far below the spread over seeds
TABLES = {stored.name: stored for stored in (
    Stored("draw_in_law", "runs with all coordinates and runs drawn directly", draw_check.plan),
    Stored("theorems_regime", "Theorems 4.1 and 4.2 in their own regime", regime.plan, FLOW),
    Stored("theorems_lab", "the examples of Appendix A, both readings of w_O", regime.lab_plan),
    Stored("transition_map", "the transition at M = 2, 3, 4, 8 and N = 8 to 128, in the regime", transition_map.plan,
           FLOW, 30.0),
    Stored("symmetric_limit", "where sides change in the symmetric limit, N from 4 to 10^12", symmetric.plan, FLOW,
           20.0),
    Stored("symmetric_drawn", "drawn runs beside the symmetric limit", symmetric_drawn.plan, FLOW, 5.0),
    Stored("lab_to_regime", "the transition from d = 10^3 to 10^16, and Figure 1 changed step by step",
           finite_size.plan, FLOW, 30.0),
    Stored("stage_events", "ways of training: what the proofs speak about, at every state", stage_events.plan, FLOW,
           20.0),
    Stored("stage_scaling", "stage times, gaps of logits, sums of coefficients over d_h, SNR, N and w_O",
           stage_scaling.plan, FLOW, 10.0),
    Stored("population", "fresh points after training, one by one", population.plan, FLOW, 5.0),
    Stored("population_scaling", "fresh logits, moved weights and test loss over d_h, d, delta and epsilon",
           population.scaling_plan, FLOW, 5.0),
    Stored("augmentation", "noisy copies, fresh samples, nothing added", augmentation.plan, seconds=10.0),
    Stored("figure_1_undivided", "Figure 1, w_O not divided by 16", partial(phase_diagram.plan, "undivided")),
    Stored("figure_1_divided", "Figure 1, w_O divided by 16", partial(phase_diagram.plan, "divided"), seconds=20.0),
    Stored("figure_2_first_look", "digits at N = 3000, SNR 0.2 and 2.0", mnist_experiment.plan, 0.05, 600.0),
)}


def compute_tables(profile: str = "lab", only: Sequence[str] | None = None, folder: str | Path | None = None,
                   workers: int = 2, say: Callable[[str], None] = print) -> None:
    """Compute, or continue, the tables `only` (None: all) into `folder`; `say` gets a line for each.

    `UserError` for an unknown profile or table, an impossible number of `workers`, and for a folder that cannot be
    written.
    """
    if profile not in PROFILES:
        raise UserError(f"no profile {profile!r}; choose one of {', '.join(PROFILES)}")
    unknown = [name for name in only or () if name not in TABLES]
    if unknown:
        raise UserError(f"no table {unknown[0]!r}; choose among {', '.join(TABLES)}")
    workers = whole("workers", workers, 1, MOST_WORKERS)
    folder = Path(folder) if folder else RESULTS if profile == "lab" else RESULTS.with_name(f"results-{profile}")
    for name in only or TABLES:
        began = time.monotonic()
        outcome = TABLES[name].plan(folder, profile).run(workers)
        say(f"{name}: {outcome.computed} cells computed, {outcome.skipped} found finished, "
            f"{time.monotonic() - began:.0f} s, in {folder / name}.csv")
