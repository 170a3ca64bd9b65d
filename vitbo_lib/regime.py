"""Theorems 4.1 and 4.2 where they speak: problems that meet Condition 4.1, and the paper's two examples beside them.

Regime: `smallest_configuration` at N = 64, M = 2 (d about 10^15 to 10^20), drawn directly, trained by gradient flow.
Lab: the two examples of Appendix A, drawn in full, trained by gradient descent.
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

from vitbo_lib import simulation, stages, store, theory
from vitbo_lib.data import SignalNoise, one_of, positive, whole
from vitbo_lib.errors import UserError
from vitbo_lib.initialization import TorchInit
from vitbo_lib.intervals import Interval, mean_interval, slope_interval
from vitbo_lib.observables import observe, view
from vitbo_lib.phase_diagram import crossing
from vitbo_lib.simulation import Setting
from vitbo_lib.store import Table
from vitbo_lib.sweep import Plan
from vitbo_lib.theory import Constants, Parameters, needs

N, M, EPSILON, DELTA = 64, 2, 0.01, 0.01
N_TEST = 1000
LARGEST_D = 10**21  # the largest dimension that a draw takes
BENIGN_SNR, HARMFUL_SNR = 14.0, 0.25  # N SNR^2 beyond 60 M^2 C_p^2 = 12000, and at 4: the proofs' own constants
SCALING_SNR = {"benign": 2.0, "harmful": HARMFUL_SNR}  # a smaller SNR leaves room below LARGEST_D for a small epsilon
RATIOS = (0.05, 0.08, 0.15, 0.3, 0.5, 0.7, 0.9, 1.1, 1.3, 1.5, 1.7, 1.9, 2.1, 2.4, 2.8, 3.5, 5.0, 8.0, 13.0, 20.0)
EPSILONS = (0.1, 0.025, 0.003, 0.001, 0.0003, 0.0001)  # beside 0.01
SAMPLES = (48, 96, 128)  # beside 64
W_O_NORMS = (0.3, 3.0)  # beside 1
BENIGN_FROM, HARMFUL_TO = 4.0, 0.4  # N SNR^2 / C_p^2 from which, up to which, T is compared with its prediction
RESULTS = Path(__file__).resolve().parents[1] / "results"
KEY = ("N", "M", "snr", "epsilon", "w_o_norm", "seed")
COLUMNS = ("time", "train_loss", "test_loss", "test_error", "attention_signal", "attention_xi2", "v_signal", "v_xi2",
           "v_noise_largest", "fresh_attention", "fresh_noise_attention", "fresh_noise_largest")
LAB_SIZES = {"benign": (16, 25.0), "harmful": (10, 15.0)}  # N, ||mu|| of Appendix A
LAB_READINGS = {"divided": 1 / 16, "undivided": 1.0}  # what w_O is multiplied by; the paper does not say
LAB_COLUMNS = ("steps", "train_loss", "test_loss", "test_error", "attention_signal", "attention_xi2", "v_signal",
               "v_xi2")


# ---------------------------------------------------------------------------------------------- problems of the regime

def ratio(p: Parameters) -> float:
    """N SNR^2 / C_p^2, on whose scale the break-even of the initial rates is 2."""
    needs(p, "N", "d", "signal_norm", "sigma_p", "sigma_p_tilde")
    return p.n_snr2 / p.c_p**2


def snr_at(ratio: float, n_samples: int = N, tokens: int = M) -> float:
    """The SNR with N SNR^2 / C_p^2 = `ratio` under item (10), C_p^2 = 25 M, to six digits.

    >>> snr_at(2.0)
    1.25
    """
    ratio, tokens, n_samples = positive("ratio", ratio), whole("M", tokens), whole("N", n_samples)
    return float(f"{math.sqrt(25 * tokens * ratio / n_samples):.6g}")


def parameters(n_samples: int = N, tokens: int = M, snr: float = 1.0, epsilon: float = EPSILON, w_o_norm: float = 1.0,
               signal_norm: float = 1.0) -> Parameters:
    """The smallest problem of Condition 4.1 for this N, M, SNR, epsilon and ||w_O||; where none is, the nearest.

    Item (9) cannot be met at epsilon = 0.1, item (3) not at small N, and item (2) asks for more than `LARGEST_D` at
    epsilon = 10^-4: then d is what item (2) asks for, cut at `LARGEST_D`; `items_met` says how many items are met.

    >>> items_met(parameters()), items_met(parameters(epsilon=0.1)), items_met(parameters(snr=2.0, epsilon=1e-4))
    (10, 9, 9)
    """
    w_o_norm = positive("w_o_norm", w_o_norm)
    waived = Constants(epsilon=1e6, n_samples=1e-6, w_o_low=w_o_norm / 10, w_o_high=w_o_norm * 10)
    p = theory.smallest_configuration(n_samples, tokens, snr, epsilon, DELTA, waived, signal_norm)
    if p.d <= LARGEST_D:
        return p
    sigma_p = signal_norm / (snr * math.sqrt(LARGEST_D))
    return dataclasses.replace(p, d=LARGEST_D, sigma_p=sigma_p, sigma_p_tilde=5 * math.sqrt(tokens) * sigma_p)


def items_met(p: Parameters) -> int:
    """How many of the ten items of Condition 4.1 are met, with all constants 1."""
    return sum(bool(item.met) for item in theory.condition_4_1(p))


@dataclass(frozen=True)
class Cell:
    """One run: a row of the table."""

    N: int
    M: int
    snr: float
    epsilon: float
    w_o_norm: float
    seed: int

    @property
    def parameters(self) -> Parameters:
        return parameters(self.N, self.M, self.snr, self.epsilon, self.w_o_norm)


def compute(cell: Cell) -> dict:
    """Train one network by gradient flow and look at it, on training points and on fresh ones."""
    setting = simulation.setting_of(cell.parameters, n_test=N_TEST)
    problem = simulation.build(setting, "drawn", [cell.seed])
    trained = simulation.train(setting, problem, "flow")
    seen, fresh = (view(points, trained.coefficients) for points in (problem.train, problem.test))
    found = {name: float(value) for name, value in observe(problem, trained.coefficients).items()}
    return dataclasses.asdict(cell) | found | {
        "time": float(trained.time), "v_noise_largest": float(seen.values[..., 1:].abs().max()),
        "fresh_attention": float(fresh.phi[..., 0, 0].mean()),  # of query mu on mu (Lemma D.8)
        "fresh_noise_attention": float(fresh.phi[..., 1:, 0].mean()),  # of fresh noise on mu
        "fresh_noise_largest": float(fresh.values[..., 1:].abs().max())}  # Lemma D.9


def cells(seeds: int = 16, few: int = 4, ratios: Sequence[float] = RATIOS) -> list[Cell]:
    """The transition in SNR at N = 64 (`seeds` each), benign epsilon (2 `few`), the other scalings (`few`)."""
    runs = [(N, snr_at(r), EPSILON, 1.0, seeds) for r in ratios] + [(N, BENIGN_SNR, EPSILON, 1.0, seeds)]
    for side, snr in SCALING_SNR.items():
        runs += [(N, snr, epsilon, 1.0, 2 * few if side == "benign" else few) for epsilon in (EPSILON, *EPSILONS)
                 if side == "benign" or epsilon >= 3e-4]
        runs += [(n, snr, EPSILON, 1.0, few) for n in SAMPLES]
        runs += [(N, snr, EPSILON, norm, few) for norm in W_O_NORMS]
    wanted = [Cell(n, M, snr, epsilon, norm, seed) for n, snr, epsilon, norm, count in runs for seed in range(count)]
    return list(dict.fromkeys(wanted))


def table(folder: str | Path = RESULTS, seeds: int = 16) -> Table:
    """The stored table of the regime."""
    return Table(Path(folder) / "theorems_regime.csv", key=KEY, columns=COLUMNS, seeds=tuple(range(seeds)),
                 parameters={"delta": DELTA, "signal_norm": 1.0, "n_test": N_TEST, "engine": "drawn", "method": "flow",
                             "largest_d": LARGEST_D}, command="vitbo results --only theorems_regime")


def plan(folder: str | Path = RESULTS, profile: str = "lab") -> Plan:
    """The grid: 16 seeds at `lab`, 32 at `paper`, a handful of cells at `smoke`."""
    seeds, few = {"smoke": (1, 0), "lab": (16, 4), "paper": (32, 8)}[profile]
    return Plan(table(folder, seeds), cells(seeds, few, (0.3, 5.0) if profile == "smoke" else RATIOS), compute)


@functools.cache
def load() -> pd.DataFrame:
    """The stored table, with what follows from its keys (`derived`)."""
    return derived(store.load(table().path, table().command)[0])


def derived(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows with `ratio` = N SNR^2 / C_p^2, the predicted times, and how many `items` of the condition are met."""
    c_p_squared = 25 * rows["M"]
    by_noise = rows["N"] * rows["snr"] ** 2 / (rows["epsilon"] * c_p_squared * rows["w_o_norm"] ** 2)
    settings = rows[list(KEY[:-1])].itertuples(index=False, name=None)
    return rows.assign(items=[_items(*setting) for setting in settings],
                       ratio=(rows["N"] * rows["snr"] ** 2 / c_p_squared).round(4),
                       predicted_benign=2 / (rows["epsilon"] * rows["w_o_norm"] ** 2), predicted_harmful=by_noise)


