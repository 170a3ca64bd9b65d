"""Stored rows computed anew: a random handful of each table, against what is stored.

A table is worth what its rows are worth on another machine, with the library as it is now. A row agrees when every
number is within the table's tolerance of the stored one; wall times are not compared.
"""

import dataclasses
import math
import time
from collections.abc import Iterator, Mapping
from concurrent import futures
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from vitbo_lib import sweep
from vitbo_lib.errors import UserError
from vitbo_lib.results import RESULTS, TABLES, Stored

TIMES = ("seconds",)  # columns that say how long something took


@dataclass(frozen=True)
class Checked:
    """What became of one table: rows computed anew, of how many, and the first that differ, in words."""

    name: str
    compared: int
    rows: int
    tolerance: float
    differing: tuple[str, ...]
    seconds: float

    @property
    def agrees(self) -> bool:
        """Whether rows were compared and none differs."""
        return self.compared > 0 and not self.differing


def narrowed(cell, rng: np.random.Generator, key: tuple[str, ...]):
    """The same cell for one key only: of every entry that stands for several keys, one is chosen.

    >>> narrowed({"N": 4, "seeds": (3,)}, np.random.default_rng(0), ("N", "seed"))
    {'N': 4, 'seeds': (3,)}
    """
    entries = sweep.entries(cell)
    chosen = {name: (values[int(rng.integers(len(values)))],) for name, values in entries.items()
              if isinstance(values, tuple | list | range) and (name in key or name.removesuffix("s") in key)}
    return dataclasses.replace(cell, **chosen) if dataclasses.is_dataclass(cell) else entries | chosen


def differences(stored: Mapping, found: Mapping, columns: tuple[str, ...], tolerance: float) -> list[str]:
    """The columns of a row that are further apart than `tolerance` allows, with both numbers.

    >>> differences({"loss": 0.5}, {"loss": 0.50001}, ("loss",), 1e-3), differences({"a": 1}, {"a": 2}, ("a",), 0.1)
    ([], ['a = 1 stored, 2 anew'])
    """
    def same(old, new) -> bool:
        if isinstance(old, str) or isinstance(new, str):
            return str(old) == str(new)
        old, new = (math.nan if number is None else float(number) for number in (old, new))  # None: missing
        if not (math.isfinite(old) and math.isfinite(new)):  # an infinite one would be within any part of its size
            return old == new or (math.isnan(old) and math.isnan(new))
        return abs(old - new) <= tolerance * (1 if abs(old) < 1 else abs(old))

    return [f"{name} = {stored[name]} stored, {found[name]} anew" for name in columns
            if name not in TIMES and not same(stored[name], found[name])]


def recheck(stored: Stored, rng: np.random.Generator, rows: int | None, folder: str | Path = RESULTS,
            budget: float = math.inf, workers: int = 1) -> Checked:
    """Compute `rows` random rows of a stored table anew (None: as many as `budget` seconds allow; at least one).

    The tables are those of the profile `lab`. `UserError` where the table is not there or holds no row of that grid.
    """
    began = time.monotonic()
    plan = stored.plan(Path(folder), "lab")
    if not plan.table.path.is_file():
        raise UserError(f"{plan.table.path} is not there; run {plan.table.command}")
    kept = {plan.table.key_of(row): row for row in plan.table.rows().to_dict("records")}
    cells = [plan.cells[i] for i in rng.permutation(len(plan.cells))]
    wanted = (one for one in (narrowed(cell, rng, plan.table.key) for cell in cells)
              if sweep.cell_keys(plan.table, one)[0] in kept)
    compared, differing = 0, []
    for found in _computed(plan, wanted, rows, began + budget, workers):
        for row in found:
            compared += 1
            wrong = differences(kept[plan.table.key_of(row)], row, plan.table.columns, stored.tolerance)
            if wrong:
                differing.append(f"{dict(zip(plan.table.key, plan.table.key_of(row)))}: {wrong[0]}")
    if not compared:
        raise UserError(f"{plan.table.path} holds no row of its own grid; run {plan.table.command}")
    return Checked(stored.name, compared, len(kept), stored.tolerance, tuple(differing), time.monotonic() - began)


def _computed(plan: sweep.Plan, wanted: Iterator, rows: int | None, until: float,
              workers: int) -> Iterator[list[Mapping]]:
    """What `compute` returns for one wanted cell after the other, on `workers` processes."""
    with sweep.executor(workers) as pool:
        flying, started = set(), 0
        while True:
            while len(flying) < workers and (rows is None or started < rows) and (
                    not started or time.monotonic() < until):
                cell = next(wanted, None)
                if cell is None:
                    break
                flying.add(pool.submit(plan.compute, cell))
                started += 1
            if not flying:
                return
            done, flying = futures.wait(flying, return_when=futures.FIRST_COMPLETED)
            for future in done:
                try:
                    found = future.result()
                except futures.BrokenExecutor:
                    raise UserError(f"{plan.table.path.stem}: {sweep.DIED}; try again with fewer workers") from None
                yield [found] if isinstance(found, Mapping) else list(found)


def recheck_all(seed: int, rows: int | None = 2, budget: float = math.inf, workers: int = 1,
                at_most_seconds: float = math.inf, folder: str | Path = RESULTS) -> Iterator[Checked]:
    """`recheck` of every table whose rows take at most `at_most_seconds` each; rows are chosen by `seed`."""
    for stored in TABLES.values():
        if stored.seconds <= at_most_seconds:
            rng = np.random.default_rng([seed, sum(stored.name.encode())])
            yield recheck(stored, rng, rows, folder, budget, workers)

