"""The derivations hold, and each turns when what it proves is spoiled."""

import math

import pytest
import sympy as sp

from vitbo_lib import symbolic
from vitbo_lib.stages import benign_stage_times, harmful_stage_times, predicted_boundary
from vitbo_lib.theory import Parameters

TRUE = [symbolic.softmax_jacobian, symbolic.lemma_b_1, symbolic.benign_first_stage, symbolic.benign_floor,
        symbolic.harmful_first_stage, symbolic.harmful_ceiling, symbolic.window_8, symbolic.initial_logits,
        symbolic.loss_at_target, symbolic.harmful_population_loss, symbolic.boundary, symbolic.figure_2_factors]


@pytest.mark.parametrize("derivation", TRUE, ids=lambda f: f.__name__)
def test_holds_and_prints(derivation):
    found = derivation()
    assert found.holds is True
    assert found.latex.count("{") == found.latex.count("}")


@pytest.mark.parametrize("planted", [
    lambda: symbolic.softmax_jacobian(off_diagonal_sign=1),  # eq. (4) as printed
    lambda: symbolic.lemma_b_1(noise_sign=-1),  # first display of B.2
    lambda: symbolic.lemma_b_1(mean_over_tokens=False),
    lambda: symbolic.benign_first_stage(constant=59),
    lambda: symbolic.benign_floor(60 * symbolic.C * symbolic.M * symbolic.C_p**2),
    lambda: symbolic.harmful_first_stage(constant=25),
    lambda: symbolic.window_8(lower=-1),
    lambda: symbolic.window_8(lower=-2, upper=-2),  # a window that is never empty
    lambda: symbolic.loss_at_target(symbolic.epsilon**2),
    lambda: symbolic.loss_at_target(symbolic.epsilon - symbolic.epsilon**2),
    lambda: symbolic.harmful_population_loss(floor=0.24),
    lambda: symbolic.boundary(signal_share=sp.Rational(1, 3)),
    lambda: symbolic.figure_2_factors(image="SNR", noise="1"),
    lambda: symbolic.figure_2_factors(image=sp.Rational(1, 2), noise=sp.Rational(1, 2)),
    lambda: symbolic.population_bound(4, target="1/1000000000000000000000000"),
])
def test_planted_fault_is_seen(planted):
    assert planted().holds is False


def test_softmax_jacobian_entry_by_entry():
    jacobian = symbolic.softmax_jacobian(3).parts["jacobian"]
    assert sp.simplify(sum(jacobian[0, :])) == 0
    at_zero = jacobian.subs(dict.fromkeys(jacobian.free_symbols, 0))
    assert at_zero == sp.Matrix(3, 3, lambda i, j: sp.Rational(2 if i == j else -1, 9))


def test_constants_that_the_text_quotes():
    M = symbolic.M
    assert sp.expand(symbolic.benign_floor().parts["at_c_p"] - 1500 * M**3) == 0
    assert sp.expand(symbolic.harmful_first_stage().parts["factor_at_c_p"] - 4 * (3 * M + 1)) == 0
    assert symbolic.harmful_ceiling().parts == {"chain": 4, "direct": sp.Rational(16, 3)}
    assert float(symbolic.harmful_population_loss().parts["value"]) == pytest.approx(0.2370, abs=5e-5)
    for tokens, bound in ((4, 2.598), (16, 2.973)):
        assert float(symbolic.population_bound(tokens).parts["bound"]) == pytest.approx(bound, abs=1e-3)


def test_symbols_agree_with_the_numbers_of_stages():
    """The same T_1 twice: once by sympy from the rates, once by plain arithmetic."""
    p = Parameters(N=64, M=2, d=100, d_h=81, signal_norm=90.0, sigma_p=0.1, sigma_p_tilde=0.8, w_o_norm=0.5, eta=1e-3)
    values = {symbolic.N: 64, symbolic.M: 2, symbolic.d: 100, symbolic.d_h: 81, symbolic.mu: 90, symbolic.C_p: 8,
              symbolic.sigma_p: sp.Rational(1, 10), symbolic.w_o: sp.Rational(1, 2), symbolic.eta: sp.Rational(1, 1000)}
    assert float(symbolic.benign_first_stage().parts["t_1"].subs(values)) == pytest.approx(benign_stage_times(p).t_1)
    assert float(symbolic.harmful_first_stage().parts["t_1"].subs(values)) == pytest.approx(harmful_stage_times(p).t_1)
    assert float(symbolic.boundary().parts["n_snr2"].subs(values)) == pytest.approx(predicted_boundary(8.0))
    assert math.isfinite(benign_stage_times(p).t_1)
