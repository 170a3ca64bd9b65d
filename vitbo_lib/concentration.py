"""Lemmas C.1 to C.4 by Monte Carlo: how often the bounds on data and initial weights fail, against delta.

Every draw is exact in law at any d and d_h (Bartlett, `vitbo_lib.draw`). Sizes come from `PLACES`, or from any
`Parameters`; sigma_V and sigma_h stand where items (7) and (8) of Condition 4.1 put them, with all constants 1.
"""

import dataclasses
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy import optimize, special, stats

from vitbo_lib import draw, regime, theory
from vitbo_lib.errors import UserError
from vitbo_lib.intervals import proportion_interval
from vitbo_lib.seeds import stream
from vitbo_lib.theory import Parameters

DELTA = 0.01
SETS = 500  # without a failure, Wilson's interval then ends below delta
TOGETHER = 50  # sets drawn at once, to bound the memory
DIMENSIONS = (16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)


def _places() -> dict[str, Parameters]:
    lab = dataclasses.replace(theory.paper_experiments()["App. A, benign"], delta=DELTA, w_o_norm=1.0)
    return {"App. A": theory.at_condition(lab), "regime": regime.parameters()}


PLACES = _places()


def _check(p: Parameters, sets: int) -> None:
    missing = [name for name in ("N", "M", "d", "d_h", "signal_norm", "sigma_p", "sigma_p_tilde", "delta")
               if getattr(p, name) is None]
    if missing or sets < 1:
        raise UserError(f"{', '.join(missing) or 'sets'} missing; the lemmas speak of N, M, d, d_h, signals, noise and "
                        "delta, and need at least one draw")


def noise_scales(p: Parameters) -> np.ndarray:
    """Standard deviation of the entries of each noise token, sample by sample (N*(M-1))."""
    return np.tile([p.sigma_p_tilde, *[p.sigma_p] * (p.M - 2)], p.N)


def token_sets(p: Parameters, sets: int, seed: int, word: str) -> Iterator[np.ndarray]:
    """Independent draws of the distinct training tokens in coordinates of their span (S K axes), some at a time."""
    _check(p, sets)
    rng = stream(seed, "concentration", word, "tokens", p.N, p.M, p.d)
    for first in range(0, sets, TOGETHER):
        count = min(TOGETHER, sets - first)
        noise = draw.gaussian_factor(p.N * (p.M - 1), p.d - 2, rng, (count,)) * noise_scales(p)[:, None]
        z = np.zeros((count, 2 + noise.shape[1], 2 + noise.shape[2]))
        z[:, 0, 0] = z[:, 1, 1] = p.signal_norm
        z[:, 2:, 2:] = noise
        yield z


# ------------------------------------------------------------------------------------------------------------ Lemma C.2

def initial_values(p: Parameters, sets: int = SETS, seed: int = 0) -> np.ndarray:
    """|x^T W_V(0) w_O| d_h^(1/4) of mu_+, mu_- and every noise token (S K): Lemma C.2 says at most 1.

    >>> initial_values(PLACES["App. A"], sets=3).shape  # 2 + 16 * 3 tokens
    (3, 50)
    """
    rng = stream(seed, "concentration", "values", p.N, p.M)
    unit = p.sigma_v * p.w_o_norm * p.d_h**0.25
    return np.concatenate([np.abs(np.einsum("ska,sa->sk", z, rng.standard_normal((len(z), z.shape[2])))) * unit
                           for z in token_sets(p, sets, seed, "C.2")])


def value_scales(p: Parameters) -> np.ndarray:
    """Standard deviation of x^T W_V(0) w_O in units of d_h^(-1/4), tokens at their mean length (K)."""
    lengths = np.concatenate([[p.signal_norm] * 2, noise_scales(p) * math.sqrt(p.d)])
    return lengths * (p.sigma_v * p.w_o_norm * p.d_h**0.25)


def least_constant(p: Parameters, delta: float | None = None) -> float:
    """The largest c with which sigma_V <= c x (bound of item (7)) makes C.2 hold with probability 1 - delta.

    From exact Gaussian tails and a union over the tokens: sum_k P(c |Z| s_k > 1) = delta.

    >>> round(1 / least_constant(PLACES["regime"]), 1)  # sigma_V has to be that much smaller
    26.7
    """
    delta, s = p.delta if delta is None else delta, value_scales(p)

    def excess(log_c):
        return float(special.logsumexp(stats.norm.logsf(np.exp(-log_c) / s)) + math.log(2 / delta))

    high = math.log(10 / s.max())
    return math.exp(optimize.brentq(excess, high - math.log(1e4), high))


def printed_value_bound(p: Parameters, sigma: float) -> float:
    """The bound 2 sigma_V sigma ||w_O|| sqrt(d log(2 N M / delta)) of C.2's proof on noise, in units of d_h^(-1/4).

    Printed with `sigma` = sigma_p, also for the strong token.
    """
    log = math.log(2 * p.N * p.M / p.delta)
    return 2 * p.sigma_v * p.w_o_norm * sigma * math.sqrt(p.d * log) * p.d_h**0.25