@functools.cache
def _items(*setting) -> int:
    return items_met(parameters(*setting))


# ----------------------------------------------------------------------------------------------- reading the transition

def transition(rows: pd.DataFrame) -> pd.DataFrame:
    """The runs that differ by SNR and seed alone (without those of the scaling in epsilon, which have fewer seeds)."""
    same = (rows["N"] == N) & (rows["epsilon"] == EPSILON) & (rows["w_o_norm"] == 1)
    return rows[same & (rows["snr"] != SCALING_SNR["benign"])].sort_values("ratio")


def over_seeds(rows: pd.DataFrame, by: str, value: str) -> pd.DataFrame:
    """Mean of `value` with its 95 % interval at each `by`: columns `by`, mean, low, high."""
    found = [(at, mean_interval(group[value])) for at, group in rows.groupby(by)]
    return pd.DataFrame([(at, i.mean, i.low, i.high) for at, i in found], columns=[by, "mean", "low", "high"])


def middle_level(rows: pd.DataFrame) -> float:
    """Test loss half way between the plateaus: the mean at the smallest ratio, and the smallest mean."""
    if rows.empty:
        raise UserError("no rows, so no plateaus; give runs at several ratios")
    means = rows.groupby("ratio")["test_loss"].mean()
    return float((means.iloc[0] + means.min()) / 2)


