"""The three stages of training as they happen: what the proofs speak about, along the way, and when each event comes.

Regime: problems that meet Condition 4.1 (`vitbo_lib.regime`), along gradient flow. Lab: the examples of Appendix A,
along gradient descent. Rates are those of the flow; one step of descent changes things by eta times as much.
"""

import dataclasses
import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from vitbo_lib import gaps, regime, simulation, stages, store, theory
from vitbo_lib.coefficients import loss_derivatives
from vitbo_lib.errors import UserError
from vitbo_lib.flow import FIRST_SNAPSHOT
from vitbo_lib.observables import view
from vitbo_lib.simulation import Setting
from vitbo_lib.span import Problem, Triple
from vitbo_lib.store import Table
from vitbo_lib.sweep import Plan
from vitbo_lib.theory import Parameters

SIDES = ("benign", "harmful")
REGIMES = {"regime": (64, 2), "regime, M = 4": (16, 4)}  # N, M
LABS = {"App. A": "divided", "App. A, undivided": "undivided"}
CASES = (*REGIMES, *LABS)
ATTENDED, DROPPED = 0.9, 0.4  # our levels for "attention 1 - o(1)" and for "-l' is no longer 1/2"
N_TEST = 100
DIGITS = 6
EVENTS = ("dominance", "attention", "derivative", "end")


# ------------------------------------------------------------------------------------------------------------ problems

def parameters(case: str, side: str) -> Parameters:
    """The numbers of a case: the regime's, at N = 64, M = 2 with the proof's constant met, or those of Appendix A.

    >>> round(parameters("App. A", "benign").n_snr2), parameters("regime", "harmful").snr
    (1953, 0.25)
    """
    _check(case, side)
    if case in LABS:
        w_o_norm = regime.LAB_READINGS[LABS[case]] / math.sqrt(3)
        return dataclasses.replace(theory.paper_experiments()[f"App. A, {side}"], w_o_norm=w_o_norm)
    return regime.parameters(*REGIMES[case], regime.BENIGN_SNR if side == "benign" else regime.HARMFUL_SNR)


def _check(case: str, side: str) -> None:
    if case not in CASES or side not in SIDES:
        raise UserError(f"no case {case!r}, {side!r}; choose one of {', '.join(CASES)}; benign or harmful")


def predicted(p: Parameters, side: str) -> dict[str, float]:
    """T_1, T_2, T_3 of the paper with their constants at 1, in time eta t; `t_end`: our prediction of the end.

    >>> {name: round(t, 3) for name, t in predicted(parameters("regime", "harmful"), "harmful").items()}
    {'t_1': 0.35, 't_2': 0.248, 't_3': 400.0, 't_end': 8.0}
    """
    times = stages.benign_stage_times(p) if side == "benign" else stages.harmful_stage_times(p)
    return {"t_1": times.t_1 * p.eta, "t_2": times.t_2 * p.eta, "t_3": times.t_3 * p.eta,
            "t_end": regime.predicted_steps(p, side) * p.eta}


@dataclass(frozen=True)
class Way:
    """A training: `problem` (R runs) of `setting`, and `states` at `times` (R each), earliest first.

    `last` (R): the number of the state at which a run has ended; states behind it repeat the end.
    """

    setting: Setting
    problem: Problem
    times: list[Tensor]
    states: list[Triple]
    last: Tensor


