"""The setting: the data, the transformer and its gradients."""

import functools
import math
from collections.abc import Callable, Sequence

import numpy as np
import sympy as sp
import torch
from scipy import stats

from vitbo_lib import data, draw, simulation, span, symbolic, training, transformer
from vitbo_lib.claims import CONSTANT, DIFFERS, HOLDS, Claim, Evidence
from vitbo_lib.initialization import GaussianInit
from vitbo_lib.intervals import Interval, difference_interval, format_interval, proportion_interval
from vitbo_lib.seeds import stream
from vitbo_lib.transformer import Weights

ROUNDING = 1e-12  # relative, for sums of a few hundred numbers in float64
LITTLE = 0.05  # a change of the test loss that counts as little
EXAMPLE = data.SignalNoise(n_tokens=4, d=2048, signal_norm=25.0, sigma_p=0.05, sigma_p_tilde=1.0)  # App. A, benign
N, DELTA = 16, 0.01


def _verdict(right: bool) -> str:
    return HOLDS if right else DIFFERS


def _sampled(law: data.SignalNoise, n_samples: int, seed: int = 0) -> data.DataSet:
    return data.sample(law, n_samples, stream(seed, "train", "labels"), stream(seed, "train", "noise"))


# ------------------------------------------------------------------------------------------------------------- the data

def orthogonal() -> Evidence:
    """Largest inner product of a signal with a noise token, projected and, for contrast, not."""
    largest = {}
    for project in (True, False):
        law = data.SignalNoise(**(vars(EXAMPLE) | {"project": project}))
        points = _sampled(law, N)
        largest[project] = float((points.noise @ points.signals.T).abs().max())
    finding = f"largest inner product {largest[True]:g}; without the projector {largest[False]:.0f}"
    return Evidence(_verdict(largest[True] == 0 and largest[False] > 1), finding, largest[True])


def projector() -> Evidence:
    """Pi for two signals in general position, and the rank of sampled noise."""
    d, norm = 60, 3.0
    signals = np.linalg.qr(stream(0, "projector").standard_normal((d, 2)))[0].T * norm
    pi = np.eye(d) - signals.T @ signals / norm**2
    off = max(abs(pi @ pi - pi).max(), abs(np.trace(pi) - (d - 2)), abs(pi @ signals.T).max())
    law = data.SignalNoise(n_tokens=4, d=d, signal_norm=norm, sigma_p=0.2, sigma_p_tilde=1.0)
    rank = int(torch.linalg.matrix_rank(_sampled(law, 40).noise.flatten(0, 1)))
    return Evidence(_verdict(off < ROUNDING and rank == d - 2),
                    f"Π² = Π, its trace and Πμ = 0 to {off:.0e}; 120 noise tokens in d = {d} have rank {rank}", off)


def uneven(n_samples: int) -> float:
    """Probability that a class has fewer than N/4 samples, exactly."""
    few = math.ceil(n_samples / 4) - 1  # the largest number below N/4
    return float(min(1.0, 2 * stats.binom.cdf(few, n_samples, 0.5)))


def class_balance() -> Evidence:
    """The exact probability against the bound 4 exp(-N/8), and sampled labels against the exact probability."""
    sizes = range(1, 1501)
    share = max(uneven(n) / (4 * math.exp(-n / 8)) for n in sizes)
    sets = 4000
    found = [int((data.sample_labels(N, stream(0, "class balance", k)) > 0).sum()) for k in range(sets)]
    seen = proportion_interval(sum(min(n, N - n) < N / 4 for n in found), sets, level=0.999)
    finding = (f"exactly, N = 1 to {max(sizes)}: at most {share:.2f} of the bound; {sets} sets of labels at N = {N}: "
               f"{seen.mean:.4f}, exactly {uneven(N):.4f}")
    return Evidence(_verdict(share <= 1 and uneven(N) in seen), finding, share)


C4_SETS, C4_DIMENSIONS = 400, (32, 64, 128, 256, 2048)


def lemma_c_4(d: int, sets: int = C4_SETS) -> tuple[int, int]:
    """How many of `sets` data sets break the bounds of Lemma C.4 at dimension d: on norms, on inner products."""
    M = EXAMPLE.n_tokens
    scales = np.tile(EXAMPLE.noise_scales(), N)
    rows = draw.gaussian_factor(N * (M - 1), d - 2, stream(0, "lemma C.4", d), (sets,)) * scales[:, None]
    products = rows @ rows.swapaxes(-1, -2)
    norms = np.diagonal(products, axis1=-2, axis2=-1) / (scales**2 * d)
    cross = np.abs(products[:, *np.triu_indices(len(scales), 1)])
    bound = 2 * EXAMPLE.sigma_p_tilde**2 * math.sqrt(d * math.log(4 * N**2 * M**2 / DELTA))
    return int((np.abs(norms - 1) > 0.5).any(1).sum()), int((cross > bound).any(1).sum())


