"""Where the rows of a table come from: parameters, seeds, library, packages, machine, time, command, date."""

import dataclasses
import datetime
import functools
import hashlib
import json
import os
import platform
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import metadata
from pathlib import Path

from vitbo_lib.errors import UserError

LIBRARY = Path(__file__).resolve().parent
NOT_COMPUTING = ("figures", "figures.py", "cli", "cli.py", "commands.py")  # they change no number in a table
PACKAGES = ("numpy", "scipy", "torch")
ENTRIES = ("table", "key", "columns", "parameters", "seeds", "command", "wall_seconds", "complete", "rows",
           "fingerprint", "packages", "machine", "date", "earlier")
# what JSON gives for them; the others are text
KINDS = {"key": list, "columns": list, "parameters": dict, "seeds": list, "wall_seconds": (int, float),
         "complete": bool, "rows": (int, type(None)), "packages": dict, "machine": dict, "earlier": list}


@functools.cache
def library_fingerprint(folder: Path = LIBRARY) -> str:
    """Short checksum (12 hex digits) of the library's code that computes: every .py but figures/ and the command line.

    Taken once a process: what counts is the code that was loaded, not what an editor made of it since.
    """
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        name = path.relative_to(folder)
        if name.parts[0] not in NOT_COMPUTING:
            digest.update(name.as_posix().encode() + b"\0" + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:12]


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def environment() -> dict:
    """What changes from run to run: library, packages, machine (without its name), date (UTC)."""
    return {"fingerprint": library_fingerprint(),
            "packages": {"python": platform.python_version()} | {name: _version(name) for name in PACKAGES},
            "machine": {"cpus": os.cpu_count(), "architecture": platform.machine()},
            "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")}


def plain(parameters: Mapping) -> dict:
    """Parameters as JSON gives them back, so that they can be compared; `UserError` where it cannot hold them.

    >>> plain({"sizes": (8, 16), "eta": 0.1})
    {'sizes': [8, 16], 'eta': 0.1}
    """
    def convert(value):
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return dataclasses.asdict(value)
        if hasattr(value, "tolist"):
            return value.tolist()
        raise TypeError(f"{value!r} is not a number, text, list, dict or dataclass")

    try:
        return json.loads(json.dumps(dict(parameters), default=convert, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise UserError(f"parameters cannot be stored ({error}); give finite numbers, text, lists and dicts") from error


def difference(there: Mapping, here: Mapping) -> str:
    """What two sets of parameters disagree about, in words.

    >>> difference({"eta": 0.1, "M": 4}, {"eta": 0.2, "M": 4})
    'eta: 0.1 there, 0.2 here'
    """
    names = sorted(name for name in {*there, *here} if there.get(name, ...) != here.get(name, ...))
    return ", ".join(f"{name}: {there.get(name, 'absent')} there, {here.get(name, 'absent')} here" for name in names)


def read(table: Path) -> dict:
    """The JSON beside a table; `UserError` if it is missing or cannot be understood."""
    beside, reason = table.with_suffix(".json"), "not a complete JSON object"
    try:
        found = json.loads(beside.read_text(encoding="utf8"))
        if isinstance(found, dict) and all(name in found and isinstance(found[name], KINDS.get(name, str))
                                           for name in ENTRIES):
            return found
    except OSError as error:
        reason = error.strerror
    except ValueError:
        pass
    raise UserError(f"{table} has rows, but what they are is unknown: cannot read {beside} ({reason}); put that file "
                    "back, choose another table, or delete it to start over")


def write(path: Path, data: bytes) -> None:
    """Write a whole file: a reader, or a crash, finds the old one or the new one, no part; `OSError` if it cannot."""
    path = Path(os.path.realpath(path))
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError:
        with suppress(OSError):
            temporary.unlink()
        raise


def _duration(seconds: float) -> str:
    if seconds < 1:
        return "less than a second"
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


MOST_SEEDS_NAMED = 6  # more would fill the line; the JSON beside the table has them all


def _seeds(seeds: Sequence[int]) -> str:
    if len(seeds) < 2:
        return f"seed {seeds[0]}" if seeds else "no seeds"
    if list(seeds) == list(range(seeds[0], seeds[-1] + 1)):
        return f"seeds {seeds[0]} to {seeds[-1]}"
    if len(seeds) > MOST_SEEDS_NAMED:
        return f"{len(seeds)} seeds from {seeds[0]} to {seeds[-1]}"
    return f"seeds {', '.join(map(str, seeds))}"


def provenance_line(found: Mapping, path: str | Path) -> str:
    """The sentence beneath a figure (Markdown): the command that makes its rows again, its time, seeds, result file.

    >>> provenance_line({"command": "vitbo sweep phase", "wall_seconds": 200.0, "seeds": [0, 1, 2],
    ...                  "machine": {"cpus": 2}}, "results/phase.csv")
    'Rerun with `vitbo sweep phase`: 3 min on 2 cores, seeds 0 to 2; rows in `results/phase.csv`.'
    """
    full = Path(path).resolve()
    shown = full.relative_to(LIBRARY.parent) if full.is_relative_to(LIBRARY.parent) else full.name
    cpus = found["machine"]["cpus"]
    deed = f"Rerun with `{found['command']}`" if found["command"] else "Computed once"
    return (f"{deed}: {_duration(found['wall_seconds'])} on {cpus} core{'s' * (cpus != 1)}, {_seeds(found['seeds'])}; "
            f"rows in `{shown}`.")
