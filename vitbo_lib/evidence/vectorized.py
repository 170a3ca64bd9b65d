"""Vectorized queries and keys: one step's decomposition, its leading order, Lemma 5.1 and F.4 step by step."""

import dataclasses
import functools
import math
from collections.abc import Sequence

import numpy as np
import pandas as pd
import sympy as sp
import torch

from vitbo_lib import coefficients, regime, simulation, span, symbolic_updates, training, transformer, vectorized
from vitbo_lib.claims import CONSTANT, DIFFERS, HOLDS, LIMIT, Claim, Evidence
from vitbo_lib.data import SignalNoise
from vitbo_lib.initialization import GaussianInit
from vitbo_lib.intervals import Interval, format_interval, mean_interval, slope_interval
from vitbo_lib.seeds import stream
from vitbo_lib.simulation import Setting
from vitbo_lib.transformer import Weights

ROUNDING = 1e-12
STEP = Setting(law=SignalNoise(n_tokens=3, d=60, signal_norm=3.0, sigma_p=0.2, sigma_p_tilde=0.6), n_samples=4, d_h=30,
               d_v=5, eta=0.3, epsilon=1e-9, max_steps=6, n_test=1,
               init=GaussianInit(sigma_h=0.1, sigma_v=0.1, w_o_norm=1.5))  # d_h > K: keys and queries are independent
STEP_SEEDS = (1, 2, 3)  # both classes occur
SLOPE_SEEDS = 6
FROZEN_SEEDS, FROZEN_STEP = (0, 1, 2, 3), 100


def _verdict(right: bool, yes: str = HOLDS) -> str:
    return yes if right else DIFFERS


def _in_the_limit(here: bool, only_in_the_regime: bool) -> str:
    """Holds at the sizes of Appendix A, only in the theorems' regime, or neither (NaN included)."""
    return HOLDS if here else _verdict(only_in_the_regime, LIMIT)


# ------------------------------------------------------------------------------------------------------- one exact step

@dataclasses.dataclass(frozen=True)
class Step:
    """One step of gradient descent on all weights: vectorized q, k (K h) before and after, closed-form coefficients."""

    q: torch.Tensor
    k: torch.Tensor
    new_q: torch.Tensor
    new_k: torch.Tensor
    found: coefficients.Coefficients
    labels: torch.Tensor

    @property
    def solved(self) -> tuple[torch.Tensor, torch.Tensor]:
        """alpha and beta (K K) read off the step itself: the only ones that expand it in independent keys, queries."""
        return ((self.new_q - self.q) @ torch.linalg.pinv(self.k), (self.new_k - self.k) @ torch.linalg.pinv(self.q))


def step(seed: int) -> Step:
    """A step with every weight in full, from a state that six steps of training left uneven."""
    full = simulation.sample_full(STEP, seed)
    problem = span.reduce(full.train, full.test, full.weights)
    trained = training.gradient_descent(problem, eta=STEP.eta, epsilon=STEP.epsilon, max_steps=STEP.max_steps)
    state = trained.coefficients
    before = span.restore(problem, state, full.train, full.weights)
    slope = transformer.gradients(full.train.tokens, full.train.labels, before)[1]
    after = Weights(before.w_q - STEP.eta * slope.w_q, before.w_k - STEP.eta * slope.w_k, before.w_v, before.w_o)
    z, found = full.train.distinct_tokens, coefficients.coefficients(problem.train, state, STEP.eta)
    single = coefficients.Coefficients(*(getattr(found, field.name)[0] for field in dataclasses.fields(found)))
    return Step(z @ before.w_q, z @ before.w_k, z @ after.w_q, z @ after.w_k, single, full.train.labels)


def _off(said: torch.Tensor, actual: torch.Tensor) -> float:
    """Largest difference relative to the largest entry."""
    return float((said - actual).abs().max() / actual.abs().max())


def _worst(measure) -> float:
    """The largest of a measure over the steps; NaN where one is."""
    return float(np.max([measure(step(seed)) for seed in STEP_SEEDS]))