def norms_and_products() -> Evidence:
    """From which dimension on the bounds of Lemma C.4 hold with probability 1 - delta."""
    failures = {d: sum(lemma_c_4(d)) for d in C4_DIMENSIONS}
    shares = {d: proportion_interval(min(count, C4_SETS), C4_SETS) for d, count in failures.items()}
    large = C4_DIMENSIONS[-1]
    verdict = DIFFERS if shares[large].low > DELTA or failures[large] else (
        CONSTANT if max(failures.values()) else HOLDS)
    log = math.log(4 * N * EXAMPLE.n_tokens / DELTA)
    finding = ", ".join(f"{failures[d]} of {C4_SETS} sets at d = {d}" for d in C4_DIMENSIONS)
    return Evidence(verdict, f"outside: {finding}; the logarithm is {log:.1f}", shares[large].mean)


LEAKY = data.SignalNoise(n_tokens=3, d=200, signal_norm=3.0, sigma_p=0.1, sigma_p_tilde=0.6)


def projected_or_not(pairs: int = 60) -> dict[str, Interval | float]:
    """Runs without the projector minus runs with it, same seeds: differences of `test_loss` and `steps`, and means."""
    both = []
    for project in (True, False):
        chosen = data.SignalNoise(**(vars(LEAKY) | {"project": project}))
        setting = simulation.Setting(law=chosen, n_samples=12, d_h=100, d_v=4, eta=0.3, epsilon=0.05, n_test=200,
                                     init=GaussianInit(sigma_h=0.05, sigma_v=0.02))
        both.append(simulation.simulate(setting, range(pairs), engine="reduced"))
    projected, not_projected = both
    return {name: difference_interval(not_projected[name], projected[name], paired=True)
            for name in ("test_loss", "steps")} | {"mean_loss": float(projected["test_loss"].mean()),
                                                   "mean_steps": float(projected["steps"].mean())}


def projector_matters_little() -> Evidence:
    """The change of the test loss."""
    found = projected_or_not()["test_loss"]
    finding = f"test loss changes by {format_interval(found, 3)} ({found.n} pairs)"
    return Evidence.of(_verdict(max(abs(found.low), abs(found.high)) < LITTLE), finding, found)


# ------------------------------------------------------------------------------------------------------ the transformer

def bounded_output() -> Evidence:
    """Room between |f| and the largest |V| over random networks, as a share of the latter."""
    rng, networks, room = stream(0, "properties"), 1000, math.inf
    for _ in range(networks):
        tokens, scale = int(rng.integers(2, 7)), 10 ** rng.uniform(-1, 1)
        x = torch.as_tensor(rng.standard_normal((1, tokens, 5)))
        w = Weights(*(torch.as_tensor(rng.standard_normal(shape) * scale) for shape in ((5, 3), (5, 3), (5, 2), (2,))))
        queries, keys, values = transformer.project(x, w)
        f = transformer.outputs(transformer.attention(queries, keys), values)[1]
        room = min(room, 1 - float(f.abs().max() / values.abs().max()))
    return Evidence(_verdict(room > -ROUNDING), f"{networks} random networks: at most {1 - room:.4f} of it", room)


def slope_of_the_loss() -> Evidence:
    """The derivative: by sympy, and of the library's loss."""
    z = sp.Symbol("z", real=True)
    proved = sp.simplify(sp.diff(sp.log(1 + sp.exp(-z)), z) + 1 / (1 + sp.exp(z))) == 0
    margins = torch.linspace(-30.0, 30.0, 601, dtype=torch.float64, requires_grad=True)
    slope, = torch.autograd.grad(transformer.sample_losses(margins, torch.ones_like(margins)).sum(), margins)
    off = float((slope + 1 / (1 + margins.detach().exp())).abs().max())
    inside = bool(((slope > -1) & (slope < 0)).all())
    return Evidence(_verdict(proved and inside and off < ROUNDING),
                    f"by sympy; the library's loss has it to {off:.0e} from z = -30 to 30", off)


def jacobian() -> Evidence:
    """Eq. (5), by sympy."""
    return Evidence(_verdict(symbolic.softmax_jacobian().holds), "by sympy, three tokens")


