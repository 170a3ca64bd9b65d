"""Experiments on vectorized queries and keys: which terms of a step lead, Lemma 5.1 step by step, frozen weights.

All of it looks at states of the reduced problem through `vitbo_lib.coefficients`.
"""

import dataclasses
import math
from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from vitbo_lib import regime, simulation, training
from vitbo_lib.coefficients import (
    Coefficients,
    coefficients,
    distinct_rows,
    gram,
    loss_at_tokens,
    loss_derivatives,
    vectorized,
)
from vitbo_lib.data import SignalNoise
from vitbo_lib.errors import UserError
from vitbo_lib.flow import FIRST_SNAPSHOT
from vitbo_lib.initialization import GaussianInit
from vitbo_lib.observables import observe, view
from vitbo_lib.simulation import Setting
from vitbo_lib.span import Points, Problem, Triple
from vitbo_lib.training import Descent

FROZEN = {"all trained": (), "$W_Q$, $W_K$ frozen": ("queries", "keys"), "$W_V$ frozen": ("values",)}
LG = 10.0  # stands for lg = log(6 N^2 M^2 / delta) in the width of initial queries and keys; 10 at N = 16, M = 4


# --------------------------------------------------------------------------------------------------- a state to look at

def setting(d: float, d_h: float, n_samples: int = 16, tokens: int = 4, snr: float = 20.0) -> Setting:
    """A problem on the signal's side with sigma_h at the top of Condition 4.1 (8), ||mu|| = 1 and W_V(0) = 0.

    >>> setting(1e10, 1e6).law.snr
    20.0
    """
    sigma_p = 1 / (snr * math.sqrt(d))
    law = SignalNoise(n_tokens=tokens, d=d, signal_norm=1.0, sigma_p=sigma_p,
                      sigma_p_tilde=5 * math.sqrt(tokens) * sigma_p)
    sigma_h = math.sqrt(min(1.0, snr**2) * d_h**-0.5 * LG**-1.5)
    return Setting(law=law, n_samples=n_samples, d_h=d_h, init=GaussianInit(sigma_h=sigma_h, sigma_v=0.0), n_test=1)


def after_a_value_step(problem: Problem, largest: float = 1.0) -> Triple:
    """The state after one long step of W_V alone: the largest scalarized value is `largest`; queries and keys at start.

    What stage I leaves behind: values have grown, attention is still even.
    """
    zero = problem.train.start.map(torch.zeros_like)
    moved = coefficients(problem.train, zero, 1.0)
    size = torch.cat([moved.gamma, moved.rho.flatten(1)], dim=1).abs().amax(1, keepdim=True)
    descent = Descent(problem, zero)
    descent.evaluate()
    descent.step(1.0)
    scale = largest / (size * problem.w_o_norm_squared.view(-1, 1))
    return Triple(torch.zeros_like(zero.queries), torch.zeros_like(zero.keys), descent.coefficients.values * scale)


# ---------------------------------------------------------------------------------------------- leading order of a step

def update_terms(problem: Problem, state: Triple, eta: float) -> dict[str, Tensor]:
    """One step's change of <q_+, k_+>, split into what leads and what does not, of each run (R).

    `lead` = alpha_{+,+} ||k_+||^2 + beta_{+,+} ||q_+||^2; `first`: the other terms of first order (eq. (16)); `second`:
    <Delta q_+, Delta k_+>. `cross`: root mean square of what other tokens add to alpha_{n,i,+}, over that of its
    own token's part, n in S_+.
    """
    found, seen = coefficients(problem.train, state, eta), vectorized(problem.train, state)
    q, k = (torch.nan_to_num(part) for part in (seen.queries, seen.keys))  # a missing signal: its coefficients are 0
    moved_q, moved_k = (found.alpha[:, :1] @ k)[:, 0], (found.beta[:, :1] @ q)[:, 0]
    by_key = found.alpha[:, 0] * (k @ k[:, 0, :, None])[..., 0]
    by_query = found.beta[:, 0] * (q @ q[:, 0, :, None])[..., 0]
    lead, second = by_key[:, 0] + by_query[:, 0], (moved_q * moved_k).sum(-1)
    first = by_key[:, 1:].sum(1) + by_query[:, 1:].sum(1)
    at_logits = loss_at_tokens(problem.train, state)[0]
    own = -eta * gram(problem.train).diagonal(dim1=1, dim2=2) * at_logits[:, :, 0]
    ours = at_logits[:, 2:, 0] != 0  # noise of the samples of S_+
    off = torch.where(ours, found.alpha[:, 2:, 0] - own[:, 2:], 0.0)
    return {"lead": lead, "first": first, "second": second,
            "cross": off.norm(dim=1) / torch.where(ours, own[:, 2:], 0.0).norm(dim=1)}


