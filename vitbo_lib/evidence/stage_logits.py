"""Checks of logits, norms, attention, sums of coefficients and Appendix A's figures, for the record of the stages."""

import math

import numpy as np

from vitbo_lib import regime, stage_events, stage_scaling
from vitbo_lib.claims import CONSTANT, DIFFERS, HOLDS, SCALE, Evidence
from vitbo_lib.evidence.stage_checks import EXPONENT, LARGE_HIDDEN, SMALL, after, high, judge, low, runs
from vitbo_lib.intervals import format_interval, mean_interval

GROWN_HIDDEN = 10**14  # from here on e^gap is far above 1 when stage II ends, for every query

# --------------------------------------------------------------------------------------------- logits, norms, attention

def stage_one_products() -> Evidence:
    """Products of queries and keys in stage I, in the scale max(.) sigma_h^2 sqrt(d_h lg); norms over their start."""
    p = stage_events.parameters("regime", "benign")
    unit = p.sigma_h**2 * math.sqrt(p.d_h * p.lg)
    first = [run[run["time"] <= ends["dominance"]] for run, ends in runs("regime", "benign")]
    most = [max(high(run["logit_largest"]), high(run["like_products"])) / unit for run in first]
    norms = low([low(run["norm_lowest"]) for run in first]), high([high(run["norm_highest"]) for run in first])
    right = high(most) <= 10 and norms[0] >= 0.5 and norms[1] <= 1.5
    constant = mean_interval(most)
    return judge(right, f"products at most {format_interval(constant, 1)} × the scale ({unit:.3f}); norms "
                         f"{norms[0]:.3f} to {norms[1]:.3f} of their start", constant, CONSTANT)


def norms_stay() -> Evidence:
    """Squared norms of q and k over their start, to the end of training, in the regime on both sides."""
    runs_ = [run for case in stage_events.REGIMES for side in stage_events.SIDES for run, _ in runs(case, side)]
    lowest = low([low(run["norm_lowest"]) for run in runs_])
    highest = high([high(run["norm_highest"]) for run in runs_])
    return Evidence(HOLDS if lowest >= 0.95 and highest <= 1.05 else DIFFERS,
                    f"{lowest:.4f} to {highest:.4f} of the start in {len(runs_)} runs", highest)


def lab_norms() -> Evidence:
    """At the benign example of Appendix A the largest squared norm grows many times over."""
    most = mean_interval([high(run["norm_highest"]) for run, _ in runs("App. A", "benign")])
    return judge(most.low > 10, f"the largest grows {format_interval(most, 0)} times", most)


def monotone(case: str = "regime") -> Evidence:
    """Logits after 3M dominance: shares that rise at the signal and that fall at noise, the least over all states."""
    late = [after(run, ends["dominance"]) for run, ends in runs(case, "benign")]
    up, down = ([low(run[name]) for run in late] for name in ("signal_up", "noise_down"))
    states = sum(len(run) for run in late)
    finding = f"rise at the signal: at least {low(up):.2f}; fall at noise: at least {low(down):.2f}; {states} states"
    right = low(up) == 1 and low(down) == 1
    if case == "App. A":
        right = high(down) < 1
    return judge(right, finding, mean_interval(down))


def growth(side: str) -> Evidence:
    """e^gap over (t - T_1)^2 in stage II: the power from T_1 and from 0, and the least constant of the lemma."""
    rows = stage_scaling.along(stage_scaling.load(), side, "d_h")
    rows = rows[rows["d_h"] >= GROWN_HIDDEN]
    parts, right = [], len(rows) > 0
    for query in ("signal", "noise"):
        powers = [mean_interval(rows[f"{name}_{query}"]) for name in ("power", "power_from_0")]
        constants = rows[f"c_least_{query}"] / [_lemma_scale(row, side, query) for _, row in rows.iterrows()]
        parts.append(f"{query} queries: power {format_interval(powers[0])} from T_1, {format_interval(powers[1])} "
                     f"from 0, C ≥ {low(constants):.2g}")
        right &= all(1.6 <= power.mean <= 3 for power in powers) and low(constants) > 0
    return judge(bool(right), "; ".join(parts), powers[0])


def _lemma_scale(row, side: str, query: str) -> float:
    """The coefficient of (t - T_1)^2 in Lemma 5.3 and in L(t), per eta^2 and with C = 1."""
    p = stage_scaling.scaled(int(row["N"]), int(row["M"]), float(row["snr"]), int(row["d_h"]), float(row["w_o_norm"]))
    signal, noise = p.signal_norm**2, p.sigma_p**2 * p.d
    energy = {("benign", "signal"): signal**2, ("benign", "noise"): signal * noise,
              ("harmful", "signal"): signal * noise / p.N, ("harmful", "noise"): noise**2 / p.N}[side, query]
    return energy * p.w_o_norm**2 * math.sqrt(p.d_h) / (p.N * p.lg**2)


