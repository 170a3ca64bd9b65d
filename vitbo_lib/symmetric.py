"""The transition of the symmetric limit: where benign turns into harmful, as a number c(M, N) and nothing random.

`vitbo_lib.symmetric_flow` has the equations. Here are the gain that Condition 4.1 leaves, the ratios
r = N SNR^2 / C_p^2 at which attention and test loss change sides, their table up to N = 10^12, and laws fitted to it.
"""

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.optimize import least_squares

from vitbo_lib import store
from vitbo_lib.data import positive, whole
from vitbo_lib.errors import UserError
from vitbo_lib.regime import DELTA, EPSILON, predicted_benign_loss
from vitbo_lib.store import Table
from vitbo_lib.sweep import Plan
from vitbo_lib.symmetric_flow import MOST_SAMPLES, MU, WEAK, XI2, Flow, Limit, State

TOKENS = (2, 3, 4, 8, 16)
SAMPLES = (4, 8, 16, 32, 64, 128, 256, 1024, 10**4, 10**5, 10**6, 10**8, 10**10, 10**12)
REACHABLE = (8, 128)  # N of direct simulations
LOWEST, HIGHEST = 1.0, 2.2  # the transition at infinite gain lies between this ratio and this times M
POINTS = 12  # ratios that are looked at in an interval at once
PRECISION = 1e-4  # relative, of a transition constant
NEAR = (0.2, 1.2)  # the constants at finite gain are looked for between these times the one at infinite gain
QUERIES = {"mu": MU, "xi2": XI2, "weak": WEAK}
CROSSINGS = ("mu", "xi2", "weak", "attention", "loss", "infinite")  # columns of the table of constants
RESULTS = Path(__file__).resolve().parents[1] / "results"


# ------------------------------------------------------------------------------------------ one problem, from the ratio

def snr_squared(n_samples: int, tokens: int, ratio: float) -> float:
    """SNR^2 at r = N SNR^2 / C_p^2 under item (10), C_p^2 = 25 M."""
    n_samples, tokens = whole("N", n_samples, 1, MOST_SAMPLES), whole("M", tokens)
    ratio = positive("ratio", ratio)
    return 25 * tokens * ratio / n_samples


def condition_gain(n_samples: int, tokens: int, ratio: float, epsilon: float = EPSILON, delta: float = DELTA) -> float:
    """sigma_h^2 d_h at ||mu|| = 1 of the smallest problem of Condition 4.1: `regime.parameters` without a limit on d.

    Items (1) and (8), constants 1: min{1, SNR^2} d_h^(1/2) / lg^(7/4) with d_h = max{SNR^4, SNR^-4} N^2 / epsilon^2,
    which is N / epsilon / lg^(7/4) at least, times 25 M r where SNR > 1.

    >>> from vitbo_lib import regime
    >>> p = regime.parameters(64, 4, regime.snr_at(2.0, 64, 4))
    >>> round(condition_gain(64, 4, 2.0) / (p.sigma_h**2 * p.d_h), 4)
    1.0
    """
    epsilon = positive("epsilon", epsilon)
    if not 0 < positive("delta", delta) < 1:
        raise UserError(f"delta = {delta} is no probability of failure; give a number between 0 and 1")
    snr2 = snr_squared(n_samples, tokens, ratio)
    lg = math.log(6 * n_samples**2 * tokens**2 / delta)
    return min(1.0, snr2) * max(snr2, 1 / snr2) * n_samples / epsilon / lg**1.75


def problem(n_samples: int, tokens: int, ratio: float, epsilon: float = EPSILON) -> Limit:
    """The symmetric limit with the gain of Condition 4.1."""
    return Limit(n_samples=n_samples, tokens=tokens, ratio=ratio,
                 gain=condition_gain(n_samples, tokens, ratio, epsilon))


def ends(n_samples: int, tokens: int, ratios: Sequence[float], epsilon: float = EPSILON) -> list[State]:
    """The symmetric limit with the gain of Condition 4.1, trained to `epsilon`, at several ratios side by side.

    >>> state, = ends(64, 2, [4.0])
    >>> round(state.test_loss, 3), round(state.attention_signal, 3)
    (0.032, 1.0)
    """
    return Flow(*(problem(n_samples, tokens, positive("ratio", ratio), epsilon) for ratio in ratios)).to_loss(epsilon)


def curve(n_samples: int, tokens: int, ratios: Sequence[float], epsilon: float = EPSILON) -> pd.DataFrame:
    """How training ends over the ratio, one row each; columns as those of drawn runs, and attention by query type."""
    states = ends(n_samples, tokens, ratios, epsilon)
    return pd.DataFrame([{"N": n_samples, "M": tokens, "ratio": x.limit.ratio} | seen_in(x) for x in states])