# ------------------------------------------------------------------------------------------------------- frozen weights

@torch.no_grad()
def frozen_descent(problem: Problem, *, eta: float, frozen: Sequence[str], steps: Sequence[int],
                   ) -> Iterator[tuple[int, Tensor, Triple]]:
    """Gradient descent with some weights held at their start: step, training loss (R) and state at each of `steps`.

    `frozen` names parts of the state: "queries" (W_Q), "keys" (W_K), "values" (W_V). With none it is
    `training.states`.
    """
    if set(frozen) - {"queries", "keys", "values"}:
        raise UserError(f"cannot freeze {', '.join(map(str, frozen))}; give some of queries, keys, values")
    descent, wanted = Descent(problem), set(steps)
    for t in range(max(wanted) + 1):
        loss = descent.evaluate()
        if t in wanted:
            yield t, loss, descent.coefficients.map(torch.clone)
        descent.step(eta)
        for name in frozen:
            getattr(descent.coefficients, name).zero_()  # the start


def freezing(setting: Setting, seeds: Sequence[int], steps: Sequence[int]) -> pd.DataFrame:
    """The observables on the way with all weights trained, with W_Q and W_K frozen, and with W_V frozen.

    One row a seed, kind (`kind`) and step (`t`); the kinds share data and initial weights.
    """
    problem = simulation.build(setting, "reduced", seeds)
    rows = []
    for kind, frozen in FROZEN.items():
        for t, _, state in frozen_descent(problem, eta=setting.eta, frozen=frozen, steps=steps):
            seen = {name: part.tolist() for name, part in observe(problem, state).items()}
            rows.append(pd.DataFrame({"kind": kind, "seed": list(seeds), "t": t} | seen))
    return pd.concat(rows, ignore_index=True)


def freezing_in_lab(last: int) -> pd.DataFrame:
    """`freezing` in Appendix A's benign example up to step `last`, two seeds."""
    lab = dataclasses.replace(regime.lab_setting("benign"), n_test=1)
    return freezing(lab, (0, 1), sorted({0, 100, last, *np.geomspace(1, last, 24).round().astype(int).tolist()}))


def matrix_step() -> tuple[float, Coefficients]:
    """Training loss and one-step coefficients of a small problem (M = 3, N = 4, d = 400) after 60 steps.

    >>> loss, found = matrix_step()
    >>> found.alpha.shape
    torch.Size([1, 10, 10])
    """
    law = SignalNoise(n_tokens=3, d=400, signal_norm=2.0, sigma_p=0.06, sigma_p_tilde=0.09)
    small = Setting(law=law, n_samples=4, d_h=100, d_v=8, init=GaussianInit(sigma_h=0.03, sigma_v=0.001), eta=0.05,
                    n_test=1)
    problem = simulation.build(small, "reduced", [3])
    _, loss, state = next(training.states(problem, eta=small.eta, steps=[60]))
    return float(loss), coefficients(problem.train, state, small.eta)


