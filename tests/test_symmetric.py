"""The symmetric limit: its equations against the exact flow, its search, its laws, its figures."""

import contextlib
import math

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.integrate import solve_ivp

from vitbo_lib import regime, symmetric, symmetric_algebra, symmetric_drawn, symmetric_explicit
from vitbo_lib.errors import UserError
from vitbo_lib.evidence import symmetric as evidence
from vitbo_lib.figures import style
from vitbo_lib.figures import symmetric as figures
from vitbo_lib.side_by_side import integrate
from vitbo_lib.symmetric_flow import MU, WEAK, XI2, Flow, Limit


def limit(tokens=4, n=6, ratio=4.0, gain=20.0):
    return Limit(n_samples=n, tokens=tokens, ratio=ratio, gain=gain)


# ---- the flow

@pytest.mark.parametrize("tokens", [2, 3, 5])
def test_closed_flow_is_the_flow_of_all_coefficients(tokens):
    assert symmetric_explicit.disagreement(limit(tokens, n=4)) < 1e-6


def test_a_wrong_number_of_samples_is_seen(monkeypatch):
    monkeypatch.setattr(Limit, "of_class", property(lambda self: self.n_samples / 2 + 1))
    assert symmetric_explicit.disagreement(limit(3, n=4)) > 1e-3


@pytest.mark.parametrize("tokens", [2, 3, 4])
def test_blocks_are_those_of_the_matrix_of_all_tokens(tokens):
    """B written out for all tokens of a class and turned into the block basis, against `forces`."""
    flow, n, m = Flow(limit(tokens)), 3, tokens - 2
    beta = np.random.default_rng(0).standard_normal((1, 3, 4))
    size = 1 + n * (1 + m)
    whole = np.zeros((size, size))
    whole[0, 0] = n * beta[0, MU, MU]
    for k in range(n):
        xi = 1 + k * (1 + m)
        weak = range(xi + 1, xi + 1 + m)
        whole[0, xi], whole[xi, 0], whole[xi, xi] = beta[0, MU, XI2], beta[0, XI2, MU], beta[0, XI2, XI2]
        for i in weak:
            whole[0, i], whole[i, 0] = beta[0, MU, WEAK], beta[0, WEAK, MU]
            whole[xi, i], whole[i, xi] = beta[0, XI2, WEAK], beta[0, WEAK, XI2]
            for j in weak:
                whole[i, j] = beta[0, WEAK, WEAK if i == j else WEAK + 1]
    found = np.sort(np.linalg.eigvals(whole).real)
    blocks = flow.forces(np.array([0]), beta)
    copies = (1, n - 1, n * (m - 1))
    expected = np.sort(np.concatenate([np.tile(np.linalg.eigvals(b[0]).real, c) for b, c in zip(blocks, copies)]))
    assert found == pytest.approx(expected, abs=1e-9)


def pattern(tokens, symmetric_types, rng):
    """A matrix of the pattern with random entries; nothing between the classes."""
    values, found = {}, np.zeros((len(tokens), len(tokens)))
    for i, a in enumerate(tokens):
        for j, b in enumerate(tokens):
            if a[1] != b[1]:
                continue
            kinds = a[0] + b[0]
            if symmetric_types:
                kinds = "".join(sorted(kinds, key="mxw".index))
            near = "" if "m" in kinds else "other" if a[2] != b[2] else "same" if a == b else "sample"
            found[i, j] = values.setdefault((kinds, near), 0.4 * rng.standard_normal())
    return found


