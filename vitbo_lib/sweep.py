"""Grids of cells: each computed once, by any executor, its rows stored as soon as it is finished."""

import dataclasses
import itertools
import multiprocessing
import os
import pickle
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent import futures
from contextlib import contextmanager
from dataclasses import dataclass, field

from tqdm import tqdm

from vitbo_lib.errors import UserError
from vitbo_lib.store import Table

ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
RECORD_EVERY = 5.0  # seconds between notes of the wall time, so that a killed run has most of it on record
DIED = "its worker process died (no memory left? or compute cannot be imported: define it in a module, not a notebook)"


@dataclass(frozen=True)
class Outcome:
    """How many cells a sweep computed, and how many it found finished."""

    computed: int
    skipped: int


@dataclass(frozen=True)
class Plan:
    """A grid to be computed: `table` takes the rows that `compute` returns for each of the `cells`."""

    table: Table
    cells: Sequence
    compute: Callable

    def run(self, workers: int = 2, **options) -> Outcome:
        """Compute what is missing (`run_sweep`)."""
        return run_sweep(self.table, self.cells, self.compute, workers, **options)


class _Stop(BaseException):
    """A signal asks the sweep to end; not an `Exception`, so that no cell can take it for its own failure."""

    def __init__(self, number: int):
        self.number = number


class _Signals:
    """While active, Ctrl-C and SIGTERM raise `_Stop`, but never while rows are being written (`held`)."""

    def __init__(self):
        self.holding, self.waiting, self.before = False, None, {}

    def __enter__(self):
        if threading.current_thread() is threading.main_thread():  # elsewhere Python allows no handler
            self.before = {number: signal.signal(number, self._arrived) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *_):
        for number, handler in self.before.items():
            signal.signal(number, handler)

    def _arrived(self, number, _frame):
        if not self.holding:
            raise _Stop(number)
        self.waiting = number

    @contextmanager
    def held(self) -> Iterator[None]:
        self.holding = True
        try:
            yield
        finally:
            self.holding = False
        if self.waiting is not None:
            raise _Stop(self.waiting)


# ------------------------------------------------------------------------------------------------------------- cells

def entries(cell) -> dict:
    """The entries of a cell, a dict or a dataclass, by name."""
    if dataclasses.is_dataclass(cell) and not isinstance(cell, type):
        return {entry.name: getattr(cell, entry.name) for entry in dataclasses.fields(cell)}
    if isinstance(cell, Mapping):
        return dict(cell)
    raise UserError(f"{cell!r} is not a cell; give a dataclass or a dict with the key columns")


def cell_keys(table: Table, cell) -> list[tuple]:
    """The keys of the rows that a cell stands for: one, or several where an entry of the cell is a tuple.

    The plural of a column, `seeds` for `seed`, serves as well. `UserError` if a key column is missing.

    >>> cell_keys(Table("phase.csv", key=("N", "seed"), columns=("loss",)), {"N": 16, "seeds": (0, 1), "eta": 0.1})
    [(16, 0), (16, 1)]
    """
    named, choices = entries(cell), []
    for name in table.key:
        if name not in named and f"{name}s" not in named:
            raise UserError(f"cell {describe(cell)} has no {name}, a key column of {table.path}; add it")
        value = named[name] if name in named else named[f"{name}s"]
        choices.append(value if isinstance(value, tuple | list | range) else [value])
    return [table.key_of(dict(zip(table.key, key))) for key in itertools.product(*choices)]


def describe(cell) -> str:
    """A cell in one short line."""
    text = ", ".join(f"{name}={value}" for name, value in entries(cell).items())
    return f"({text[:150]}{'...' if len(text) > 150 else ''})"


# --------------------------------------------------------------------------------------------------------- executors

class _Here(futures.Executor):
    """Computes in this process, at once."""

    def submit(self, fn, /, *args, **kwargs):
        future = futures.Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


