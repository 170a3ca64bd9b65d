"""Checks of scalarized V, stage times and their order, for the record of the three stages."""

import math

import numpy as np
import pandas as pd

from vitbo_lib import regime, stage_events, stage_scaling
from vitbo_lib.claims import CONSTANT, DIFFERS, HOLDS, LIMIT, Evidence
from vitbo_lib.intervals import Interval, format_interval, mean_interval, proportion_interval

SMALL = 0.05  # our level for "o(1)"
EXACT = 1e-6
EXPONENT = 0.05  # a measured exponent this close is taken as the one stated
LARGE_HIDDEN = 10**12  # from here on d_h counts as large


# ------------------------------------------------------------------------------------------------------------- reading

def low(values) -> float:
    """The least; NaN if any is missing, an error if there are none."""
    return float(np.min(np.asarray(values, dtype=float)))


def high(values) -> float:
    """The largest; NaN if any is missing, an error if there are none."""
    return float(np.max(np.asarray(values, dtype=float)))


def runs(case: str, side: str) -> list[tuple[pd.DataFrame, dict[str, float]]]:
    """Every stored run of a case with its events; an error if there are none."""
    rows = stage_events.load()
    rows = rows[(rows["case"] == case) & (rows["side"] == side)]
    if rows.empty:
        raise ValueError(f"no runs of {case}, {side}")
    tokens = stage_events.tokens_of(case)
    return [(run, stage_events.events(run, side, tokens))
            for _, run in rows.sort_values("time").groupby("seed")]


def after(run: pd.DataFrame, time: float) -> pd.DataFrame:
    """The states from a time on."""
    return run[run["time"] >= time]


def judge(right: bool, found: str, interval: Interval, good: str = HOLDS) -> Evidence:
    """Evidence with an interval: `good`, or that it differs."""
    return Evidence.of(good if right else DIFFERS, found, interval)


def every(right) -> bool:
    """Whether there are any, and all are true."""
    right = list(right)
    return bool(right) and all(right)


# ------------------------------------------------------------------------------------------- steps of V, at every state

def near_half() -> Evidence:
    """-l' is within max |V| / 4 of 1/2, for every sample."""
    rows = stage_events.load()
    most = high(rows["off_half"])
    return Evidence(HOLDS if most <= 1 + EXACT else DIFFERS,
                    f"distance at most {most:.3f} × largest V / 4 at {len(rows)} states", most)


def gamma_step() -> Evidence:
    """The signal's V moves by at most 3/4 of eta ||mu||^2 ||w_O||^2 a step, where C.1 holds for the classes."""
    rows = stage_events.load()
    rows = rows[rows["share_plus"].between(0.25, 0.75)]
    most = high(rows["gamma_fastest"])
    return Evidence(HOLDS if most <= 0.75 else DIFFERS, f"at most {most:.2f} of η‖μ‖² at {len(rows)} states", most)


def rho_step() -> Evidence:
    """Noise's V moves by at most 2 eta sigma_p_tilde^2 d / N a step (times ||w_O||^2)."""
    rows = stage_events.load()
    most = high(rows["rho_fastest"])
    return Evidence(HOLDS if most <= 2 else DIFFERS, f"at most {most:.2f} of ησ̃_p²d/N, the bound is 2", most)


def first_rate() -> Evidence:
    """The signal's V moves by at least eta ||mu||^2 / (10 M) a step in stage I."""
    slowest = {case: low([low(run[run["time"] <= ends["dominance"]]["gamma_slowest"]) for run, ends in
                          runs(case, "benign")]) * stage_events.tokens_of(case) for case in stage_events.REGIMES}
    right = every(rate >= 0.1 for rate in slowest.values())
    found = ", ".join(f"{rate:.3f} ({_name(case)})" for case, rate in slowest.items())
    return Evidence(HOLDS if right else DIFFERS, f"at least {found} of η‖μ‖²/M; the bound is 0.1",
                    low(list(slowest.values())))


def _name(case: str) -> str:
    return "M = 2" if case == "regime" else case.removeprefix("regime, ")


# --------------------------------------------------------------------------------------------- times and their order

