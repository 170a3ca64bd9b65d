"""Condition 4.1 and the algebra of the proofs: symbolic claims, and what the paper's own experiments satisfy."""

import math

from vitbo_lib import stages, symbolic, theory
from vitbo_lib.claims import CONSTANT, DIFFERS, HOLDS, LIMIT, SCALE, Claim, Evidence


def _proved(*derivations: symbolic.Derivation, finding: str = "proved by sympy") -> Evidence:
    holds = all(derivation.holds for derivation in derivations)
    return Evidence(HOLDS if holds else DIFFERS, finding if holds else "sympy finds another value")


def all_ten_items() -> Evidence:
    """Whether problems exist that meet every item, for both theorems."""
    met = [sum(item.met for item in theory.condition_4_1(theory.smallest_configuration(64, 2, snr, 0.01, 0.01)))
           for snr in (0.3, 1.0, 20.0)]
    return Evidence(HOLDS if min(met) == 10 else DIFFERS, f"{min(met)} of 10 met at N = 64, M = 2, SNR 0.3, 1 and 20",
                    min(met))


def initial_logits() -> Evidence:
    """Item (8) bounds initial logits by 50 M / lg between strong noise tokens: it vanishes, slowly."""
    logits = symbolic.initial_logits()
    p = theory.smallest_configuration(64, 2, 1.0, 0.01, 0.01)
    bound = float(logits.parts["xi_2"].subs({symbolic.M: p.M, symbolic.lg: p.lg}))
    verdict = DIFFERS if not logits.holds else LIMIT if bound > 1 else HOLDS
    return Evidence(verdict, f"the bound is 50 M / lg: {bound:.1f} at N = 64, M = 2, below 1 only for lg > 50 M", bound)


def one_threshold() -> Evidence:
    """How far apart the constants are that the two proofs need, at M = 4."""
    low = float(symbolic.harmful_ceiling().parts["chain"])
    high = float(symbolic.benign_floor().parts["at_c_p"].subs(symbolic.M, 4))
    finding = f"proofs reach N SNR² ≤ {low:.0f} and > 1500 M³; a factor {high / low:,.0f} apart at M = 4"
    return Evidence(CONSTANT if high > low else HOLDS, finding, high / low)


def noise_ratio() -> Evidence:
    """C_p of the paper's experiments against 5 sqrt(M)."""
    items = {name: theory.condition_4_1(p)[9] for name, p in theory.paper_experiments().items()}
    off = {name: item for name, item in items.items() if not item.met}
    finding = "; ".join(f"{name}: {item.given:g} for {item.needed:g}" for name, item in items.items())
    return Evidence(DIFFERS if off else HOLDS, finding, len(off))


def instances() -> Evidence:
    """How many items the paper's own experiments meet."""
    met = [sum(bool(item.met) for item in theory.condition_4_1(p)) for p in theory.paper_experiments().values()]
    return Evidence(HOLDS if max(met) == 10 else SCALE, f"at best {max(met)} of 10 items are met", max(met))


def vacuous_bound() -> Evidence:
    """The population bound of D.10 at the experiments' epsilon."""
    bounds = [float(symbolic.population_bound(tokens).parts["bound"]) for tokens in (4, 16)]
    finding = f"the bound is {bounds[0]:.1f} (M = 4) and {bounds[1]:.1f} (M = 16) at ε = 0.01, above log 2"
    return Evidence(SCALE if min(bounds) > math.log(2) else HOLDS, finding, bounds[0])


def break_even() -> Evidence:
    """Where signal and strong noise start equally fast."""
    derived = symbolic.boundary()
    agrees = derived.holds and math.isclose(stages.predicted_boundary(20.0), float(
        derived.parts["n_snr2"].subs(symbolic.C_p, 20)))
    value = stages.predicted_boundary(20.0)
    finding = f"2 C_p², so {value:.0f} at C_p = 20, where the paper draws 1000"
    return Evidence(HOLDS if agrees else DIFFERS, finding, value)