def coefficient() -> Evidence:
    """Exponents of the coefficient c of t^2 in e^Lambda: d_h, ||w_O||, N, SNR at ||mu|| = 1."""
    rows, parts, slopes, right = stage_scaling.load(), [], [], True
    energy = stage_scaling.logit_energy
    for label, free, query, lowest, highest, unit in (
            ("d_h, q_±", "d_h", "signal", 0.45, 0.55, None), ("d_h, q_n", "d_h", "noise", 0.45, 0.55, None),
            ("‖w_O‖", "w_o_norm", "signal", 1.75, 2.25, None), ("N, q_±", "N", "signal", -0.25, 0.25, energy),
            ("N, q_n", "N", "noise", -1.25, -0.75, energy), ("SNR, q_±", "snr", "signal", -0.25, 0.25, None),
            ("SNR, q_n (not judged: print is a lower bound)", "snr", "noise", -math.inf, math.inf, None)):
        least = GROWN_HIDDEN if free == "d_h" else 0
        slope = stage_scaling.power(rows, "benign", free, f"c_{query}", least, unit)
        parts.append(f"{label} {slope.mean:.2f}")
        right &= lowest <= slope.mean <= highest
        slopes.append(slope)
    return judge(bool(right), f"exponents: {', '.join(parts)}; in print 1/2, 1/2, 2, -1, -1, 0, -2", slopes[0])


def log_bounds() -> Evidence:
    """The largest logit at the end of stage II over log d_h^(1/2), of stage III over log(d_h^(1/2) / epsilon)."""
    rows = stage_scaling.load()
    rows = rows[rows["d_h"] >= 10**10]
    root = np.log(rows["d_h"].astype(float)) / 2
    ratios = {"II": rows["logit_2"] / root, "III": rows["logit_3"] / (root + math.log(1 / regime.EPSILON))}
    most = {stage: {side: high(ratio[rows["side"] == side]) for side in stage_events.SIDES} for stage, ratio in
            ratios.items()}
    right = all(values["benign"] <= 1 and values["harmful"] <= 2 for values in most.values())
    found = ", ".join(f"{values['benign']:.2f} benign, {values['harmful']:.2f} harmful (stage {stage})"
                      for stage, values in most.items())
    return Evidence(HOLDS if right else DIFFERS, f"largest logit over its bound: {found}; the harmful bound is "
                    "2 × that", most["III"]["benign"])


def lab_logits() -> Evidence:
    """The largest logit at the end of the benign example of Appendix A over the bound of stage III."""
    bound = math.log(math.sqrt(1024) / regime.EPSILON)
    ratio = mean_interval([high(run["logit_largest"]) / bound for run, _ in runs("App. A", "benign")])
    return judge(ratio.low > 1, f"{format_interval(ratio, 1)} × log(d_h^(1/2)/ε) = {bound:.1f}", ratio)


def cross_logits(side: str) -> Evidence:
    """Logits across samples and across classes: their size and their change since the start."""
    size, change = [], []
    for case in stage_events.REGIMES:
        for run, _ in runs(case, side):
            cross = run[["cross_sample", "cross_class"]].max(axis=1)
            size.append(high(cross))
            change.append(high(cross) / float(cross.iloc[0]) - 1)
    unchanged, most = high(change) <= 0.01, high(size)
    if side == "benign":
        return judge(unchanged and most <= SMALL, f"at most {most:.3f}, {100 * high(change):.2f} % more than at the "
                      "start", mean_interval(size))
    p = stage_events.parameters("regime", "harmful")
    verdict = SCALE if unchanged else DIFFERS
    return Evidence.of(verdict, f"at most {most:.2f}, {100 * high(change):.2f} % more than at the start; they start at "
                                f"C_p²/lg ({p.c_p**2:.0f}/{p.lg:.0f}), and lg grows like log N", mean_interval(size))


def leak(side: str) -> Evidence:
    """Attention off the winner at the end of stage II against d_h."""
    rows, parts, right = stage_scaling.load(), [], True
    for query in ("signal", "noise"):
        slope = stage_scaling.power(rows, side, "d_h", f"leak_{query}", LARGE_HIDDEN)
        parts.append(f"{query} queries {format_interval(slope, 3)}")
        right &= abs(slope.mean + 0.5) <= EXPONENT
    return judge(bool(right), f"power of d_h: {', '.join(parts)}", slope)


def attended(side: str, case: str = "regime") -> Evidence:
    """The least attention on the winner over training queries, at a tenth of the time and at the end."""
    column = f"attention_{'signal' if side == 'benign' else 'xi2'}_smallest"
    tenth, end = ([float(run[run["time"] >= share * run["time"].max()][column].iloc[0]) for run, _ in runs(case, side)]
                  for share in (0.1, 1))
    interval = mean_interval(end)
    return judge(low(tenth) >= stage_events.ATTENDED and low(end) >= stage_events.ATTENDED,
                  f"least attention {format_interval(mean_interval(tenth), 3)} at T/10, "
                  f"{format_interval(interval, 4)} at T", interval)


def four_tokens() -> Evidence:
    """M = 4, N = 16, SNR 14: noise queries have not moved all of their attention when training ends."""
    end = mean_interval([float(run["attention_signal_smallest"].iloc[-1])
                         for run, _ in runs("regime, M = 4", "benign")])
    return judge(end.high < stage_events.ATTENDED, f"least attention {format_interval(end, 3)} at T", end)