SWEEPS = {"d_h": (1e3, 1e5, 1e7, 1e9, 1e11), "d": (1e3, 1e5, 1e7, 1e9, 1e12), "eta": (1e-6, 1e-5, 1e-4, 1e-3, 1e-2)}
BASE = {"d": 1e13, "d_h": 1e6, "eta": 1e-6}  # where the other two stay
TARGET = 0.01  # epsilon in the logarithm of F.12


def leading_order(axis: str, seeds_each: int = 6) -> pd.DataFrame:
    """How large the lower-order terms of a step are, beside the leading ones, as `axis` (d_h, d or eta) varies.

    One row a value and seed (no seed is used twice): `first` and `second` over `lead` in the change of <q_+, k_+>,
    `cross` (`update_terms`), `allowed` = eta log(d_h^(1/2) / epsilon) / (sigma_h^2 d_h), which F.12 asks to be small.
    """
    if axis not in SWEEPS:
        raise UserError(f"no axis {axis!r}; choose one of {', '.join(SWEEPS)}")
    rows, first = [], 1000 * list(SWEEPS).index(axis)
    for k, value in enumerate(SWEEPS[axis]):
        at = BASE | {axis: value}
        chosen = setting(at["d"], at["d_h"])
        seeds = range(first + k * seeds_each, first + (k + 1) * seeds_each)
        problem = simulation.build(chosen, "drawn", seeds)
        terms = update_terms(problem, after_a_value_step(problem), at["eta"])
        lead = terms["lead"]
        allowed = at["eta"] * math.log(math.sqrt(at["d_h"]) / TARGET) / (chosen.init.sigma_h**2 * at["d_h"])
        rows.append(pd.DataFrame({"axis": axis, "value": value, "seed": list(seeds), "allowed": allowed,
                                  "first": (terms["first"] / lead).abs(), "second": (terms["second"] / lead).abs(),
                                  "cross": terms["cross"]}))
    return pd.concat(rows, ignore_index=True)


# -------------------------------------------------------------------------------- Lemma 5.1 and the bounds of F.4, live

def lemma_5_1(points: Points, state: Triple, law: SignalNoise) -> pd.DataFrame:
    """|Delta rho_{V,n,i}| of the step at `state` over the second line of Lemma 5.1, one row a run, sample and token.

    The line bounds it by 2 eta C_p^2 sigma_p^2 d / (N M) sum_s -l'_n p_{n,s,i}: attention of the own sample alone.
    Columns `run`, `n`, `i` (from 2), `ratio` (above 1: the line fails), `attention` = sum_s p_{n,s,i}; eta drops out.
    """
    phi = view(points, state).phi
    samples, tokens = phi.shape[1:3]
    received = phi.sum(-2)[..., 1:]
    rate = 2 * law.sigma_p_tilde**2 * law.d / (samples * tokens)
    bound = rate * loss_derivatives(points, state).unsqueeze(-1) * received
    ratio = coefficients(points, state, 1.0).rho.abs() / bound
    run, n, i = (index.flatten().tolist() for index in torch.meshgrid(
        *(torch.arange(size) for size in ratio.shape), indexing="ij"))
    return pd.DataFrame({"run": run, "n": n, "i": i, "ratio": ratio.flatten(), "attention": received.flatten()}
                        ).assign(n=lambda rows: rows["n"] + 1, i=lambda rows: rows["i"] + 2)


F_4 = {"alpha_{+,+}": 1 / 2, "beta_{+,+}": 1 / 2, "alpha_{n,+,i}": 1 / 4, "beta_{n,+,i}": 1 / 2, "alpha_{n,i,+}": 1 / 5,
       "beta_{n,i,+}": 1 / 5, "alpha_{n,i,n,j}": 1 / 9, "beta_{n,j,n,i}": 1 / 5}  # the constants of F.4, as printed
RESOLVED = 1e-12


