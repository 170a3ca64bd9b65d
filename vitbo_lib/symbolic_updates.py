"""The algebra of vectorized queries and keys, derived by sympy: eq. (2), eq. (16), the bounds of F.4, summation steps.

As in `vitbo_lib.symbolic`, each function takes the statement in question as an argument, so that another version can be
put to the same proof.
"""

import sympy as sp

from vitbo_lib.symbolic import HALF, Derivation, M, N, eta, mu

QUARTER = sp.Rational(1, 4)
TOKENS = 3  # of the sample in which identities are derived; none of them depends on how many there are
V = sp.symbols("V_1:4", real=True)
p = sp.symbols("p_1:4", positive=True)


def _is_zero(expression) -> bool:
    return sp.simplify(expression) == 0


def response(attention=p, values=V) -> sp.Matrix:
    """v^T J: g_j = p_j (V_j - sum_k p_k V_k), the derivative of a query's read-out at its logits.

    >>> response()[0]
    p_1*(-V_1*p_1 + V_1 - V_2*p_2 - V_3*p_3)
    """
    read = sum(share * value for share, value in zip(attention, values))
    return sp.Matrix([share * sp.expand(value - read) for share, value in zip(attention, values)])


def equation_2(off_diagonal_sign: int = -1) -> Derivation:
    """Eq. (2): a step moves q_+ along the keys of its samples, by -eta ||mu||^2 l' / (N M) (v^T J)_j for key j.

    One sample of S_+ with three tokens, d_h = 2, sympy's own derivative of its output. `off_diagonal_sign` = +1 takes
    the Jacobian that eq. (4) prints.

    >>> equation_2().holds, equation_2(off_diagonal_sign=+1).holds
    (True, False)
    """
    q = sp.Matrix(sp.symbols("q_1:3", real=True))
    keys = sp.Matrix(TOKENS, 2, sp.symbols(f"k_1:{2 * TOKENS + 1}", real=True))
    powers = sp.symbols(f"e_1:{TOKENS + 1}", positive=True)
    logits = list(keys * q)
    exact = [sp.exp(logit) for logit in logits]
    output = sum(e * value for e, value in zip(exact, V)) / sum(exact) / M
    slope, n_weight = sp.Symbol("l'", negative=True), eta * mu**2 / N
    short = dict(zip(exact, powers))
    moved = [-n_weight * slope * sp.diff(output, coordinate).subs(short) for coordinate in q]
    share = [e / sum(powers) for e in powers]
    jacobian = sp.Matrix(TOKENS, TOKENS, lambda i, j: share[i] * (1 - share[i]) if i == j
                         else off_diagonal_sign * share[i] * share[j])
    alpha = -n_weight * slope / M * (sp.Matrix([V]) * jacobian)
    holds = all(sp.cancel(sp.together(one - other)) == 0 for one, other in zip(moved, alpha * keys))
    g = response()
    return Derivation("q_+ moves by sum_j alpha_j k_j",
                      r"\alpha_j = -\frac{\eta \lVert \mu \rVert^2}{NM}\, \ell'\, g_j, \quad g_1 = "
                      + sp.latex(g[0]), bool(holds), {"alpha": alpha, "g": g})


def coefficients_sum_to_zero(tokens: int = TOKENS) -> Derivation:
    """F.12: sum_j g_j = 0, since attention sums to 1; so alpha_{+,+} + sum alpha_{n,+,i} = 0.

    >>> coefficients_sum_to_zero().holds
    True
    """
    shares = sp.symbols(f"p_1:{tokens}", positive=True)
    shares = (*shares, 1 - sum(shares))
    values = sp.symbols(f"V_1:{tokens + 1}", real=True)
    total = sp.expand(sum(response(shares, values)))
    return Derivation("the coefficients of a query sum to 0", rf"\textstyle\sum_j g_j = {sp.latex(total)}", total == 0,
                      {"total": total})


def equation_16(second_order: bool = True) -> Derivation:
    """Eq. (16): the change of <q_+, k_+> in a step, with one noise token and d_h = 2.

    `second_order` = False drops <Delta q_+, Delta k_+>.

    >>> equation_16().holds, equation_16(second_order=False).holds
    (True, False)
    """
    q, k, q_2, k_2 = (sp.Matrix(sp.symbols(f"{name}_1:3", real=True)) for name in ("q", "k", "r", "s"))
    a, b, a_2, b_2 = sp.symbols("alpha beta alpha_2 beta_2", real=True)
    moved_q, moved_k = a * k + a_2 * k_2, b * q + b_2 * q_2
    change = (q + moved_q).dot(k + moved_k) - q.dot(k)
    said = a * k.dot(k) + a_2 * k.dot(k_2) + b * q.dot(q) + b_2 * q.dot(q_2)
    said += moved_q.dot(moved_k) if second_order else 0
    return Derivation("the change of <q_+, k_+>", r"\alpha \lVert k_+ \rVert^2 + \alpha_2 \langle k_+, k_2 \rangle + "
                      r"\beta \lVert q_+ \rVert^2 + \beta_2 \langle q_+, q_2 \rangle + \langle \Delta q_+, \Delta k_+"
                      r" \rangle", _is_zero(sp.expand(change - said)), {"change": change})