def equation_2() -> Evidence:
    """Queries of signals: closed form against a step; keys of the other class have no part in it."""
    def measure(one: Step) -> float:
        other = torch.stack([one.labels < 0, one.labels > 0]).repeat_interleave(STEP.law.n_tokens - 1, dim=1)
        leak = (one.found.alpha[:2, 2:] * other).abs().max() + one.found.alpha[0, 1].abs() + one.found.alpha[1, 0].abs()
        return max(_off(one.found.alpha[:2] @ one.k, (one.new_q - one.q)[:2]), float(leak))

    off, proved = _worst(measure), symbolic_updates.equation_2().holds
    return Evidence(_verdict(off < ROUNDING and proved), f"{off:.0e} from a step of all weights; by sympy", off)


def expansions() -> Evidence:
    """Queries of noise and all keys."""
    off = _worst(lambda one: max(_off(one.found.alpha[2:] @ one.k, (one.new_q - one.q)[2:]),
                                 _off(one.found.beta @ one.q, one.new_k - one.k)))
    solved = _worst(lambda one: max(_off(said, solved) for said, solved in
                                    zip((one.found.alpha, one.found.beta), one.solved)))
    return Evidence(_verdict(off < ROUNDING and solved < ROUNDING), f"{off:.0e} from a step of all weights; "
                    f"{solved:.0e} from the coefficients solved from that step", off)


def sum_of_alpha() -> Evidence:
    """alpha_{+,+} and the alpha_{n,+,i} of its class, solved from a step."""
    off = _worst(lambda one: float((one.solved[0].sum(1).abs() / one.solved[0].abs().max(1).values)[:2].max()))
    proved = symbolic_updates.coefficients_sum_to_zero().holds
    return Evidence(_verdict(off < ROUNDING and proved), f"{off:.0e} of the largest, by sympy", off)


def alpha_is_beta() -> Evidence:
    """alpha_{+,+} and beta_{+,+}, solved from a step."""
    off = _worst(lambda one: float(((one.solved[0] - one.solved[1]).diagonal()[:2]
                                    / one.solved[0].diagonal()[:2]).abs().max()))
    return Evidence(_verdict(off < ROUNDING), f"relative difference {off:.0e}; both are the same g_1", off)


def inner_products() -> Evidence:
    """Lemma B.3 with its term of second order, for every query and key."""
    def measure(one: Step, second: float = 1.0) -> float:
        alpha, beta = one.found.alpha, one.found.beta
        moved_q, moved_k = alpha @ one.k, beta @ one.q
        said = alpha @ (one.k @ one.k.T) + (one.q @ one.q.T) @ beta.T + second * moved_q @ moved_k.T
        return _off(said, one.new_q @ one.new_k.T - one.q @ one.k.T)

    off, without = _worst(measure), _worst(lambda one: measure(one, 0.0))
    proved = symbolic_updates.equation_16().holds
    return Evidence(_verdict(off < ROUNDING and proved), f"{off:.0e} of the largest change, all {10 * 10} pairs; "
                    f"without the second order {without:.2f}", off)


# ---------------------------------------------------------------------------------------------- leading and lower order

def _slope(table: pd.DataFrame, column: str) -> Interval:
    return slope_interval(np.log(table["value"]), np.log(table[column]))


def leading() -> Evidence:
    """How the other terms of first order fall with d_h, and the other samples' share of a coefficient with d."""
    by_d_h, by_d = (vectorized.leading_order(axis, SLOPE_SEEDS) for axis in ("d_h", "d"))
    first, cross = _slope(by_d_h, "first"), _slope(by_d, "cross")
    finding = (f"other terms fall like d_h to the power {format_interval(first, 2)}, other samples like d to "
               f"{format_interval(cross, 3)}; at most {by_d_h['first'].max():.3f} of the leading (at d_h = 1000)")
    right = -0.5 in first and -0.5 in cross and bool(by_d_h["first"].max() < 0.1)
    return Evidence.of(_verdict(right, yes=LIMIT), finding, first)


