"""Evidence for the symmetric limit: that it closes, that drawn runs follow it, and its transition constant."""

import functools
import math

import numpy as np
import pandas as pd

from vitbo_lib import regime, symmetric, symmetric_algebra, symmetric_drawn, symmetric_explicit
from vitbo_lib.claims import CONSTANT, DIFFERS, HOLDS, SCALE, Claim, Evidence
from vitbo_lib.intervals import proportion_interval, slope_interval
from vitbo_lib.symmetric_flow import Limit

CHAPTER = "symmetric_limit"
EXACT = 1e-6
EXPLICIT = (Limit(n_samples=4, tokens=2, ratio=3.0, gain=30.0), Limit(n_samples=4, tokens=3, ratio=2.0, gain=30.0),
            Limit(n_samples=6, tokens=4, ratio=4.0, gain=20.0))
ROUNDING = 3 * symmetric.PRECISION  # how far a constant may be off its law
SETTLED = 0.005  # relative change over the last four decades that counts as none
ALMOST_NO_WEAK = 1e6  # C_p^2 at which weak tokens are negligible
ATTENTION = "xi2"  # of the query of xi_2: at large M weak queries may end below 1/2 at any ratio
TURNS = (ATTENTION, "loss")
MORE_TOKENS = tuple(m for m in symmetric.TOKENS if m > 2)
EPSILONS = (0.01, 0.001)  # d_h is a hundred times larger at the second


def closed() -> Evidence:
    """Sympy: the flow keeps the pattern, and sympy's count of different entries is ours."""
    found = symmetric_algebra.closed_system()
    ours = Limit(n_samples=6, tokens=4, ratio=2.0).scalars
    same = found.holds and found.parts["scalars"] == ours
    numbers = ", ".join(f"{Limit(n_samples=6, tokens=m, ratio=2.0).scalars} at M = {m}" for m in (2, 3, 4))
    return Evidence(HOLDS if same else DIFFERS, f"{numbers} and above; between the classes all stay 0", float(ours))


def force() -> Evidence:
    """Sympy: the derivative of the loss at a logit, signed by y, has one form."""
    found = symmetric_algebra.force_at_logits()
    return Evidence(HOLDS if found.holds else DIFFERS, "differentiated at M = 3, both labels")


def exact() -> Evidence:
    """The closed flow against the flow of every coefficient."""
    off = [symmetric_explicit.disagreement(limit) for limit in EXPLICIT]
    worst = float(np.max(off))
    return Evidence(HOLDS if worst <= EXACT else DIFFERS, f"largest difference {worst:.0e}, M = 2, 3 and 4", worst)


def _agreement(start: str, away_from: float = 1.0) -> Evidence:
    """Share of ratios at which all drawn runs are within `WITHIN` of the limit; those near the transition left out."""
    off = symmetric_drawn.differences(symmetric_drawn.load())
    off = off[off["start"] == start]
    if not len(off):
        return Evidence(SCALE, "no drawn run")
    middle = off["N"].map({64: 2.0, 16: 2.9})
    off = off[(off["ratio"] / middle >= away_from) | (off["ratio"] / middle <= 1 / away_from)]
    good = int(symmetric_drawn.agrees(off).sum())
    share = proportion_interval(good, len(off))
    finding = (f"at {good} of {len(off)} ratios all runs agree; largest difference in attention "
               f"{off['attention_signal'].max():.1g}, in test loss {off['test_loss'].max():.1g}")
    return Evidence.of(HOLDS if good == len(off) else DIFFERS, finding, share)


def matches_drawn() -> Evidence:
    """Drawn runs that start near 0 follow the limit at every ratio, mixed states included."""
    return _agreement("both")


def values_make_the_width() -> Evidence:
    """As asked, runs leave the limit; with initial values made small, and logits left as they are, they do not."""
    with_logits, as_asked = _agreement("values", 1.06), _agreement("asked", 1.06)
    if SCALE in (with_logits.verdict, as_asked.verdict):
        return with_logits
    low, high = symmetric_drawn.undecided_width(symmetric_drawn.load(), 64, 2, "asked")
    finding = (f"agreement at {with_logits.value:.0%} of the ratios with small initial values, at {as_asked.value:.0%} "
               f"as asked, where runs at N = 64, M = 2 end undecided from {low:g} to {high:g}")
    return Evidence(HOLDS if with_logits.verdict == HOLDS and as_asked.verdict == DIFFERS else DIFFERS, finding,
                    with_logits.value, with_logits.low, with_logits.high)


