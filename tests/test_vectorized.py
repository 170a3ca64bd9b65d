"""Experiments of the chapter on vectorized queries and keys: what they must refuse, and identities they must keep."""

import dataclasses
import math

import numpy as np
import pandas as pd
import pytest
import torch

from vitbo_lib import simulation, span, symbolic_updates, training, vectorized
from vitbo_lib.claims import CONSTANT, HOLDS, LIMIT
from vitbo_lib.errors import UserError
from vitbo_lib.evidence import vectorized as evidence
from vitbo_lib.figures import vectorized as figures
from vitbo_lib.observables import view

SMALL = dataclasses.replace(evidence.STEP, eta=0.05)


def problem(seeds=(1, 2)):
    return simulation.build(SMALL, "reduced", seeds)


def test_nothing_frozen_is_training():
    one = problem()
    for (t, loss, state), (also_t, also_loss, also) in zip(
            vectorized.frozen_descent(one, eta=0.05, frozen=(), steps=(0, 7, 20)),
            training.states(one, eta=0.05, steps=(0, 7, 20)), strict=True):
        assert t == also_t
        assert torch.equal(loss, also_loss)
        assert all(torch.equal(a, b) for a, b in zip(state.parts, also.parts))


@pytest.mark.parametrize("frozen", [("queries", "keys"), ("values",)])
def test_what_is_frozen_stays_and_the_rest_moves(frozen):
    _, loss, state = list(vectorized.frozen_descent(problem(), eta=0.05, frozen=frozen, steps=(0, 15)))[-1]
    for name in ("queries", "keys", "values"):
        assert bool(getattr(state, name).any()) == (name not in frozen)
    assert torch.isfinite(loss).all()


def test_unknown_part_axis_or_training():
    with pytest.raises(UserError, match="w_v"):
        next(vectorized.frozen_descent(problem(), eta=0.05, frozen=("w_v",), steps=(0,)))
    with pytest.raises(UserError, match="sigma"):
        vectorized.leading_order("sigma")
    with pytest.raises(UserError, match="nowhere"):
        next(vectorized.walk("benign", "nowhere"))


def test_after_a_value_step_values_lead_and_attention_is_at_its_start():
    chosen = vectorized.setting(1e10, 1e6, n_samples=8, snr=60.0)
    one = simulation.build(chosen, "drawn", [3])
    state = vectorized.after_a_value_step(one, largest=0.7)
    seen, before = view(one.train, state), view(one.train, one.train.start.map(torch.zeros_like))
    assert float(seen.values.abs().max()) == pytest.approx(0.7)
    assert torch.equal(seen.phi, before.phi)
    assert bool((seen.labels * seen.values[..., 0] > 12 * seen.values[..., 1:].abs().amax(-1)).all())


def test_update_terms_add_up_to_the_change():
    one, eta = problem(), 0.05
    state = training.gradient_descent(one, eta=eta, epsilon=1e-9, max_steps=5).coefficients
    terms = vectorized.update_terms(one, state, eta)
    later = training.gradient_descent(one, eta=eta, epsilon=1e-9, max_steps=6).coefficients

    def logit(at):
        q, k, _ = span.by_sample(span.projections(one.train, at), one.train.n_tokens)
        plus = [int((labels > 0).nonzero()[0]) for labels in one.train.labels]
        return torch.stack([q[run, n, 0] @ k[run, n, 0] for run, n in enumerate(plus)])

    change = logit(later) - logit(state)
    assert torch.allclose(terms["lead"] + terms["first"] + terms["second"], change, rtol=1e-8)