def second_order() -> Evidence:
    """The term of second order against eta, and against what F.12 allows."""
    tables = [vectorized.leading_order(axis, SLOPE_SEEDS) for axis in vectorized.SWEEPS]
    slope = _slope(tables[-1], "second")
    share = float(pd.concat(tables).eval("second / allowed").max(skipna=False))
    finding = (f"slope in eta {format_interval(slope, 2)}; in {sum(map(len, tables))} draws at most {share:.0e} of eta "
               "log(d_h^(1/2) / ε) / (σ_h² d_h)")
    return Evidence.of(_verdict(1 in slope and share <= 1), finding, slope)


# -------------------------------------------------------------------------------------------------------- signs and F.4

@functools.cache
def walked(side: str, place: str) -> dict[str, pd.DataFrame]:
    """Tables of `vectorized.on_the_way`."""
    return vectorized.on_the_way(side, place)


SEARCHED = 4000


def least_responses(tokens: int, count: int = SEARCHED) -> tuple[float, float]:
    """Smallest g_1 / (p_1 (1 - p_1) V_1) and -g_j / (p_j p_1 V_1) under 3M dominance and p_1 >= 1/M, by search.

    Random attention, and for each token the values that are worst for it; derivatives of the library's own loss.
    """
    rng = stream(0, "responses", tokens)
    first = 1 / tokens + (1 - 1 / tokens) * rng.uniform(size=(count, 1)) ** 3
    rest = rng.dirichlet(np.full(tokens - 1, 0.4), size=count) * (1 - first)
    phi = torch.as_tensor(np.concatenate([first, rest], axis=1)).clamp(min=1e-9)
    phi[0] = 1 / tokens
    bound, least = 1 / (3 * tokens), [math.inf, math.inf]
    for worst in range(tokens):
        values = torch.full((count, tokens), bound if worst == 0 else -bound, dtype=phi.dtype)
        values[:, 0], values[:, worst] = 1.0, 1.0 if worst == 0 else bound
        one_query = phi.unsqueeze(1)
        slope = -torch.sigmoid(-(phi * values).sum(1, keepdim=True)) / (count * tokens)  # y l' / (N M)
        at_logits = transformer.token_gradients(one_query, values, torch.ones(count, dtype=phi.dtype))[1].logits[:, 0]
        g = at_logits / slope
        if worst == 0:
            least[0] = float((g[:, 0] / (phi[:, 0] * phi[:, 1:].sum(1))).min())
        else:
            least[1] = float(np.minimum(least[1], float((-g[:, worst] / (phi[:, worst] * phi[:, 0])).min())))
    return least[0], least[1]


def meeting_f_4(place: str) -> pd.DataFrame:
    """Rows of benign training at which F.4's hypotheses hold."""
    rows = walked("benign", place)["f_4"]
    return rows[rows["holds"] & (rows["entries"] > 0)]


def signs() -> Evidence:
    """Signs of g by search, and of all alpha and beta inside samples in the theorems' regime."""
    least = np.min([least_responses(tokens) for tokens in range(2, 9)])
    rows = meeting_f_4("regime")
    right = rows["right"].min() if set(rows["kind"]) == set(vectorized.F_4) else math.nan
    finding = (f"g: {7 * SEARCHED:,} attentions, M = 2 to 8, the values at their worst; regime (N = 16, M = 4): "
               f"{int(rows['entries'].sum()):,} coefficients, {100 * right:.0f} % right")
    return Evidence(_verdict(bool(least > 0) and right == 1), finding, float(right))


def signs_in_the_lab() -> Evidence:
    """The same signs at the sizes of Appendix A, where the hypotheses hold."""
    rows = meeting_f_4("lab")
    share = (rows["right"] * rows["entries"]).groupby(rows["kind"]).sum() / rows["entries"].groupby(rows["kind"]).sum()
    wrong = share[share < 1]
    worst = float(share.min())
    names = ", ".join(f"{100 * (1 - part):.0f} % of $\\{name}$" for name, part in wrong.items())
    finding = (f"wrong sign: {names or 'none'}, from loss {rows['loss'].max():.2f} on; other samples outweigh a noise "
               "token's own")
    return Evidence(_in_the_limit(worst == 1, worst < 1 and signs().verdict == HOLDS), finding, worst)