def fresh_noise() -> Evidence:
    """Attention of noise queries on the signal: training points less fresh ones, at the end."""
    parts = []
    for case in ("regime", "App. A"):
        last = [run.iloc[-1] for run, _ in runs(case, "benign")]
        parts.append((case, mean_interval([row["noise_query_attention"] for row in last]),
                      mean_interval([row["fresh_noise_attention"] for row in last])))
    right = all(train.low - fresh.high > 0.2 for _, train, fresh in parts)
    found = "; ".join(f"{case}: {train.mean:.3f} against {fresh.mean:.3f}" for case, train, fresh in parts)
    return judge(right, f"training against fresh, {found}", parts[0][2])


# ------------------------------------------------------------------------------------------------------ harmful stages

def increments(name: str) -> Evidence:
    """Shares of increments toward k_{n,2} after dominance: at least twice the others, or at least as large."""
    shares, early = [], []
    for run, ends in runs("regime", "harmful"):
        shares.append(low(after(run, ends["dominance"])[name]))
        early.append(float(run[name].iloc[0]))
    finding = f"share at least {low(shares):.2f} from dominance on; {np.mean(early):.2f} at the start"
    return judge(low(shares) == 1, finding, mean_interval(shares))


def psi_growth() -> Evidence:
    """Psi never falls after dominance, and e^Psi grows like t^2."""
    up, grown = increments("psi_up"), growth("harmful")
    return Evidence(HOLDS if up.verdict == HOLDS and grown.verdict == HOLDS else DIFFERS,
                    f"{up.finding}; {grown.finding}", grown.value, grown.low, grown.high)


# ------------------------------------------------------------------------------------------------ sums of coefficients

def coefficient_sums(stage: int, side: str = "benign") -> Evidence:
    """Integrals of |alpha| and |beta| over a stage, over the scales of F.7 (stage II) and F.10 (stage III)."""
    rows = stage_scaling.along(stage_scaling.load(), side, "d_h")
    rows = rows[rows["d_h"] >= LARGE_HIDDEN]
    ratios = {name: high(rows[f"{name}_{stage}"] / [sum_scale(row, name, stage) for _, row in rows.iterrows()])
              for name in stage_scaling.SUMS}
    worst = max(ratios, key=ratios.get)
    slope = stage_scaling.power(rows, side, "d_h", f"own_{stage}", LARGE_HIDDEN)
    right = len(rows) > 0 and all(ratio <= 1 for ratio in ratios.values())
    stated = "-1/4" if stage == 2 else "-1/2"
    return judge(right, f"largest over its scale {ratios[worst]:.1e} ({stage_scaling.SUMS[worst]}); as d_h to the "
                         f"power {format_interval(slope, 3)}, in print {stated}", slope)


def sum_scale(row, name: str, stage: int) -> float:
    """The scale of F.7 or F.10 for a kind of coefficient, constants 1, in eta-free units.

    >>> round(sum_scale({"N": 64, "M": 2, "snr": 8.0, "d_h": 10**16, "w_o_norm": 1.0}, "own", 2), 6)
    0.0008
    """
    p = stage_scaling.scaled(int(row["N"]), int(row["M"]), float(row["snr"]), int(row["d_h"]), float(row["w_o_norm"]))
    if stage == 2:
        unit = p.d_h**-0.25
        factors = {"own": p.N**0.5, "to_signal_beta": p.N**0.5, "signal_keys": p.N**-0.5,
                   "own_beta": p.snr * p.N**-0.5, "cross": p.d**-0.5 * p.lg, "cross_beta": p.d**-0.5 * p.lg}
    else:
        unit = p.lg**3 * math.log(1 / p.epsilon) / (p.epsilon * p.d_h**0.5)
        factors = {"own": p.N, "to_signal_beta": p.N, "own_beta": p.snr**2, "cross": p.lg * p.d**-0.5,
                   "cross_beta": p.lg * p.d**-0.5}
    return unit * factors.get(name, 1.0)


# ------------------------------------------------------------------------------------------------- Figures 3 and 4 (A)

def appendix_a(side: str, case: str) -> Evidence:
    """Growth of logits, attention and V at the winner less that at the other token, from start to end, every seed."""
    sign, differences = (1 if side == "benign" else -1), {"logit": [], "attention": [], "v": []}
    for run, _ in runs(case, side):
        first, last = run.iloc[0], run.iloc[-1]
        for name, found in differences.items():
            grown = [last[f"{name}_{token}"] - first[f"{name}_{token}"] for token in ("signal", "xi2")]
            found.append(sign * (grown[0] - grown[1]))
    intervals = {name: mean_interval(found) for name, found in differences.items()}
    right = all(low(found) > 0 for found in differences.values())
    found = ", ".join(f"{label} {format_interval(intervals[name])}" for name, label in
                      (("logit", "logits"), ("attention", "attention"), ("v", "V")))
    return judge(right, f"growth at the winner less that at the other: {found}", intervals["attention"])