def seen_in(state: State) -> dict[str, float]:
    """The observables of a state, by name; NaN for weak tokens where there are none."""
    weak = math.nan if state.limit.weak == 0 else 1.0
    return {"attention_signal": state.attention_signal, "test_loss": state.test_loss,
            "v_signal": float(state.values[MU]), "v_xi2": float(state.values[XI2]),
            "v_weak": weak * float(state.values[WEAK]), "mu_query": float(state.attention[MU, MU]),
            "xi2_query": float(state.attention[XI2, MU]), "weak_query": weak * float(state.attention[WEAK, MU]),
            "time": state.time}


def middle_loss(tokens: int, epsilon: float = EPSILON) -> float:
    """Half way between log 2 and the benign test loss, V = log(1/epsilon) read with (2M - 1) / M^2."""
    return (math.log(2) + math.log1p(predicted_benign_loss(epsilon, tokens))) / 2


# ---------------------------------------------------------------------------------------------- the transition constant

def crossing(benign: dict[float, bool]) -> tuple[float, float]:
    """The neighbouring ratios between which `benign` changes to True for good; (NaN, NaN) where it does not.

    >>> crossing({1.0: False, 2.0: False, 3.0: True})
    (2.0, 3.0)
    """
    known = sorted(benign)
    low = max((x for x in known if not benign[x]), default=math.nan)
    return low, min((x for x in known if x > low), default=math.nan)


def search(solve: Callable[[list[float]], list[State]], criteria: dict[str, Callable[[State], bool]], low: float,
           high: float, precision: float = PRECISION) -> dict[str, float]:
    """The ratios at which the states change from False to True in each of the `criteria`, by name.

    `solve` gives the states at several ratios at once; each pass looks at `POINTS` ratios in every interval left.
    """
    states, asked = {}, list(np.geomspace(low, high, 2 * POINTS))
    while asked:
        states |= dict(zip(asked, solve(asked)))
        left = {name: crossing({x: benign(state) for x, state in states.items()})
                for name, benign in criteria.items()}
        wide = {(a, b) for a, b in left.values() if b / a > 1 + precision}  # NaN compares false
        asked = sorted({float(x) for a, b in wide for x in np.geomspace(a, b, POINTS + 2)[1:-1]})
    return {name: math.sqrt(a * b) for name, (a, b) in left.items()}


def infinite_gain_constant(n_samples: int, tokens: int, c_p_squared: float | None = None) -> float:
    """c(M, N) with infinite gain: the ratio from which the signal wins in the end.

    >>> round(infinite_gain_constant(64, 2), 2)
    2.0
    """
    tokens = whole("M", tokens, 2)

    def solve(ratios: list[float]) -> list[State]:
        return Flow(*(Limit(n_samples=n_samples, tokens=tokens, ratio=ratio, c_p_squared=c_p_squared)
                      for ratio in ratios)).to_decision()

    return search(solve, {"infinite": lambda state: state.benign}, LOWEST, HIGHEST * tokens)["infinite"]


def largest_constant(tokens: int, c_p_squared: float | None = None) -> float:
    """c(M, N) for N to infinity, taken at N = 10^15: 2 (M - 1), less a correction that vanishes with 1 / C_p^2."""
    return infinite_gain_constant(MOST_SAMPLES, tokens, c_p_squared)


def constants(n_samples: int, tokens: int, epsilon: float = EPSILON) -> dict[str, float]:
    """Ratios at which the end of training changes sides, by `CROSSINGS`, and the `gain` at the last of these.

    mu, xi2, weak: attention of training queries of that type on the signal passes 1/2; attention: their mean does;
    loss: the test loss passes `middle_loss`; infinite: the same for all, with infinite gain. NaN where there is no
    weak token, and where nothing passes.
    """
    found = dict.fromkeys(CROSSINGS, math.nan) | {"infinite": infinite_gain_constant(n_samples, tokens)}
    level = middle_loss(tokens, epsilon)
    criteria = {name: lambda state, q=query: state.attention[q, MU] > 0.5 for name, query in QUERIES.items()
                if query != WEAK or tokens > 2}
    criteria |= {"attention": lambda state: state.attention_signal > 0.5, "loss": lambda state: state.test_loss < level}
    found |= search(lambda ratios: ends(n_samples, tokens, ratios, epsilon), criteria,
                    *(near * found["infinite"] for near in NEAR))
    return found | {"gain": condition_gain(n_samples, tokens, found["infinite"], epsilon)}