def sizes_at_the_start() -> Evidence:
    """Initial logits and initial values in units of what moves attention, at d_h and a hundred times that."""
    problems = [regime.parameters(64, 2, regime.snr_at(0.5, 64, 2), epsilon) for epsilon in EPSILONS]
    logits, values = np.array([symmetric_drawn.initial_sizes(p) for p in problems]).T
    grown = problems[1].d_h / problems[0].d_h
    kept = grown > 50 and np.allclose(logits, logits[0], rtol=1e-6) and np.allclose(values, values[0], rtol=1e-6)
    return Evidence(HOLDS if kept and values[0] > 1 else DIFFERS,
                    f"at N = 64, M = 2, SNR below 1: logits {logits[0]:.2f}, values {values[0]:.1f}, the same at a d_h "
                    f"{grown:.0f} times as large", float(values[0]))


def no_error() -> Evidence:
    """In the limit y f > 0 on every fresh point, since V_mu > 0 and fresh noise has value 0."""
    smallest = min(float(symmetric_drawn.limit_curve(n, m)["v_signal"].min()) for n, m in symmetric_drawn.SIZES)
    rows = symmetric_drawn.load()
    errors = rows[rows["start"] == "both"]["test_error"]
    right = smallest > 0 and len(errors) > 0 and bool((errors == 0).all())
    finding = (f"smallest value of the signal {smallest:.2g}; {len(errors)} drawn runs that start near 0 have a test "
               f"error of {errors.max():g} at most")
    return Evidence(HOLDS if right else DIFFERS, finding, smallest)


# ------------------------------------------------------------------------------------------------------- the constant

@functools.cache
def _no_rows() -> Evidence:
    return Evidence(SCALE, "no constants in the table")


def _constants(tokens: int) -> pd.DataFrame:
    return symmetric.of_tokens(symmetric.load(), tokens)


def two_at_m_2() -> Evidence:
    """M = 2: by sympy the balance at r = 2 lasts for ever; in the table c is 2 at every N, in every sense."""
    rows = _constants(2)
    if not len(rows):
        return _no_rows()
    names = [name for name in symmetric.CROSSINGS if name != "weak"]
    off = float(np.max(np.abs(rows[names].to_numpy() / 2 - 1)))
    holds = symmetric_algebra.smallest_constant().holds and off <= ROUNDING
    return Evidence(HOLDS if holds else DIFFERS, f"c = 2 within {off:.0e} at all {len(rows)} N up to "
                    f"{rows['N'].max():.0e}, for attention and test loss", 2.0)


def grows() -> Evidence:
    """M >= 3: c rises with N at every step, and over the N of direct simulations its slope in log N is above 0."""
    slopes, right = {}, True
    for tokens in MORE_TOKENS:
        rows = _constants(tokens)
        near = symmetric.of_tokens(rows, tokens, *reversed(symmetric.REACHABLE))
        if len(near) < 4:
            return _no_rows()
        slopes[tokens] = slope_interval(np.log(near["N"]), near[ATTENTION])
        rises = (np.diff(rows[ATTENTION]) > -ROUNDING * rows[ATTENTION].to_numpy()[1:]).all()
        right = right and slopes[tokens].low > 0 and bool(rises)
    first = slopes[MORE_TOKENS[0]]
    text = ", ".join(f"{i.mean:.2f} (M = {m})" for m, i in slopes.items())
    low, high = symmetric.REACHABLE
    return Evidence(HOLDS if right else DIFFERS, f"from N = {low} to {high}, c rises by {text} for each factor e in N",
                    first.mean)


