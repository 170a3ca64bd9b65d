"""Fresh points after training: Lemmas 5.5, D.8, D.9, D.10 and E.6, and what noisy copies of samples do (Appendix G)."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
from scipy import stats

from vitbo_lib import augmentation, population, regime, theory
from vitbo_lib.claims import CONSTANT, DIFFERS, HOLDS, LIMIT, SCALE, Claim, Evidence
from vitbo_lib.intervals import format_interval, mean_interval, proportion_interval, slope_interval
from vitbo_lib.population import TOKENS

ROUNDING = 1e-12
SIGNIFICANCE = 0.001
LAB_CONSTANT = 100.0  # beyond it "up to a constant" would say nothing
FLOOR = 0.5 * math.log1p(math.exp(-0.5))  # Lemma E.6's own number, 0.237
REGIME_SEEDS, LAB_SEEDS = tuple(range(8)), tuple(range(population.LAB_SEEDS))


def points(side: str, lab: bool) -> pd.DataFrame:
    """The stored fresh points of one side, of Appendix A or of the regime, with M."""
    rows = population.load()
    cases = [case for case in population.CASES if case.startswith(side) and (case in population.LAB_CASES) == lab]
    chosen = rows[rows["case"].isin(cases)]
    return chosen.assign(M=chosen["case"].map(TOKENS))


def _all(good: pd.Series, finding: str, otherwise: str = DIFFERS) -> Evidence:
    """Evidence that every one of the points is `good` (and that there are some)."""
    share = proportion_interval(int(good.sum()), len(good))
    return Evidence.of(HOLDS if bool(good.all()) else otherwise, finding, share)


def fresh_attention(lab: bool) -> Evidence:
    """Lemma D.8, point by point: attention of the query mu on mu."""
    rows = points("benign", lab)
    good = rows["attention"] >= 1 / (2 * rows["M"])
    return _all(good, f"{good.sum()} of {len(good)} fresh points; smallest attention {rows['attention'].min():.3f}")


def probability() -> Evidence:
    """With so many fresh points, rarer failures go unseen."""
    rows = points("benign", lab=False)
    rows = rows[rows["M"] == regime.M]
    bad = int((~(rows["attention"] >= 1 / (2 * rows["M"]))).sum())
    share = proportion_interval(len(rows) - bad, len(rows))
    claimed = regime.DELTA / (2 * regime.N**2 * regime.M)
    finding = (f"{bad} of {len(rows)} points fail; claimed: {theory.scientific(claimed)}, which needs about "
               f"{theory.scientific(3.84 / claimed)} points")
    return Evidence.of(SCALE if bad == 0 else DIFFERS, finding, share)


def logits_gaussian() -> Evidence:
    """Logits of the query mu with fresh xi_2 at the end, standardised by run: mean and shape."""
    p_values, means = [], []
    rows = pd.concat([points(side, lab) for side in ("benign", "harmful") for lab in (False, True)])
    for _, case in rows.groupby("case"):
        runs = case.groupby("seed")["logit_xi2"]
        scaled = (case["logit_xi2"] / runs.transform("std")).to_numpy()
        p_values.append(float(stats.kstest(scaled, "norm").pvalue))
        means.append(abs(scaled.mean()) * math.sqrt(len(scaled)))
    good = len(means) == len(population.CASES) and all(p > SIGNIFICANCE for p in p_values) and all(m < 4 for m in means)
    finding = (f"{len(means)} cases: smallest p of a Kolmogorov-Smirnov test {min(p_values):.3f}, means within "
               f"{max(means):.1f} standard errors of 0")
    return Evidence(HOLDS if good else DIFFERS, finding, min(p_values))


def logits_vanish() -> Evidence:
    """The size of these logits over d_h (with d) and over lg = log(6 N^2 M^2 / delta), all else at its bound."""
    rows = population.load_scaling()
    by_d_h, by_lg = population.along(rows, "benign", "d_h"), population.along(rows, "benign", "delta")
    in_d_h = slope_interval(np.log(by_d_h["d_h"]), np.log(by_d_h["logit_std"]))
    in_lg = slope_interval(np.log(by_lg["lg"]), np.log(by_lg["logit_std"]))
    right = abs(in_d_h.mean) < 0.05 and abs(in_lg.mean + 1.75) < 0.1
    finding = (f"standard deviation {by_d_h['logit_std'].mean():.3f} at SNR {population.SCALING_SNR['benign']:g}; "
               f"exponent in d_h {format_interval(in_d_h)}, in lg {format_interval(in_lg)} (σ_h² amid window (8))")
    return Evidence.of(LIMIT if right else DIFFERS, finding, in_lg)


def weights_moved(lab: bool) -> Evidence:
    """(130): ||W_K(T) - W_K(0)||_F over sigma_h d_h^1/2."""
    runs = population.runs_of(points("benign", lab))
    found = mean_interval(runs.loc[runs["case"] == runs["case"].iloc[-1], "moved_k"] /
                          runs.loc[runs["case"] == runs["case"].iloc[-1], "scale_k"])
    if lab:
        verdict = HOLDS if found.high <= 1 else CONSTANT if found.high <= LAB_CONSTANT else DIFFERS
        return Evidence.of(verdict, f"{format_interval(found, 1)} times that", found)
    rows = population.along(population.load_scaling(), "benign", "d_h")
    slope = slope_interval(np.log(rows["d_h"]), np.log(rows["moved_k"] / rows["scale_k"]))
    finding = f"{format_interval(found, 4)} times that at N = 64; the ratio goes as d_h to the {format_interval(slope)}"
    return Evidence.of(HOLDS if found.high <= 1 and slope.low <= 0.05 else DIFFERS, finding, found)


def fresh_noise_lab() -> Evidence:
    """Lemma D.9 at Appendix A."""
    rows = points("benign", lab=True)
    return _all(rows["noise_largest"] <= 1, f"largest of {len(rows)} points {rows['noise_largest'].max():.3f}")


def values_moved(side: str) -> Evidence:
    """(134), and its harmful counterpart in E.6: growth of ||W_V w_O|| over its bound."""
    rows = population.along(population.load_scaling(), side, "epsilon")
    ratio = rows["moved_v"] / rows["scale_v"]
    slope = slope_interval(np.log(rows["epsilon"]), np.log(rows["moved_v"]))
    finding = (f"at most {ratio.max():.3f} times that (ε = {rows.loc[ratio.idxmax(), 'epsilon']:g}); it goes as ε to "
               f"the {format_interval(slope)}, the bound as ε to the −1")
    return Evidence(HOLDS if ratio.max() <= 1 and len(ratio) else DIFFERS, finding, float(ratio.max()))


def margin_inequality() -> Evidence:
    """D.10's inequality on every fresh point with attention at least 1/(2M), of all cases."""
    rows = pd.concat([points(side, lab) for side in ("benign", "harmful") for lab in (False, True)])
    rows = rows[rows["attention"] >= 1 / (2 * rows["M"])]
    bound = pd.concat([population.margin_bound(part["signal_value"], part["noise_largest"], tokens)
                       for tokens, part in rows.groupby("M")])
    room = rows.sort_values("M", kind="stable")["margin"].to_numpy() - bound.to_numpy()
    smallest = float(room.min()) if len(room) else math.nan
    return Evidence(HOLDS if smallest >= -ROUNDING else DIFFERS,
                    f"{len(room)} fresh points, room at least {smallest:.4f}", smallest)


