"""Tables of results: plain CSV, one row a cell and seed, with a JSON beside it that says where the rows come from.

A run may be killed at any moment and several processes may write to one table: rows are appended whole, under a lock,
and each carries a checksum (column `row_check`), so that an unfinished or hand-edited row is seen, reported and
treated as missing. Nothing is ever unpickled.
"""

import csv
import fcntl
import hashlib
import io
import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

from vitbo_lib import provenance
from vitbo_lib.errors import UserError
from vitbo_lib.provenance import library_fingerprint, provenance_line

__all__ = ["Table", "library_fingerprint", "load", "provenance_line", "row_check"]
CHECK = "row_check"


# ---------------------------------------------------------------------------------------------------- one row as text

def row_check(names: Sequence[str], fields: Sequence[str]) -> str:
    """Checksum of one row of text fields, 10 hex digits; names go in, so that a renamed or moved column is seen too.

    >>> row_check(["N", "loss"], ["16", "0.25"]) == row_check(["N", "loss"], ["16", "0.26"])
    False
    """
    return hashlib.sha256(repr(list(zip(names, fields, strict=True))).encode()).hexdigest()[:10]


def _value(text: str):
    """A field of the file as a value: None, a truth value, a whole number, a number, or else the text itself."""
    if text in ("", "True", "False"):
        return {"": None, "True": True, "False": False}[text]
    for kind in (int, float):
        with suppress(ValueError):
            return kind(text)
    return text


def _scalar(value):
    """A zero-dimensional array or tensor as the plain value that it holds."""
    return value.item() if hasattr(value, "item") and getattr(value, "ndim", None) == 0 else value


def _text(name: str, value) -> str:
    """The field that stands for a value; floats with all their digits, so that the same float comes back."""
    value = _scalar(value)
    if value is None:
        return ""
    if isinstance(value, bool | int):
        return str(value)
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, str) and value.isprintable() and isinstance(_value(value), str):
        return value
    raise UserError(f"column {name} = {value!r} cannot be stored; give a number, a truth value, None, or one line of "
                    "text that does not read as one of these")


def _line(fields: Iterable[str]) -> bytes:
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerow(fields)
    return buffer.getvalue().encode()


def _fields(line: bytes) -> list[str] | None:
    """The fields of one line of the file; None where it is not CSV. Lines are read one by one, so that a damaged
    quotation mark cannot swallow the rows after it."""
    try:
        return next(csv.reader([line.decode()], strict=True), [])
    except (UnicodeDecodeError, csv.Error):
        return None


def _row(names: Sequence[str], line: bytes) -> tuple | None:
    """The values of one line; None if it is damaged."""
    fields = _fields(line)
    if fields is None or len(fields) != len(names) + 1 or fields[-1] != row_check(names, fields[:-1]):
        return None
    return tuple(map(_value, fields[:-1]))


# ------------------------------------------------------------------------------------------------------------- files

def _report(message: str) -> None:
    print(f"vitbo: {message}", file=sys.stderr, flush=True)


def _cannot(deed: str, path: Path, error: OSError) -> UserError:
    return UserError(f"cannot {deed} {path}: {error.strerror or error}; choose another file, or make room for this one")


@contextmanager
def _locked(path: Path, write: bool) -> Iterator[int]:
    """A descriptor of the file that bears this name, locked against other processes (shared for reading)."""
    try:
        if write:
            path.parent.mkdir(parents=True, exist_ok=True)
        while True:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT if write else os.O_RDONLY, 0o644)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX if write else fcntl.LOCK_SH)
                if _is_named(descriptor, path):  # else it was replaced while this process waited
                    yield descriptor
                    return
            finally:
                os.close(descriptor)
    except OSError as error:
        raise _cannot("write" if write else "read", path, error) from error