def saturates() -> Evidence:
    """Over the last four decades c stays, for attention and for the test loss."""
    moved, ends = {}, {}
    for tokens in MORE_TOKENS:
        rows = _constants(tokens).set_index("N")
        if not {10**8, 10**12} <= set(rows.index):
            return _no_rows()
        late = 10**10 if tokens == 16 else 10**8
        moved[tokens] = np.max([abs(rows.loc[10**12, name] / rows.loc[late, name] - 1) for name in TURNS])
        ends[tokens] = float(rows.loc[10**12, ATTENTION])
    worst = float(np.max(list(moved.values())))
    text = ", ".join(f"{c:.3f} (M = {m})" for m, c in ends.items())
    finding = (f"at N = 10¹² c is {text}; since N = 10⁸ (M = 16: 10¹⁰) it has changed by less than "
               f"{max(worst, symmetric.PRECISION):.0e}, relative")
    return Evidence(HOLDS if worst <= SETTLED else DIFFERS, finding, worst)


def laws() -> dict[int, dict[str, symmetric.Fit]]:
    """The laws fitted to the c of attention over all N, by M."""
    return {tokens: symmetric.fits(rows["N"], rows[ATTENTION]) for tokens in MORE_TOKENS
            if len(rows := _constants(tokens)) >= 4}


def no_logarithm() -> Evidence:
    """Over all N the saturating law is nearer than a constant, a logarithm and a power, for every M."""
    found = laws()
    if len(found) < len(MORE_TOKENS):
        return _no_rows()
    best = {tokens: min(fits, key=lambda law: fits[law].aic) for tokens, fits in found.items()}
    shown = found[4]
    text = ", ".join(f"{law} {fit.residual:.1%}" for law, fit in shown.items())
    return Evidence(HOLDS if set(best.values()) == {"saturating"} else DIFFERS, f"residuals at M = 4: {text}",
                    shown["saturating"].residual)


def twice_m_minus_1() -> Evidence:
    """N to infinity: 2 (M - 1) with negligible weak tokens (sympy, and the flow); at C_p^2 = 25 M a little less."""
    bare = {tokens: symmetric.largest_constant(tokens, ALMOST_NO_WEAK) / (2 * tokens - 2) for tokens in (3, 8)}
    usual = {tokens: float(rows[ATTENTION].iloc[-1]) / (2 * tokens - 2) for tokens in MORE_TOKENS
             if len(rows := _constants(tokens))}
    right = (symmetric_algebra.largest_constant().holds and all(abs(x - 1) <= 1e-3 for x in bare.values())
             and len(usual) == len(MORE_TOKENS) and all(0.9 < x <= 1 for x in usual.values()))
    text = ", ".join(f"{x:.3f} (M = {m})" for m, x in usual.items())
    finding = (f"at C_p² = 25M, c / (2(M − 1)) is {text}; at C_p² = 10⁶ it is 1 within "
               f"{max(abs(x - 1) for x in bare.values()):.0e}")
    return Evidence(HOLDS if right else DIFFERS, finding, min(usual.values(), default=math.nan))


def loss_first() -> Evidence:
    """The test loss needs mu's query only, which turns before the noise queries do."""
    near = symmetric.load()
    near = near[(near["M"] > 2) & (near["N"] >= symmetric.REACHABLE[0]) & (near["N"] <= symmetric.REACHABLE[1])]
    if not len(near):
        return _no_rows()
    share = near["loss"] / near[ATTENTION]
    finding = (f"test loss turns at {share.min():.2f} to {share.max():.2f} of the ratio where attention of ξ₂ does, "
               f"N = {symmetric.REACHABLE[0]} to {symmetric.REACHABLE[1]}, M = 3 to 16")
    return Evidence(HOLDS if (share < 1 - ROUNDING).all() else DIFFERS, finding, float(share.min()))


def sharp() -> Evidence:
    """All constants lie between 2 and 2 (M - 1), whatever N: sharp in N, up to a factor that depends on M."""
    rows = symmetric.load()
    if not len(rows):
        return _no_rows()
    top = np.maximum(2.0, 2 * (rows["M"] - 1))
    inside = True
    for name in TURNS:
        inside = inside and bool(((rows[name] >= 2 * (1 - ROUNDING)) & (rows[name] <= top * (1 + ROUNDING))).all())
    over = {tokens: 60 * tokens**2 / float(_constants(tokens)[ATTENTION].max()) for tokens in symmetric.TOKENS}
    text = ", ".join(f"{x:.0f} (M = {m})" for m, x in over.items())
    finding = f"c from 2 to at most 2(M − 1) for all N; the proof's 60M² is larger than the largest c by {text}"
    return Evidence(CONSTANT if inside else DIFFERS, finding, float(rows[ATTENTION].max()))


