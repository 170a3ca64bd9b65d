"""The size at which a chapter runs: full for the book, small for its test."""

import os
from typing import TypeVar

T = TypeVar("T")


def is_smoke() -> bool:
    """Whether chapters run at smoke size (environment variable ``VITBO_SMOKE=1``, set by ``make test``)."""
    return os.environ.get("VITBO_SMOKE", "0") not in ("", "0")


def size(full: T, smoke: T) -> T:
    """`full` in the book, `smoke` where only the code is tried.

    >>> import os
    >>> before = os.environ.pop("VITBO_SMOKE", None)
    >>> size(full=200, smoke=4)
    200
    >>> os.environ["VITBO_SMOKE"] = "1"
    >>> size(full=200, smoke=4)
    4
    >>> del os.environ["VITBO_SMOKE"]
    >>> if before is not None: os.environ["VITBO_SMOKE"] = before
    """
    return smoke if is_smoke() else full
