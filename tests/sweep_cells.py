"""Cells that worker processes of the tests import; run as a script, a sweep that a test kills."""

import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from vitbo_lib.errors import UserError
from vitbo_lib.store import Table
from vitbo_lib.sweep import run_sweep


@dataclass(frozen=True)
class Cell:
    N: int
    seeds: tuple[int, ...]
    folder: str = ""
    pause: float = 0.0


def table(path, **more) -> Table:
    return Table(path, ("N", "seed"), ("loss", "worker"), parameters={"M": 4}, command="vitbo sweep try", **more)


def loss(n: int, seed: int) -> float:
    return 1 / (n + 3 * seed + 0.1)


def compute(cell: Cell) -> list[dict]:
    if cell.folder:
        Path(cell.folder, f"{cell.N}-{os.getpid()}").touch()
    time.sleep(cell.pause)
    return [{"N": cell.N, "seed": seed, "loss": loss(cell.N, seed), "worker": os.getpid()} for seed in cell.seeds]


def compute_with_faults(cell: Cell) -> list[dict]:
    """N = 3 fails, N = 5 takes its process along, N = 7 returns a row of another cell."""
    if cell.N == 3:
        raise UserError("N = 3 is unlucky; take another")
    if cell.N == 5:
        os._exit(9)
    return compute(Cell(8, cell.seeds) if cell.N == 7 else cell)


def threads(cell: Cell) -> list[dict]:
    import torch

    return [{"N": cell.N, "seed": seed, "loss": torch.get_num_threads(), "worker": os.getpid()} for seed in cell.seeds]


if __name__ == "__main__":
    path, folder, workers, first, last = sys.argv[1:]
    cells = [Cell(n, (0, 1), folder, 0.05) for n in range(int(first), int(last))]
    print(run_sweep(table(path, seeds=(0, 1)), cells, compute, workers=int(workers)))