def response_bounds() -> Evidence:
    """The bounds on g with 1/2 and 1/4, by sympy and by search."""
    proved = symbolic_updates.signal_share().holds and symbolic_updates.noise_share().holds
    least = [least_responses(tokens) for tokens in range(2, 9)]
    one, other = min(pair[0] for pair in least), min(pair[1] for pair in least)
    right = proved and one >= 1 / 2 and other >= 1 / 4
    return Evidence(_verdict(right), "by sympy at least 1 - 1/(3M) and (1 + 1/M)/3; by search, M = 2 to 8, at least "
                    f"{one:.2f} and {other:.2f}", other)


def one_fifth() -> Evidence:
    """The 1/5 before beta_{n,i,+} and beta_{n,j,n,i}: Lemma C.4's norms leave 1/2, so 2/5 is needed of g."""
    fifth, ninth = (2 * vectorized.F_4[name] for name in ("beta_{n,i,+}", "alpha_{n,i,n,j}"))
    fifth, ninth = sp.nsimplify(fifth), sp.nsimplify(ninth)
    bound = symbolic_updates.noise_share(ninth)
    worst = [bound.parts["worst"].subs(symbolic_updates.M, tokens) for tokens in range(2, 17)]
    largest = 1 + sum(bool(value >= fifth) for value in worst)  # the bound falls with M
    always = bound.holds
    verdict = HOLDS if largest == 16 else CONSTANT if always and largest >= 2 else DIFFERS
    return Evidence(verdict, f"with norms of Lemma C.4 (factor 1/2) the 1/5 follows for M ≤ {largest}; for all M a 1/6 "
                    "would do, and the 1/9 before α_(n,i,n,j) does", largest)


def sizes_in_the_regime() -> Evidence:
    """The constants of F.4 in the regime."""
    rows = meeting_f_4("regime")
    room = (rows["least"] / rows["printed"]).groupby(rows["kind"]).min().reindex(list(vectorized.F_4))
    least = float(np.min(room.to_numpy()))
    return Evidence(_verdict(least >= 1), f"at least {least:.1f} times what is claimed ({room.idxmin()}), "
                    f"{len(rows) // len(vectorized.F_4)} states", least)


# ------------------------------------------------------------------------------------------------------------ Lemma 5.1

def signal_line() -> Evidence:
    """The first line: what a step of all weights does to gamma, against attention on the signal written out."""
    worst = 0.0
    for seed in STEP_SEEDS:
        full = simulation.sample_full(STEP, seed)
        X, y, w = full.train.tokens, full.train.labels, full.weights
        slope = transformer.gradients(X, y, w)[1]
        moved = -STEP.eta * full.train.signals @ slope.w_v @ w.w_o / (w.w_o @ w.w_o)
        weights = torch.exp(X @ w.w_q @ w.w_k.T @ X.mT)
        received = (weights[..., 0] / weights.sum(-1)).sum(-1)  # sum over s of the signal's share
        pull = 1 / (1 + torch.exp(y * transformer.forward(X, w)))
        rate = STEP.eta * STEP.law.signal_norm**2 / y.numel() / STEP.law.n_tokens
        said = torch.stack([(pull * received)[y > 0].sum(), -(pull * received)[y < 0].sum()]) * rate
        worst = float(np.max([worst, _off(said, moved)]))
    return Evidence(_verdict(worst < ROUNDING), f"{worst:.0e} from a step of all weights, both signals", worst)


def noise_line() -> Evidence:
    """The second line in the theorems' regime."""
    rows = pd.concat([walked(side, "regime")["lemma"] for side in vectorized.REGIME_PROBLEMS], ignore_index=True)
    largest = [float(part["ratio"].max(skipna=False)) for _, part in rows.groupby(rows["i"] > 2)]
    worst = float(np.max(largest)) if len(largest) == 2 else math.nan
    finding = (f"{len(rows):,} steps and tokens, benign and harmful, N = 16, M = 4: at most {worst:.3f} of the bound "
               f"(ξ_2), {largest[-1]:.4f} (others)" if largest else "no rows")
    return Evidence(_verdict(worst <= 1), finding, worst)