@dataclass(frozen=True)
class Cell:
    """One row of the table of constants."""

    N: int
    M: int
    epsilon: float = EPSILON


def compute(cell: Cell) -> dict:
    """The constants of one N, M and epsilon; what does not exist is left empty."""
    found = constants(cell.N, cell.M, cell.epsilon)
    return {"N": cell.N, "M": cell.M, "epsilon": cell.epsilon} | {
        name: None if math.isnan(value) else value for name, value in found.items()}


def table(folder: str | Path = RESULTS) -> Table:
    """The stored table of constants."""
    return Table(Path(folder) / "symmetric_limit.csv", key=("N", "M", "epsilon"), columns=(*CROSSINGS, "gain"),
                 parameters={"delta": DELTA, "precision": PRECISION, "c_p_squared": "25 M"},
                 command="vitbo results --only symmetric_limit")


def plan(folder: str | Path = RESULTS, profile: str = "lab") -> Plan:
    """The constants at all `SAMPLES` and `TOKENS` (`lab`, and `paper`, the same: nothing is random); `smoke`: two."""
    wanted = [Cell(n, m) for n in SAMPLES for m in TOKENS]
    if profile == "smoke":
        wanted = [Cell(4, 2), Cell(16, 3)]
    return Plan(table=table(folder), cells=wanted, compute=compute)


@functools.cache
def load() -> pd.DataFrame:
    """The stored constants, sorted by M and N; what does not exist is NaN."""
    rows = store.load(table().path, table().command)[0]
    return rows.astype(dict.fromkeys((*CROSSINGS, "gain"), float)).sort_values(["M", "N"], ignore_index=True)


# ------------------------------------------------------------------------------------------------------- laws in N

@dataclass(frozen=True)
class Fit:
    """A law fitted to c over N: root mean square of the relative residuals, and Akaike's criterion (lower: better)."""

    law: str
    parameters: tuple[float, ...]
    residual: float
    aic: float


def _saturating(p: np.ndarray, n: np.ndarray) -> np.ndarray:
    return p[0] - (p[0] - 2) / (1 + (n / np.exp(p[1])) ** p[2])


LAWS = {"constant": (1, lambda p, n: p[0] + 0 * n), "logarithm": (2, lambda p, n: p[0] + p[1] * np.log(n)),
        "power": (2, lambda p, n: np.exp(p[0] + p[1] * np.log(n))), "saturating": (3, _saturating)}


def fits(n_samples: Sequence[float], constant: Sequence[float]) -> dict[str, Fit]:
    """The laws of `LAWS` fitted to the logarithm of c over N by least squares, by name.

    constant; c = a + b log N; c = a N^b; and the saturating c = a - (a - 2) / (1 + (N / N_0)^b), which starts at 2.
    There is no noise in c: the residual says how far the law is from it, and the criterion weighs its parameters.

    >>> found = fits([4, 16, 64, 256], [2.0, 3.0, 4.0, 5.0])
    >>> min(found, key=lambda law: found[law].residual)
    'logarithm'
    """
    try:
        n, c = np.asarray(n_samples, dtype=float), np.asarray(constant, dtype=float)
    except (TypeError, ValueError):
        raise UserError("N or constants that are no numbers allow no fit; give 4 numbers or more of each") from None
    if n.shape != c.shape or len(set(n.tolist())) < 4 or not all(((x > 0) & np.isfinite(x)).all() for x in (n, c)):
        raise UserError(f"{len(n)} N and {len(c)} constants, some of them perhaps equal N or not numbers above 0, "
                        "allow no fit; give 4 or more of each")
    slope, offset = np.polyfit(np.log(n), c, 1)
    power = np.polyfit(np.log(n), np.log(c), 1)[::-1]
    starts = {"constant": [c.mean()], "logarithm": [offset, slope], "power": power,
              "saturating": [c.max() * 1.01, math.log(30), 0.8]}
    found = {}
    for law, (size, predict) in LAWS.items():
        def off(p, predict=predict):
            return np.log(np.maximum(predict(p, n), 1e-9)) - np.log(c)

        solved = least_squares(off, starts[law])
        square = max(float(np.mean(solved.fun**2)), (PRECISION / 2) ** 2)  # no better than c is known
        found[law] = Fit(law, tuple(map(float, solved.x)), math.sqrt(square), len(n) * math.log(square) + 2 * size)
    return found


def of_tokens(rows: pd.DataFrame, tokens: int, largest: float = math.inf, smallest: float = 0) -> pd.DataFrame:
    """The rows of one M with N in a range, by N."""
    return rows[(rows["M"] == tokens) & (rows["N"] >= smallest) & (rows["N"] <= largest)].sort_values("N")