@pytest.mark.parametrize(("n", "tokens"), [(4, 2), (4, 3), (4, 4), (6, 4), (4, 6)])
def test_velocity_at_random_symmetric_states_is_that_of_all_tokens(n, tokens):
    """P, A, C of all tokens at random, autograd for the derivative of the loss, the flow in full matrices."""
    rng, ratio, gain = np.random.default_rng(n + tokens), 2.7, 5.0
    problem = Limit(n_samples=n, tokens=tokens, ratio=ratio, gain=gain, c_p_squared=3.7)
    every = [("m", k, -1, -1) for k in (0, 1)]
    every += [("x" if i == 0 else "w", k % 2, k, i) for k in range(n) for i in range(tokens - 1)]
    energy = np.array([problem.energies["mxw".index(token[0])] for token in every])
    p, a, c = (pattern(every, alike, rng) for alike in (False, True, True))
    v = rng.standard_normal(3) * [1, 1, tokens > 2]
    signed = np.array([v["mxw".index(token[0])] * (1 - 2 * token[1]) for token in every])
    logits, values = (torch.tensor(part, requires_grad=True) for part in (p, signed))
    loss = 0.0
    for k in range(n):
        rows = [k % 2, *range(2 + k * (tokens - 1), 2 + (k + 1) * (tokens - 1))]
        f = (torch.softmax(logits[rows][:, rows], -1) @ values[rows]).mean()
        loss = loss + torch.nn.functional.softplus(-(1 - 2 * (k % 2)) * f) / n
    b, u = (-part.numpy() for part in torch.autograd.grad(loss, (logits, values)))
    d = np.diag(energy)
    moved = d @ b @ c + a @ b @ d, d @ b @ p.T + p @ b.T @ d, d @ b.T @ p + p.T @ b @ d
    one = [i for i, token in enumerate(every) if token[1] == 0]
    own = [every[i] for i in one]

    def column(weight):
        vector = np.array([weight(token) for token in own], dtype=float)
        return vector / np.linalg.norm(vector)

    kinds = "mxw"[: min(tokens, 3)]
    columns = [np.stack([column(lambda t, k=k: t[0] == k) for k in kinds], 1),
               np.stack([column(lambda t, k=k: (t[0] == k) * {0: 1, 2: -1}.get(t[2], 0)) for k in kinds[1:]], 1)]
    if tokens > 3:
        columns.append(column(lambda t: (t[0] == "w" and t[2] == 0) * {1: 1, 2: -1}.get(t[3], 0))[:, None])
    shrink = np.diag(energy[one] ** -0.5)

    def packed(head, matrices, origin):
        parts = [head]
        for basis in columns:
            for matrix, scale in zip(matrices, (1.0, gain, gain)):
                small = basis.T @ shrink @ matrix[np.ix_(one, one)] @ shrink @ basis / scale
                parts.append((small - origin * (scale != 1) * np.eye(len(small))).ravel())
        return np.concatenate(parts)

    speed = energy * u
    heads = np.array([speed[0], speed[2], speed[3] if tokens > 2 else 0.0])
    found = Flow(problem).velocity(np.array([0]), packed(v, (p, a, c), 1)[None])[0]
    expected = packed(heads, moved, 0)
    assert found == pytest.approx(expected, abs=1e-12 * np.abs(expected).max())


def test_attention_adds_up_and_even_at_the_start():
    flow = Flow(limit(5))
    state, = flow.states(np.zeros(1), flow.start())
    assert state.attention[:, :3] == pytest.approx(np.full((3, 3), 0.2))
    assert state.train_loss == pytest.approx(math.log(2))
    end, = flow.to_loss(0.01)
    assert (flow.counts * end.attention).sum(1) == pytest.approx(np.ones(3))
    assert end.train_loss == pytest.approx(0.01, rel=1e-6)


def test_many_at_once_are_those_one_by_one():
    ratios = [1.0, 2.5, 6.0]
    together = symmetric.ends(16, 4, ratios)
    for ratio, state in zip(ratios, together):
        alone, = symmetric.ends(16, 4, [ratio])
        assert state.test_loss == pytest.approx(alone.test_loss, abs=1e-6)


def test_no_margin_survives_a_wrong_question():
    with pytest.raises(UserError, match="odd"):
        Limit(n_samples=5, tokens=3, ratio=1.0)
    with pytest.raises(UserError, match="one M"):
        Flow(limit(3), limit(4))
    with pytest.raises(UserError, match="infinite gain"):
        Flow(Limit(n_samples=4, tokens=3, ratio=1.0)).to_loss(0.01)
    with pytest.raises(UserError, match="log 2"):
        Flow(limit()).to_loss(0.7)
    with pytest.raises(UserError, match="ratio"):
        Limit(n_samples=4, tokens=3, ratio=-1.0)