def jacobian_as_printed() -> Evidence:
    """The last line of eq. (4), without its minus."""
    right = symbolic.softmax_jacobian(off_diagonal_sign=+1).holds
    return Evidence(_verdict(right), "as printed" if right else "by sympy: the minus is missing")


def jacobian_signs() -> Evidence:
    """Signs, sums and eigenvalues of the derivative of the library's attention at random logits."""
    worst = {"diagonal": math.inf, "off": -math.inf, "sum": 0.0, "eigenvalue": math.inf}
    count = 400
    for tokens in range(2, 7):
        logits = torch.as_tensor(stream(0, "softmax", tokens).standard_normal((count, 1, tokens))).requires_grad_()
        phi = transformer.attention(logits, torch.eye(tokens, dtype=torch.float64).expand(count, -1, -1))[:, 0]
        rows = [torch.autograd.grad(phi[:, i].sum(), logits, retain_graph=True)[0][:, 0] for i in range(tokens)]
        J = torch.stack(rows, dim=1)
        off = J[:, ~torch.eye(tokens, dtype=torch.bool)]
        worst["diagonal"] = min(worst["diagonal"], float(J.diagonal(dim1=1, dim2=2).min()))
        worst["off"] = max(worst["off"], float(off.max()))
        worst["sum"] = max(worst["sum"], float(J.sum(1).abs().max()), float(J.sum(2).abs().max()))
        worst["eigenvalue"] = min(worst["eigenvalue"], float(torch.linalg.eigvalsh((J + J.mT) / 2).min()))
    right = (worst["diagonal"] > 0 > worst["off"] and worst["sum"] < ROUNDING and worst["eigenvalue"] > -ROUNDING)
    return Evidence(_verdict(right), f"{5 * count:,} random softmaxes; sums at most {worst['sum']:.0e}, eigenvalues at "
                    f"least {worst['eigenvalue']:.0e}", worst["sum"])


def uneven_problem() -> tuple[data.DataSet, Weights]:
    """Samples, and weights that are far from a small start: attention is uneven, so that every term counts."""
    law = data.SignalNoise(n_tokens=4, d=60, signal_norm=3.0, sigma_p=0.1, sigma_p_tilde=0.6)
    rng = stream(1, "gradients")
    shapes, scales = ((60, 80), (60, 80), (60, 8), (8,)), (0.2, 0.2, 0.3, 1.0)
    weights = Weights(*(torch.as_tensor(rng.standard_normal(shape) * scale) for shape, scale in zip(shapes, scales)))
    return _sampled(law, 12, seed=10), weights


def autograd(X: torch.Tensor, y: torch.Tensor, w: Weights) -> tuple[torch.Tensor, ...]:
    """Gradients of W_Q, W_K, W_V by automatic differentiation of eq. (1) and its loss, written out."""
    leaves = [part.clone().requires_grad_() for part in (w.w_q, w.w_k, w.w_v)]
    f = transformer.forward(X, Weights(*leaves, w.w_o))
    return torch.autograd.grad(torch.log1p(torch.exp(-y * f)).mean(), leaves)


def central_differences(X: torch.Tensor, y: torch.Tensor, w: Weights, name: str, claimed: torch.Tensor,
                        entries: int = 20, step: float = 1e-5) -> float:
    """Largest error of the `claimed` gradient of W_`name` at random entries, relative to its largest entry."""
    part, errors, rng = getattr(w, name), [], stream(0, "central differences", name)
    for i, j in zip(*(rng.integers(side, size=entries) for side in part.shape)):
        kept, values = float(part[i, j]), []
        for moved in (kept + step, kept - step):
            part[i, j] = moved
            values.append(float(transformer.loss(X, y, w)))
        part[i, j] = kept
        errors.append(abs((values[0] - values[1]) / (2 * step) - float(claimed[i, j])))
    return max(errors) / float(claimed.abs().max())


def relative(one: torch.Tensor, other: torch.Tensor) -> float:
    """Largest difference, relative to the largest entry of `other`."""
    return float((one - other).abs().max() / other.abs().max())


@functools.cache
def _proved(derivation: Callable[[], symbolic.Derivation]) -> bool:
    return derivation().holds


