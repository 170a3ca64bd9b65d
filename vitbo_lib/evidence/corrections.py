"""The print put to the proof: what computation can say about the corrections, and the comparison with a CNN."""

import math

import numpy as np
import sympy as sp

from vitbo_lib import stages, symbolic_corrections, theory
from vitbo_lib.claims import CONSTANT, DIFFERS, HOLDS, SCALE, Claim, Evidence
from vitbo_lib.initialization import TorchInit
from vitbo_lib.intervals import mean_interval
from vitbo_lib.seeds import stream
from vitbo_lib.symbolic import Derivation, M, N

READ_OUTS, D_V = 40, 512
NORM = 1 / math.sqrt(3)  # of a vector of D_V entries U(-1, 1) / sqrt(D_V)


def _printed(ours: Derivation, printed: Derivation, finding: str) -> Evidence:
    """The verdict on a formula in print, when ours goes through the same proof."""
    if printed.holds:
        return Evidence(HOLDS, "the printed formula goes through the proof")
    if not ours.holds:
        return Evidence(SCALE, "neither the printed formula nor ours goes through the proof")
    return Evidence(DIFFERS, finding)


def third_stage() -> Evidence:
    """Lemmas 5.4 and 5.5 print lg^-1 in T_3, D.7 and Theorem 4.1 do not."""
    return _printed(symbolic_corrections.third_stage(), symbolic_corrections.third_stage(1),
                    "with it the loss at T_3 is ε lg, without it ε, as in D.7 and Theorem 4.1")


def power_of_lg() -> Evidence:
    """lg^-3 at T_2, for T_2 with lg^-1 (as stated) and without (as used where stage III begins)."""
    gap = symbolic_corrections.gap_at_second_time
    found = gap(-2, t_2_power=0)
    if gap(-3, t_2_power=0).holds:
        return Evidence(HOLDS, "lg^-3 is what T_2 without its logarithm gives")
    return _printed(gap() if found.holds else found, gap(-3),
                    "lg⁻⁴ with the T_2 of D.2, lg⁻² without its logarithm; never lg⁻³; nothing changes under a tilde")


def power_of_w_o() -> Evidence:
    """||w_O||^2 in the gaps at the harmful T_2."""
    gap = symbolic_corrections.gap_at_second_time
    return _printed(gap(), gap(power_of_w_o=2), "the power of ‖w_O‖ is -2; the same when ‖w_O‖ = Θ(1)")


def first_stage_values() -> Evidence:
    """O(d^(-1/4)) at the end of D.3 and E.1."""
    stage = symbolic_corrections.first_stage_values
    return _printed(stage(), stage(symbolic_corrections.d), "the proof gives O(d_h^(-1/4)), which is larger")


def growth_of_dominance() -> Evidence:
    """The growth of V_+ - 3M |V_{n,i}| without ||w_O||^2."""
    growth = symbolic_corrections.growth_of_dominance
    return _printed(growth(), growth(0), "a factor ‖w_O‖² is missing; the condition N SNR² ≥ 60 M² C_p² stays")


def summed_gap() -> Evidence:
    """The logarithm of the summed logit gap without exp."""
    return _printed(symbolic_corrections.summed_gap(), symbolic_corrections.summed_gap(keep_exp=False),
                    "without exp it does not start at its own initial value; ∫eˣ = e^b - e^a holds with equality")


def claim_2_exponents() -> Evidence:
    """The four exponents of Claim 2 as in F.5."""
    proof = symbolic_corrections.claim_2_exponents()
    return Evidence(HOLDS if proof.holds else DIFFERS, "all four are coefficient times squared norm of the key"
                    if proof.holds else "sympy finds other exponents")


def frobenius_norm() -> Evidence:
    """||X_n||_F with sigma_p for token 2."""
    proof = symbolic_corrections.frobenius_norm()
    factor = float(proof.parts["at_c_p"].subs(M, 4))
    verdict = DIFFERS if not proof.holds else CONSTANT if factor > 1 else HOLDS
    return Evidence(verdict, f"short by at most (C_p² + M - 2)/(M - 1) in the square, {factor:.0f} at M = 4 and "
                    f"{float(proof.parts['at_c_p'].subs(M, 2)):.0f} at M = 2", factor)


