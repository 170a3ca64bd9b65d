"""The concentration lemmas C.1 to C.4, by Monte Carlo against their delta."""

import dataclasses

from vitbo_lib import concentration, data, theory
from vitbo_lib.claims import CONSTANT, DIFFERS, HOLDS, Claim, Evidence
from vitbo_lib.concentration import DELTA, PLACES, SETS
from vitbo_lib.intervals import Interval, proportion_interval
from vitbo_lib.seeds import stream

CHAPTER = "concentration"


def _at_most_delta(shares: dict[str, Interval]) -> str:
    """Holds where every interval of a failure frequency ends below delta."""
    return HOLDS if all(share.high <= DELTA for share in shares.values()) else DIFFERS


def _said(shares: dict[str, Interval]) -> str:
    return "; ".join(f"{place}: {share.mean * share.n:.0f} of {share.n} draws fail (at most {share.high:.4f})"
                     for place, share in shares.items())


def class_balance() -> Evidence:
    """Lemma C.1 at N = 64, where its hypothesis holds for delta = 0.01, exactly and with sampled labels."""
    n = PLACES["regime"].N
    exact, needed = concentration.uneven(n), concentration.least_samples(DELTA)
    counts = [int((data.sample_labels(n, stream(0, "concentration", "labels", k)) > 0).sum()) for k in range(4 * SETS)]
    share = proportion_interval(sum(min(x, n - x) < n / 4 for x in counts), len(counts))
    small, least = PLACES["App. A"].N, 4 * 2.718281828459045 ** (-PLACES["App. A"].N / 8)
    finding = (f"N = {n} (needed: {needed:.0f}): {share.mean * share.n:.0f} of {share.n} draws uneven, exactly "
               f"{theory.scientific(exact)}; at N = {small} the lemma needs δ ≥ {least:.2f}")
    return Evidence.of(HOLDS if share.high <= DELTA and exact <= DELTA and n >= needed else DIFFERS, finding, share)


def initial_values() -> Evidence:
    """Lemma C.2 with sigma_V at the bound of item (7), and a constant smaller."""
    shares, factors, verdicts = {}, {}, []
    for place, p in PLACES.items():
        largest = concentration.initial_values(p).max(1)
        c = concentration.least_constant(p)
        shares[place], with_c = (proportion_interval(int((factor * largest > 1).sum()), len(largest))
                                 for factor in (1.0, c))
        factors[place] = 1 / c
        verdicts.append(HOLDS if shares[place].high <= DELTA else CONSTANT if DELTA in with_c else DIFFERS)
    verdict = max(verdicts, key=(HOLDS, CONSTANT, DIFFERS).index)
    finding = "; ".join(f"{place}: with constant 1, {shares[place].mean:.0%} of draws fail; σ_V has to be "
                        f"{factors[place]:.1f} times smaller" for place in PLACES)
    return Evidence(verdict, finding, factors["regime"])


def initial_values_as_printed() -> Evidence:
    """C.2's proof bounds |xi^T W_V w_O| by 2 sigma_V sigma_p ||w_O|| sqrt(d log(2NM / delta)) for every noise token."""
    shares, right = {}, {}
    for place, p in PLACES.items():
        largest = concentration.initial_values(p)[:, 2:].max(1)
        for found, sigma in ((shares, p.sigma_p), (right, p.sigma_p_tilde)):
            bound = concentration.printed_value_bound(p, sigma)
            found[place] = proportion_interval(int((largest > bound).sum()), len(largest))
    good = sum(share.mean * share.n for share in right.values())
    finding = "; ".join(f"{place}: {share.mean:.0%} of draws break it" for place, share in shares.items())
    finding += f"; with σ̃_p in the place of σ_p, {good:.0f} of {sum(share.n for share in right.values())}"
    return Evidence.of(_at_most_delta(shares), finding, shares["regime"])


def _c_3(part: str) -> dict[str, Interval]:
    found = {place: concentration.lemma_c_3(p) for place, p in PLACES.items()}
    return {place: proportion_interval(getattr(failures, part), failures.sets) for place, failures in found.items()}


def lengths() -> Evidence:
    """Lengths of initial queries and keys."""
    shares = _c_3("norms")
    return Evidence.of(_at_most_delta(shares), _said(shares), shares["regime"])


def products() -> Evidence:
    """Inner products of initial queries and keys of different tokens, and of queries with keys."""
    shares = _c_3("products")
    return Evidence.of(_at_most_delta(shares), _said(shares), shares["regime"])


def products_as_printed() -> Evidence:
    """The same with <q, q> and <k, k> of one token among them, as the printed statement allows."""
    shares = _c_3("with_equal")
    p = PLACES["regime"]
    finding = (f"{_said(shares)}: ‖q‖² is above the bound as soon as d_h > 4 lg = {4 * p.lg:.0f}")
    return Evidence.of(_at_most_delta(shares), finding, shares["regime"])