def _is_named(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False


def _write(descriptor: int, data: bytes) -> None:
    """Put `data` at the end of the file and on the disk, or leave the file as it was."""
    before = os.lseek(descriptor, 0, os.SEEK_END)
    try:
        left = memoryview(data)
        while left:
            left = left[os.write(descriptor, left):]
        os.fsync(descriptor)
    except OSError:
        os.ftruncate(descriptor, before)
        raise


# ------------------------------------------------------------------------------------------------------------- table

@dataclass(frozen=True)
class _Content:
    """What stands in a file: valid rows as values and as lines, and how many damaged ones."""

    rows: list[tuple]
    lines: list[bytes]
    damaged: int


@dataclass(frozen=True)
class Table:
    """A CSV file of rows, each with the columns `key` (what was asked: sizes, seed) and `columns` (what was measured).

    `parameters` is what all rows share and what is not in the key; a file made with other parameters is refused. More
    cells and more seeds are welcome in the same file, so the grid and the `seeds` are not among the parameters.
    `command` is what a reader types to make the rows again. Values of a row: numbers, truth values, None, text (one
    line); floats come back exactly. A library whose code changed since the rows were made is only warned about, since
    most changes do not touch the numbers, and is recorded (`earlier`). `UserError` for columns that cannot be.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> table = Table(Path(folder.name, "phase.csv"), key=("N", "seed"), columns=("loss",), parameters={"M": 4})
    >>> table.append([{"N": 16, "seed": 0, "loss": 0.1 + 0.2}])
    >>> table.done(), table.rows()["loss"][0]
    ({(16, 0)}, np.float64(0.30000000000000004))
    >>> folder.cleanup()
    """

    path: Path
    key: tuple[str, ...]
    columns: tuple[str, ...]
    parameters: Mapping = field(default_factory=dict)
    seeds: Sequence[int] = ()
    command: str = ""

    def __post_init__(self):
        plain = {"path": Path(self.path), "key": tuple(self.key), "columns": tuple(self.columns),
                 "parameters": provenance.plain(self.parameters), "seeds": tuple(sorted({int(s) for s in self.seeds}))}
        for name, value in plain.items():
            object.__setattr__(self, name, value)
        if self.path.suffix != ".csv":
            raise UserError(f"a table is a .csv file, not {self.path}; choose a name that ends in .csv")
        if not self.key or len(set(self.names)) < len(self.names) or CHECK in self.names:
            raise UserError(f"columns {', '.join(self.names)}: need a key, all different, and none called {CHECK}")
        if not all(isinstance(name, str) and name.isprintable() and name for name in self.names):
            raise UserError(f"columns {self.names!r}: each name is one line of text")

    @property
    def names(self) -> tuple[str, ...]:
        """All columns, the key first, without the checksum."""
        return self.key + self.columns

    def key_of(self, row: Mapping) -> tuple:
        """The key of a row (a dict that has at least the columns of the key), as `done` lists it."""
        found = tuple(_value(_text(name, row[name])) for name in self.key)
        if any(value is None or value != value for value in found):
            raise UserError(f"a key of {dict(zip(self.key, found))} cannot be found again; give numbers or text")
        return found

    def prepare(self, fresh: bool = False) -> None:
        """Make the file ready for rows, or say with `UserError` why it cannot be, before anything is computed.

        Refuses a file with other columns or parameters; drops damaged rows with a line on standard error, so that they
        are computed again; warns if the library changed. `fresh` starts over and forgets every row.
        """
        with _locked(self.path, write=True) as descriptor:
            content = self._content(descriptor, fresh)
            if fresh or not (content.rows or content.damaged):
                self._start(descriptor)
                return
            found = self._checked_provenance()
            if found["fingerprint"] != (now := provenance.library_fingerprint()):
                _report(f"{self.path}: its rows are of another library version ({found['fingerprint']}, now {now}) "
                        "and are kept; delete it to start over if the change touches their numbers")
            if content.damaged:
                self._report_damage(content.damaged)
                provenance.write(self.path, _line([*self.names, CHECK]) + b"".join(content.lines))

    def append(self, rows: Iterable[Mapping]) -> None:
        """Add rows, all of them on the disk when this returns; a crash before leaves at most one unfinished line.

        `UserError` if a row has other columns, a value that cannot be stored, or the file cannot be written.
        """
        data = b"".join(map(self.formatted, rows))
        with _locked(self.path, write=True) as descriptor:
            if self._is_new(descriptor):
                self._start(descriptor)
            self._update_provenance({"complete": False, "rows": None}, rows_follow=True)
            self._mend_end(descriptor)
            _write(descriptor, data)

    def formatted(self, row: Mapping) -> bytes:
        """The line of the file that holds a row; `UserError` for other columns or values that cannot be stored."""
        if set(row) != set(self.names):
            raise UserError(f"a row for {self.path} has the columns {', '.join(map(str, row))}; give exactly "
                            f"{', '.join(self.names)}")
        self.key_of(row)
        fields = [_text(name, row[name]) for name in self.names]
        return _line([*fields, row_check(self.names, fields)])

    def rows(self) -> pd.DataFrame:
        """The valid rows in the order of the file, the first of each key; damaged ones are reported and left out."""
        return self._frame(self._stored())

    def done(self) -> set[tuple]:
        """The keys that have a valid row."""
        return set(self._stored())

    def record(self, seconds: float, complete: bool = False) -> None:
        """Add the wall time of a run to the provenance, and say whether the table now holds all that was asked for."""
        count = len(self.done()) if complete else None
        with _locked(self.path, write=True):
            wall_seconds = self._checked_provenance()["wall_seconds"] + seconds
            self._update_provenance({"complete": complete, "rows": count, "wall_seconds": wall_seconds})

    def _stored(self) -> dict[tuple, tuple]:
        """The valid rows by key; damage is reported."""
        if not self.path.exists():
            return {}
        with _locked(self.path, write=False) as descriptor:
            content = self._content(descriptor)
            if content.rows:
                self._checked_provenance()
        if content.damaged:
            self._report_damage(content.damaged)
        return self._first(content)

    # What follows is called with the file locked.

    def _content(self, descriptor: int, fresh: bool = False) -> _Content:
        """What the file holds; `UserError` if it is not a table with these columns."""
        with open(descriptor, "rb", closefd=False) as file:
            file.seek(0)
            data = file.read()
        header, *lines = data.split(b"\n")
        if _line([*self.names, CHECK]).startswith(data):  # empty, or the header was not finished
            return _Content([], [], 0)
        found = _fields(header) or [""]
        if fresh and found[-1] == CHECK:
            return _Content([], [], 0)
        if found != [*self.names, CHECK]:
            raise UserError(f"{self.path} has the columns {', '.join(found)[:200]} instead of {', '.join(self.names)}, "
                            f"{CHECK}; choose another file, or delete it")
        lines = [line.rstrip(b"\r") for line in lines if line.strip()]
        rows = [_row(self.names, line) for line in lines]
        valid = [(row, line + b"\n") for row, line in zip(rows, lines) if row is not None]
        return _Content([row for row, _ in valid], [line for _, line in valid], len(rows) - len(valid))

    def _first(self, content: _Content) -> dict[tuple, tuple]:
        """The first row of each key."""
        width, first = len(self.key), {}
        for row in content.rows:
            first.setdefault(row[:width], row)
        return first

    def _frame(self, first: dict[tuple, tuple]) -> pd.DataFrame:
        return pd.DataFrame(list(first.values()), columns=list(self.names))

    def _report_damage(self, count: int) -> None:
        _report(f"{self.path}: {count} damaged row{'s' * (count > 1)} (checksum differs or line unfinished); treated "
                "as missing, will be recomputed")

    def _is_new(self, descriptor: int) -> bool:
        """Whether the file has no finished header yet; `UserError` if it has another one."""
        expected = _line([*self.names, CHECK])
        start = os.pread(descriptor, len(expected), 0)
        if start != expected and not expected.startswith(start):
            self._content(descriptor)  # says what is wrong
        return start != expected

    def _start(self, descriptor: int) -> None:
        """An empty table. The old rows go first: a run killed in between leaves none that could pass for new ones."""
        os.ftruncate(descriptor, 0)
        _write(descriptor, _line([*self.names, CHECK]))
        self._save({"table": self.path.name, "key": self.key, "columns": self.columns, "parameters": self.parameters,
                    "seeds": self.seeds, "command": self.command, "wall_seconds": 0.0, "complete": False, "rows": None}
                   | provenance.environment() | {"earlier": []})

    def _mend_end(self, descriptor: int) -> None:
        """End the last line if a crash, or an editor, left it open: rows must not be glued to it."""
        size = os.fstat(descriptor).st_size
        if os.pread(descriptor, 1, size - 1) == b"\n":
            return
        with open(descriptor, "rb", closefd=False) as file:
            file.seek(0)
            tail = file.read().rsplit(b"\n", 1)[-1]
        if _row(self.names, tail) is None:
            os.ftruncate(descriptor, size - len(tail))
            self._report_damage(1)
        else:
            _write(descriptor, b"\n")

    def _checked_provenance(self) -> dict:
        """The provenance, once it is sure that the rows there are of the same kind as the ones wanted here."""
        found = provenance.read(self.path)
        if found["parameters"] != self.parameters:
            other = provenance.difference(found["parameters"], self.parameters)
            raise UserError(f"{self.path} was made with other parameters ({other}); choose another file, delete this "
                            "one, or delete it to start over")
        return found

    def _update_provenance(self, changes: dict, rows_follow: bool = False) -> None:
        old, now = self._checked_provenance(), provenance.environment()
        new = old | changes
        if rows_follow:
            new |= {"seeds": sorted({*old["seeds"], *self.seeds}), "command": self.command or old["command"]}
            if (old["fingerprint"], old["packages"]) != (now["fingerprint"], now["packages"]):
                earlier = {name: old[name] for name in ("fingerprint", "packages", "machine", "date")}
                new |= now | {"earlier": [*old["earlier"], earlier]}
        if new != old:
            self._save(new | {"date": now["date"]})

    def _save(self, entries: dict) -> None:
        text = json.dumps({name: entries[name] for name in provenance.ENTRIES}, indent=1, ensure_ascii=False)
        provenance.write(self.path.with_suffix(".json"), f"{text}\n".encode())


# ---------------------------------------------------------------------------------------------------------- chapters

def load(path: str | Path, command: str | None = None) -> tuple[pd.DataFrame, dict]:
    """A stored table for a chapter: its rows sorted by key, and its provenance.

    `UserError`, with the command that makes the table, when it is missing or empty, when a row is damaged, when rows
    were removed, or when text stands among numbers; a sweep that was not finished is reported on standard error.

    >>> load("nothing/phase.csv", command="vitbo sweep phase")
    Traceback (most recent call last):
        ...
    vitbo_lib.errors.UserError: nothing/phase.csv is missing; make it with `vitbo sweep phase`
    """
    path = Path(path)
    if not path.exists():
        raise UserError(f"{path} is missing; make it with `{command or 'make results'}`")
    found = provenance.read(path)
    remedy = f"`{command or found['command'] or 'make results'}`"
    table = Table(path, found["key"], found["columns"], found["parameters"])
    with _locked(path, write=False) as descriptor:
        content = table._content(descriptor)
    frame = table._frame(table._first(content))
    if content.damaged:
        raise UserError(f"{path} has {content.damaged} damaged rows (edited by hand, or unfinished); recompute them "
                        f"with {remedy}")
    if len(frame) < (found["rows"] or 1):
        raise UserError(f"{path} has {len(frame)} rows, but {found['rows'] or 'some'} were stored; recompute them with "
                        f"{remedy}")
    for name in frame:
        kinds = {isinstance(value, str) for value in frame[name] if value is not None}
        if len(kinds) > 1:
            raise UserError(f"{path} has text among the numbers of its column {name}: edited by hand; delete the file "
                            f"and compute it again with {remedy}")
    if not found["complete"]:
        _report(f"{path}: the run was not finished, {len(frame)} rows so far; continue it with {remedy}")
    return frame.sort_values(list(table.key), kind="stable", ignore_index=True), found