def _claim(id: str, statement: str, check, kind: str, quantity: str, tolerance: str, expected: str = HOLDS,
           where: str = "ours", seeds: tuple[int, ...] = ()) -> Claim:
    return Claim(id=id, statement=statement, where=where, kind=kind, quantity=quantity, tolerance=tolerance,
                 chapter=CHAPTER, expected=expected, check=check, seeds=seeds)


SEEDS = tuple(sorted({seed for n, _ in symmetric_drawn.SIZES for seed in symmetric_drawn.even_seeds(n, 3)}))
CLAIMS = (
    _claim("symmetric-closed", "In the symmetric limit gradient flow closes on a few dozen numbers at any $N$", closed,
           "symbolic", "how many numbers", "none"),
    _claim("symmetric-force", "Logits of both classes are driven alike, by values signed with $y$", force, "symbolic",
           "identity", "none"),
    _claim("symmetric-exact", "The closed system is gradient flow of the symmetric problem", exact, "exact",
           "difference in values, attention, test loss and time", f"{EXACT:g}: two integrators at 1e-9"),
    _claim("symmetric-matches-drawn", "Drawn problems whose initial logits and values are made small follow the limit",
           matches_drawn, "statistical", "share of ratios where all runs agree",
           "attention 0.02, values 0.05, loss 0.01", seeds=SEEDS),
    _claim("symmetric-start-values", "What spreads the transition of drawn problems is the initial values that item "
           "(7) allows, not the initial logits that item (8) demands", values_make_the_width, "statistical",
           "share of ratios where all runs agree", "as above, without the ratios within 6 % of the transition",
           seeds=SEEDS),
    _claim("symmetric-start-sizes", "At the caps of Condition 4.1 neither shrinks as $d_h$ grows, beside what "
           "moves attention", sizes_at_the_start, "exact", "initial value of ξ₂ over what moves attention", "1e-6"),
    _claim("symmetric-no-error", "In the limit the test error is 0 on both sides: only the loss is harmful", no_error,
           "exact", "smallest value of the signal", "none", seeds=SEEDS),
    _claim("transition-constant-M2", "$M = 2$: the transition is at $N \\cdot \\SNR^2 = 2 C_p^2$, whatever $N$",
           two_at_m_2, "scaling", "c(2, N)", f"{ROUNDING:g}: the search"),
    _claim("transition-grows-with-N", "$M \\ge 3$: its constant grows with $N$ over the $N$ that simulations reach",
           grows, "scaling", "slope of c over log N", "interval of the slope above 0"),
    _claim("transition-saturates", "$M \\ge 3$: the constant stops growing at large $N$", saturates, "scaling",
           "relative change over the last decades", f"{SETTLED:g}"),
    _claim("transition-no-log", "From $N = 4$ to $10^{12}$ neither constant, logarithm nor power fits as a saturating "
           "law does", no_logarithm, "scaling", "residual of the saturating law", "Akaike's criterion"),
    _claim("transition-2M-2", "$M \\ge 3$, $N \\to \\infty$: it is $2 (M - 1)$, less a correction that vanishes "
           "for large $C_p$", twice_m_minus_1, "scaling", "smallest c / (2(M − 1)) at N = 10¹²",
           "0.001 at C_p² = 10⁶; above 0.9 at C_p² = 25M"),
    _claim("transition-loss-first", "$M \\ge 3$, moderate $N$: the test loss turns before the noise queries do",
           loss_first, "scaling", "ratio of the two constants", "the search"),
    _claim("omega-is-sharp", "$N \\cdot \\SNR^2 = \\Omega(1)$ is the sharp scale: no factor that grows with $N$", sharp,
           "scaling", "largest c", "c between 2 and 2(M − 1)", CONSTANT, "Theorems 4.1, 4.2"),
)
