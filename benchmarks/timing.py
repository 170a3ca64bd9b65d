"""Two pieces of work timed in turn, so that whatever slows the machine slows both."""

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

PAUSE = 0.3  # seconds before each timing: threads of the other side spin for a while after their work


@dataclass(frozen=True)
class Ratio:
    """`base` and `ours` in seconds a step (medians), their ratio, and the quartiles of the ratio over rounds."""

    name: str
    base: float
    ours: float
    ratio: float
    low: float
    high: float
    wanted: str

    def line(self) -> str:
        """One line of the report."""
        return (f"{self.name:<58} {self.base * 1e3:9.3f} ms {self.ours * 1e3:9.4f} ms   ratio {self.ratio:7.2f} "
                f"[{self.low:.2f}, {self.high:.2f}]   wanted {self.wanted}")


def _seconds(work: Callable[[], object]) -> float:
    time.sleep(PAUSE)
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def compare(name: str, base: Callable[[], object], ours: Callable[[], object], *, wanted: str, base_steps: int = 1,
            our_steps: int = 1, rounds: int = 15) -> Ratio:
    """Time `base` (which takes `base_steps`) and `ours` (`our_steps`) in turn, `rounds` times; ratio a step."""
    base(), ours()
    pairs = np.array([(_seconds(base) / base_steps, _seconds(ours) / our_steps) for _ in range(rounds)])
    low, middle, high = np.quantile(pairs[:, 0] / pairs[:, 1], (0.25, 0.5, 0.75))
    return Ratio(name, *np.median(pairs, axis=0), middle, low, high, wanted)