def flow_way(setting: Setting, seeds: Sequence[int], snapshots: int = 70) -> Way:
    """Gradient flow to epsilon, seen at `snapshots` times over the last four decades and at a third as many before.

    The early ones come from a flow of its own, to a loss 0.1 % below that of the start.
    """
    problem = simulation.build(setting, "drawn", seeds)
    start = float(view(problem.train, problem.train.start.map(torch.zeros_like)).loss.min())
    early = dataclasses.replace(setting, epsilon=0.999 * start)
    parts = []
    for part, count in ((early, snapshots // 3), (setting, snapshots)):
        trained = simulation.train(part, problem, "flow", snapshots=count)
        fractions = np.geomspace(FIRST_SNAPSHOT, 1, count)
        parts.append([(trained.time * float(f), state) for f, state in zip(fractions, trained.snapshots.values())])
    first = parts[1][0][0].min()
    way = [(torch.zeros_like(first.view(1)).expand(len(seeds)), problem.train.start.map(torch.zeros_like)),
           *((time, state) for time, state in parts[0] if bool((time < first).all())), *parts[1]]
    times, states = zip(*way)
    return Way(setting, problem, list(times), list(states), torch.full((len(seeds),), len(times) - 1))


def descent_way(setting: Setting, seeds: Sequence[int], snapshots: int = 70) -> Way:
    """Gradient descent to epsilon, seen at steps that are even on a logarithmic scale, at its start and at its end."""
    problem = simulation.build(setting, "reduced", seeds)
    steps = [0, *np.unique(np.geomspace(1, setting.max_steps, snapshots).round().astype(int)).tolist()]
    trained = simulation.train(setting, problem, "gd", snapshot_steps=steps)
    kept = [(t, state) for t, state in trained.snapshots.items() if t < int(trained.steps.max())]
    times = [torch.minimum(trained.steps, torch.full_like(trained.steps, t)) * setting.eta for t, _ in kept]
    last = torch.stack([trained.steps > t for t, _ in kept]).sum(0)
    return Way(setting, problem, [*times, trained.time], [*(state for _, state in kept), trained.coefficients], last)


def way(case: str, side: str, seeds: Sequence[int], snapshots: int = 70) -> Way:
    """The training of a case: along the flow in the regime, by descent at the sizes of Appendix A."""
    _check(case, side)
    if case in LABS:
        return descent_way(regime.lab_setting(side, LABS[case], 6000 if case == "App. A" else 80), seeds, snapshots)
    return flow_way(simulation.setting_of(parameters(case, side), n_test=N_TEST), seeds, snapshots)


# ------------------------------------------------------------------------------------------------- what is looked at

@torch.no_grad()
def record(way: Way, seeds: Sequence[int]) -> pd.DataFrame:
    """What the proofs speak about, at every state of a way: one row a seed and time (`COLUMNS`)."""
    start = gaps.gaps(way.problem.train, way.states[0])
    rows = []
    for k, (time, state) in enumerate(zip(way.times, way.states)):
        found = {"seed": list(seeds), "time": time.tolist()}
        found |= {name: part.tolist() for name, part in look(way.problem, state, way.setting, start).items()}
        rows.append(pd.DataFrame(found)[(way.last >= k).numpy() | (k == len(way.times) - 1)])
    table = pd.concat(rows, ignore_index=True).drop_duplicates(["seed", "time"])
    return table.sort_values(["seed", "time"], ignore_index=True)


def look(problem: Problem, state: Triple, setting: Setting, start: gaps.Gaps) -> dict[str, Tensor]:
    """All columns at one state, each (R)."""
    seen, fresh = view(problem.train, state), view(problem.test, state)
    now, moving = gaps.gaps(problem.train, state), gaps.rates(problem, state)
    found = {"train_loss": seen.loss} | _of_values(seen) | _of_derivatives(seen, loss_derivatives(problem.train, state))
    found |= _of_rates(problem, moving, setting) | _of_attention(seen) | _of_logits(now, start) | _monotone(moving)
    return found | {"fresh_noise_attention": fresh.phi[..., 1:, 0].mean((-2, -1))}


def _of_values(seen) -> dict[str, Tensor]:
    """Scalarized V. `dominance_signal`: least y V_pm / |V_{n,i}|; `dominance_xi2`: least y V_{n,2} / the others."""
    signed, size = seen.labels.unsqueeze(-1) * seen.values, seen.values.abs()
    others = torch.cat([size[..., :1], size[..., 2:]], -1)
    plus = seen.labels > 0
    return {"v_plus": _mean_where(signed[..., 0], plus), "v_minus": _mean_where(signed[..., 0], ~plus),
            "share_plus": plus.to(signed.dtype).mean(-1), "v_signal": signed[..., 0].mean(-1),
            "v_xi2": signed[..., 1].mean(-1), "exp_v_xi2": signed[..., 1].exp().mean(-1),
            "v_noise_largest": size[..., 1:].amax((-2, -1)), "v_others_largest": others.amax((-2, -1)),
            "dominance_signal": (signed[..., 0] / size[..., 1:].amax(-1)).amin(-1),
            "dominance_xi2": (signed[..., 1] / others.amax(-1)).amin(-1)}


def _mean_where(values: Tensor, where: Tensor) -> Tensor:
    return (values * where).sum(-1) / where.sum(-1)


def _of_derivatives(seen, derivatives: Tensor) -> dict[str, Tensor]:
    """-l'. `off_half`: its distance to 1/2 over max |V| / 4; `over_low`, `over_high`: over e^-V / 2 and e^(-V/2)."""
    signal = seen.labels * seen.values[..., 0]
    off_half = (derivatives - 0.5).abs() / (seen.values.abs().amax(-1) / 4)
    return {"derivative": derivatives.mean(-1), "off_half": off_half.amax(-1),
            "over_low": (2 * derivatives * signal.exp()).amin(-1),
            "over_high": (derivatives * (signal / 2).exp()).amax(-1)}


def _of_rates(problem: Problem, moving: gaps.Rates, setting: Setting) -> dict[str, Tensor]:
    """How fast V moves: the signal's over ||mu||^2 ||w_O||^2, noise's over sigma_p_tilde^2 d ||w_O||^2 / N."""
    law, labels, unit = setting.law, problem.train.labels, problem.w_o_norm_squared.unsqueeze(-1)
    noise_unit = unit.unsqueeze(-1) * float(law.sigma_p_tilde) ** 2 * float(law.d) / setting.n_samples
    gamma = labels * moving.values[..., 0] / (unit * float(law.signal_norm) ** 2)
    rho = labels.unsqueeze(-1) * moving.values[..., 1:] / noise_unit
    return {"gamma_slowest": gamma.amin(-1), "gamma_fastest": gamma.abs().amax(-1),
            "rho_fastest": rho.abs().amax((-2, -1))}


def _of_attention(seen) -> dict[str, Tensor]:
    """Attention on training points; `leak_signal`, `leak_noise`: of a signal query and of noise queries on noise."""
    phi = seen.phi
    return {"attention_signal": seen.attention_on(0), "attention_xi2": seen.attention_on(1),
            "attention_signal_smallest": phi[..., 0].amin((-2, -1)),
            "attention_xi2_smallest": phi[..., 1].amin((-2, -1)),
            "leak_signal": phi[..., 0, 1:].mean((-2, -1)), "leak_noise": phi[..., 1:, 1:].mean((-3, -2, -1)),
            "noise_query_attention": phi[..., 1:, 0].mean((-2, -1)), "xi2_signal": phi[..., 0, 1].mean(-1),
            "xi2_noise": phi[..., 1:, 1].mean((-2, -1))}


def _of_logits(now: gaps.Gaps, start: gaps.Gaps) -> dict[str, Tensor]:
    """Logits, their gaps for signal and noise queries, and norms over those at the start."""
    ratios = torch.stack([now.query_norms / start.query_norms, now.key_norms / start.key_norms])
    return {"logit_signal": now.logits[..., 0].mean((-2, -1)), "logit_xi2": now.logits[..., 1].mean((-2, -1)),
            "logit_largest": now.logits.abs().amax((-3, -2, -1)), "cross_sample": now.cross_sample,
            "cross_class": now.cross_class, "like_products": now.like_products,
            "norm_lowest": ratios.amin((0, 2, 3)), "norm_highest": ratios.amax((0, 2, 3)),
            "lambda_signal": now.to_signal[..., 0, :].mean((-2, -1)),
            "lambda_noise": now.to_signal[..., 1:, :].mean((-3, -2, -1)),
            "psi_signal": now.to_xi2[..., 0, :].mean((-2, -1)), "psi_noise": now.to_xi2[..., 1:, :].mean((-3, -2, -1))}


def _monotone(moving: gaps.Rates) -> dict[str, Tensor]:
    """Shares of (n, query, key): signal logits that rise, noise logits that fall, Psi that rise, twofold increments."""
    to_xi2 = moving.logits[..., 1:2]
    others = torch.cat([moving.logits[..., :1], moving.logits[..., 2:]], -1)

    def share(which: Tensor) -> Tensor:
        return which.to(moving.values.dtype).mean((-3, -2, -1))

    return {"signal_up": share(moving.logits[..., :1] >= 0), "noise_down": share(moving.logits[..., 1:] <= 0),
            "psi_up": share(to_xi2 >= others), "twofold": share(to_xi2 >= 2 * others)}


COLUMNS = ("train_loss", "v_plus", "v_minus", "share_plus", "v_signal", "v_xi2", "exp_v_xi2", "v_noise_largest",
           "v_others_largest", "dominance_signal", "dominance_xi2", "derivative", "off_half", "over_low", "over_high",
           "gamma_slowest", "gamma_fastest", "rho_fastest", "attention_signal", "attention_xi2",
           "attention_signal_smallest", "attention_xi2_smallest", "leak_signal", "leak_noise",
           "noise_query_attention", "xi2_signal", "xi2_noise", "logit_signal", "logit_xi2", "logit_largest",
           "cross_sample", "cross_class", "like_products", "norm_lowest", "norm_highest",
           "lambda_signal", "lambda_noise", "psi_signal", "psi_noise", "signal_up", "noise_down", "psi_up", "twofold",
           "fresh_noise_attention")


# -------------------------------------------------------------------------------------------------------------- events

def first_time(times: Sequence[float], values: Sequence[float], level: float) -> float:
    """The time from which `values` stay at or above `level` for good, interpolated in log time; NaN where never.

    At the first time where they always were; a value that is not a number counts as below.

    >>> first_time([1.0, 4.0, 16.0], [0.0, 0.5, 1.0], 0.75)
    8.0
    """
    times, values = np.asarray(times, dtype=float), np.asarray(values, dtype=float)
    below = np.flatnonzero(~(values >= level))
    if not len(times) or (len(below) and below[-1] == len(times) - 1):
        return math.nan
    if not len(below):
        return float(times[0])
    k = below[-1]
    share = (level - values[k]) / (values[k + 1] - values[k])
    if times[k] <= 0 or not np.isfinite(share):
        return float(times[k + 1])
    return float(times[k] * (times[k + 1] / times[k]) ** share)


def events(run: pd.DataFrame, side: str, tokens: int) -> dict[str, float]:
    """First times of the stage events of one run (rows of `record`): `EVENTS`, in time eta t.

    dominance: 3M times the others (Lemmas 5.2, E.3); attention: at least `ATTENDED` on the winner, in every query of
    every sample; derivative: mean -l' below `DROPPED`; end: epsilon reached.
    """
    winner = "signal" if side == "benign" else "xi2"
    return {"dominance": first_time(run["time"], run[f"dominance_{winner}"], 3 * tokens),
            "attention": first_time(run["time"], run[f"attention_{winner}_smallest"], ATTENDED),
            "derivative": first_time(run["time"], -run["derivative"], -DROPPED),
            "end": float(run["time"].iloc[-1]) if len(run) else math.nan}


def all_events(rows: pd.DataFrame) -> pd.DataFrame:
    """Event times of every run of the stored table: case, side, seed and `EVENTS`."""
    found = [{"case": case, "side": side, "seed": seed} | events(run.sort_values("time"), side, tokens_of(case))
             for (case, side, seed), run in rows.groupby(["case", "side", "seed"], sort=False)]
    return pd.DataFrame(found, columns=["case", "side", "seed", *EVENTS])


def own_runs(rows: pd.DataFrame, side: str) -> tuple[pd.DataFrame, pd.DataFrame, dict[str, float]]:
    """The runs of the smallest problem, seed 0 of them in order of time, and its `events`: what figures show."""
    own = rows[(rows["case"] == "regime") & (rows["side"] == side)]
    one = own[own["seed"] == 0].sort_values("time")
    return own, one, events(one, side, tokens_of("regime"))


def tokens_of(case: str) -> int:
    """M of a case."""
    return REGIMES[case][1] if case in REGIMES else 4


# ----------------------------------------------------------------------------------------------------- the stored table

def compute(cell: dict) -> list[dict]:
    """One case and side: all seeds of the cell, their ways looked at."""
    seeds = cell["seeds"]
    table = record(way(cell["case"], cell["side"], seeds, cell["snapshots"]), seeds)
    table = table.assign(case=cell["case"], side=cell["side"])
    number = ["time", *COLUMNS]
    table[number] = table[number].map(lambda value: float(f"{value:.{DIGITS}g}"))
    rows = [run.to_dict("records") for _, run in table.groupby("seed")]
    return [row | {"snapshot": k} for run in rows  # every run has as many rows: its end is repeated
            for k, row in enumerate(run + run[-1:] * (cell["count"] - len(run)))]


def plan(folder: str | Path = regime.RESULTS, profile: str = "lab") -> Plan:
    """The stored table: every case and side, 6 seeds at `lab`, 12 at `paper`; at `smoke` one case and 1 seed."""
    seeds = {"smoke": 1, "lab": 6, "paper": 12}[profile]
    snapshots, cases = (9, CASES[:1]) if profile == "smoke" else (70, CASES)
    count = snapshots + snapshots // 3 + 1
    cells = [{"case": case, "side": side, "seeds": (seed,), "snapshots": snapshots, "count": count,
              "snapshot": tuple(range(count))}
             for case in cases for side in SIDES for seed in range(seeds)]
    return Plan(_table(folder, seeds), cells, compute)


def _table(folder: str | Path, seeds: int) -> Table:
    settings = {"attended": ATTENDED, "dropped": DROPPED, "n_test": N_TEST}
    return Table(Path(folder) / "stage_events.csv", key=("case", "side", "seed", "snapshot"),
                 columns=("time", *COLUMNS), seeds=tuple(range(seeds)), parameters=settings,
                 command="vitbo results --only stage_events")


@functools.cache
def load() -> pd.DataFrame:
    """The stored table, without the repeated ends."""
    table = _table(regime.RESULTS, 6)
    return store.load(table.path, table.command)[0].drop_duplicates(["case", "side", "seed", "time"])


# ---------------------------------------------------------------------------------------------------------------- fits

@dataclass(frozen=True)
class Line:
    """A least-squares line: `slope`, and the share `r2` of the variance that it explains."""

    slope: float
    r2: float


def line(times: pd.Series, values: pd.Series) -> Line:
    """The line through points; NaNs for fewer than three.

    >>> line(pd.Series([0.0, 1.0, 2.0]), pd.Series([1.0, 3.0, 5.0])).slope
    2.0
    """
    if len(times) < 3:
        return Line(math.nan, math.nan)
    slope, constant = np.polyfit(times, values, 1)
    rest = values - constant - slope * times
    return Line(float(round(slope, 12)), 1 - float(rest.var(ddof=0) / values.var(ddof=0)))


def linear_stage(run: pd.DataFrame, value: str, ends: dict[str, float]) -> Line:
    """V over time within stage II: from 3M dominance until -l' leaves 1/2."""
    inside = run[(run["time"] >= ends["dominance"]) & (run["time"] <= ends["derivative"])]
    return line(inside["time"], inside[value])


def exponential_stage(run: pd.DataFrame, value: str, ends: dict[str, float]) -> Line:
    """e^V over time within stage III; `exp_v_xi2` is a mean of exponentials already."""
    inside = run[run["time"] >= ends["derivative"]]
    return line(inside["time"], inside[value] if value.startswith("exp_") else np.exp(inside[value]))


def envelopes(p: Parameters, side: str) -> tuple[float, float]:
    """The proof's lowest and highest slope of V in stage II, in time eta t (Sections D.1, D.2; E.1, eq. (17))."""
    if side == "benign":
        unit = p.signal_norm**2 * p.w_o_norm**2
        return unit / (10 * p.M), 0.75 * unit
    unit = p.sigma_p_tilde**2 * p.d * p.w_o_norm**2 / p.N
    return unit / (4 * p.M), 2 * unit


def exponential_slope(p: Parameters, side: str, share: float = 0.5) -> float:
    """Our slope of e^V in stage III: ||mu||^2 ||w_O||^2 |S_pm| / N, or sigma_p_tilde^2 d ||w_O||^2 / N.

    With all attention on the winner V' = -l' times this, and -l' is about e^-V.

    >>> exponential_slope(parameters("regime", "benign"), "benign")
    0.5
    """
    if side == "benign":
        return p.signal_norm**2 * p.w_o_norm**2 * share
    return p.sigma_p_tilde**2 * p.d * p.w_o_norm**2 / p.N