def violations(side: str) -> dict[int, tuple[float, float, float]]:
    """By token (2: xi_2, 3: the rest): share of sample-steps above the bound, the largest ratio, loss there. App. A."""
    rows = walked(side, "lab")["lemma"]
    found = {}
    for strong, part in rows.groupby(rows["i"] > 2):
        worst = part.loc[part["ratio"].idxmax()]
        found[3 if strong else 2] = (float((part["ratio"] > 1).mean()), float(worst["ratio"]), float(worst["loss"]))
    return found


def noise_line_in_the_lab() -> Evidence:
    """The second line at the sizes of Appendix A."""
    benign, harmful = violations("benign"), violations("harmful")
    worst = float(np.max([part[1] for side in (benign, harmful) for part in side.values()]))
    finding = (f"benign: ξ_2 up to {benign[2][1]:.1f} times the bound (at loss {benign[2][2]:.2f}), others "
               f"{benign[3][1]:.2f}; harmful: ξ_2 {harmful[2][1]:.2f}, others up to {harmful[3][1]:.0f} times")
    return Evidence(_in_the_limit(worst <= 1, worst > 1 and noise_line().verdict == HOLDS), finding, worst)


# ----------------------------------------------------------------------------------------------------- what drives what

def reinforcement() -> Evidence:
    """The signal's value with and without trained attention, attention with and without a trained value."""
    setting = dataclasses.replace(regime.lab_setting("benign"), n_test=1)
    table = vectorized.freezing(setting, FROZEN_SEEDS, (0, FROZEN_STEP))
    at = table.pivot(index="seed", columns=["kind", "t"], values=["v_signal", "attention_signal", "train_loss"])
    free, no_attention, no_value = vectorized.FROZEN

    def gain(kind, name):
        return at[name, kind, FROZEN_STEP] - at[name, kind, 0]

    speed = mean_interval(gain(free, "v_signal") / gain(no_attention, "v_signal"))
    moved = mean_interval(gain(no_value, "attention_signal") / gain(free, "attention_signal"))
    finding = (f"App. A, benign, step {FROZEN_STEP}: V is {format_interval(speed, 2)} times what it is with attention "
               f"frozen; with W_V frozen attention gains {format_interval(moved, 3)} of what it gains else")
    return Evidence.of(_verdict(speed.low > 1 and max(abs(moved.low), abs(moved.high)) < 0.1), finding, speed)


def _proved(derivation, finding: str) -> Evidence:
    return Evidence(_verdict(derivation().holds), finding)


# ----------------------------------------------------------------------------------------------------------- the claims

CHAPTER = "vectorized_qk"


def _claim(id: str, statement: str, where: str, check, quantity: str, tolerance: str = "rounding: 1e-12",
           kind: str = "exact", expected: str = HOLDS, seeds: Sequence[int] = STEP_SEEDS) -> Claim:
    return Claim(id=id, statement=statement, where=where, kind=kind, quantity=quantity, tolerance=tolerance,
                 chapter=CHAPTER, expected=expected, check=check, seeds=tuple(seeds))


def _algebra(id: str, statement: str, where: str, check, kind: str = "symbolic", expected: str = HOLDS) -> Claim:
    return _claim(id, statement, where, check, "an identity or inequality", "none: exact algebra", kind, expected, ())


