"""Fresh points after training: what Lemmas D.8 to D.10 (benign) and E.6 (harmful) say of them, one by one.

A fresh point has the signal of its class and noise that the network has never seen. Its margin y f is the mean over the
M queries of what each of them reads; `Fresh` keeps the part of the query mu apart from that of the noise queries.
"""

import dataclasses
import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from vitbo_lib import regime, simulation, store, theory
from vitbo_lib.coefficients import movement
from vitbo_lib.errors import UserError
from vitbo_lib.simulation import Setting
from vitbo_lib.span import Points, Triple, by_sample, projections
from vitbo_lib.store import Table
from vitbo_lib.sweep import Plan
from vitbo_lib.theory import Constants, Parameters
from vitbo_lib.transformer import attention, outputs, sample_losses

POINTS = 100  # fresh points of a run that the table keeps
REGIME_CASES = {"benign, N = 64": (64, 2, regime.BENIGN_SNR), "harmful, N = 64": (64, 2, regime.HARMFUL_SNR),
                "benign, N = 16": (16, 4, 78.0), "harmful, N = 16": (16, 4, 0.5)}  # N, M, SNR: the proofs' own
LAB_CASES = {"benign, App. A": "benign", "harmful, App. A": "harmful"}
CASES = (*REGIME_CASES, *LAB_CASES)
TOKENS = {name: REGIME_CASES[name][1] if name in REGIME_CASES else 4 for name in CASES}
LAB_SEEDS = 4
KEY = ("case", "seed", "point")
COLUMNS = ("margin", "through_mu", "attention", "signal_value", "noise_largest", "logit_xi2", "moved_k", "moved_v",
           "scale_k", "scale_v")
SCALING_SNR = {"benign": 2.0, "harmful": 0.5}
FACTORS = (1, 4, 16, 64)  # d_h and d beyond the smallest that Condition 4.1 allows
DELTAS = (1e-2, 1e-5, 1e-10, 1e-20)  # they move the logarithm lg of item (8)
EPSILONS = (0.1, 0.03, 0.01, 0.003, 0.001)
SCALING_KEY = ("side", "epsilon", "delta", "d_h_factor", "d_factor", "seed")
SCALING_COLUMNS = ("d", "d_h", "lg", "logit_mean", "logit_std", "moved_k", "moved_v", "scale_k", "scale_v", "value_std",
                   "signal_value", "test_loss", "lemma_loss")


# ------------------------------------------------------------------------------------------------ what a fresh point is

@dataclass(frozen=True)
class Fresh:
    """Fresh points of R runs (R T each, `logits` R T M-1).

    `margin` = y f = `through_mu` + `through_noise`, the parts of the query mu and of the noise queries; `attention` of
    the query mu on mu; `signal_value` = y V of the signal; `noise_largest` = max_i |xi_i^T W_V w_O|; `logits` of the
    query mu with the noise keys.
    """

    margin: Tensor
    through_mu: Tensor
    through_noise: Tensor
    attention: Tensor
    signal_value: Tensor
    noise_largest: Tensor
    logits: Tensor

    @property
    def loss(self) -> Tensor:
        """log(1 + e^(-y f)) of each point (R T)."""
        return sample_losses(self.margin, torch.ones_like(self.margin))


@torch.no_grad()
def fresh(points: Points, coefficients: Triple) -> Fresh:
    """The fresh points at the state `coefficients`.

    >>> from vitbo_lib import regime, simulation
    >>> setting = simulation.setting_of(regime.parameters(snr=2.0, epsilon=0.1), n_test=50)
    >>> problem = simulation.build(setting, "drawn", [0])
    >>> end = simulation.train(setting, problem, "flow")
    >>> seen = fresh(problem.test, end.coefficients)
    >>> bool((seen.margin - seen.through_mu - seen.through_noise).abs().max() < 1e-12)
    True
    """
    queries, keys, values = by_sample(projections(points, coefficients), points.n_tokens)
    phi = attention(queries, keys, points.outside_logits)
    read, f = outputs(phi, values)
    y = points.labels
    through = y.unsqueeze(-1) * read / points.n_tokens
    logits = (keys[..., 1:, :] @ queries[..., 0, :].unsqueeze(-1)).squeeze(-1)
    return Fresh(y * f, through[..., 0], through[..., 1:].sum(-1), phi[..., 0, 0], y * values[..., 0],
                 values[..., 1:].abs().amax(-1), logits)


def margin_bound(signal_value, noise_largest, tokens: int):
    """Lower bound of D.10 on y f where the query mu looks at mu with at least 1/(2M).

    Then at least w = 1/(2 M^2) of the output is the signal's value: y f >= w y V - (1 - w) max_i |xi_i^T W_V w_O|.

    >>> margin_bound(4.0, 0.1, tokens=2)
    0.4125
    """
    w = 1 / (2 * tokens**2)
    return w * signal_value - (1 - w) * noise_largest