def lemma_5_5() -> Evidence:
    """Lemma 5.5 with C = 1 on every benign fresh point; and how many harmful ones satisfy it."""
    rows = pd.concat([points("benign", lab) for lab in (False, True)])
    bounds = {tokens: population.lemma_5_5(regime.EPSILON, tokens) for tokens in set(rows["M"])}
    good = rows["margin"] >= rows["M"].map(bounds)
    harmful = pd.concat([points("harmful", lab) for lab in (False, True)])
    too = (harmful["margin"] >= harmful["M"].map(bounds)).mean()
    said = ", ".join(f"{bound:.2f} at M = {tokens}" for tokens, bound in sorted(bounds.items()))
    found = _all(good, f"{good.sum()} of {len(good)} points; the bound is {said}, below 0, and {too:.0%} of the "
                       "harmful points satisfy it too")
    return replace(found, verdict=SCALE) if found.verdict == HOLDS and max(bounds.values()) < 0 else found


def bound_d_10() -> Evidence:
    """D.10's bound at C_20 = 1 against the test loss, over epsilon."""
    rows = population.along(population.load_scaling(), "benign", "epsilon")
    bound = 3 * rows["epsilon"] ** (1 / (2 * regime.M**2))
    over = bound / rows["test_loss"]
    at = rows["epsilon"] == regime.EPSILON
    finding = (f"at ε = {regime.EPSILON:g} the bound is {bound[at].mean():.2f}, the test loss "
               f"{rows.loc[at, 'test_loss'].mean():.3f}; what the margins' bound alone gives: "
               f"{rows.loc[at, 'lemma_loss'].mean():.2f}")
    beyond = len(over) and over.min() >= 1
    verdict = DIFFERS if not beyond else SCALE if bound.min() > math.log(2) else HOLDS
    return Evidence(verdict, finding, float(over.min()))