def test_integrator_stops_exactly_where_it_should():
    start = np.array([[1.0, 0.0], [2.0, 0.0]])
    times, states, met = integrate(lambda _, y: np.stack([y[:, 1], -y[:, 0]], axis=1), lambda _, y: y[:, 0], start,
                                   np.full(2, 0.1), np.full(2, 9.0), 1e-9, np.full((2, 2), 1e-12))
    assert met.all()
    assert times == pytest.approx(np.full(2, math.pi / 2), abs=1e-7)
    assert states[:, 1] == pytest.approx([-1, -2], abs=1e-7)


# ---- the constant

def test_gain_is_that_of_the_smallest_problem():
    for n, m, ratio in ((64, 2, 0.5), (16, 4, 3.0), (8, 8, 20.0)):
        p = regime.parameters(n, m, regime.snr_at(ratio, n, m))
        assert symmetric.condition_gain(n, m, ratio) == pytest.approx(p.sigma_h**2 * p.d_h, rel=1e-4)


def test_two_at_two_tokens_and_more_at_three():
    assert symmetric.infinite_gain_constant(16, 2) == pytest.approx(2, rel=1e-3)
    found = symmetric.constants(16, 3)
    assert 2.3 < found["loss"] < found["mu"] < found["xi2"] <= found["weak"] < 2.7
    assert found["infinite"] == pytest.approx(found["attention"], rel=1e-2)


def test_search_finds_every_change_and_says_where_there_is_none():
    criteria = {"a": lambda r: r > 3, "b": lambda r: r > 7, "never": lambda r: r > 11}
    found = symmetric.search(lambda ratios: ratios, criteria, 1.0, 10.0)
    assert (found["a"], found["b"]) == (pytest.approx(3, rel=1e-4), pytest.approx(7, rel=1e-4))
    assert math.isnan(found["never"])


@pytest.mark.parametrize("law", ["logarithm", "power", "saturating"])
def test_each_law_is_recognised(law):
    n = np.array([4.0, 8, 16, 64, 256, 1e4, 1e6, 1e10])
    made = {"logarithm": 2 + 0.3 * np.log(n), "power": 1.5 * n**0.2, "saturating": 6 - 4 / (1 + (n / 40) ** 0.7)}[law]
    found = symmetric.fits(n, made)
    assert min(found, key=lambda name: found[name].aic) == law
    assert found[law].residual < 1e-3 < found["constant"].residual


def test_no_fit_without_numbers():
    with pytest.raises(UserError, match="no fit"):
        symmetric.fits([4, 8, 16, 32], [2, 3, math.nan, 4])


def test_break_evens_stand_in_sympy():
    parts = symmetric_algebra.largest_constant().parts
    assert str(parts["root"]) == "2*(M - 1)"
    assert not symmetric_algebra.closed_system(alike=False).holds


def only_noise_logits_move(ratio, tokens):
    """N infinite, written out by hand: whether the query of xi_2 ends on its own key rather than off it.

    Logits between noise tokens of a sample move at E_a E_b, of order N^2; those with mu, of order N, stay 0.
    """
    weak, w = tokens - 2, 1 / (25 * tokens)

    def attend(logits, counts):
        weights = np.exp(np.array(logits) - max(logits))
        return weights / (counts @ weights)

    at_xi, at_weak = np.array([1, 1, weak]), np.array([1, 1, 1, weak - 1])

    def velocity(_, u):
        v = np.array([u[0], u[1], u[2], u[2]])
        xi, one = attend([0, u[3], u[4]], at_xi), attend([0, u[5], u[6], u[7]], at_weak)
        read_xi, read_one = at_xi * xi @ v[:3], at_weak * one @ v
        seen = [1 / tokens + xi[k] + weak * one[k] for k in (0, 1)]
        seen.append(1 / tokens + xi[2] + one[2] + (weak - 1) * one[3])
        return [ratio / 2 * seen[0], seen[1], w * seen[2], xi[1] * (v[1] - read_xi), w * xi[2] * (v[2] - read_xi),
                w * one[1] * (v[1] - read_one), w**2 * one[2] * (v[2] - read_one), w**2 * one[3] * (v[2] - read_one)]

    def on(_, u):
        return u[3] - u[4] - 8

    def off(_, u):
        return u[3] + 8

    on.terminal = off.terminal = True
    end = solve_ivp(velocity, (0, 1e7), np.zeros(8), method="LSODA", rtol=1e-8, atol=1e-11, events=[on, off])
    return len(end.t_events[0]) > 0


