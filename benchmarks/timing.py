"""Two pieces of work timed in turn, so that whatever slows the machine slows both."""

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Ratio:
    """`base` and `ours` in seconds (medians), their ratio, and the quartiles of the ratio over rounds."""

    name: str
    base: float
    ours: float
    ratio: float
    low: float
    high: float
    wanted: str

    def line(self) -> str:
        """One line of the report."""
        return (f"{self.name:<58} {self.base * 1e3:10.3f} ms {self.ours * 1e3:10.4f} ms  ratio {self.ratio:8.2f} "
                f"[{self.low:.2f}, {self.high:.2f}]  wanted {self.wanted}")


def _seconds(work: Callable[[], None], times: int) -> float:
    began = time.perf_counter()
    for _ in range(times):
        work()
    return (time.perf_counter() - began) / times


def compare(name: str, base: Callable[[], None], ours: Callable[[], None], *, wanted: str, base_times: int = 1,
            ours_times: int = 1, per: int = 1, rounds: int = 15) -> Ratio:
    """Time `base` against `ours` (which does the work of `per` bases), in turn, `rounds` times; ratio base / ours."""
    base(), ours()
    pairs = np.array([(_seconds(base, base_times), _seconds(ours, ours_times) / per) for _ in range(rounds)])
    low, middle, high = np.quantile(pairs[:, 0] / pairs[:, 1], (0.25, 0.5, 0.75))
    return Ratio(name, *np.median(pairs, axis=0), middle, low, high, wanted)