def f_4(points: Points, state: Triple, law: SignalNoise) -> pd.DataFrame:
    """Signs and sizes of the coefficients inside samples against F.4: a row a run and kind of coefficient.

    Size is in units of eta / (N M) -l'_n |V_pm| times ||mu||^2 (rows of signals) or sigma_p^2 d (rows of noise) times
    p (1 - p) or p p', as in F.4. `right`: share with the sign of F.4; `least`: the smallest size, negative for a wrong
    sign; `printed`: the constant of F.4. Entries whose p (1 - p) or p p' is below `RESOLVED` are left out: float64 does
    not know their sign. `holds`: whether the run meets F.4's hypotheses here, y V_1 >= 3M |V_{n,i}| in every sample and
    all attention on signals at least 1/M, less a tenth.
    """
    seen, rows = view(points, state), distinct_rows(points)
    alpha, beta = in_samples(points, state)
    phi, values, tokens = seen.phi, seen.values, points.n_tokens
    signal = points.labels * values[..., 0]
    dominant = (signal >= 3 * tokens * values[..., 1:].abs().amax(-1)) & (phi[..., 0] >= 0.9 / tokens).all(-1)
    weight = loss_derivatives(points, state) * signal.abs() / phi[0, ..., 0].numel()  # over N M
    others = phi[..., 1:].sum(-1)  # 1 - p without its rounding
    spread, along = phi[..., 0] * others, phi * phi[..., :1]  # p_{l,1} (1 - p_{l,1}), p_{l,j} p_{l,1}
    same = (points.labels.unsqueeze(1) == points.labels.unsqueeze(2)).to(phi.dtype)
    of_class = (same @ (weight * spread[..., 0]).unsqueeze(-1)).squeeze(-1) / weight
    mu, noise = law.signal_norm**2, law.sigma_p**2 * law.d
    pieces = {"alpha_{+,+}": (alpha[..., 0, 0], mu, of_class, 1), "beta_{+,+}": (beta[..., 0, 0], mu, of_class, 1),
              "alpha_{n,+,i}": (alpha[..., 0, 1:], mu, along[..., 0, 1:], -1),
              "beta_{n,+,i}": (beta[..., 0, 1:], mu, spread[..., 1:], 1),
              "alpha_{n,i,+}": (alpha[..., 1:, 0], noise, spread[..., 1:], 1),
              "beta_{n,i,+}": (beta[..., 1:, 0], noise, along[..., 0, 1:], -1),
              "alpha_{n,i,n,j}": (alpha[..., 1:, 1:], noise, along[..., 1:, 1:], -1),
              "beta_{n,j,n,i}": (beta[..., 1:, 1:], noise, along[..., 1:, 1:].mT, -1)}
    table = []
    for name, (value, energy, unit, sign) in pieces.items():
        scale = energy * weight.view(*weight.shape, *[1] * (unit.ndim - 2)) * unit
        size = torch.where(unit > RESOLVED, sign * value / scale, torch.nan).reshape(len(rows), -1)
        known = ~size.isnan()
        table.append(pd.DataFrame({
            "run": range(len(rows)), "kind": name, "printed": F_4[name], "entries": known.sum(1),
            "right": ((size > 0) & known).sum(1) / known.sum(1), "least": size.nan_to_num(math.inf).amin(1),
            "holds": dominant.all(1)}))
    return pd.concat(table, ignore_index=True)


def in_samples(points: Points, state: Triple) -> tuple[Tensor, Tensor]:
    """alpha and beta per unit of eta between the tokens of each sample (R N M M): row the token that moves."""
    found, rows = coefficients(points, state, 1.0), distinct_rows(points)
    run = torch.arange(len(rows)).view(-1, 1, 1, 1)
    pairs = run, rows.unsqueeze(-1), rows.unsqueeze(-2)
    return found.alpha[pairs], found.beta[pairs]


