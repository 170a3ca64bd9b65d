"""The stored comparison of the direct draw with runs that have all coordinates."""

import functools

import numpy as np
import pandas as pd
import pytest

from vitbo_lib import draw, draw_check, pages, results, store
from vitbo_lib.draw_check import EACH, QUANTITIES, RUNS, Cell, compare, compute, index_ignored, planted
from vitbo_lib.seeds import stream


@functools.cache
def smoke(folder) -> pd.DataFrame:
    said = []
    for _ in range(2):
        results.compute_tables("smoke", ["draw_in_law"], folder, workers=1, say=said.append)
    assert "3 cells computed" in said[0]
    assert "0 cells computed, 3 found finished" in said[1]
    return store.load(folder / "draw_in_law.csv")[0]


def test_table_has_its_sides_and_takes_up_where_it_stopped(tmp_path_factory):
    rows = smoke(tmp_path_factory.mktemp("draw"))
    assert rows["engine"].value_counts().to_dict() == {"full": 20, "drawn": 20, "fault": 20}
    assert not rows["seed"].duplicated().any()
    assert (rows["train_loss"] <= draw_check.SMALL.epsilon).all()


def test_stored_table_is_complete():
    rows = draw_check.load()
    assert rows["engine"].value_counts().to_dict() == RUNS
    assert not rows["seed"].duplicated().any()


def test_some_stored_runs_come_out_again():
    """Full runs to rounding, which other versions of a library may change; drawn ones too."""
    rows = draw_check.load().set_index(["engine", "seed"])
    for engine, seed in (("full", 300), ("drawn", 301), ("fault", 302)):
        (again,) = compute(Cell(engine, (seed,)))
        kept = rows.loc[engine, seed]
        assert [again[name] for name in QUANTITIES] == pytest.approx([kept[name] for name in QUANTITIES], rel=1e-3)


def test_the_fault_is_the_index_of_chi():
    factors = index_ignored(3, 8, stream(0, "fault"), (20_000,))
    assert (factors.diagonal(axis1=1, axis2=2) ** 2).mean(0) == pytest.approx([8, 8, 8], rel=0.03)
    assert (np.triu(factors, 1) == 0).all()
    assert index_ignored(3, 2, stream(0, "fault")).shape == (3, 2)


def test_planted_fault_goes_away_again():
    right = draw.gaussian_factor
    with planted():
        assert draw.gaussian_factor is index_ignored
    assert draw.gaussian_factor is right


def sides(shift: float, stretch: float = 1.0, runs: int = 4000) -> pd.DataFrame:
    rng = stream(0, "sides")
    return pd.concat([
        pd.DataFrame({"engine": engine} | {name: rng.standard_normal(runs) * s + m for name in QUANTITIES})
        for engine, m, s in (("full", 0, 1), ("drawn", shift, stretch))])


def test_equal_laws_pass_others_do_not():
    assert not any(one.differs for one in compare(sides(0)).values())
    assert all(one.differs for one in compare(sides(0.15)).values())
    stretched = compare(sides(0, 1.2)).values()
    assert all(one.differs and 0 in one.difference for one in stretched)  # seen in the law, not in the mean


def test_the_level_is_that_of_all_comparisons_together():
    assert pytest.approx(0.05) == EACH * 2 * len(QUANTITIES)
    found = compare(sides(0))["steps"].in_deviations
    assert found.high - found.mean == pytest.approx(2.91 * np.sqrt(2 / 4000), rel=0.05)  # normal quantile of 0.36 %


def test_pages_show_tables_as_markdown():
    shown = pages.table(["a", "b"], [[1, "$x$"]])
    assert shown._repr_markdown_() == str(shown) == "| a | b |\n| --- | --- |\n| 1 | $x$ |"