def signal_share(constant=HALF) -> Derivation:
    """F.4: if |V_j| <= V_1 / (3M) for j > 1, then g_1 >= (1 - 1 / (3M)) p_1 (1 - p_1) V_1, above `constant` of it.

    The read-out of the others is largest when all V_j = V_1 / (3M). The factor is at least 5/6 (M = 2).

    >>> signal_share().holds, signal_share(constant=1).holds
    (True, False)
    """
    share, value = sp.symbols("p_1 V_1", positive=True)
    least = share * (value - share * value - (1 - share) * value / (3 * M))
    factor = sp.factor(sp.simplify(least / (share * (1 - share) * value)))
    smallest = factor.subs(M, 2)
    grows = sp.simplify(sp.diff(factor, M)).is_positive
    return Derivation("g_1 >= p_1 (1 - p_1) V_1 / 2", rf"g_1 \ge {sp.latex(factor)}\; p_1 (1 - p_1) V_1",
                      bool(grows and smallest >= constant), {"factor": factor, "smallest": smallest})


def noise_share(constant=QUARTER, tokens: int | None = None) -> Derivation:
    """F.4: under the same dominance and p_1 >= 1/M, -g_j >= (1 + 1/M) / 3 p_j p_1 V_1 for j > 1, more than `constant`.

    The bound is worst at V_j = V_1 / (3M), all others at -V_1 / (3M), p_1 = 1/M, p_j = 0; at even attention it is
    (1 + 3/M) / 3. `tokens` asks for one M only; None for all.

    >>> noise_share().holds, noise_share(sp.Rational(2, 5)).holds, noise_share(sp.Rational(2, 5), tokens=5).holds
    (True, False, True)
    """
    share, other, value = sp.symbols("p_1 p_j V_1", positive=True)
    bound = value / (3 * M)
    # sum_k p_k V_k - V_j with V_j at +bound, the other noise at -bound
    least = share * value + other * bound - (1 - share - other) * bound - bound
    factor = sp.simplify(least / (share * value))
    rest = sp.Symbol("r", positive=True)  # 1 - p_j: the factor grows with p_1 and with p_j
    grows = [sp.simplify(sp.diff(factor, by).subs(other, 1 - rest)).is_positive for by in (share, other)]
    worst = sp.simplify(factor.subs(other, 0).subs(share, 1 / M))
    even = sp.simplify(factor.subs(other, 1 / M).subs(share, 1 / M))
    least_of_all = sp.limit(worst, M, sp.oo) if tokens is None else worst.subs(M, tokens)
    return Derivation("-g_j >= p_j p_1 V_1 / 4", rf"-g_j \ge {sp.latex(worst)}\; p_j\, p_1 V_1",
                      bool(all(grows) and least_of_all >= constant),
                      {"factor": factor, "worst": worst, "even": even})


def summation_step(last=None) -> Derivation:
    """D.2: sum_{s = T_1}^{t} (s - T_1) = (t - T_1)(t - T_1 + 1) / 2, and e^a (b - a) <= e^b - e^a.

    The second, summed over steps, bounds sum e^{Lambda_s} (Lambda_{s+1} - Lambda_s) by the integral of e^x. `last`
    replaces the closed form, in steps n = t - T_1.

    >>> summation_step().holds, summation_step(last="n * (n - 1) / 2").holds
    (True, False)
    """
    s, n = sp.symbols("s n", integer=True, nonnegative=True)
    closed = n * (n + 1) / 2 if last is None else sp.sympify(last, locals={"n": n})
    total = sp.summation(s, (s, 0, n))
    step = sp.Symbol("u", positive=True)  # b - a
    room = sp.exp(step) - 1 - step  # (e^b - e^a - e^a (b - a)) / e^a, zero at 0
    slope = sp.diff(room, step)  # e^u - 1, zero at 0, and its own slope e^u is positive
    convex = room.subs(step, 0) == 0 and slope.subs(step, 0) == 0 and sp.diff(slope, step).is_positive
    return Derivation("the sum of s - T_1, and the comparison with an integral",
                      rf"\sum_{{s = T_1}}^{{t}} (s - T_1) = {sp.latex(closed)}, \quad n = t - T_1",
                      bool(_is_zero(total - closed) and convex), {"total": total})


def am_gm(constant=None) -> Derivation:
    """F.7: x / (c + a x^2) <= 1 / (2 sqrt(a c)) for positive a, c, x, with equality at x = sqrt(c / a).

    The gap's numerator is the square (sqrt(c) - sqrt(a) x)^2. `constant` replaces the right side.

    >>> am_gm().holds, am_gm(constant="1 / (3 * sqrt(a * c))").holds
    (True, False)
    """
    a, c, x = sp.symbols("a c x", positive=True)
    bound = 1 / (2 * sp.sqrt(a * c)) if constant is None else sp.sympify(constant, locals={"a": a, "c": c})
    gap = sp.together(bound - x / (c + a * x**2))
    square = (sp.sqrt(c) - sp.sqrt(a) * x) ** 2 / (2 * sp.sqrt(a * c) * (c + a * x**2))
    return Derivation("x / (c + a x^2) <= 1 / (2 sqrt(a c))",
                      rf"\frac{{x}}{{c + a x^2}} \le {sp.latex(bound)}", _is_zero(gap - square),
                      {"gap": gap, "equality": sp.simplify(gap.subs(x, sp.sqrt(c / a)))})


def max_min(product=1) -> Derivation:
    """max{a, b} min{1/a, 1/b} = 1 for positive a, b: what turns Condition 4.1 (8) into bounds on logits.

    >>> max_min().holds, max_min(product=2).holds
    (True, False)
    """
    smaller, excess = sp.symbols("b s", positive=True)
    larger = smaller + excess
    ordered = sp.factor(1 / smaller - 1 / larger).is_positive  # so 1 / larger is the minimum of the inverses
    return Derivation("max{a, b} min{1/a, 1/b} = 1", rf"\max\{{a, b\}} \min\{{a^{{-1}}, b^{{-1}}\}} = {product}",
                      bool(ordered and _is_zero(larger * (1 / larger) - product)), {"ordered": ordered})