def _start_worker() -> None:
    """What each worker process does first: one thread, no answer to Ctrl-C (the sweep's own process decides), no
    life after the sweep's process, however that ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if "torch" in sys.modules:  # else the environment, ONE_THREAD, does it when torch is imported
        sys.modules["torch"].set_num_threads(1)
    parent = multiprocessing.parent_process()
    threading.Thread(target=lambda: (parent.join(), os._exit(1)), daemon=True).start()


@contextmanager
def _one_thread() -> Iterator[None]:
    """Environment of worker processes: libraries read it when they are loaded, so it is set before workers start."""
    before = {name: os.environ.get(name) for name in ONE_THREAD}
    os.environ.update(ONE_THREAD)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None) if value is None else os.environ.update({name: value})


def _pool(workers: int) -> futures.Executor:
    return futures.ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), _start_worker)


def _end(pool: futures.Executor, kill: bool) -> None:
    """Shut a pool of our own down; with `kill`, without waiting for the cells in flight."""
    processes = list((getattr(pool, "_processes", None) or {}).values())  # no public name before Python 3.14
    pool.shutdown(wait=not kill, cancel_futures=True)
    for process in processes if kill else ():
        process.terminate()
    for process in processes if kill else ():
        process.join()


@contextmanager
def executor(workers: int) -> Iterator[futures.Executor]:
    """`workers` processes of one thread each, as sweeps use them, or this process for workers = 1.

    Whatever cuts the work short, Ctrl-C say, ends them at once, with what they are computing.
    """
    if workers == 1:
        yield _Here()
        return
    with _one_thread():
        pool, ended = _pool(workers), False
        try:
            yield pool
            ended = True
        finally:
            _end(pool, kill=not ended)


@contextmanager
def _nothing() -> Iterator[None]:
    yield


# ------------------------------------------------------------------------------------------------------------- sweep

@dataclass
class _Run:
    """One sweep under way: what it still has to do, what became of it."""

    table: Table
    compute: Callable
    todo: list[tuple[object, set[tuple]]]  # cells, each with the keys that it lacks
    signals: _Signals
    bar: tqdm
    computed: int = 0
    failures: list[tuple[object, BaseException]] = field(default_factory=list)
    noted: float = field(default_factory=time.monotonic)

    def with_pools(self, workers: int) -> None:
        """Compute all cells on processes of our own. A worker that dies takes the cells in flight along: each of these
        is tried once more, alone, so that the one to blame is known and the others are not lost."""
        left = self.todo[::-1]
        while left:
            for item in self.on(_pool(workers), left, 2 * workers, own=True):
                if self.on(_pool(1), [item], 1, own=True):
                    self._failed(item[0], RuntimeError(DIED))
                if len(self.failures) > 2 and not self.computed:
                    return  # nothing works; do not start a process for each cell of a large grid to see it again

    def on(self, executor: futures.Executor, left: list, window: int, own: bool) -> list:
        """Compute the cells in `left`, from its end, at most `window` submitted at once, until none is left.

        If a worker of a pool of our `own` dies, returns the cells that were in flight.
        """
        flying = {}
        try:
            while left or flying:
                with self.signals.held() if own else _nothing():
                    while left and len(flying) < window:
                        future = executor.submit(self.compute, left[-1][0])
                        flying[future] = left.pop()
                        if future.done():  # an executor that computes at once: store it before the next
                            break
                for future in futures.wait(flying, return_when=futures.FIRST_COMPLETED).done:
                    if own and isinstance(future.exception(), futures.BrokenExecutor):
                        return list(flying.values())
                    self._finished(flying.pop(future), future)
        except futures.BrokenExecutor:
            if not own:
                raise
            return list(flying.values())
        finally:
            if own:
                _end(executor, kill=bool(flying or left))
            for future in flying:
                future.cancel()
        return []

    def _finished(self, item: tuple, future: futures.Future) -> None:
        cell, lacking = item
        try:
            rows = self._checked(cell, future.result())
        except Exception as error:
            self._failed(cell, error)
            return
        with self.signals.held():  # an error from here on is the table's, not the cell's, and ends the sweep
            self.table.append([row for row in rows if self.table.key_of(row) in lacking])
            self.computed += 1
            self.bar.update()
            if time.monotonic() - self.noted > RECORD_EVERY:
                self.note_time()

    def _checked(self, cell, rows) -> list[Mapping]:
        """The rows of a cell, if they can be stored and are the ones that it stands for."""
        rows = [rows] if isinstance(rows, Mapping) else list(rows)
        for row in rows:
            self.table.formatted(row)
        returned, promised = [self.table.key_of(row) for row in rows], cell_keys(self.table, cell)
        if Counter(returned) != Counter(promised):
            raise UserError(f"compute returned rows for {returned[:3]}, not for {promised[:3]}; give one for each key")
        return rows

    def _failed(self, cell, error: BaseException) -> None:
        self.failures.append((cell, error))
        self.bar.write(f"vitbo: cell {describe(cell)} failed: {_why(error)}", file=sys.stderr)
        self.bar.update()

    def note_time(self, complete: bool = False) -> None:
        now = time.monotonic()
        self.table.record(now - self.noted if self.todo else 0.0, complete)
        self.noted = now


def _why(error: BaseException) -> str:
    text = " ".join(str(error).split())[:300]
    return text if isinstance(error, UserError) else f"{type(error).__name__}: {text}"


def _check(workers: int, compute: Callable, pooled: bool) -> None:
    if isinstance(workers, bool) or not isinstance(workers, int) or workers < 1:
        raise UserError(f"workers = {workers!r} is not possible; give a whole number, at least 1")
    if pooled:
        try:
            pickle.dumps(compute)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise UserError(f"compute cannot be sent to another process ({error}); give a function defined at the top "
                            "of a module, or workers=1") from error


def run_sweep(table: Table, cells: Iterable, compute: Callable, workers: int = 2, *,
              executor: futures.Executor | None = None, progress: bool | None = None, fresh: bool = False) -> Outcome:
    """Compute every cell that `table` does not hold yet, and append its rows as soon as it is finished.

    `cells` are dataclasses or dicts with the key columns of the table (see `cell_keys`); `compute(cell)`, a function at
    the top of a module, returns one row (a dict) for each key of the cell. Runs on `workers` processes of one thread
    each, in this process for workers=1, or on any other `concurrent.futures.Executor`, which the caller ends. Call it
    under `if __name__ == "__main__":` in a script, since workers import the script.
    A cell that fails is named on standard error and the others go on; at the end `UserError` (or `RuntimeError`, if any
    failure was not a user's mistake) names them. Ctrl-C and SIGTERM leave a table that the next call continues, and
    raise SystemExit(130 or 143). `progress` shows a bar on standard error: on a terminal only, unless said otherwise.
    `UserError` before anything is computed if the table cannot be written or is of another kind (`Table.prepare`).
    """
    pooled = executor is None and workers > 1
    _check(workers, compute, pooled)
    cells = list(cells)
    wanted = [cell_keys(table, cell) for cell in cells]
    table.prepare(fresh)
    todo = _unfinished(cells, wanted, table.done())
    skipped = len(cells) - len(todo)
    disable = None if progress is None else not progress  # None: tqdm looks whether it writes to a terminal
    with (_Signals() as signals, _one_thread() if pooled else _nothing(),
          tqdm(total=len(cells), initial=skipped, disable=disable, unit="cell", desc=table.path.stem) as bar):
        run = _Run(table, compute, todo, signals, bar)
        try:
            if pooled:
                run.with_pools(workers)
            else:
                run.on(executor or _Here(), todo[::-1], len(todo), own=False)
            with signals.held():
                run.note_time(complete=not run.failures)
        except _Stop as stop:
            signals.holding = True  # a second Ctrl-C must not cut the last words short
            bar.close()
            run.note_time()
            again = f"`{table.command}`" if table.command else "the same command"
            print(f"vitbo: stopped; {skipped + run.computed} of {len(cells)} cells are in {table.path}; continue with "
                  f"{again}", file=sys.stderr, flush=True)
            raise SystemExit(128 + stop.number) from None
    _raise_failures(run)
    return Outcome(run.computed, skipped)


def _unfinished(cells: list, wanted: list[list[tuple]], done: set[tuple]) -> list[tuple[object, set[tuple]]]:
    """The cells that lack rows, with the keys that they lack; a key that two cells share is left to the first."""
    found = []
    for cell, keys in zip(cells, wanted):
        if lacking := set(keys) - done:
            found.append((cell, lacking))
            done |= lacking
    return found


def _raise_failures(run: _Run) -> None:
    if not run.failures:
        return
    named = "; ".join(f"{describe(cell)}: {_why(error)}" for cell, error in run.failures[:3])
    more = f"; and {len(run.failures) - 3} more" if len(run.failures) > 3 else ""
    message = (f"{len(run.failures)} of {len(run.todo)} cells failed: {named}{more}; {run.computed} were stored in "
               f"{run.table.path}; run the same again to try only those that are missing")
    mistakes = all(isinstance(error, UserError) for _, error in run.failures)
    raise (UserError if mistakes else RuntimeError)(message) from run.failures[0][1]