def harmful_margin() -> Evidence:
    """The rate 2 eta sigma_p^2 d / N in one display of E.3."""
    margin = symbolic_corrections.harmful_margin
    short = margin(1 / N).parts["margin"] * symbolic_corrections.d_h ** sp.Rational(1, 4)
    return _printed(margin(), margin(1 / N), "with 1/N the margin at T_1 is -24 (M - 1)(3M + 1) d_h^(-1/4), "
                    f"{float(short.subs(M, 4)):.0f} d_h^(-1/4) at M = 4; with 1/(NM) it is 0")


def last_display_of_e_6() -> Evidence:
    """y f >= log(1 + e^(-1/2)) where the loss is meant."""
    display = symbolic_corrections.last_display_of_e_6
    return _printed(display(), display(of_the_loss=False),
                    f"y f = 0 is allowed and below {float(display().parts['floor']):.3f}; of the loss it is true")


def key_norm_order() -> Evidence:
    """||k_+||^2 = O(eta ||mu||^2)."""
    order = symbolic_corrections.key_norm_order
    return _printed(order(), order(symbolic_corrections.eta * symbolic_corrections.mu**2),
                    "E ‖k_+‖² = ‖μ‖² σ_h² d_h; under items (6) and (8) η‖μ‖² is at most lg²/d_h of it")


def equal_indices() -> Evidence:
    """C.3 without the exclusion of equal indices."""
    proof = symbolic_corrections.equal_indices
    p = theory.paper_experiments()["App. A, benign"]
    ratio = math.sqrt(p.d_h / p.lg) / 2
    return _printed(proof(), proof(excluded=False), f"‖q_n,2‖² exceeds the bound from d_h = 4 lg on, {ratio:.1f} times "
                    "at the size of App. A; true for distinct tokens")


def class_balance_delta() -> Evidence:
    """What Lemma C.1 says at the sizes of Figure 1."""
    proof = symbolic_corrections.class_balance_delta()
    at = {n: float(proof.parts["delta"].subs(N, n)) for n in (10, 11, 12, 16, 20)}
    holds = proof.holds and at[11] >= 1 > at[12] and 0.32 < at[20] < 0.34
    return Evidence(HOLDS if holds else DIFFERS, f"the smallest δ is {at[20]:.2f} at N = 20, {at[16]:.2f} at 16, "
                    f"{at[12]:.2f} at 12 and {at[11]:.2f} at 11", at[20])


def harmful_example() -> Evidence:
    """N SNR^2 of the harmful example of Appendix A against what its theorem and proof ask."""
    example, other = (theory.paper_experiments()[f"App. A, {phase}"] for phase in ("harmful", "benign"))
    hypothesis = theory.hypothesis_4_2(example)
    scaled, benign = (p.n_snr2 / p.c_p**2 for p in (example, other))
    finding = (f"N SNR² = {example.n_snr2:.0f}; over C_p² it is {scaled:.2f}, of the benign example {benign:.2f}, and "
               f"equal initial rates are at {stages.predicted_boundary(1.0):g}")
    met = hypothesis.literal_met or hypothesis.explicit_met
    below = scaled < stages.predicted_boundary(1.0) < benign  # the order is right, on the scale that decides
    return Evidence(HOLDS if met else CONSTANT if below else DIFFERS, finding, example.n_snr2)


def read_out_norm() -> Evidence:
    """||w_O|| of a default linear layer of width 512, as it is and divided by 16."""
    whole, divided = (mean_interval([float(np.linalg.norm(TorchInit(scale=1 / 16, w_o_scale=scale).read_out(
        D_V, stream(seed, "read-out norm")))) for seed in range(READ_OUTS)]) for scale in (1.0, 1 / 16))
    holds = whole.low <= NORM <= whole.high and divided.low <= NORM / 16 <= divided.high
    return Evidence.of(HOLDS if holds else DIFFERS, f"{whole.mean:.3f}, or {divided.mean:.4f} if divided by 16", whole)