def gradient(name: str) -> Evidence:
    """The library's closed form of one gradient against autograd and central differences; the lemma by sympy."""
    points, w = uneven_problem()
    X, y = points.tokens, points.labels
    closed = getattr(transformer.gradients(X, y, w)[1], name)
    off = relative(closed, autograd(X, y, w)[("w_q", "w_k", "w_v").index(name)])
    coarse = central_differences(X, y, w, name, closed)
    right = off < ROUNDING and coarse < 1e-6 and _proved(symbolic.lemma_b_1)
    return Evidence(_verdict(right), f"{off:.0e} from autograd, {coarse:.0e} from central differences; by sympy at "
                    "N = M = d = 2", off)


def gradient_as_printed() -> Evidence:
    """Lemma B.1 as first stated: a minus before the noise queries in the gradient of W_Q."""
    right = symbolic.lemma_b_1(noise_sign=-1).holds
    points, w = uneven_problem()
    X, y = points.tokens, points.labels
    queries, keys, values = transformer.project(X, w)
    _, at_tokens = transformer.token_gradients(transformer.attention(queries, keys), values, y)
    signs = torch.tensor([1.0, -1.0, -1.0, -1.0], dtype=X.dtype)
    printed = X.flatten(0, 1).T @ (signs[:, None] * (at_tokens.logits @ keys)).flatten(0, 1)
    off = relative(printed, autograd(X, y, w)[0])
    return Evidence(_verdict(right), f"off by {off:.2f} of the largest entry; by sympy no gradient", off)


def value_update(points: data.DataSet, w: Weights, eta: float) -> torch.Tensor:
    """What one step adds to gamma of both signals and to rho of every noise token (K), by Lemma B.2."""
    queries, keys, values = transformer.project(points.tokens, w)
    phi, y = transformer.attention(queries, keys), points.labels
    samples, tokens = phi.shape[:2]
    pull = y * torch.sigmoid(-y * transformer.outputs(phi, values)[1])  # y (-l')
    received = phi.sum(-2)  # sum over l of p_{n,l,j}
    squared = points.signals.square().sum(1)
    at_signals = [eta * squared[k] / (samples * tokens) * (pull * received[:, 0])[y == sign].sum()
                  for k, sign in enumerate((1, -1))]
    noise = points.noise.flatten(0, 1)
    at_noise = eta / (samples * tokens) * (noise @ noise.T) @ (pull[:, None] * received[:, 1:]).flatten()
    return torch.cat([torch.stack(at_signals), at_noise])


def value_rule() -> Evidence:
    """One step with all weights against the rule, from weights where nothing is even."""
    points, w = uneven_problem()
    eta, tokens = 0.7, points.distinct_tokens
    after, _, _ = training.full_gradient_descent(points, w, eta=eta, epsilon=1e-12, max_steps=1)
    moved = tokens @ (after.value_direction - w.value_direction) / (w.w_o @ w.w_o)
    off = relative(moved, value_update(points, w, eta))
    return Evidence(_verdict(off < ROUNDING), f"one step of all weights: {off:.0e} from the rule", off)


RUNS, STEPS = 20, 300


def signed_steps(runs: int = RUNS, steps: int = STEPS) -> tuple[torch.Tensor, torch.Tensor]:
    """y times every step of the signals' values (T 2R N) and of the noise's (T 2R N M-1), strong signal and weak."""
    found = []
    for k, norm in enumerate((4.0, 1.0), 1):
        law = data.SignalNoise(n_tokens=4, d=60, signal_norm=norm, sigma_p=0.1, sigma_p_tilde=0.6)
        setting = simulation.Setting(law=law, n_samples=12, d_h=80, d_v=8, eta=0.1, epsilon=0.02, n_test=1,
                                     init=GaussianInit(sigma_h=0.05, sigma_v=0.02))
        problem = simulation.build(setting, "drawn", range(100 * k, 100 * k + runs))
        labels = problem.train.labels
        if not bool((labels.sum(1).abs() < labels.shape[1]).all()):
            raise ValueError("a class without a sample: its gamma does not move; choose other seeds")
        descent, values = training.Descent(problem), []
        for _ in range(steps + 1):
            descent.evaluate()
            values.append(span.projections(problem.train, descent.coefficients).values.unflatten(1, (-1, 4)))
            descent.step(setting.eta)
        found.append(torch.stack(values).diff(dim=0) * labels[..., None])
    both = torch.cat(found, dim=1)
    return both[..., 0], both[..., 1:]


def signals_never_turn_back() -> Evidence:
    """The smallest step of a signal's value in the direction of its label."""
    signals, noise = signed_steps()
    smallest, back = float(signals.min()), float((noise < 0).double().mean())
    finding = (f"{len(signals) * signals.shape[1]:,} steps of {signals.shape[1]} runs, the smallest {smallest:.0e}; of "
               f"noise {100 * back:.0f} % go back")
    return Evidence(_verdict(smallest > 0), finding, smallest)