def harmful_values() -> Evidence:
    """E.6's good event: all values of fresh noise within 1/2, and V of the signal small."""
    findings, shares, signal = [], {}, {}
    for lab in (False, True):
        for case, part in points("harmful", lab).groupby("case"):
            good = part["noise_largest"] <= 0.5
            shares[case] = proportion_interval(int(good.sum()), len(good))
            signal[case] = float(part["signal_value"].abs().max())
            findings.append(f"{case.removeprefix('harmful, ')}: {good.mean():.3f} (V± within {signal[case]:.3f})")
    good = bool(shares) and all(share.low >= 0.5 for share in shares.values()) and max(signal.values()) <= 0.5
    return Evidence.of(HOLDS if good else DIFFERS, "; ".join(findings), min(shares.values(), key=lambda s: s.low))


def harmful_loss() -> Evidence:
    """E.6's conclusion, y f at most 1/2 with probability 1/2 and a test loss of at least 0.237, and the loss itself."""
    rows = points("harmful", lab=False)
    share = (rows["margin"] <= 0.5).mean()
    loss = mean_interval(population.runs_of(rows)["loss"])
    right = share >= 0.5 and loss.low >= FLOOR
    return Evidence.of(HOLDS if right else DIFFERS, f"y f ≤ 1/2 on {share:.0%} of {len(rows)} points; test loss "
                       f"{format_interval(loss, 3)}, bound {FLOOR:.3f}", loss)


# ----------------------------------------------------------------------------------------------------------- Appendix G

def copies_help() -> Evidence:
    """C88: by test loss, do noisy copies of the samples help anywhere, and does the sign change with N SNR^2?"""
    rows = augmentation.load()
    signs = {}
    for arm in ("copies, s = 1", "copies, s = 2"):
        found = augmentation.effects(rows, arm)
        signs[arm] = ([r for r, i in found.items() if i.high < -augmentation.MATTERS],
                      [r for r, i in found.items() if i.low > augmentation.MATTERS],
                      max(found.values(), key=lambda i: i.mean), min(found.values(), key=lambda i: i.mean))
    both = any(helps and harms for helps, harms, _, _ in signs.values())
    finding = "; ".join(f"{arm}: helps at {_ratios(helps)}, harms at {_ratios(harms)} (at most "
                        f"{format_interval(worst)})" for arm, (helps, harms, worst, _) in signs.items())
    largest = signs["copies, s = 2"][2]
    return Evidence.of(HOLDS if both else DIFFERS, finding, largest)


def _ratios(values: list[float]) -> str:
    return ", ".join(f"{value:g}" for value in values) or "none"


def fresh_samples_help() -> Evidence:
    """As many fresh samples at the lower SNR: the transition moves as N SNR^2 is counted, and does move."""
    return _shifts(("fresh, s = 1", "fresh, s = 2"), lambda _: 1.0, "1 would be no change")


def copies_shift() -> Evidence:
    """Copies: the transition moves by 1 + s^2 / k, as the initial rates say, and not as copies are counted."""
    return _shifts(("copies, s = 2", "copies, s = 1"), lambda s: 1 / augmentation.counted(s),
                   "counting copies as samples gives 1.25 and 0.5")


def _shifts(arms: tuple[str, ...], other, otherwise: str) -> Evidence:
    rows, findings, right, first = augmentation.load(), [], [], None
    for arm in arms:
        low, high = augmentation.shift(rows, arm)
        predicted = augmentation.break_even(arm) / augmentation.break_even("none")
        right.append(low <= predicted <= high and not low <= other(augmentation.ARMS[arm][1]) <= high)
        findings.append(f"{arm}: a factor {low:.2f} to {high:.2f} (grid), predicted {predicted:g}")
        first = first or (math.sqrt(low * high), low, high)
    return Evidence(HOLDS if all(right) else DIFFERS, f"{'; '.join(findings)}; {otherwise}", *first)


def _claim(id: str, statement: str, where: str, check, expected: str, chapter: str = "population_loss",
           **changes) -> Claim:
    fields = {"kind": "statistical", "seeds": REGIME_SEEDS, "quantity": "share of fresh points",
              "tolerance": "none: all"}
    return Claim(id=id, statement=statement, where=where, chapter=chapter, expected=expected, check=check,
                 **(fields | changes))


WHERE_G = {"chapter": "takeaways", "quantity": "change of the test loss",
           "tolerance": f"changes beyond {augmentation.MATTERS}"}
SHIFT = {"chapter": "takeaways", "quantity": "factor on N SNR² at the transition",
         "tolerance": "between two ratios tried"}