def lemma_5_5(epsilon: float, tokens: int, constant: float = 1.0) -> float:
    """The bound log(C / epsilon) / (2 M^2) - 1 of Lemma 5.5 on y f, with C = `constant`.

    >>> round(lemma_5_5(0.01, 4), 3)
    -0.856
    """
    return math.log(constant / epsilon) / (2 * tokens**2) - 1


# ------------------------------------------------------------------------------------------------------- the two tables

def setting_of_case(case: str, n_test: int = POINTS) -> Setting:
    """The setting of one of the `CASES`: a problem of the regime, or an example of Appendix A."""
    if case not in CASES:
        raise UserError(f"no case {case!r}; choose one of {'; '.join(CASES)}")
    if case in LAB_CASES:
        return dataclasses.replace(regime.lab_setting(LAB_CASES[case]), n_test=n_test)
    samples, tokens, snr = REGIME_CASES[case]
    return simulation.setting_of(regime.parameters(samples, tokens, snr), n_test=n_test)


def scales(setting: Setting, side: str) -> tuple[float, float]:
    """What (130) and (134), or E.6, compare the moved weights with: sigma_h d_h^1/2, and the growth of W_V w_O.

    Growth: max{||mu||, sigma_p d^1/2} / (epsilon ||mu||^2) benign, N / (epsilon sigma_p d^1/2) harmful.
    """
    law, init = setting.law, setting.init
    energy = law.sigma_p * math.sqrt(law.d)
    sigma_h = getattr(init, "sigma_h", None) or init.scale / math.sqrt(3 * law.d)  # or that of the uniform law
    growth = max(law.signal_norm, energy) / (setting.epsilon * law.signal_norm**2) if side == "benign" else (
        setting.n_samples / (setting.epsilon * energy))
    return sigma_h * math.sqrt(setting.d_h), growth


def compute(cell: Mapping) -> list[dict]:
    """Train the runs of one case and look at their fresh points."""
    case, seeds = cell["case"], list(cell["seeds"])
    setting = setting_of_case(case)
    lab = case in LAB_CASES
    problem = simulation.build(setting, "reduced" if lab else "drawn", seeds)
    end = simulation.train(setting, problem, "gd" if lab else "flow")
    seen, moved = fresh(problem.test, end.coefficients), movement(problem.train, end.coefficients)
    scale_k, scale_v = scales(setting, case.split(",")[0])
    rows = []
    for r, seed in enumerate(seeds):
        common = {"case": case, "seed": seed, "moved_k": float(moved.w_k[r]),
                  "moved_v": float(moved.value_direction[r]),
                  "scale_k": scale_k, "scale_v": scale_v}
        for t in range(setting.n_test):
            rows.append(common | {"point": t, "margin": float(seen.margin[r, t]),
                                  "through_mu": float(seen.through_mu[r, t]),
                                  "attention": float(seen.attention[r, t]),
                                  "signal_value": float(seen.signal_value[r, t]),
                                  "noise_largest": float(seen.noise_largest[r, t]),
                                  "logit_xi2": float(seen.logits[r, t, 0])})
    return rows


def plan(folder: str | Path = regime.RESULTS, profile: str = "lab") -> Plan:
    """The fresh points of every case: 8 seeds of the regime and 4 of Appendix A at `lab`, twice as many at `paper`."""
    few, many = {"smoke": (0, 1), "lab": (LAB_SEEDS, 8), "paper": (2 * LAB_SEEDS, 16)}[profile]
    table = Table(Path(folder) / "population.csv", key=KEY, columns=COLUMNS, seeds=tuple(range(many)),
                  parameters={"settings": {case: setting_of_case(case) for case in CASES}},
                  command="vitbo results --only population")
    cells = [{"case": case, "seeds": (seed,), "point": tuple(range(POINTS))} for case in REGIME_CASES
             for seed in range(many)]
    cells += [{"case": case, "seeds": tuple(range(few)), "point": tuple(range(POINTS))} for case in LAB_CASES if few]
    return Plan(table=table, cells=cells, compute=compute)


@functools.cache
def load() -> pd.DataFrame:
    """The stored fresh points."""
    table = plan().table
    return store.load(table.path, table.command)[0]