# ------------------------------------------------------------------------------------------------------------ Lemma C.3

@dataclass(frozen=True)
class Failures:
    """Of `sets` draws, how many break a bound: on `norms`, on `products` of different tokens, and on products with
    those of a token with itself among them (`with_equal`)."""

    sets: int
    norms: int
    products: int
    with_equal: int = 0

    @property
    def total(self) -> int:
        """Draws that break the lemma at most."""
        return min(self.sets, self.norms + self.products)


def _product_bounds(p: Parameters) -> np.ndarray:
    """C.3's bounds on inner products of queries and keys (K K), all noise tokens with sigma_p_tilde."""
    length = np.full(2 + p.N * (p.M - 1), p.sigma_p_tilde * math.sqrt(p.d))
    length[:2] = p.signal_norm
    return 2 * np.outer(length, length) * p.sigma_h**2 * math.sqrt(p.d_h * p.lg)


def queries_and_keys(p: Parameters, sets: int, seed: int = 0) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Initial queries and keys of the distinct tokens (S K h each), in coordinates of their span, some at a time."""
    rng = stream(seed, "concentration", "hidden", p.N, p.M, p.d_h)
    for z in token_sets(p, sets, seed, "C.3"):
        axes = z.shape[2]
        hidden = draw.gaussian_factor(2 * axes, p.d_h, rng, (len(z),)) * p.sigma_h
        yield z @ hidden[:, :axes], z @ hidden[:, axes:]


def lemma_c_3(p: Parameters, sets: int = SETS, seed: int = 0) -> Failures:
    """How many draws break Lemma C.3.

    >>> lemma_c_3(PLACES["App. A"], sets=20)
    Failures(sets=20, norms=0, products=0, with_equal=20)
    """
    _check(p, sets)
    mean = np.concatenate([[p.signal_norm**2] * 2, noise_scales(p) ** 2 * p.d]) * p.sigma_h**2 * p.d_h
    bound, norms, products, equal = _product_bounds(p), 0, 0, 0
    same = np.eye(len(bound), dtype=bool)
    for q, k in queries_and_keys(p, sets, seed):
        qq, kk, qk = q @ q.swapaxes(1, 2), k @ k.swapaxes(1, 2), q @ k.swapaxes(1, 2)
        lengths = np.stack([np.diagonal(qq, axis1=1, axis2=2), np.diagonal(kk, axis1=1, axis2=2)], 1) / mean
        norms += int((np.abs(lengths - 1) > 0.5).any((1, 2)).sum())
        broken = {name: np.abs(part) > bound for name, part in (("qq", qq), ("kk", kk), ("qk", qk))}
        apart = (broken["qq"] & ~same) | (broken["kk"] & ~same) | broken["qk"]
        products += int(apart.any((1, 2)).sum())
        itself = ((broken["qq"] | broken["kk"]) & same)[:, 2:, 2:].any((1, 2))  # printed for noise tokens alone
        equal += int((apart.any((1, 2)) | itself).sum())
    return Failures(sets, norms, products, equal)


# ------------------------------------------------------------------------------------------------------------ Lemma C.4

def lemma_c_4(p: Parameters, sets: int = SETS, seed: int = 0) -> Failures:
    """How many data sets break Lemma C.4: lengths of noise within 1/2 and 3/2, inner products below their bound.

    >>> lemma_c_4(PLACES["App. A"], sets=20)
    Failures(sets=20, norms=0, products=0, with_equal=0)
    """
    scales, norms, products = noise_scales(p), 0, 0
    bound = 2 * p.sigma_p_tilde**2 * math.sqrt(p.d * math.log(4 * p.N**2 * p.M**2 / p.delta))
    pairs = np.triu_indices(len(scales), 1)
    for z in token_sets(p, sets, seed, "C.4"):
        gram = z[:, 2:] @ z[:, 2:].swapaxes(1, 2)
        lengths = np.diagonal(gram, axis1=1, axis2=2) / (scales**2 * p.d)
        norms += int((np.abs(lengths - 1) > 0.5).any(1).sum())
        products += int((np.abs(gram[:, *pairs]) > bound).any(1).sum())
    return Failures(sets, norms, products)


# ---------------------------------------------------------------------------------------------- from which dimension on

def length_tail(dimension: float) -> float:
    """P(chi^2_m / m not in [1/2, 3/2]) for m = `dimension`: a length off by more than the lemmas allow."""
    return float(stats.chi2.cdf(dimension / 2, dimension) + stats.chi2.sf(1.5 * dimension, dimension))


def least_dimension(vectors: int, delta: float) -> int:
    """The smallest m at which all of so many independent Gaussian vectors in R^m have their length within bounds.

    With probability 1 - delta, by a union over exact tails.

    >>> least_dimension(2 * 66, 0.01)
    149
    """
    low, high = 1, 2
    while vectors * length_tail(high) > delta:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if vectors * length_tail(middle) > delta else (low, middle)
    return high


LEMMAS: dict[str, tuple[str, Callable[[Parameters, int, int], Failures]]] = {"C.3": ("d_h", lemma_c_3),
                                                                           "C.4": ("d", lemma_c_4)}


def frequencies(lemma: str, dimensions=DIMENSIONS, sets: int = SETS, seed: int = 0) -> pd.DataFrame:
    """Share of draws that break a lemma, over its dimension, the other sizes being those of each of the `PLACES`.

    Columns: place, dimension, part (norms, products), mean, low, high (Wilson), and `tail`, the union bound on norms.
    """
    if lemma not in LEMMAS:
        raise UserError(f"no sweep for {lemma!r}; choose one of {', '.join(LEMMAS)}")
    name, count = LEMMAS[lemma]
    rows = []
    for place, p in PLACES.items():
        tokens = p.N * (p.M - 1)
        for dimension in dimensions:
            sized = theory.at_condition(dataclasses.replace(p, **{name: dimension}))
            if name == "d":  # C.4 speaks of the data alone; their norm is kept
                sized = dataclasses.replace(p, d=dimension)
            found = count(sized, sets, seed)
            vectors = tokens if lemma == "C.4" else 2 * (tokens + 2)
            for part in ("norms", "products"):
                share = proportion_interval(getattr(found, part), sets)
                rows.append({"place": place, "dimension": dimension, "part": part, "mean": share.mean,
                             "low": share.low, "high": share.high,
                             "tail": min(1.0, vectors * length_tail(dimension)) if part == "norms" else math.nan})
    return pd.DataFrame(rows)


def value_frequencies(constants, sets: int = SETS, seed: int = 0) -> pd.DataFrame:
    """Share of draws that break Lemma C.2 when sigma_V is c times the bound of item (7), for each c, at each place."""
    rows = []
    for place, p in PLACES.items():
        largest = initial_values(p, sets, seed).max(1)
        for c in constants:
            share = proportion_interval(int((c * largest > 1).sum()), sets)
            rows.append({"place": place, "constant": c, "mean": share.mean, "low": share.low, "high": share.high})
    return pd.DataFrame(rows)


# ------------------------------------------------------------------------------------------------ C.1, and all together

def uneven(n_samples: int) -> float:
    """Probability that a class has fewer than N/4 samples, exactly."""
    few = math.ceil(n_samples / 4) - 1
    return float(min(1.0, 2 * stats.binom.cdf(few, n_samples, 0.5)))


def least_samples(delta: float) -> float:
    """N >= 8 log(4 / delta), the hypothesis of Lemma C.1."""
    return 8 * math.log(4 / delta)


@dataclass(frozen=True)
class Bookkeeping:
    """What delta = 1/(4d), which makes four lemmas fail with probability at most 1/d, asks of a problem.

    `delta`; `samples`, C.1's N; `lg` before and `lg_needed`; `window` (8) on sigma_h^2 before and `window_needed`, in
    units of min{||mu||^-2, (sigma_p^2 d)^-1} d_h^(-1/2); `constant` of item (3), samples / log d.
    """

    delta: float
    samples: float
    lg: float
    lg_needed: float
    window: tuple[float, float]
    window_needed: tuple[float, float]
    constant: float


def bookkeeping(p: Parameters, lemmas: int = 4) -> Bookkeeping:
    """The failure probabilities of the lemmas, added up to the theorems' 1/d.

    >>> found = bookkeeping(PLACES["regime"])
    >>> round(found.samples), round(found.lg), round(found.lg_needed)
    (303, 16, 48)
    """
    _check(p, 1)
    delta = 1 / (lemmas * p.d)
    lg = math.log(6 * p.N**2 * p.M**2 / delta)
    samples = least_samples(delta)
    return Bookkeeping(delta, samples, p.lg, lg, (p.lg**-2, p.lg**-1.5), (lg**-2, lg**-1.5), samples / math.log(p.d))


def smallest_n(snr: float = 1.0, tokens: int = regime.M, epsilon: float = regime.EPSILON) -> Parameters:
    """The smallest problem of Condition 4.1 (N a multiple of 8) whose N satisfies C.1 with delta = 1/(4d).

    >>> smallest_n().N
    360
    """
    for n in range(8, 2000, 8):
        d = n**4 * max(snr**4, snr**-4) / epsilon**4
        if n >= least_samples(1 / (4 * d)):
            return regime.parameters(n, tokens, snr, epsilon)
    raise UserError("no N below 2000 will do; give an SNR nearer to 1, or a larger epsilon")