def crossings(rows: pd.DataFrame, level: float, value: str = "test_loss") -> list[float]:
    """N SNR^2 / C_p^2 at which each seed's `value` falls below `level` for good, interpolated in the logarithm."""
    return [crossing(group["ratio"].to_numpy(), group[value].to_numpy(), level)
            for _, group in rows.sort_values("ratio").groupby("seed")]


# ---------------------------------------------------------------------------------------------------- reading the times

def winning(rows: pd.DataFrame, side: str) -> pd.DataFrame:
    """The runs well inside one phase."""
    one_of("side", side, LAB_SIZES)
    return rows[rows["ratio"] >= BENIGN_FROM] if side == "benign" else rows[rows["ratio"] <= HARMFUL_TO]


def time_ratio(rows: pd.DataFrame, side: str) -> Interval:
    """Measured T over the predicted one, over all runs well inside the phase: mean and interval of the seeds' means."""
    inside = winning(rows, side)
    return mean_interval((inside["time"] / inside[f"predicted_{side}"]).groupby(inside["seed"]).mean())


def slopes(rows: pd.DataFrame, side: str) -> dict[str, tuple[Interval, float]]:
    """Log-log slopes of T, each with the exponent of the theorem.

    Tokens c times as long with weights 1/c times as large make the same training at T / c^2. So the runs with
    ||mu|| = 1 and different SNR show both: T against the noise's energy sigma_p^2 d = SNR^-2 at fixed ||mu||, and,
    rescaled to sigma_p^2 d = 1, T / SNR^2 against ||mu|| = SNR at fixed noise.
    """
    inside = winning(rows, side)
    at = inside[np.isclose(inside["snr"], SCALING_SNR[side])]
    base = {"N": N, "epsilon": EPSILON, "w_o_norm": 1.0}

    def along(frame, free):
        for name in set(base) - {free}:
            frame = frame[frame[name] == base[name]]
        return frame

    def slope(frame, x, y=None):
        return slope_interval(np.log(x), np.log(frame["time"] if y is None else y))

    by_epsilon, by_n, by_w_o, by_snr = along(at, "epsilon"), along(at, "N"), along(at, "w_o_norm"), along(inside, "")
    found = {"1 / epsilon": slope(by_epsilon, 1 / by_epsilon["epsilon"]), "N": slope(by_n, by_n["N"]),
             "mu": slope(by_snr, by_snr["snr"], by_snr["time"] / by_snr["snr"] ** 2),
             "noise energy": slope(by_snr, by_snr["snr"] ** -2), "w_o": slope(by_w_o, by_w_o["w_o_norm"])}
    expected = {"1 / epsilon": 1, "N": 0, "mu": -2, "noise energy": 0, "w_o": -2}
    if side == "harmful":
        expected |= {"N": 1, "mu": 0, "noise energy": -1}
    return {name: (interval, float(expected[name])) for name, interval in found.items()}