# ---------------------------------------------------------------------------------------------------------- the claims

DATA, TRANSFORMER = "data", "transformer"
EXACT = "rounding: 1e-12"


def _claim(id: str, statement: str, where: str, chapter: str, check, quantity: str, tolerance: str = EXACT,
           kind: str = "exact", expected: str = HOLDS, seeds: Sequence[int] = (0,)) -> Claim:
    return Claim(id=id, statement=statement, where=where, kind=kind, quantity=quantity, tolerance=tolerance,
                 chapter=chapter, expected=expected, check=check, seeds=tuple(seeds))


CLAIMS = (
    _claim("C01", "Noise is orthogonal to both signals", "Definition 3.1", DATA, orthogonal,
           "largest inner product of noise and signal", "none: exact on the axes"),
    _claim("C02", "$\\Pi$ is a projector of rank $d - 2$", "Definition 3.1", DATA, projector,
           "Π² - Π, trace, rank of sampled noise"),
    _claim("C20", "Each class has between $N/4$ and $3N/4$ samples, with probability $1 - 4e^{-N/8}$", "Lemma C.1",
           DATA, class_balance, "exact probability over the bound", "1; sampled labels: 99.9 % interval",
           "statistical"),
    _claim("C24", "Norms of noise tokens are within 1/2 to 3/2 of $\\sigma^2 d$, inner products below the bound, once "
           "$d = \\Omega(\\log(4NM/\\delta))$", "Lemma C.4", DATA, norms_and_products, "share of data sets outside",
           "δ = 0.01", "statistical", CONSTANT),
    _claim("C87", "Projected or not, the test loss changes by less than 0.05", "ours; the paper uses both", DATA,
           projector_matters_little, "difference of the test loss", "0.05, outside the 95 % interval of pairs",
           "statistical", seeds=range(60)),
    _claim("C04", "$\\abs{f} \\le \\max_j \\abs{V_{n,j}}$", "App. D.1", TRANSFORMER, bounded_output,
           "smallest room, as a share of max |V|"),
    _claim("C05", "$\\ell'(z) = -1/(1 + e^z)$, in $(-1, 0)$", "Section 3", TRANSFORMER, slope_of_the_loss,
           "derivative of the loss", kind="symbolic", seeds=()),
    _claim("C06", "The Jacobian of softmax", "eq. (5)", TRANSFORMER, jacobian, "an identity", "none: exact algebra",
           "symbolic", seeds=()),
    _claim("print-eq-4", "The derivative of softmax, last line", "eq. (4)", TRANSFORMER, jacobian_as_printed,
           "an identity", "none: exact algebra", "symbolic", DIFFERS, ()),
    _claim("C07", "That Jacobian has a positive diagonal, else negative entries, sums of 0, no negative eigenvalue",
           "Section 5.2, F.12", TRANSFORMER, jacobian_signs, "signs, sums, eigenvalues"),
    _claim("C08", "$\\nabla_{W_Q} L_S$", "Lemma B.1, as in eq. (178)", TRANSFORMER, lambda: gradient("w_q"),
           "relative distance from autograd", seeds=(1, 10)),
    _claim("print-B.1", "$\\nabla_{W_Q} L_S$ with a minus before the noise queries", "Lemma B.1, first statement",
           TRANSFORMER, gradient_as_printed, "relative distance from autograd", kind="symbolic", expected=DIFFERS,
           seeds=(1, 10)),
    _claim("C09", "$\\nabla_{W_K} L_S$", "Lemma B.1", TRANSFORMER, lambda: gradient("w_k"),
           "relative distance from autograd", seeds=(1, 10)),
    _claim("C10", "$\\nabla_{W_V} L_S$", "Lemma B.1", TRANSFORMER, lambda: gradient("w_v"),
           "relative distance from autograd", seeds=(1, 10)),
    _claim("C15", "The update rule of $\\gamma_V$ and $\\rho_V$", "Lemma B.2", TRANSFORMER, value_rule,
           "relative distance of one step from the rule", seeds=(1, 10)),
    _claim("C16", "$\\gamma_{V,+}$ rises and $\\gamma_{V,-}$ falls at every step, if the class has a sample",
           "Lemma B.2, Claim 1", TRANSFORMER, signals_never_turn_back, "smallest signed step", "0",
           seeds=(*range(100, 100 + RUNS), *range(200, 200 + RUNS))),
)