def by_t_1(side: str) -> Evidence:
    """3M dominance comes before T_1 and then stays, where the proof's constant is met."""
    t_1 = stage_events.predicted(stage_events.parameters("regime", side), side)["t_1"]
    ratios = [ends["dominance"] / t_1 for _, ends in runs("regime", side)]
    if not np.isfinite(ratios).all():
        return Evidence(DIFFERS, f"it never comes in {int(np.sum(~np.isfinite(ratios)))} of {len(ratios)} runs")
    interval = mean_interval(ratios)
    return judge(high(ratios) <= 1, f"for good from {format_interval(interval, 3)} × T_1 on, all {len(ratios)} seeds",
                  interval)


def exponent(side: str, free: str, value: str, expected: float, least: float = 0.0) -> Evidence:
    """A log-log slope of the sweeps against the one stated."""
    slope = stage_scaling.power(stage_scaling.load(), side, free, value, least)
    return judge(abs(slope.mean - expected) <= EXPONENT,
                  f"slope {format_interval(slope, 3)}, stated {expected:g}, d_h from {least:.0e} to 1e17", slope)


def formulas_in_order() -> Evidence:
    """T_1 < T_2 with all constants 1: at the smallest problem, and the d_h that it takes."""
    p = stage_events.parameters("regime", "benign")
    times = stage_events.predicted(p, "benign")
    ratio = times["t_1"] / times["t_2"]
    needed = p.d_h * ratio**4
    found = f"T_1/T_2 = {ratio:.0f} at d_h = {p.d_h:.1e}; T_1 < T_2 needs d_h > {needed:.0e} (T_1 falls as d_h^(-1/4))"
    return Evidence(LIMIT if ratio > 1 and math.isfinite(needed) else DIFFERS, found, ratio)


def stages_part() -> Evidence:
    """Dominance, attention, -l' < 0.4 in this order: at every large d_h, not at the smallest problem of 4.1."""
    rows = stage_scaling.along(stage_scaling.load(), "benign", "d_h")
    large = rows[rows["d_h"] >= LARGE_HIDDEN]
    in_order = (large["dominance"] < large["attention"]) & (large["attention"] < large["derivative"])
    small = [ends["attention"] > ends["derivative"] for _, ends in runs("regime", "benign")]
    share = proportion_interval(int(in_order.sum()), len(large))
    gap = stage_scaling.power(rows.assign(gap=rows["attention"] / rows["derivative"]), "benign", "d_h", "gap",
                              LARGE_HIDDEN)
    right = bool(in_order.all()) and len(large) > 0 and every(small) and abs(gap.mean + 0.25) <= EXPONENT
    return judge(right, f"in order in {int(in_order.sum())} of {len(large)} runs at d_h ≥ 1e12; attention over -l' "
                         f"event as d_h^{gap.mean:.2f}; at the smallest problem attention comes last in {sum(small)} "
                         f"of {len(small)}", share)


def second_time(side: str) -> Evidence:
    """-l' leaves 1/2 at a fixed time in the unit of T_2, whatever d_h: the constant of T_2."""
    rows = stage_scaling.along(stage_scaling.load(), side, "d_h")
    rows = rows[rows["d_h"] >= LARGE_HIDDEN]
    units = [stage_events.predicted(stage_scaling.scaled(64, 2, snr, int(d_h)), side)["t_2"]
             for snr, d_h in zip(rows["snr"], rows["d_h"])]
    constant = mean_interval(rows["derivative"] / units)
    slope = stage_scaling.power(stage_scaling.load(), side, "d_h", "derivative", LARGE_HIDDEN)
    return judge(abs(slope.mean) <= EXPONENT, f"at {format_interval(constant, 2)} × T_2 (constant 1); as d_h to the "
                  f"power {format_interval(slope, 3)}", constant, CONSTANT)


def lab_order() -> Evidence:
    """At the benign example of Appendix A dominance comes after attention."""
    found = [ends["dominance"] / ends["attention"] for _, ends in runs("App. A", "benign")]
    ratio = mean_interval(found)
    return judge(low(found) > 1, f"dominance at {format_interval(ratio)} × the time of attention 0.9", ratio)


# --------------------------------------------------------------------------------------------------------- V over time