def epsilon_runs(rows: pd.DataFrame) -> pd.DataFrame:
    """The runs that differ by epsilon and seed alone, with their `side`."""
    same = rows[(rows["N"] == N) & (rows["w_o_norm"] == 1)]
    return pd.concat([same[same["snr"] == snr].assign(side=side) for side, snr in SCALING_SNR.items()],
                     ignore_index=True)


def loss_trend(rows: pd.DataFrame) -> Interval:
    """Slope of log test loss over log epsilon on the benign side: above 0 means that it falls with epsilon."""
    runs = epsilon_runs(rows)
    runs = runs[runs["side"] == "benign"]
    return slope_interval(np.log(runs["epsilon"]), np.log(runs["test_loss"]))


def predicted_benign_loss(epsilon: float, tokens: int) -> float:
    """Test loss on the benign side when fresh noise looks evenly at all tokens: epsilon^((2M - 1) / M^2), ours.

    Of a fresh point's M queries the signal looks at itself, the others with 1/M at the signal. So y f = V (1/M +
    (M - 1) / M^2) = V (2M - 1) / M^2, where training left V = log(1 / epsilon).

    >>> round(predicted_benign_loss(0.01, 2), 4)
    0.0316
    """
    epsilon, tokens = positive("epsilon", epsilon), whole("M", tokens)
    return epsilon ** ((2 * tokens - 1) / tokens**2)


def initial_attention(p: Parameters, seeds: Sequence[int]) -> tuple[float, float]:
    """How far attention is from 1/M before training: root mean square and largest, over samples, pairs and seeds."""
    problem = simulation.build(simulation.setting_of(p, n_test=1), "drawn", seeds)
    off = view(problem.train, problem.train.start.map(torch.zeros_like)).phi - 1 / p.M
    return float(off.square().mean().sqrt()), float(off.abs().max())


# --------------------------------------------------------------------------------------------------------- trajectories