CLAIMS = (
    _claim("C11", "$q_\\pm$ moves along $k_\\pm$ and the keys of its own class, with the coefficients of eq. (2)",
           "eq. (2), Definition B.3", equation_2, "relative distance from a step"),
    _claim("C12", "Every other query and key moves along keys and queries, with the coefficients of F.1",
           "Definition B.3, F.1", expansions, "relative distance from a step"),
    _claim("C13", "$\\alpha_{+,+} + \\sum \\alpha_{n,+,i} = 0$", "F.12", sum_of_alpha, "sum over the largest"),
    _claim("C14", "$\\alpha_{\\pm,\\pm} = \\beta_{\\pm,\\pm}$", "ours; follows from F.1", alpha_is_beta,
           "relative difference"),
    _claim("C17", "The change of an inner product of query and key, second order included", "Lemma B.3, eq. (16)",
           inner_products, "relative distance from a step"),
    _claim("C18", "$\\Delta\\inner{q_+}{k_+} = \\alpha_{+,+} \\norm{k_+}^2 + \\beta_{+,+} \\norm{q_+}^2$ to leading"
           " order",
           "remark after Lemma B.3, F.12", leading, "log-log slope of the rest in d_h",
           "-1/2 in the 95 % interval, in d_h and, for other samples, in d", "scaling", LIMIT,
           [1000 * axis + k for axis in range(2) for k in range(5 * SLOPE_SEEDS)]),
    _claim("C19", "The term of second order is small if $\\eta \\ll \\sigma_h^2 d_h / \\log(d_h^{1/2}/\\epsilon)$",
           "F.12", second_order, "log-log slope in η; its share of what is allowed",
           "1 in the 95 % interval; share at most 1", "scaling",
           seeds=[1000 * axis + k for axis in range(3) for k in range(5 * SLOPE_SEEDS)]),
    _claim("C43", "Signs of all $\\alpha$, $\\beta$ inside a sample under $3M$ dominance and attention at least $1/M$",
           "F.4, Claim 6", signs, "share of right signs", "1", "statistical", seeds=(0, 1)),
    _claim("C43-lab", "The same signs at the sizes of Appendix A too", "F.4, under Condition 4.1", signs_in_the_lab,
           "share of right signs, worst kind", "1", "statistical", LIMIT, (0, 1)),
    _algebra("C44", "There $g_1 \\ge \\frac12 p_1 (1 - p_1) V_1$ and $\\abs{g_j} \\ge \\frac14 p_j p_1 V_1$", "F.4",
             response_bounds),
    _algebra("F.4-fifth", "The constant 1/5 in the bounds on $\\beta_{n,i,+}$ and $\\beta_{n,j,n,i}$, for all $M$",
             "F.4", one_fifth, expected=CONSTANT),
    _claim("F.4-regime", "All constants of F.4 in the regime", "F.4", sizes_in_the_regime,
           "smallest size over the claimed", "1", "statistical", seeds=(0, 1)),
    _claim("lemma-5.1-signal", "The step of $\\gamma_{V,\\pm}$ by attention on the signal", "Lemma 5.1, first line",
           signal_line, "relative distance from a step"),
    _claim("C73", "$\\abs{\\Delta\\rho_{V,n,i}}$ is bounded through attention of the own sample alone, in the regime",
           "Lemma 5.1, second line", noise_line, "largest share of the bound", "1", "statistical", seeds=(0, 1)),
    _claim("C73-lab", "The same, step by step, at the sizes of Appendix A too", "Lemma 5.1, second line",
           noise_line_in_the_lab, "largest share of the bound", "1", "statistical", LIMIT, (0, 1)),
    _claim("C74", "Value and attention drive each other: attention on the signal speeds up its value, and does not "
           "grow without it", "Section 5.2", reinforcement, "value with over without trained attention",
           "above 1; attention without value: a tenth", "statistical", seeds=FROZEN_SEEDS),
    _algebra("C39", "$\\sum_s (s - T_1)$ in closed form, and $\\sum_s e^{\\Lambda_s} \\Delta\\Lambda_s \\le \\int e^x$",
             "D.2", lambda: _proved(symbolic_updates.summation_step, "by sympy")),
    _algebra("C45", "$x / (c + a x^2) \\le 1 / (2 \\sqrt{ac})$", "F.7",
             lambda: _proved(symbolic_updates.am_gm, "by sympy: the gap is a square")),
    _algebra("C84", "$\\max\\{a, b\\} \\cdot \\min\\{a^{-1}, b^{-1}\\} = 1$", "D.4 and later",
             lambda: _proved(symbolic_updates.max_min, "by sympy")),
)
