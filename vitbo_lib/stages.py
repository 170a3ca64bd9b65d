"""How long training takes, stage by stage, and where the benign and the harmful phase meet.

The stage times are the paper's (Lemmas 5.2 to 5.4 and D.5, E.3, E.5); `predicted_steps` and `predicted_boundary` are
ours: they keep the constants that the paper's Theta and Omega drop.
"""

import math
from dataclasses import dataclass
from numbers import Real

from vitbo_lib.errors import UserError
from vitbo_lib.theory import Constants, Parameters, if_given


@dataclass(frozen=True)
class StageTimes:
    """Ends of the three stages in gradient descent steps; None where a needed number is not given.

    `t_1` is infinite where the argument of the paper does not end the stage at all.
    """

    t_1: float | None
    t_2: float | None
    t_3: float | None
    note: str = ""


def _first_time(numerator: float, margin: float) -> float:
    return numerator / margin if margin > 0 else math.inf


def benign_stage_times(p: Parameters, constants: Constants | None = None) -> StageTimes:
    """Stage ends when the signal wins: values of W_V w_O separate, attention concentrates, the loss converges.

    T_1 = 10 M (3M+1) N / (eta d_h^(1/4) (N ||mu||^2 - 60 M^2 C_p^2 sigma_p^2 d) ||w_O||^2)   (Lemma 5.2),
    T_2 = t_2 / (eta ||mu||^2 ||w_O||^2 lg),   T_3 = t_3 / (eta epsilon ||mu||^2 ||w_O||^2)   (`Constants` t_2, t_3).

    At the paper's own benign example the argument for T_1 does not apply, N SNR^2 being far below 60 M^2 C_p^2:

    >>> from vitbo_lib.theory import paper_experiments
    >>> benign_stage_times(paper_experiments()["App. A, benign"]).t_1
    inf
    """
    c = constants or Constants()
    margin = if_given(lambda n, mu, m, tilde, d: n * mu**2 - 60 * m**2 * tilde**2 * d,
                      p.N, p.signal_norm, p.M, p.sigma_p_tilde, p.d)
    t_1 = if_given(lambda m, n, eta, d_h, x, w: _first_time(10 * m * (3 * m + 1) * n / (eta * d_h**0.25 * w**2), x),
                   p.M, p.N, p.eta, p.d_h, margin, p.w_o_norm)
    unit = if_given(lambda eta, mu, w: 1 / (eta * mu**2 * w**2), p.eta, p.signal_norm, p.w_o_norm)
    return StageTimes(t_1, if_given(lambda u, lg: c.t_2 * u / lg, unit, p.lg),
                      if_given(lambda u, eps: c.t_3 * u / eps, unit, p.epsilon),
                      "needs N SNR^2 > 60 M^2 C_p^2" if t_1 == math.inf else "")


def harmful_stage_times(p: Parameters, constants: Constants | None = None) -> StageTimes:
    """Stage ends when the strong noise token wins.

    T_1 = 4 M (3M+1) N / (eta d_h^(1/4) (C_p^2 - 24 M) sigma_p^2 d ||w_O||^2)   (Lemma E.3),
    T_2 = t_2 N / (eta sigma_p^2 d ||w_O||^2 lg),   T_3 = t_3 N / (eta epsilon sigma_p^2 d ||w_O||^2).

    >>> from vitbo_lib.theory import paper_experiments
    >>> round(harmful_stage_times(paper_experiments()["App. A, harmful"]).t_3)
    1500000
    """
    c = constants or Constants()
    margin = if_given(lambda c_p, m: c_p**2 - 24 * m, p.c_p, p.M)
    unit = if_given(lambda n, eta, sigma, d, w: n / (eta * sigma**2 * d * w**2),
                    p.N, p.eta, p.sigma_p, p.d, p.w_o_norm)
    t_1 = if_given(lambda m, d_h, u, x: _first_time(4 * m * (3 * m + 1) * u / d_h**0.25, x), p.M, p.d_h, unit, margin)
    return StageTimes(t_1, if_given(lambda u, lg: c.t_2 * u / lg, unit, p.lg),
                      if_given(lambda u, eps: c.t_3 * u / eps, unit, p.epsilon),
                      "needs C_p^2 > 24 M" if t_1 == math.inf else "")


def predicted_steps_benign(p: Parameters, classes: int = 2) -> float | None:
    """Steps T until the training loss is epsilon when all attention is on the signal: ours, for Theorem 4.1.

    Then V = mu_+^T W_V w_O follows dV/dt = eta ||mu||^2 ||w_O||^2 (|S_+| / N) / (1 + e^V), so that the loss of class
    + is about N / (|S_+| eta ||mu||^2 ||w_O||^2 t). It enters the mean loss with weight |S_+| / N: each class adds
    1 / (eta ||mu||^2 ||w_O||^2 t), whatever its share, and T = classes / (eta epsilon ||mu||^2 ||w_O||^2).

    >>> from vitbo_lib.theory import paper_experiments
    >>> round(predicted_steps_benign(paper_experiments()["App. A, benign"]))
    2458
    """
    if classes not in (1, 2):
        raise UserError(f"classes = {classes} is not possible; there are two labels, give 1 or 2")
    return if_given(lambda eta, eps, mu, w: classes / (eta * eps * mu**2 * w**2),
                    p.eta, p.epsilon, p.signal_norm, p.w_o_norm)


def predicted_steps_harmful(p: Parameters) -> float | None:
    """Steps T until the training loss is epsilon when each sample is fitted through its xi_2: ours, for Theorem 4.2.

    With all attention on xi_{n,2}, of squared norm about sigma_p_tilde^2 d, each sample's loss is about
    N / (eta sigma_p_tilde^2 d ||w_O||^2 t): T = N / (eta epsilon sigma_p_tilde^2 d ||w_O||^2). The theorem writes
    sigma_p for sigma_p_tilde, C_p being a constant there.

    >>> from vitbo_lib.theory import paper_experiments
    >>> round(predicted_steps_harmful(paper_experiments()["App. A, harmful"]))
    3750
    """
    return if_given(lambda n, eta, eps, tilde, d, w: n / (eta * eps * tilde**2 * d * w**2),
                    p.N, p.eta, p.epsilon, p.sigma_p_tilde, p.d, p.w_o_norm)


def _positive(value) -> bool:
    return isinstance(value, Real) and 0 < value < math.inf


def predicted_boundary(c_p: float, class_share: float = 0.5) -> float:
    """N SNR^2 at which signal and strong noise start equally fast: C_p^2 / class_share, so 2 C_p^2 for even classes.

    At uniform attention 1/M and -l' = 1/2 the scalarized values move, per step and in units of ||w_O||^2, by
    eta ||mu||^2 |S_+| / (2 N M) for the signal and eta sigma_p_tilde^2 d / (2 N M) for xi_{n,2}: the one sums over a
    class, the other belongs to one sample. Equal rates give |S_+| ||mu||^2 = sigma_p_tilde^2 d. Ours; the paper
    draws N SNR^2 = 1000 in Figure 1, where C_p = 20:

    >>> predicted_boundary(20.0)
    800.0
    """
    if not (_positive(c_p) and _positive(class_share) and class_share <= 1):
        raise UserError(f"no boundary for C_p = {c_p}, class share {class_share}; give C_p > 0 and a share in (0, 1]")
    return c_p**2 / class_share