def scaled_parameters(side: str, epsilon: float, delta: float, d_h_factor: float, d_factor: float) -> Parameters:
    """The smallest problem of Condition 4.1 at N = 64, M = 2, made larger: d_h and d by factors, all else at its bound.

    >>> base, larger = (scaled_parameters("benign", 0.01, 0.01, f, f) for f in (1, 4))
    >>> larger.d_h / base.d_h, larger.d / base.d, round(larger.snr, 9)
    (4.0, 4.0, 2.0)
    """
    waived = Constants(epsilon=1e6, n_samples=1e-6)
    p = theory.smallest_configuration(regime.N, regime.M, SCALING_SNR[side], epsilon, delta, waived)
    d, d_h = p.d * d_factor, p.d_h * d_h_factor
    if d > regime.LARGEST_D:
        raise UserError(f"d = {d:.1e} is more than a draw allows ({regime.LARGEST_D:.0e}); give smaller factors")
    shrink = math.sqrt(d_factor)
    p = dataclasses.replace(p, d=int(d), d_h=int(d_h), sigma_p=p.sigma_p / shrink,
                            sigma_p_tilde=p.sigma_p_tilde / shrink)
    return theory.at_condition(p, waived)


def compute_scaling(cell: Mapping) -> dict:
    """One run with its fresh logits, the moved weights, its test loss, and that which D.10's bound on margins gives."""
    p = scaled_parameters(*(cell[name] for name in SCALING_KEY[:-1]))
    setting = simulation.setting_of(p, n_test=1000)
    problem = simulation.build(setting, "drawn", [cell["seed"]])
    end = simulation.train(setting, problem, "flow")
    seen, moved = fresh(problem.test, end.coefficients), movement(problem.train, end.coefficients)
    scale_k, scale_v = scales(setting, cell["side"])
    logits = seen.logits[..., 0].flatten()
    bound = margin_bound(seen.signal_value, seen.noise_largest, regime.M)
    return dict(cell) | {
        "d": p.d, "d_h": p.d_h, "lg": p.lg, "logit_mean": float(logits.mean()), "logit_std": float(logits.std()),
        "moved_k": float(moved.w_k), "moved_v": float(moved.value_direction), "scale_k": scale_k, "scale_v": scale_v,
        "value_std": p.sigma_p_tilde * math.hypot(moved.value_direction, p.sigma_v * p.w_o_norm * math.sqrt(p.d)),
        "signal_value": float(seen.signal_value.mean()), "test_loss": float(seen.loss.mean()),
        "lemma_loss": float(sample_losses(bound, torch.ones_like(bound)).mean())}


def scaling_plan(folder: str | Path = regime.RESULTS, profile: str = "lab") -> Plan:
    """Larger d_h, larger d, smaller delta, other epsilon, both sides: 3 seeds at `lab`, 8 at `paper`."""
    seeds = {"smoke": 1, "lab": 3, "paper": 8}[profile]
    table = Table(Path(folder) / "population_scaling.csv", key=SCALING_KEY, columns=SCALING_COLUMNS,
                  seeds=tuple(range(seeds)), parameters={"N": regime.N, "M": regime.M, "snr": SCALING_SNR},
                  command="vitbo results --only population_scaling")
    ways = [(0.01, 0.01, f, f) for f in FACTORS] + [(0.01, 0.01, 1, f) for f in FACTORS]
    ways += [(0.01, delta, 1, 1) for delta in DELTAS] + [(epsilon, 0.01, 1, 1) for epsilon in EPSILONS]
    ways = ways[:2] if profile == "smoke" else list(dict.fromkeys(ways))
    cells = [dict(zip(SCALING_KEY, (side, *way, seed))) for side in SCALING_SNR for way in ways
             for seed in range(seeds)]
    return Plan(table=table, cells=cells, compute=compute_scaling)


@functools.cache
def load_scaling() -> pd.DataFrame:
    """The stored runs of the scaling."""
    table = scaling_plan().table
    return store.load(table.path, table.command)[0]


# --------------------------------------------------------------------------------------------------- reading the tables

def along(rows: pd.DataFrame, side: str, what: str) -> pd.DataFrame:
    """The runs of one side that differ by `what` and seed alone: d_h (with d), d, delta or epsilon."""
    base = {"epsilon": 0.01, "delta": 0.01, "d_h_factor": 1, "d_factor": 1}
    free = {"d_h": ("d_h_factor", "d_factor"), "d": ("d_factor",)}.get(what, (what,))
    chosen = rows[rows["side"] == side]
    if what == "d_h":
        chosen = chosen[chosen["d_h_factor"] == chosen["d_factor"]]
    for name in set(base) - set(free):
        chosen = chosen[np.isclose(chosen[name], base[name], rtol=1e-9)]
    return chosen.sort_values([*free, "seed"])


def runs_of(rows: pd.DataFrame) -> pd.DataFrame:
    """One row a run: its mean loss, its shares and extremes over fresh points."""
    grouped = rows.assign(loss=np.logaddexp(0, -rows["margin"])).groupby(["case", "seed"], sort=False)
    return grouped.agg(loss=("loss", "mean"), smallest=("margin", "min"), attention=("attention", "min"),
                       noise=("noise_largest", "max"), signal=("signal_value", "mean"), moved_k=("moved_k", "first"),
                       moved_v=("moved_v", "first"), scale_k=("scale_k", "first"),
                       scale_v=("scale_v", "first")).reset_index()