CLAIMS = (
    _claim("C60-points", "On every fresh point the query $\\mu$ looks at $\\mu$ with at least $1/(2M)$", "Lemma D.8",
           lambda: fresh_attention(False), HOLDS),
    _claim("C60-lab", "and so it is at the benign example of Appendix A", "Lemma D.8", lambda: fresh_attention(True),
           HOLDS, seeds=LAB_SEEDS),
    _claim("D.8-probability", "with probability at least $1 - \\delta/(2 N^2 M)$", "Lemma D.8", probability, SCALE,
           tolerance="Wilson interval"),
    _claim("C61-gauss", "$\\mu^\\top W_Q W_K^\\top \\xi$ of fresh $\\xi_2$ is Gaussian with mean 0 after training",
           "Lemma D.8", logits_gaussian, HOLDS, quantity="smallest p", tolerance=f"p above {SIGNIFICANCE}, six cases"),
    _claim("C61", "and it is $o(1)$", "Lemma D.8", logits_vanish, LIMIT, kind="scaling", seeds=(0, 1, 2),
           quantity="exponent of its size in lg", tolerance="0.1 around −7/4 (item (8)); in d_h, 0.05 around 0"),
    _claim("C62", "$\\norm{W_K^{(T)} - W_K^{(0)}}_F = \\bigO(\\sigma_h d_h^{1/2})$", "Lemma D.8, eq. (130)",
           lambda: weights_moved(False), HOLDS, kind="scaling", quantity="ratio, at N = 64, M = 2",
           tolerance="constant 1; the ratio does not grow with d_h"),
    _claim("C62-lab", "and so it is at the benign example of Appendix A", "Lemma D.8, eq. (130)",
           lambda: weights_moved(True), CONSTANT, seeds=LAB_SEEDS, quantity="ratio", tolerance="1, else 100"),
    _claim("C63-lab", "Values of fresh noise are at most 1 at the benign example of Appendix A", "Lemma D.9",
           fresh_noise_lab, HOLDS, seeds=LAB_SEEDS),
    *(_claim(f"C63-growth-{side}", f"$\\norm{{(W_V^{{(T)}} - W_V^{{(0)}}) w_O}} = \\bigO({bound})$", where,
             lambda side=side: values_moved(side), HOLDS, kind="scaling", seeds=(0, 1, 2), quantity="largest ratio",
             tolerance="constant 1")
      for side, where, bound in (
          ("benign", "Lemma D.9, eq. (134)",
           "\\max\\{\\norm{\\mu}, \\sigma_p \\sqrt d\\} / (\\epsilon \\norm{\\mu}^2)"),
          ("harmful", "Lemma E.6", "N / (\\epsilon \\sigma_p \\sqrt d)"))),
    _claim("C64", "$y f \\ge \\frac{1}{2M^2} \\abs{V_\\pm} - (1 - \\frac{1}{2M^2}) \\max_i \\abs{\\xi_i^\\top W_V "
           "w_O}$ where that attention is at least $1/(2M)$ and $y V_\\pm$ not below $-\\max_i$", "Lemma D.10",
           margin_inequality, HOLDS, kind="exact", quantity="smallest room", tolerance=f"{ROUNDING:g}, rounding"),
    _claim("lemma-5.5", "$y f \\ge \\log(C/\\epsilon)/(2M^2) - 1$ on fresh points, with $C = 1$", "Lemma 5.5",
           lemma_5_5, SCALE),
    _claim("lemma-D.10", "$L_D \\le 3 (\\epsilon / C_{20})^{1/(2M^2)}$ and a small term, with $C_{20} = 1$",
           "Lemma D.10", bound_d_10, SCALE, seeds=(0, 1, 2), quantity="smallest bound / test loss",
           tolerance="at least 1, at five ε; a bound above log 2 says nothing"),
    _claim("E.6-values", "Harmful: with probability 1/2 at least, all values of fresh noise are within 1/2; $V_\\pm$ "
           "is small", "Lemma E.6", harmful_values, HOLDS, tolerance="Wilson interval above 1/2; V± within 1/2"),
    _claim("E.6-loss", "so that $y f \\le 1/2$ there, and $L_D \\ge \\frac12 \\log(1 + e^{-1/2})$", "Lemma E.6",
           harmful_loss, HOLDS, quantity="test loss", tolerance="the interval"),
    _claim("C88", "Adding noisy copies can help or harm, depending on $N \\cdot \\SNR^2$", "App. G", copies_help,
           DIFFERS, **WHERE_G),
    _claim("C88-copies", "Copies move the transition by $1 + s^2/k$, not by $(1 + s^2)/k$", "ours", copies_shift, HOLDS,
           **SHIFT),
    _claim("C88-fresh", "As many fresh samples move it by $(1 + s^2)/k$", "ours", fresh_samples_help, HOLDS, **SHIFT),
)
