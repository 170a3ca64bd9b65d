"""The record: verdicts are those on record, and for every claim a planted fault changes its verdict."""

import functools
import json
import sys

import numpy as np
import pytest
from claim_faults import all_faults

from vitbo_lib import claims, store
from vitbo_lib.claims import CONSTANT, HOLDS, LIMIT, VERDICTS, Claim, Evidence
from vitbo_lib.errors import UserError
from vitbo_lib.intervals import Interval

ALL, FAULTS = claims.all_claims(), all_faults()


@functools.cache
def evidence(name: str) -> Evidence:
    return ALL[name].check()


@pytest.mark.parametrize("name", ALL)
def test_verdict_is_the_one_on_record(name):
    assert evidence(name).verdict == ALL[name].expected, evidence(name).finding


@pytest.mark.parametrize("name", ALL)
def test_planted_fault_changes_the_verdict(name, monkeypatch):
    assert name in FAULTS, "no fault is planted for this claim"
    FAULTS[name](monkeypatch)
    assert ALL[name].check().verdict != ALL[name].expected


def forget_tables():
    """Empty the caches through which the library reads stored tables."""
    for name, module in list(sys.modules.items()):
        if name.startswith("vitbo_lib."):
            for entry in vars(module).values():
                if hasattr(entry, "cache_clear"):
                    entry.cache_clear()


@pytest.mark.parametrize("name", ALL)
def test_no_claim_passes_without_numbers(name, monkeypatch):
    """With every number of the stored tables missing, a check that reads them says so, or ends in an error."""
    right, read = store.load, []

    def load(path, command=None):
        rows, provenance = right(path, command)
        read.append(path)
        return rows.assign(**{column: np.nan for column in provenance["columns"]
                              if rows[column].dtype.kind in "fiu"}), provenance

    monkeypatch.setattr(store, "load", load)
    forget_tables()
    try:
        verdict = ALL[name].check().verdict
    except Exception as error:
        verdict = f"{type(error).__name__}: {error}"
    finally:
        forget_tables()
    if read:
        assert verdict not in (HOLDS, CONSTANT, LIMIT), f"{verdict} without a single number"


def test_no_fault_without_its_claim():
    assert set(FAULTS) == set(ALL)


@pytest.mark.parametrize("name", ALL)
def test_evidence_is_complete(name):
    found = evidence(name)
    assert found.finding
    if found.low is not None and not np.isnan(found.low):
        assert found.low <= found.value <= found.high
        assert ALL[name].seeds, "an interval over seeds needs seeds"


def test_table_has_a_row_for_every_claim():
    records = [claims.Record(claim, Evidence("holds", "found"), 0.0) for claim in ALL.values()]
    assert len(claims.as_table(records).splitlines()) == len(ALL) + 2
    assert all(line.count("|") == 4 for line in claims.as_table(records).splitlines())


def test_json_is_plain():
    record = claims.Record(ALL["C90"], Evidence.of("holds", "found", Interval(1.0, float("nan"), float("nan"), 1)), 0.1)
    answer = json.loads(json.dumps(claims.as_json([record]), allow_nan=False))
    assert answer["claims"][0]["low"] is None
    assert answer["verdicts"]["holds"] == 1
    assert set(answer["verdicts"]) == set(VERDICTS)


def test_unknown_claim_or_verdict():
    with pytest.raises(UserError, match="C999"):
        claims.check(["C999"])
    with pytest.raises(UserError, match="nowhere"):
        claims.check_chapter("nowhere")
    with pytest.raises(ValueError, match="perhaps"):
        Evidence("perhaps", "found")
    with pytest.raises(ValueError, match="C90"):
        Claim(**(vars(ALL["C90"]) | {"kind": "rumour"}))
