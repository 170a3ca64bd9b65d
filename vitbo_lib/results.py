"""The stored tables of the book, by name, and how each is computed at three sizes."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from vitbo_lib import draw_check, mnist_experiment, phase_diagram, regime
from vitbo_lib.data import whole
from vitbo_lib.errors import UserError
from vitbo_lib.sweep import Outcome

PROFILES = ("smoke", "lab", "paper")
RESULTS = phase_diagram.RESULTS
MOST_WORKERS = 1000


@dataclass(frozen=True)
class Stored:
    """One table: its file `name`.csv, what it holds, and `compute(folder, workers, profile)`."""

    name: str
    holds: str
    compute: Callable[[Path, int, str], Outcome]


def _figure_1(reading: str) -> Callable[[Path, int, str], Outcome]:
    """Figure 1: the paper's grid at `lab` with 5 seeds, at `paper` with 10; at `smoke` two cells."""
    def compute(folder: Path, workers: int, profile: str) -> Outcome:
        if profile == "smoke":
            return phase_diagram.run(reading, folder, range(2), (2, 4), (1.0, 100.0), workers)
        return phase_diagram.run(reading, folder, range(10 if profile == "paper" else 5), workers=workers)

    return compute


def _figure_2(folder: Path, workers: int, profile: str) -> Outcome:
    sizes = {"seeds": (0,), "n_samples": 200, "n_test": 500, "settings": ("usual",)} if profile == "smoke" else {}
    return mnist_experiment.first_look(folder / mnist_experiment.PATH.name, workers, **sizes)


TABLES = {stored.name: stored for stored in (
    Stored("draw_in_law", "runs with all coordinates and runs drawn directly", draw_check.run),
    Stored("theorems_regime", "Theorems 4.1 and 4.2 in their own regime", regime.run),
    Stored("theorems_lab", "the examples of Appendix A, both readings of w_O", regime.run_lab),
    Stored("figure_1_undivided", "Figure 1, w_O not divided by 16", _figure_1("undivided")),
    Stored("figure_1_divided", "Figure 1, w_O divided by 16", _figure_1("divided")),
    Stored("figure_2_first_look", "digits at N = 3000, SNR 0.2 and 2.0", _figure_2),
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
        outcome = TABLES[name].compute(folder, workers, profile)
        say(f"{name}: {outcome.computed} cells computed, {outcome.skipped} found finished, "
            f"{time.monotonic() - began:.0f} s, in {folder / name}.csv")
