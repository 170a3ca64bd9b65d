"""The record: every statement that the book checks, its evidence and its verdict.

A `Claim` says what is claimed and how it is checked; its `check` returns `Evidence`: what was measured and the verdict
that follows. The functions that measure are in `vitbo_lib.evidence`, one module a part of the book.
"""

import functools
import importlib
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from vitbo_lib.data import one_of
from vitbo_lib.errors import UserError
from vitbo_lib.intervals import Interval

HOLDS, CONSTANT, LIMIT, SCALE, DIFFERS = VERDICTS = (
    "holds", "holds up to a constant", "holds in the limit", "not checkable at this scale", "differs from print")
KINDS = ("symbolic", "exact", "statistical", "scaling", "figure")
PARTS = ("setting", "reduction", "theory", "regime", "transition", "symmetric", "finite_size", "vectorized", "stages",
         "concentration", "population", "experiments", "corrections")  # modules of vitbo_lib.evidence, as in the book
BADGES = {HOLDS: ".verdict .holds", CONSTANT: ".verdict .partly", LIMIT: ".verdict .partly", SCALE: ".verdict",
          DIFFERS: ".verdict .differs"}


@dataclass(frozen=True)
class Evidence:
    """What was found: the `verdict`, the measured `value` with its 95 % interval where there is one, and `finding`.

    `finding` says the same in a few words, for the reader of a table.
    """

    verdict: str
    finding: str
    value: float | None = None
    low: float | None = None
    high: float | None = None

    def __post_init__(self):
        if self.verdict not in VERDICTS:
            raise ValueError(f"no verdict {self.verdict!r}; choose one of {', '.join(VERDICTS)}")

    @classmethod
    def of(cls, verdict: str, finding: str, interval: Interval) -> "Evidence":
        """Evidence whose value is a mean with its interval."""
        return cls(verdict, finding, interval.mean, interval.low, interval.high)


@dataclass(frozen=True, kw_only=True)
class Claim:
    """One statement: where the paper makes it (or "ours"), how it is checked, and what the check is expected to say.

    `tolerance` says how far off is accepted and why; `chapter` is the page that shows it; `expected` is the verdict on
    record: a test fails when `check` gives another.
    """

    id: str
    statement: str
    where: str
    kind: str
    quantity: str
    tolerance: str
    chapter: str
    expected: str
    check: Callable[[], Evidence]
    seeds: tuple[int, ...] = ()

    def __post_init__(self):
        if self.kind not in KINDS or self.expected not in VERDICTS:
            raise ValueError(f"claim {self.id}: kind {self.kind!r} or verdict {self.expected!r} is not one of ours")


@dataclass(frozen=True)
class Record:
    """A claim with the evidence found for it and the seconds that took."""

    claim: Claim
    evidence: Evidence
    seconds: float


@functools.cache
def all_claims() -> dict[str, Claim]:
    """Every claim by its identifier, in the book's order."""
    claims = [claim for part in PARTS for claim in importlib.import_module(f"vitbo_lib.evidence.{part}").CLAIMS]
    by_id = {claim.id: claim for claim in claims}
    if len(by_id) < len(claims):
        raise ValueError("two claims share an identifier")
    return by_id


def check(only: Sequence[str] | None = None, progress: Callable[[], object] | None = None) -> list[Record]:
    """Evidence for the claims `only` (None: all); `progress` is called after each. `UserError` for an unknown one."""
    claims = all_claims()
    for name in only or ():
        if name not in claims:
            raise UserError(f"no claim {name!r}; identifiers are {', '.join(claims)}")
    records = []
    for claim in [claims[name] for name in only] if only else claims.values():
        began = time.perf_counter()
        records.append(Record(claim, claim.check(), time.perf_counter() - began))
        if progress is not None:
            progress()
    return records


def check_chapter(chapter: str) -> list[Record]:
    """Evidence for the claims that a chapter makes, by the name of its file (without .md)."""
    found = [claim.id for claim in all_claims().values() if claim.chapter == chapter]
    if not found:
        raise UserError(f"no claims for a chapter {chapter!r}")
    return check(found)


def badge(verdict: str) -> str:
    """A verdict as pages show it (MyST).

    >>> badge("holds")
    '[holds]{.verdict .holds}'
    """
    one_of("verdict", verdict, VERDICTS)
    return f"[{verdict}]{{{BADGES[verdict]}}}"


def as_table(records: Sequence[Record]) -> str:
    """The records as a table in MyST: verdict and identifier, statement and where, what was found.

    The verdict comes first, so that it is seen on a phone, where tables scroll sideways.
    """
    lines = [["verdict", "statement", "found"], ["---"] * 3]
    for record in records:
        claim = record.claim
        lines.append([f"{badge(record.evidence.verdict)} `{claim.id}`", f"{claim.statement} *({claim.where})*",
                      record.evidence.finding])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def by_chapter(records: Sequence[Record]) -> dict[str, list[Record]]:
    """The records by the chapter that shows them, in the book's order."""
    found = {}
    for record in records:
        found.setdefault(record.claim.chapter, []).append(record)
    return found


def counts(records: Sequence[Record]) -> dict[str, int]:
    """How many records have each verdict, in the order of `VERDICTS`."""
    return {verdict: sum(record.evidence.verdict == verdict for record in records) for verdict in VERDICTS}


def as_json(records: Sequence[Record]) -> dict:
    """What ``vitbo claims --json`` prints: a list of claims, and how many have each verdict."""
    def number(value):
        return None if value is None or math.isnan(value) else float(value)

    entries = [{"id": r.claim.id, "statement": r.claim.statement, "where": r.claim.where, "kind": r.claim.kind,
                "quantity": r.claim.quantity, "tolerance": r.claim.tolerance, "chapter": r.claim.chapter,
                "seeds": list(r.claim.seeds), "verdict": r.evidence.verdict, "expected": r.claim.expected,
                "finding": r.evidence.finding, "value": number(r.evidence.value), "low": number(r.evidence.low),
                "high": number(r.evidence.high), "seconds": round(r.seconds, 3)} for r in records]
    return {"claims": entries, "verdicts": counts(records)}


def as_text(records: Sequence[Record]) -> str:
    """The records for a terminal."""
    lines = []
    for record in records:
        claim, evidence = record.claim, record.evidence
        lines += [f"{claim.id:18} {evidence.verdict}", f"    {claim.statement} ({claim.where})",
                  f"    {evidence.finding}"]
    return "\n".join(lines)