def fewer_samples() -> Evidence:
    """SNR^-2 against SNR^-q."""
    proof = symbolic_corrections.fewer_samples()
    return Evidence(HOLDS if proof.holds else DIFFERS, "proved by sympy; equality at SNR = 1 only" if proof.holds
                    else "sympy finds an exponent of either sign")


def _claim(id: str, statement: str, where: str, check, expected: str = DIFFERS, **changes) -> Claim:
    fields = {"kind": "symbolic", "quantity": "an identity or inequality", "tolerance": "none: exact algebra",
              "chapter": "corrections"}
    return Claim(id=id, statement=statement, where=where, expected=expected, check=check, **(fields | changes))


CLAIMS = (
    _claim("C82", "For $\\SNR \\le 1$ the ViT asks for fewer samples than the CNN with ReLU$^q$, $q > 2$: "
           "$\\SNR^{-2} \\le \\SNR^{-q}$", "Section 4", fewer_samples, HOLDS, chapter="proof_map"),
    _claim("print-T_3", "As printed: $T_3$ with $lg^{-1}$ reaches the loss $\\Theta(\\epsilon)$", "Lemmas 5.4, 5.5",
           third_stage),
    _claim("print-lg", "As printed: at $T_2$ the logit gaps have grown by $lg^{-3}$", "D.3, E.3", power_of_lg),
    _claim("print-w_O", "As printed: at $T_2$ they have grown by $\\norm{w_O}^2$", "E.3", power_of_w_o),
    _claim("print-D.2.1", "As printed: the growth of $V_+ - 3M\\abs{V_{n,i}}$ is free of $\\norm{w_O}$", "D.2.1",
           growth_of_dominance),
    _claim("print-D.2.3", "As printed: $\\log(\\inner{q_+}{k_+} + \\dots)$, without exp", "D.2.3", summed_gap),
    _claim("F.5-exponents", "The exponents of $\\norm{\\mu}$ in Claim 2, as in F.5", "F.5", claim_2_exponents, HOLDS),
    _claim("print-D.3", "As printed: values are $O(d^{-1/4})$ in stage I", "D.3, E.1", first_stage_values),
    _claim("print-D.8", "As printed: $\\norm{X_n}_F$ with $\\sigma_p$ for all tokens", "D.8 to D.10", frobenius_norm,
           CONSTANT, quantity="true over printed, squared", tolerance="1"),
    _claim("print-E.3", "As printed: $\\abs{\\Delta\\gamma_V} \\le 2\\eta\\sigma_p^2 d / N$ is enough for the lemma",
           "Lemma E.3, proof", harmful_margin),
    _claim("print-E.6", "As printed: $y f \\ge \\log(1 + e^{-1/2})$", "E.6, last display", last_display_of_e_6),
    _claim("print-F.12", "As printed: $\\norm{k_+}^2 = O(\\eta \\norm{\\mu}^2)$", "F.12", key_norm_order),
    _claim("print-C.3", "As printed: the bound on $\\inner{q_{n,i}}{q_{n',j}}$ for all pairs, equal ones included",
           "Lemma C.3", equal_indices),
    _claim("C.1-small-N", "Lemma C.1 is empty for $N \\le 11$ and leaves $\\delta \\ge 0.33$ at $N = 20$", "ours",
           class_balance_delta, HOLDS, quantity="smallest δ", tolerance="1: empty"),
    _claim("App-A-harmful", "The harmful example lies in the range of the harmful theorem", "App. A, Theorem 4.2",
           harmful_example, CONSTANT, kind="exact", quantity="N SNR²",
           tolerance="at most 4, the proof's constant; else on the right side of 2 C_p²"),
    _claim("w_O-norm", "A default read-out of width 512 has $\\norm{w_O} = 1/\\sqrt 3$", "ours", read_out_norm, HOLDS,
           kind="statistical", quantity="‖w_O‖", tolerance="95 % interval of the mean", seeds=tuple(range(READ_OUTS))),
)