def regime_trajectory(side: str, seeds: Sequence[int], snapshots: int = 60) -> pd.DataFrame:
    """The observables on the way in the regime, with the proof's constant met; `progress` = time / predicted T."""
    p = parameters(snr=BENIGN_SNR if side == "benign" else HARMFUL_SNR)
    way = simulation.trajectory(simulation.setting_of(p, n_test=N_TEST), seeds, "drawn", "flow", snapshots)
    return way.assign(progress=way["time"] / (predicted_steps(p, side) * p.eta))


def predicted_steps(p: Parameters, side: str) -> float:
    """Steps to epsilon as predicted for one side."""
    one_of("side", side, LAB_SIZES)
    return stages.predicted_steps_benign(p) if side == "benign" else stages.predicted_steps_harmful(p)


def lab_setting(side: str, reading: str = "divided", max_steps: int = 10_000) -> Setting:
    """Appendix A, benign or harmful; where it is silent: eta and epsilon of Figure 1, PyTorch's default law over 16.

    >>> lab_setting("benign").law.signal_norm
    25.0
    """
    one_of("side", side, LAB_SIZES)
    one_of("reading", reading, LAB_READINGS)
    samples, signal_norm = LAB_SIZES[side]
    law = SignalNoise(n_tokens=4, d=2048, signal_norm=signal_norm, sigma_p=0.05, sigma_p_tilde=1.0)
    init = TorchInit(scale=1 / 16, w_o_scale=LAB_READINGS[reading])
    return Setting(law=law, n_samples=samples, d_h=1024, d_v=256, init=init, eta=0.1, epsilon=EPSILON,
                   max_steps=max_steps, n_test=N_TEST)


def lab_predicted_steps(side: str, reading: str = "divided") -> float:
    """The predicted T of Appendix A, ||w_O||^2 at its mean, a third of the reading's scale squared."""
    one_of("side", side, LAB_SIZES)
    one_of("reading", reading, LAB_READINGS)
    p = dataclasses.replace(theory.paper_experiments()[f"App. A, {side}"],
                            w_o_norm=LAB_READINGS[reading] / math.sqrt(3))
    return predicted_steps(p, side)


def lab_trajectory(side: str, seeds: Sequence[int], reading: str = "divided", snapshots: int = 40) -> pd.DataFrame:
    """The observables on the way at the sizes of Appendix A; `progress` = steps / predicted T."""
    way = simulation.trajectory(lab_setting(side, reading, 6000), seeds, "reduced", "gd", snapshots)
    return way.assign(progress=way["t"] / lab_predicted_steps(side, reading))


def compute_lab(cell: dict) -> list[dict]:
    """One example of Appendix A under one reading, all seeds in one batch."""
    rows = simulation.simulate(lab_setting(cell["phase"], cell["reading"]), cell["seeds"], "reduced", "gd")
    return [{"phase": cell["phase"], "reading": cell["reading"], "seed": int(row["seed"])}
            | {name: row[name] for name in LAB_COLUMNS} for row in rows.to_dict("records")]


def lab_table(folder: str | Path = RESULTS, seeds: int = 8) -> Table:
    """The stored ends of the two examples of Appendix A."""
    return Table(Path(folder) / "theorems_lab.csv", key=("phase", "reading", "seed"), columns=LAB_COLUMNS,
                 seeds=tuple(range(seeds)), command="vitbo results --only theorems_lab",
                 parameters={"settings": {f"{side}, {reading}": lab_setting(side, reading)
                                          for side in LAB_SIZES for reading in LAB_READINGS}})


def lab_plan(folder: str | Path = RESULTS, profile: str = "lab") -> Plan:
    """The ends of the examples: 8 seeds at `lab`, 16 at `paper`, 1 at `smoke`."""
    seeds = {"smoke": 1, "lab": 8, "paper": 16}[profile]
    wanted = [{"phase": side, "reading": reading, "seeds": tuple(range(seeds))} for side in LAB_SIZES
              for reading in LAB_READINGS]
    return Plan(lab_table(folder, seeds), wanted, compute_lab)


@functools.cache
def load_lab() -> pd.DataFrame:
    """The stored ends of the two examples of Appendix A."""
    return store.load(lab_table().path, lab_table().command)[0]
