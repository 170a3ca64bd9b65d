"""What the chapters share: tables that a page renders."""

from collections.abc import Iterable, Sequence


class Rendered(str):
    """Text in MyST that a notebook shows as a page does, formulas and all, when it is the last value of a cell."""

    __slots__ = ()

    def _repr_markdown_(self) -> str:
        return str(self)


def table(header: Sequence, rows: Iterable[Sequence]) -> Rendered:
    """A table with one `header` and any number of `rows`; entries are text in MyST, or anything that prints.

    >>> print(table(["$N$", "loss"], [[16, "0.1 [0.0, 0.2]"]]))
    | $N$ | loss |
    | --- | --- |
    | 16 | 0.1 [0.0, 0.2] |
    """
    lines = [header, ["---"] * len(header), *rows]
    return Rendered("\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines))