REGIME_PROBLEMS = {"benign": 40.0, "harmful": 0.5}  # SNR, at N = 16 and M = 4
LAB_STEPS = (0, 3, 10, 20, 30, 50, 70, 100, 130, 160, 200, 250, 300, 400, 500, 700, 1000)


def walk(side: str, place: str, seeds: Sequence[int] = (0, 1), steps: Sequence[int] = LAB_STEPS,
         snapshots: int = 24) -> Iterator[tuple[float, Tensor, Points, Triple, SignalNoise]]:
    """States on the way of training: progress, training loss (R), training points, state and law.

    `place` "lab": Appendix A, at chosen `steps` of gradient descent (progress is the step). "regime": N = 16, M = 4,
    all items of Condition 4.1 but (3), at `snapshots` of gradient flow (progress is the share of its time).
    """
    if side not in REGIME_PROBLEMS or place not in ("lab", "regime"):
        raise UserError(f"no training {side!r}, {place!r}; choose benign or harmful, lab or regime")
    if place == "lab":
        chosen = dataclasses.replace(regime.lab_setting(side), n_test=1)
        problem = simulation.build(chosen, "reduced", seeds)
        for t, loss, state in training.states(problem, eta=chosen.eta, steps=steps):
            yield t, loss, problem.train, state, chosen.law
        return
    chosen = simulation.setting_of(regime.parameters(16, 4, REGIME_PROBLEMS[side]), n_test=1)
    problem = simulation.build(chosen, "drawn", seeds)
    way = simulation.train(chosen, problem, "flow", snapshots=snapshots).snapshots
    for share, state in zip(np.geomspace(FIRST_SNAPSHOT, 1, snapshots), way.values()):
        yield float(share), view(problem.train, state).loss, problem.train, state, chosen.law


def on_the_way(side: str, place: str, **options) -> dict[str, pd.DataFrame]:
    """`lemma_5_1`, `f_4` and the sizes of coefficients (`sizes`) at every state of `walk`, with its `progress`."""
    found = {"lemma": [], "f_4": [], "sizes": []}
    for progress, loss, points, state, law in walk(side, place, **options):
        for name, rows in (("lemma", lemma_5_1(points, state, law)), ("f_4", f_4(points, state, law)),
                           ("sizes", sizes(points, state))):
            found[name].append(rows.assign(progress=progress, loss=rows["run"].map(dict(enumerate(loss.tolist())))))
    return {name: pd.concat(tables, ignore_index=True) for name, tables in found.items()}


def sizes(points: Points, state: Triple) -> pd.DataFrame:
    """Mean coefficients of a step by kind, per unit of eta: a row a run.

    `alpha_{+,+}`, and with the signals of the sample's own class `alpha_{n,+,i}`, `alpha_{n,i,+}`, `beta_{n,+,i}`,
    `beta_{n,i,+}`, `alpha_{n,i,n,j}`; `other samples`: root mean square of alpha_{n,i,n',j}, n' not n.
    """
    alpha, beta = in_samples(points, state)
    runs, samples, noise = *points.labels.shape, points.n_tokens - 1
    between = coefficients(points, state, 1.0).alpha[:, 2:, 2:].reshape(runs, samples, noise, samples, noise)
    apart = ~torch.eye(samples, dtype=torch.bool)
    parts = {"alpha_{+,+}": alpha[..., 0, 0], "alpha_{n,+,i}": alpha[..., 0, 1:], "alpha_{n,i,+}": alpha[..., 1:, 0],
             "beta_{n,+,i}": beta[..., 0, 1:], "beta_{n,i,+}": beta[..., 1:, 0], "alpha_{n,i,n,j}": alpha[..., 1:, 1:]}
    means = {name: part.flatten(1).mean(1).tolist() for name, part in parts.items()}
    squares = between.transpose(2, 3)[:, apart].square()
    return pd.DataFrame({"run": range(runs), **means, "other samples": squares.flatten(1).mean(1).sqrt().tolist()})