def linear() -> Evidence:
    """V_pm in stage II: a line, with a slope between the proof's two."""
    p = stage_events.parameters("regime", "benign")
    lowest, highest = stage_events.envelopes(p, "benign")
    lines = [stage_events.linear_stage(run, name, ends) for run, ends in runs("regime", "benign")
             for name in ("v_plus", "v_minus")]
    slope, r2 = mean_interval([found.slope for found in lines]), low([found.r2 for found in lines])
    right = every(lowest <= found.slope <= highest for found in lines) and r2 >= 0.99
    return judge(right, f"slope {format_interval(slope, 3)} in [{lowest:g}, {highest:g}] ‖μ‖²‖w_O‖²; R² ≥ {r2:.3f}",
                  slope)


def logarithmic(side: str) -> Evidence:
    """e^V in stage III: a line with the predicted slope."""
    p, ratios, fits = stage_events.parameters("regime", side), [], []
    for run, ends in runs("regime", side):
        share = run["share_plus"].iloc[0]
        columns = (("v_plus", share), ("v_minus", 1 - share)) if side == "benign" else (("exp_v_xi2", share),)
        for name, part in columns:
            found = stage_events.exponential_stage(run, name, ends)
            ratios.append(found.slope / stage_events.exponential_slope(p, side, part))
            fits.append(found.r2)
    ratio = mean_interval(ratios)
    right = abs(ratio.mean - 1) <= 0.1 and low(fits) >= 0.99
    return judge(right, f"slope {format_interval(ratio, 3)} × the predicted one; R² ≥ {low(fits):.4f}", ratio)


def harmful_v() -> Evidence:
    """V_{n,2} linear, then logarithmic, while V_pm and the weak noise stay small."""
    others = high([high(run["v_others_largest"]) for run, _ in runs("regime", "harmful")])
    p = stage_events.parameters("regime", "harmful")
    lowest, highest = stage_events.envelopes(p, "harmful")
    lines = [stage_events.linear_stage(run, "v_xi2", ends) for run, ends in runs("regime", "harmful")]
    late = logarithmic("harmful")
    right = (every(lowest <= found.slope <= highest and found.r2 >= 0.99 for found in lines)
             and late.verdict == HOLDS and others <= SMALL)
    slope = mean_interval([found.slope for found in lines])
    return judge(right, f"slope of V {format_interval(slope)} in [{lowest:.2f}, {highest:.1f}], R² ≥ "
                         f"{low([found.r2 for found in lines]):.3f}; later e^V: {late.finding}; V_± at most "
                         f"{others:.3f}", slope)


def final_v() -> Evidence:
    """V_pm at the end between log(C / epsilon) and 2 log(C / epsilon)."""
    ends = [float(run[name].iloc[-1]) for run, _ in runs("regime", "benign") for name in ("v_plus", "v_minus")]
    constants = mean_interval(np.exp(ends) * regime.EPSILON)
    ratio = mean_interval(np.array(ends) / math.log(1 / regime.EPSILON))
    right = low(ends) >= math.log(0.5 / regime.EPSILON) and high(ends) <= 2 * math.log(1 / regime.EPSILON)
    return judge(right, f"V = {format_interval(ratio, 3)} × log(1/ε), so C_20 = {format_interval(constants)}",
                  constants, CONSTANT)


def small_noise() -> Evidence:
    """Noise's |V| through stage III."""
    most, grown = [], []
    for run, ends in runs("regime", "benign"):
        late = after(run, ends["derivative"])["v_noise_largest"]
        most.append(high(late))
        grown.append(float(late.iloc[-1] / after(run, run["time"].max() / 10)["v_noise_largest"].iloc[0]))
    right = high(most) <= SMALL and high(grown) <= 1.05
    return judge(right, f"at most {high(most):.4f}; grows by {100 * (high(grown) - 1):.1f} % in the last decade of "
                  "time", mean_interval(most))


def derivative_bounds() -> Evidence:
    """e^-V / 2 <= -l' <= e^(-V/2) in stage III."""
    late = [after(run, ends["derivative"]) for run, ends in runs("regime", "benign")]
    lowest, highest = low([low(run["over_low"]) for run in late]), high([high(run["over_high"]) for run in late])
    right = lowest >= 1 - EXACT and highest <= 1 + EXACT
    return Evidence(HOLDS if right else DIFFERS, f"-l' is at least {lowest:.2f} × e^-V/2 and at most {highest:.2f} × "
                                                 "e^(-V/2)", highest)
