"""The exact reduction and the direct draw."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
import torch

from vitbo_lib import data, draw, draw_check, flow, simulation, span, training, transformer
from vitbo_lib.claims import DIFFERS, HOLDS, Claim, Evidence
from vitbo_lib.evidence.setting import relative
from vitbo_lib.initialization import GaussianInit
from vitbo_lib.intervals import Interval, format_interval, mean_interval
from vitbo_lib.observables import observe

ROUNDING = 1e-9  # after some hundred steps
N = 16
REDUCED = simulation.Setting(law=data.SignalNoise(n_tokens=4, d=600, signal_norm=8.0, sigma_p=0.1, sigma_p_tilde=1.0),
                             n_samples=8, d_h=150, d_v=20, eta=0.005, epsilon=0.05, n_test=200,
                             init=GaussianInit(sigma_h=0.01, sigma_v=0.01, w_o_norm=1.5))


def _verdict(right: bool) -> str:
    return HOLDS if right else DIFFERS


def trained_twice() -> dict[str, float]:
    """Largest differences between training in full and reduced (`REDUCED`, seed 0), relative where not of a loss."""
    full = simulation.sample_full(REDUCED, 0)
    problem = span.reduce(full.train, full.test, full.weights)
    steps = int(training.gradient_descent(problem, eta=REDUCED.eta, epsilon=REDUCED.epsilon).steps[0])
    kept = sorted({round(steps * share) for share in (0.1, 0.25, 0.5, 0.75)} | {steps})
    reduced = training.gradient_descent(problem, eta=REDUCED.eta, epsilon=REDUCED.epsilon, snapshot_steps=kept)
    on_the_way, weights, t = [], full.weights, 0
    for until in kept:
        weights, _, there = training.full_gradient_descent(full.train, weights, eta=REDUCED.eta, epsilon=1e-12,
                                                           max_steps=until - t)
        state = reduced.snapshots.get(until, reduced.coefficients)
        on_the_way.append(abs(float(_mean_loss(problem.train, state)) - there))
        t = until
    fresh = _outputs(problem.test, reduced.coefficients)[0]
    restored = span.restore(problem, reduced.coefficients, full.train, full.weights)
    return {"training loss, at four steps on the way": max(on_the_way[:-1]), "training loss at the end": on_the_way[-1],
            "$f$ at 200 fresh samples": relative(fresh, transformer.forward(full.test.tokens, weights)),
            "$W_Q$": relative(restored.w_q, weights.w_q), "$W_K$": relative(restored.w_k, weights.w_k),
            "$W_V$": relative(restored.w_v, weights.w_v)}


def _outputs(points: span.Points, state: span.Triple) -> torch.Tensor:
    queries, keys, values = span.by_sample(span.projections(points, state), points.n_tokens)
    outside = points.outside_logits
    return transformer.outputs(transformer.attention(queries, keys, outside), values)[1]


def _mean_loss(points: span.Points, state: span.Triple) -> torch.Tensor:
    return transformer.sample_losses(_outputs(points, state), points.labels).mean()


def exact_reduction() -> Evidence:
    """Losses and outputs."""
    largest = max(value for name, value in trained_twice().items() if "W_" not in name)
    return Evidence(_verdict(largest < ROUNDING), f"losses on the way and at the end, f at fresh samples: "
                    f"{largest:.0e} at most", largest)


def weights_restored() -> Evidence:
    """Weights."""
    largest = max(value for name, value in trained_twice().items() if "W_" in name)
    return Evidence(_verdict(largest < ROUNDING), f"{largest:.0e} of the largest entry at most", largest)


def hidden_space() -> Evidence:
    """The reduced problem with hidden space rotated into 2K dimensions, and with all of it."""
    full = simulation.sample_full(REDUCED, 0)
    rotated = span.reduce(full.train, full.test, full.weights)
    seen = span.look(full.train, full.weights)
    points = span.stack(seen, seen)
    whole = span.Problem(points, points, rotated.w_o_norm_squared)
    ends = [training.gradient_descent(one, eta=REDUCED.eta, epsilon=REDUCED.epsilon) for one in (whole, rotated)]
    off = abs(float(ends[0].train_loss[0] - ends[1].train_loss[0]))
    width, distinct = rotated.train.start.queries.shape[-1], len(full.train.distinct_tokens)
    right = width == 2 * distinct and off < ROUNDING and bool(ends[0].steps[0] == ends[1].steps[0])
    return Evidence(_verdict(right), f"{REDUCED.d_h} dimensions became {width} = 2 × {distinct}, the loss differs by "
                    f"{off:.0e}", off)


def runs() -> pd.DataFrame:
    """The stored runs with all coordinates, drawn, and drawn with a planted fault."""
    return draw_check.load()


def drawn_in_law() -> Evidence:
    """Distributions and means of drawn runs against runs with all coordinates."""
    rows = runs()
    found, fault = draw_check.compare(rows), draw_check.compare(rows, "fault")
    p = min(one.p for one in found.values())
    width = max(max(abs(one.in_deviations.low), abs(one.in_deviations.high)) for one in found.values())
    caught = min(one.p for one in fault.values())
    finding = (f"smallest of {len(found)} KS p {p:.2g}, means differ by at most {width:.2f} deviations; planted fault: "
               f"p {'below 1e-300' if caught < 1e-300 else f'{caught:.0e}'}")
    return Evidence(_verdict(not any(one.differs for one in found.values())), finding, p)


DRAWS = 40


def spreads(d: float, d_h: float, draws: int = DRAWS) -> dict[str, Interval]:
    """Mean squares that the law puts at 1 at every d and d_h: of token norms, of cosines, of initial logits.

    |xi|^2 / sigma^2 varies by 2 (d - 2), cos^2 has mean 1 / (d - 2), and a logit has variance
    sigma_h^4 |x|^2 |x'|^2 d_h given its tokens. Intervals over draws, at the level 0.99.
    """
    law = data.SignalNoise(n_tokens=4, d=d, signal_norm=1.0, sigma_p=0.2, sigma_p_tilde=1.0)
    found = {"norms": [], "cosines": [], "logits": []}
    scales = np.tile(law.noise_scales(), N) ** 2
    pairs = np.triu_indices(len(scales), 1)
    for seed in range(draws):
        problem = draw.draw(law, N, d_h, GaussianInit(sigma_h=1.0, sigma_v=1.0), 1, seed)
        queries, keys, _ = (part[0].unflatten(0, (N, 4))[:, 1:].flatten(0, 1).numpy() for part in
                            problem.train.start.parts)
        products = problem.train.cross[0].unflatten(0, (N, 4))[:, 1:].flatten(0, 1).unflatten(1, (N, 4))[:, :, 1:]
        products = products.flatten(1, 2).numpy()
        norms = products.diagonal()
        lengths = np.sqrt(norms)
        found["norms"].append(np.mean((norms / scales - (d - 2)) ** 2) / (2 * (d - 2)))
        found["cosines"].append(np.mean((products / np.outer(lengths, lengths))[pairs] ** 2) * (d - 2))
        found["logits"].append(np.mean((queries @ keys.T / np.outer(lengths, lengths)) ** 2) / d_h)
    return {name: mean_interval(values, level=0.99) for name, values in found.items()}


def any_dimension() -> Evidence:
    """The draw at d = 10^16, d_h = 10^9."""
    found = spreads(1e16, 1e9)
    finding = ", ".join(f"{name} {format_interval(i)}" for name, i in found.items())
    return Evidence(_verdict(all(1 in i for i in found.values())), f"mean squares over the law's: {finding}")


FLOW_SEEDS = range(8)
FLOW_STEPS = (100, 200, 400, 800)


def flow_errors() -> pd.DataFrame:
    """Descent at four rates against flow at the same time eta t: a row a seed and rate, errors of three quantities."""
    rows = []
    for seed in FLOW_SEEDS:
        problem = simulation.build(REDUCED, "drawn", [seed])
        end = flow.gradient_flow(problem, epsilon=REDUCED.epsilon, tolerance=1e-9)
        wanted, time = observe(problem, end.coefficients), float(end.time)
        for steps in FLOW_STEPS:
            found = training.gradient_descent(problem, eta=time / steps, epsilon=1e-300, max_steps=steps)
            seen = observe(problem, found.coefficients)
            rows.append({"seed": seed, "eta": time / steps} | {
                name: abs(float(seen[name] - wanted[name])) for name in ("train_loss", "test_loss", "v_xi2")})
    return pd.DataFrame(rows)


def flow_order() -> Evidence:
    """The power of eta with which descent approaches its flow, the mean over quantities, interval over seeds."""
    orders = [np.mean([np.polyfit(np.log(rows["eta"]), np.log(rows[name]), 1)[0]
                       for name in ("train_loss", "test_loss", "v_xi2")]) for _, rows in flow_errors().groupby("seed")]
    i = mean_interval(orders)
    return Evidence.of(_verdict(i.low >= 0.9 and i.high <= 1.1), f"order {format_interval(i, 3)}", i)


def _claim(id: str, statement: str, check, quantity: str, tolerance: str = "rounding over the steps: 1e-9",
           kind: str = "exact", seeds: Sequence[int] = (0,)) -> Claim:
    return Claim(id=id, statement=statement, where="ours", kind=kind, quantity=quantity, tolerance=tolerance,
                 chapter="reduction", expected=HOLDS, check=check, seeds=tuple(seeds))


CLAIMS = (
    _claim("exact-reduction", "Reduced training is training on eq. (1)", exact_reduction,
           "difference of losses and outputs"),
    _claim("weights-restored", "The full weights can be had back", weights_restored,
           "relative difference of weights"),
    _claim("hidden-2K", "A hidden space of $2K$ dimensions is enough", hidden_space,
           "difference of losses"),
    _claim("drawn-in-law", "The direct draw has the law of the reduced problem", drawn_in_law,
           "KS p and difference of means, seven quantities", "5 % for all 14 comparisons together (Bonferroni)",
           "statistical", seeds=()),  # thousands; they are in the table
    _claim("any-dimension", "At $d = 10^{16}$, $d_h = 10^9$ drawn norms, cosines and logits spread as their law says",
           any_dimension, "mean squares over the law's", "99 % intervals over draws", "statistical",
           seeds=range(DRAWS)),
    _claim("flow-order", "Gradient descent approaches its flow at first order in $\\eta$", flow_order,
           "log-log slope of the differences over the rate", "0.1: four rates are no limit", "scaling",
           seeds=FLOW_SEEDS),
)