@pytest.mark.parametrize("tokens", [3, 4, 8])
def test_constant_at_large_n_is_that_of_the_limit_written_out(tokens):
    c = float(symmetric.of_tokens(symmetric.load(), tokens)["xi2"].iloc[-1])  # N = 10^12
    assert only_noise_logits_move(0.999 * c, tokens)
    assert not only_noise_logits_move(1.001 * c, tokens)
    assert c < 2 * tokens - 2


# ---- drawn runs and tables

def test_starts_differ_only_in_what_they_say():
    asked, values, both = (symmetric_drawn.parameters(64, 2, 0.5, start) for start in symmetric_drawn.STARTS)
    sizes = [symmetric_drawn.initial_sizes(p) for p in (asked, values, both)]
    assert sizes[1] == pytest.approx((sizes[0][0], sizes[0][1] * 1e-6))
    assert sizes[2] == pytest.approx((sizes[0][0] * 1e-5, sizes[0][1] * 1e-6))
    with pytest.raises(UserError, match="no start"):
        symmetric_drawn.parameters(64, 2, 0.5, "none")


def test_smoke_tables(tmp_path):
    for module, name in ((symmetric, "symmetric_limit"), (symmetric_drawn, "symmetric_drawn")):
        plan = module.plan(tmp_path, "smoke")
        outcome = plan.run(1)
        assert outcome.computed == len(plan.cells)
        assert len(plan.table.rows()) == len(plan.cells)
        assert plan.table.path == tmp_path / f"{name}.csv"


@pytest.mark.parametrize("claim", evidence.CLAIMS, ids=lambda claim: claim.id)
def test_nothing_holds_without_numbers(claim, monkeypatch):
    """Claims that rest on a table, asked with an empty one and with NaN."""
    if claim.id in ("symmetric-closed", "symmetric-force", "symmetric-exact", "symmetric-start-sizes"):
        pytest.skip("rests on no table")
    limits, runs = symmetric.load(), symmetric_drawn.load()
    for change in (lambda rows: rows.iloc[:0], lambda rows: rows.assign(
            **{name: math.nan for name in (*symmetric.CROSSINGS, *symmetric_drawn.OBSERVED) if name in rows})):
        monkeypatch.setattr(symmetric, "load", lambda change=change: change(limits))
        monkeypatch.setattr(symmetric_drawn, "load", lambda change=change: change(runs))
        with contextlib.suppress(UserError, ValueError, KeyError, IndexError):
            assert claim.check().verdict in ("differs from print", "not checkable at this scale")


# ---- figures

def test_figures_show_what_tables_hold():
    curve = pd.DataFrame({"N": 16, "M": 4, "ratio": [1.0, 3.0, 6.0], "attention_signal": [0.0, 0.9, 0.95],
                          "v_signal": [0.1, 4.0, 5.0], "v_xi2": [4.0, 1.0, 0.1], "test_loss": [0.7, 0.2, 0.1],
                          "mu_query": [0.0, 1.0, 1.0], "xi2_query": [0.0, 0.5, 1.0], "weak_query": [0.0, 0.4, 0.9]})
    drawn = pd.concat([curve.assign(start=start) for start in symmetric_drawn.STARTS])
    fig = figures.overlay(drawn, curve)
    line = fig.axes[0].lines[0]
    assert list(line.get_ydata()) == [0.0, 0.9, 0.95]
    assert len(fig.axes[1].lines) == 6
    above, below = figures.by_query(curve).axes
    assert [line.get_color() for line in above.lines] == [style.SIGNAL, style.XI2, style.NOISE]
    assert list(below.lines[0].get_ydata()) == [0.7, 0.2, 0.1]


def test_constants_are_drawn_by_m():
    rows = pd.DataFrame([(n, m, 2 + m - 2, 2 + (m - 2) / 2) for n in (4, 100) for m in (2, 3)],
                        columns=["N", "M", "infinite", "loss"])
    ax = figures.constants(rows, (8, 128)).axes[0]
    assert list(ax.lines[0].get_ydata()) == [2, 2]
    assert 4 in [line.get_ydata()[0] for line in ax.lines]