def least_d_h() -> Evidence:
    """From which d_h on the lengths of C.3 hold, in units of lg."""
    p = PLACES["regime"]
    least = concentration.least_dimension(2 * (2 + p.N * (p.M - 1)), DELTA)
    at, below = (concentration.lemma_c_3(theory.at_condition(dataclasses.replace(p, d_h=d_h)))
                 for d_h in (least, least // 2))
    shares = [proportion_interval(found.norms, found.sets) for found in (at, below)]
    right = shares[0].low <= DELTA < shares[1].low
    finding = (f"N = {p.N}, M = {p.M}: from d_h = {least} on, {least / p.lg:.1f} lg; there {at.norms} of {at.sets} "
               f"draws fail, at half of it {below.norms}")
    return Evidence(CONSTANT if right else DIFFERS, finding, least / p.lg)


def noise() -> Evidence:
    """Lemma C.4 at a problem of the regime."""
    p = PLACES["regime"]
    found = concentration.lemma_c_4(p)
    share = proportion_interval(found.total, found.sets)
    least = concentration.least_dimension(p.N * (p.M - 1), DELTA)
    finding = (f"d = {theory.scientific(p.d)}: {found.total} of {found.sets} draws fail (at most {share.high:.4f}); "
               f"d = {least} would do")
    return Evidence.of(_at_most_delta({"regime": share}), finding, share)


def union() -> Evidence:
    """Four lemmas with delta each against the theorems' 1/d."""
    p = PLACES["regime"]
    found = concentration.bookkeeping(p)
    enough = found.samples <= p.N
    finding = (f"needs δ = 1/(4d) = {theory.scientific(found.delta)}; then C.1 needs N ≥ {found.samples:.0f} = "
               f"{found.constant:.1f} log d (here {p.N}), lg goes from {found.lg:.0f} to {found.lg_needed:.0f}, and "
               f"the window of item (8) ends at {found.window_needed[1]:.4f}, below its start {found.window[0]:.4f}")
    return Evidence(HOLDS if enough else CONSTANT if found.constant < 100 else DIFFERS, finding, found.constant)


def _claim(id: str, statement: str, where: str, check, expected: str, **changes) -> Claim:
    fields = {"kind": "statistical", "seeds": (0,), "quantity": "share of draws that fail",
              "tolerance": f"Wilson interval of {SETS} draws below δ = {DELTA}"}
    return Claim(id=id, statement=statement, where=where, chapter=CHAPTER, expected=expected, check=check,
                 **(fields | changes))


CLAIMS = (
    _claim("C20-regime", "Both classes have between $N/4$ and $3N/4$ samples, if $N \\ge 8 \\log(4/\\delta)$",
           "Lemma C.1", class_balance, HOLDS, tolerance=f"Wilson interval of {4 * SETS} draws below δ = {DELTA}"),
    _claim("C21", "Item (7) makes all $\\abs{V^{(0)}} \\le d_h^{-1/4}$", "Lemma C.2", initial_values, CONSTANT,
           quantity="how many times smaller σ_V has to be", tolerance="exact Gaussian tails, confirmed by draws"),
    _claim("C21-print", "For every noise token $\\abs{\\xi^\\top W_V^{(0)} w_O} \\le 2 \\sigma_V \\sigma_p \\norm{w_O} "
           "\\sqrt{d \\log(2NM/\\delta)}$", "proof of Lemma C.2", initial_values_as_printed, DIFFERS),
    _claim("C22", "Initial queries and keys have $\\norm{q}^2$ within 1/2 and 3/2 of its mean", "Lemma C.3", lengths,
           HOLDS),
    _claim("C22-d_h", "for which $d_h = \\Omega(\\mathrm{lg})$ suffices", "Lemma C.3", least_d_h, CONSTANT,
           quantity="least d_h / lg", tolerance="the interval at that d_h reaches δ, at half of it not"),
    _claim("C23", "Inner products of initial queries and keys of different tokens are within $2 (\\cdot) \\sqrt{d_h\\, "
           "\\mathrm{lg}}$", "Lemma C.3", products, HOLDS),
    _claim("C23-print", "and so are those with $(n, i) = (n', j)$, which are not excluded", "Lemma C.3, as printed",
           products_as_printed, DIFFERS),
    _claim("C24-regime", "Noise has $\\norm{\\xi}^2$ within 1/2 and 3/2 of its mean and small inner products",
           "Lemma C.4", noise, HOLDS),
    _claim("C89", "With $\\delta$ for the lemmas, the theorems hold with probability $1 - 1/d$", "Theorems 4.1, 4.2",
           union, CONSTANT, kind="symbolic", seeds=(), quantity="constant of item (3)",
           tolerance="a finite constant in N ≥ c log d"),
)