def test_lemma_5_1_bound_is_the_one_written_out():
    one = problem((1,))
    state = one.train.start.map(torch.zeros_like)
    rows = vectorized.lemma_5_1(one.train, state, SMALL.law)
    found, law = rows[(rows["n"] == 2) & (rows["i"] == 3)].iloc[0], SMALL.law
    seen = view(one.train, state)
    pull = 1 / (1 + math.exp(float(seen.labels[0, 1] * seen.f[0, 1])))
    received = float(seen.phi[0, 1, :, 2].sum())
    bound = 2 * 0.1 * law.c_p**2 * law.sigma_p**2 * law.d / (4 * 3) * pull * received  # at eta = 0.1
    moved = 0.0
    for n in range(4):
        slope = float(seen.labels[0, n] / (1 + torch.exp(seen.labels[0, n] * seen.f[0, n])))
        for j in (1, 2):
            moved += 0.1 / 12 * slope * float(one.train.cross[0, 3 * 1 + 2, 3 * n + j] * seen.phi[0, n, :, j].sum())
    assert found["ratio"] == pytest.approx(abs(moved) / bound, rel=1e-10)
    assert found["attention"] == pytest.approx(received)


def test_f_4_knows_signs_where_they_are_known():
    chosen = vectorized.setting(1e12, 1e8, n_samples=8, snr=60.0)
    one = simulation.build(chosen, "drawn", [3])
    state = vectorized.after_a_value_step(one)
    rows = vectorized.f_4(one.train, state, chosen.law)
    assert set(rows["kind"]) == set(vectorized.F_4)
    assert rows["holds"].all()
    assert (rows["right"] == 1).all()
    against = vectorized.f_4(one.train, state.map(torch.neg), chosen.law)  # every value the other way round
    assert not against["holds"].any()
    assert (against["right"] == 0).all()


def test_search_finds_the_worst_case_of_sympy():
    for tokens in (2, 3, 5):
        worst = float(symbolic_updates.noise_share().parts["worst"].subs(symbolic_updates.M, tokens))
        signal = float(symbolic_updates.signal_share().parts["factor"].subs(symbolic_updates.M, tokens))
        first, other = evidence.least_responses(tokens)
        assert first == pytest.approx(signal, rel=1e-6)
        assert worst - 1e-9 <= other <= worst + (0.6 if tokens == 2 else 0.1)  # with two tokens p_j = 1 - p_1


TABLE_CHECKS = ["signs", "signs_in_the_lab", "sizes_in_the_regime", "noise_line",
                "noise_line_in_the_lab"]


@pytest.mark.parametrize("broken", ["empty", "nan"])
@pytest.mark.parametrize("check", TABLE_CHECKS)
def test_no_check_passes_on_a_broken_table(check, broken, monkeypatch):
    lemma = pd.DataFrame({"run": 0, "n": [1, 1], "i": [2, 3], "ratio": np.nan, "attention": 1.0, "loss": 0.5,
                          "progress": 1.0})
    f_4 = pd.DataFrame({"run": 0, "kind": list(vectorized.F_4), "printed": 0.5, "entries": 4, "right": np.nan,
                        "least": np.nan, "holds": True, "loss": 0.5, "progress": 1.0})
    if broken == "empty":
        lemma, f_4 = lemma.iloc[:0], f_4.iloc[:0]
    monkeypatch.setattr(evidence, "walked", lambda *_: {"lemma": lemma, "f_4": f_4})
    try:
        verdict = getattr(evidence, check)().verdict
    except (ValueError, KeyError):
        return
    assert verdict not in (HOLDS, CONSTANT, LIMIT)


def test_figures_are_drawn():
    one = vectorized.leading_order("d", 2)
    assert figures.lower_order(one, one).axes
    names = ["a"] * 6
    assert len(figures.matrices(np.eye(6), -np.eye(6), names, 2).axes) == 4  # with their colour bars
    table = pd.DataFrame({"kind": kind, "seed": 0, "t": [0, 1, 10], "train_loss": 0.6, "attention_signal": 0.3,
                          "v_signal": 0.1} for kind in vectorized.FROZEN).explode("t")
    assert len(figures.frozen(table).axes) == 3
