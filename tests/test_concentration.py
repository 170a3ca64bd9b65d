"""Concentration lemmas: draws against exact tails, constants against their definition, and faults that show."""

import dataclasses
import math

import numpy as np
import pytest
from scipy import stats

from vitbo_lib import concentration, draw, theory
from vitbo_lib.concentration import PLACES
from vitbo_lib.errors import UserError
from vitbo_lib.figures import concentration as figures
from vitbo_lib.intervals import proportion_interval

OWN, LAB = PLACES["regime"], PLACES["App. A"]


def sized(d_h):
    return theory.at_condition(dataclasses.replace(OWN, d_h=d_h))


def lengths_agree_with_tails(d_h=96, sets=400):
    """Whether the share of draws with a length out of bounds is 1 - (1 - tail)^(2K), the vectors being independent."""
    vectors = 2 * (2 + OWN.N * (OWN.M - 1))
    exact = 1 - (1 - concentration.length_tail(d_h)) ** vectors
    return exact in proportion_interval(concentration.lemma_c_3(sized(d_h), sets, seed=3).norms, sets, level=0.999)


def test_lengths_follow_exact_tails():
    assert lengths_agree_with_tails()


def test_a_factor_that_does_not_fluctuate_is_seen(monkeypatch):
    original = draw.gaussian_factor

    def calm(rows, columns, rng, batch=()):
        found = original(rows, columns, rng, batch)
        return found / np.linalg.norm(found, axis=-1, keepdims=True) * math.sqrt(columns)

    monkeypatch.setattr(draw, "gaussian_factor", calm)
    assert not lengths_agree_with_tails()


@pytest.mark.parametrize("p", [OWN, LAB], ids=["regime", "lab"])
def test_initial_values_have_the_scales_of_the_constant(p):
    found = concentration.initial_values(p, sets=400, seed=1)
    assert np.sqrt((found**2).mean(0)) == pytest.approx(concentration.value_scales(p), rel=0.2)
    assert found.std() > 0


def test_least_constant_makes_the_union_delta():
    c, s = concentration.least_constant(LAB), concentration.value_scales(LAB)
    assert sum(2 * stats.norm.sf(1 / (c * x)) for x in s) == pytest.approx(LAB.delta, rel=1e-6)
    assert concentration.least_constant(LAB, 1e-30) < c  # tails that a float can hardly hold


def test_a_token_with_itself_breaks_the_bound_from_four_lg_on():
    p = sized(round(4 * OWN.lg))
    mean = p.sigma_p_tilde**2 * p.d * p.sigma_h**2 * p.d_h
    assert mean == pytest.approx(concentration._product_bounds(p)[2, 2], rel=0.01)
    found = concentration.lemma_c_3(sized(int(12 * OWN.lg)), 20)
    assert (found.products, found.with_equal) == (0, 20)


def test_least_dimension_is_the_least():
    m = concentration.least_dimension(100, 0.01)
    assert 100 * concentration.length_tail(m) <= 0.01 < 100 * concentration.length_tail(m - 1)
    assert concentration.length_tail(2) == pytest.approx(1 - math.exp(-0.5) + math.exp(-1.5))


def test_inner_products_of_noise_fail_when_they_must():
    """In one dimension all tokens are parallel, so that products are as large as squares."""
    flat = dataclasses.replace(OWN, d=3)
    assert concentration.lemma_c_4(flat, 20).norms == 20
    assert concentration.lemma_c_4(OWN, 20).total == 0


def test_bookkeeping_is_arithmetic():
    found = concentration.bookkeeping(OWN)
    assert found.delta == pytest.approx(1 / (4 * OWN.d))
    with_it = dataclasses.replace(OWN, delta=found.delta)
    assert found.lg_needed == pytest.approx(with_it.lg)
    items = theory.condition_4_1(with_it)
    unit = OWN.inverse_energy / math.sqrt(OWN.d_h)
    assert items[7].needed == pytest.approx([x * unit for x in found.window_needed])
    assert not items[7].met, "sigma_h of the old window is outside the new one"


def test_smallest_n_is_self_consistent():
    p = concentration.smallest_n()
    assert 8 * math.log(16 * p.d) <= p.N
    d = (p.N - 8) ** 4 / p.epsilon**4
    assert 8 * math.log(16 * d) > p.N - 8


def test_frequencies_and_figures():
    tables = {lemma: concentration.frequencies(lemma, (16, 256), 10) for lemma in concentration.LEMMAS}
    c3 = tables["C.3"].set_index(["place", "dimension", "part"])["mean"]
    assert c3["regime", 16, "norms"] == 1
    assert c3["regime", 256, "products"] == 0
    assert len(figures.failure_frequencies(tables, 0.01).axes) == 2
    values = concentration.value_frequencies((0.001, 1.0), 10)
    assert values.groupby("constant")["mean"].max().tolist() == [0, 1]
    assert figures.value_constants(values, dict.fromkeys(PLACES, 0.1), 0.01).axes


def test_bad_input_is_named():
    with pytest.raises(UserError, match=r"C\.9"):
        concentration.frequencies("C.9")
    with pytest.raises(UserError, match="delta"):
        concentration.lemma_c_3(dataclasses.replace(OWN, delta=None))
    with pytest.raises(UserError, match="sets"):
        concentration.lemma_c_4(OWN, 0)