def printed_loss_bound() -> Evidence:
    """Lemma E.5 prints L_S >= 0.1 at the T of its own convergence proof, which gives L_S <= epsilon."""
    proof = symbolic.loss_at_target()
    finding = "its proof gives L_S ≤ ε, as Theorem 4.2 says; the print is a slip"
    return Evidence(DIFFERS if proof.holds else SCALE, finding if proof.holds else "no proof of either bound")


def _symbolic(id: str, statement: str, where: str, chapter: str, check, expected: str = HOLDS, **changes) -> Claim:
    fields = {"kind": "symbolic", "quantity": "an identity or inequality", "tolerance": "none: exact algebra"}
    return Claim(id=id, statement=statement, where=where, chapter=chapter, expected=expected, check=check,
                 **(fields | changes))


CONDITION, BENIGN, HARMFUL = "condition_4_1", "theorem_4_1", "theorem_4_2"
CLAIMS = (
    _symbolic("cond-4.1-met", "All ten items of the condition can be met at once", "Condition 4.1", CONDITION,
              all_ten_items, kind="exact", quantity="items met", tolerance="constants of order notation set to 1"),
    _symbolic("C83", "Item (8) leaves a window iff $lg \\ge 1$", "Condition 4.1 (8)", CONDITION,
              lambda: _proved(symbolic.window_8())),
    _symbolic("C25", "Item (8) makes initial logits $o(1)$", "Condition 4.1 (8), Lemma D.4", CONDITION, initial_logits,
              LIMIT, quantity="bound on initial logits", tolerance="1: what counts as small"),
    _symbolic("C30", "The $T_1$ of the benign proof is where its two bounds meet", "Lemma 5.2, D.5", CONDITION,
              lambda: _proved(symbolic.benign_first_stage(), finding="margin 0, by sympy")),
    _symbolic("C31", "It is $O(\\cdot)$ as printed iff $N \\cdot \\SNR^2$ exceeds an explicit floor", "D.5", CONDITION,
              lambda: _proved(symbolic.benign_floor())),
    _symbolic("C67", "The $T_1$ of the harmful proof is where its two bounds meet", "Lemma E.3", CONDITION,
              lambda: _proved(symbolic.harmful_first_stage(), finding="margin 0, by sympy; needs C_p² > 24 M")),
    _symbolic("C90", "One number, $N \\cdot \\SNR^2 = \\Theta(1)$, separates the two theorems", "Theorems 4.1, 4.2",
              CONDITION, one_threshold, CONSTANT, quantity="ratio of the proofs' constants", tolerance="1: no gap"),
    _symbolic("C85-c_p", "The experiments use $C_p = 5\\sqrt M$", "Condition 4.1 (10), Section 6, App. A", CONDITION,
              noise_ratio, DIFFERS, kind="exact", quantity="C_p", tolerance="one part in 1000"),
    _symbolic("C85", "The experiments are instances of the theorems (the paper does not say so; readers ask)", "ours",
              CONDITION, instances, SCALE, kind="exact", quantity="items of Condition 4.1 met",
              tolerance="constants of order notation set to 1"),
    _symbolic("C59", "At margin $\\log(1/\\epsilon)$ the loss is at most $\\epsilon$", "D.7", BENIGN,
              lambda: _proved(symbolic.loss_at_target())),
    _symbolic("C65", "The bound on the population loss is small", "D.10", BENIGN, vacuous_bound, SCALE,
              quantity="the bound at ε = 0.01", tolerance="log 2: the loss of guessing"),
    _symbolic("C57", "Lemma E.5 as printed: $L_S \\ge 0.1$ at $T$", "Lemma E.5", HARMFUL, printed_loss_bound, DIFFERS),
    _symbolic("C58", "A margin of at most 1/2 half of the time costs at least 0.1", "E.6", HARMFUL,
              lambda: _proved(symbolic.harmful_population_loss(), finding="it costs at least 0.237")),
    _symbolic("break-even", "Signal and strong noise start equally fast at $N \\cdot \\SNR^2 = 2C_p^2$", "ours",
              HARMFUL, break_even, quantity="N SNR² at equal initial rates"),
)
