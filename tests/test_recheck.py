"""Stored rows computed anew: a random handful a day, and a table that does not say what the library computes."""

import dataclasses
import datetime
from functools import partial

import numpy as np
import pytest

from vitbo_lib import recheck, results
from vitbo_lib.errors import UserError
from vitbo_lib.results import TABLES
from vitbo_lib.store import Table
from vitbo_lib.sweep import Plan, cell_keys

TODAY = int(f"{datetime.date.today():%Y%m%d}")
QUICK = [name for name, stored in TABLES.items() if stored.seconds <= 30]


@pytest.mark.slow
@pytest.mark.parametrize("name", QUICK)
def test_stored_rows_are_what_the_library_computes(name):
    """Rows of today: another handful every day."""
    found = recheck.recheck(TABLES[name], np.random.default_rng([TODAY, sum(name.encode())]), 2)
    assert found.compared >= 2  # a cell of some tables holds many rows
    assert found.agrees, found.differing


def square(cell: dict) -> dict:
    return {"n": cell["n"], "square": float(cell["n"]) ** 2, "seconds": 0.1}


def cube(cell: dict) -> list[dict]:
    return [square(cell) | {"square": float(cell["n"]) ** 3}]


def plan(compute, folder, profile) -> Plan:
    return Plan(Table(folder / "squares.csv", key=("n",), columns=("square", "seconds"), parameters={}, seeds=(),
                      command="none"), [{"n": n} for n in range(2, 8)], compute)


@pytest.fixture
def stored(tmp_path) -> results.Stored:
    plan(square, tmp_path, "lab").run(1)
    return results.Stored("squares", "squares", partial(plan, square))


def look(stored, folder, rows=3, **options):
    return recheck.recheck(stored, np.random.default_rng(0), rows, folder, **options)


def test_rows_that_agree(stored, tmp_path):
    assert look(stored, tmp_path).agrees
    assert look(stored, tmp_path).compared == 3
    assert look(stored, tmp_path, None).compared == 6
    assert look(stored, tmp_path, None, budget=0.0).compared == 1, "at least one row, however little time there is"
    assert look(stored, tmp_path, None, workers=2).compared == 6


def test_a_library_that_computes_something_else_is_seen(stored, tmp_path):
    changed = dataclasses.replace(stored, plan=partial(plan, cube))
    found = look(changed, tmp_path)
    assert not found.agrees
    assert len(found.differing) == 3
    assert "square = " in found.differing[0]


def test_missing_numbers_and_words_are_compared_too():
    assert recheck.differences({"a": float("nan")}, {"a": 1.0}, ("a",), 1.0)
    assert not recheck.differences({"a": float("nan")}, {"a": float("nan")}, ("a",), 1.0)
    assert not recheck.differences({"a": float("nan")}, {"a": None}, ("a",), 0.0)
    assert recheck.differences({"a": "x"}, {"a": "y"}, ("a",), 1.0)
    assert not recheck.differences({"seconds": 1.0}, {"seconds": 9.0}, ("seconds",), 0.0)


def test_no_table_or_no_row(stored, tmp_path):
    with pytest.raises(UserError, match="is not there"):
        look(stored, tmp_path / "elsewhere")
    other = dataclasses.replace(stored, plan=lambda folder, profile: dataclasses.replace(
        plan(square, folder, profile), cells=[{"n": 100}]))
    with pytest.raises(UserError, match="no row of its own grid"):
        look(other, tmp_path)


def test_every_table_of_the_book_is_stored_whole():
    """Each cell of the grid at `lab` has its row: nothing is missing, nothing was left half done."""
    for stored in TABLES.values():
        one = stored.plan(results.RESULTS, "lab")
        kept = one.table.done()
        lacking = [cell for cell in one.cells if not set(cell_keys(one.table, cell)) <= kept]
        assert not lacking, f"{stored.name}: {len(lacking)} of {len(one.cells)} cells are not stored"
