"""Algebra behind the corrections to print: every function proves one statement, as in `vitbo_lib.symbolic`.

Each takes what is in question as an argument whose default is our reading, so that the printed version, or a planted
fault, can be put to the same proof: `Derivation.holds` then says no.
"""

import sympy as sp

from vitbo_lib.symbolic import C_p, Derivation, M, N, d, d_h, epsilon, eta, lg, mu, sigma_p, sigma_p_tilde, w_o

q, snr = sp.symbols("q SNR", positive=True)
sigma_h_squared = sp.Symbol("sigma_h2", positive=True)
noise = sigma_p**2 * d  # the squared norm of a weak noise token
quarter = d_h ** sp.Rational(-1, 4)


def _is_zero(expression) -> bool:
    return sp.simplify(expression) == 0


def third_stage(power_of_lg: int = 0) -> Derivation:
    """D.7: V_+ = log(C eta ||mu||^2 ||w_O||^2 T_3) is log(Theta(1 / epsilon)) if T_3 carries no power of lg.

    T_3 = lg^-power / (eta epsilon ||mu||^2 ||w_O||^2); Lemmas 5.4 and 5.5 print power 1. The loss e^(-V) at T_3, in
    units of epsilon, is in `parts`:

    >>> third_stage().holds, third_stage(1).holds, third_stage(1).parts["loss"]
    (True, False, lg)
    """
    t_3 = lg**-power_of_lg / (eta * epsilon * mu**2 * w_o**2)
    loss = sp.simplify(1 / (eta * mu**2 * w_o**2 * t_3) / epsilon)
    return Derivation("at T_3 the loss is Theta(epsilon)", rf"e^{{-V_+}} / \epsilon = {sp.latex(loss)}",
                      not loss.has(lg), {"loss": loss})


GAPS = {  # coefficient of (t - T_1)^2 in the exponential of a logit gap, and the unit of T_2
    "signal query, benign": (eta**2 * mu**4 * w_o**2 * sp.sqrt(d_h) / (N * lg**2), 1 / (eta * mu**2 * w_o**2)),
    "noise query, benign": (eta**2 * noise * mu**2 * w_o**2 * sp.sqrt(d_h) / (N * lg**2), 1 / (eta * mu**2 * w_o**2)),
    "signal query, harmful": (eta**2 * mu**2 * noise * w_o**2 * sp.sqrt(d_h) / (N**2 * lg**2),
                              N / (eta * noise * w_o**2)),
    "noise query, harmful": (eta**2 * noise**2 * w_o**2 * sp.sqrt(d_h) / (N**2 * lg**2), N / (eta * noise * w_o**2)),
}


def gap_at_second_time(power_of_lg: int = -4, power_of_w_o: int = -2, t_2_power: int = -1) -> Derivation:
    """D.3, E.3: the growth of the logit gaps up to T_2 = unit lg^t_2_power, in powers of lg and ||w_O||.

    Propositions D and L give c (t - T_1)^2 with lg^-2 in c. The paper prints lg^-3 at T_2, and ||w_O||^2 in the
    harmful gaps:

    >>> gap_at_second_time().holds, gap_at_second_time(power_of_lg=-2, t_2_power=0).holds
    (True, True)
    >>> gap_at_second_time(power_of_lg=-3).holds, gap_at_second_time(power_of_w_o=2).holds
    (False, False)
    """
    grown = {name: sp.simplify(rate * (unit * lg**t_2_power) ** 2) for name, (rate, unit) in GAPS.items()}
    powers = {name: (sp.simplify(lg * sp.diff(sp.log(x), lg)), sp.simplify(w_o * sp.diff(sp.log(x), w_o)))
              for name, x in grown.items()}
    holds = all(found == (power_of_lg, power_of_w_o) for found in powers.values())
    shown = grown["signal query, benign"]
    return Derivation("the gaps grow by d_h^(1/2) / (N lg^4 ||w_O||^2) until T_2",
                      rf"e^{{\Lambda^{{(T_2)}}}} - e^{{\Lambda^{{(T_1)}}}} = \Theta\left({sp.latex(shown)}\right)",
                       holds, grown | {"powers": powers})


def first_stage_values(dimension=d_h) -> Derivation:
    """D.3: values stay O(dimension^(-1/4)) up to T_0 = c / (eta d_h^(1/4) ||mu||^2 ||w_O||^2); printed last: d.

    They start within d_h^(-1/4) and move by at most 3 eta ||mu||^2 ||w_O||^2 / 4 a step. With d = d_h^a the ratio to
    the bound must not grow with d_h:

    >>> first_stage_values().holds, first_stage_values(d).holds
    (True, False)
    """
    c, a = sp.symbols("c a", positive=True)
    bound = quarter + c / (eta * mu**2 * w_o**2) * quarter * sp.Rational(3, 4) * eta * mu**2 * w_o**2
    ratio = sp.simplify(bound * dimension ** sp.Rational(1, 4))
    at_regime = ratio.subs(d, d_h ** (1 + a))  # item (2) asks d >= N^2 d_h / epsilon^2
    return Derivation("values are O(d_h^(-1/4)) in stage I", rf"\max\lvert V \rvert \le {sp.latex(sp.factor(bound))}",
                      bool(_is_zero(sp.diff(at_regime, d_h))), {"ratio": ratio})


def growth_of_dominance(power_of_w_o: int = 2) -> Derivation:
    """D.2.1: V_+ - 3M |V_{n,i}| grows by eta ||w_O||^2 (N ||mu||^2 - 60 M^2 C_p^2 sigma_p^2 d) / (10 N M) a step.

    gamma grows by at least eta ||mu||^2 / (10 M), rho by at most 2 eta sigma_p_tilde^2 d / N, and V = ||w_O||^2 times
    either; printed without ||w_O||^2.

    >>> growth_of_dominance().holds, growth_of_dominance(power_of_w_o=0).holds
    (True, False)
    """
    growth = w_o**2 * (eta * mu**2 / (10 * M) - 3 * M * 2 * eta * sigma_p_tilde**2 * d / N)
    claimed = eta * w_o**power_of_w_o * (N * mu**2 - 60 * M**2 * C_p**2 * noise) / (10 * N * M)
    return Derivation("growth of V_+ - 3M |V_{n,i}|",
                      rf"\Delta(V_+ - 3M\lvert V_{{n,i}}\rvert) \ge {sp.latex(claimed)}", _is_zero(growth - claimed),
                      {"growth": growth})


def summed_gap(keep_exp: bool = True) -> Derivation:
    """D.2.3: d Lambda / ds = c (s - T_1) e^-Lambda sums to Lambda = log(e^Lambda(T_1) + c (t - T_1)^2 / 2).

    In print the e^ under the logarithm is missing (`keep_exp` = False). Both the equation and the start are checked;
    the integral of e^x from a to b, printed as at most e^b - e^a, is equal to it.

    >>> summed_gap().holds, summed_gap(keep_exp=False).holds
    (True, False)
    """
    t, c, start, a, b, x = sp.symbols("t c Lambda_1 a b x", real=True)
    gap = sp.log((sp.exp(start) if keep_exp else start) + c * t**2 / 2)  # t counts from T_1
    equation = _is_zero(sp.diff(gap, t) - c * t * sp.exp(-gap))
    begins = _is_zero(gap.subs(t, 0) - start)
    integral = _is_zero(sp.integrate(sp.exp(x), (x, a, b)) - (sp.exp(b) - sp.exp(a)))
    return Derivation("logit gaps grow as log(e^Lambda + c t^2 / 2)", rf"\Lambda^{{(t)}} = {sp.latex(gap)}",
                      equation and begins and integral, {"equation": equation, "begins": begins, "integral": integral})


CLAIM_2 = {"signal query, signal key": mu**6, "signal query, noise key": noise * mu**4,
           "noise query, signal key": noise * mu**4, "noise query, noise key": noise**2 * mu**2}


def claim_2_exponents(printed: dict | None = None) -> Derivation:
    """F.5: each logit increment of Claim 2 is its coefficient times the squared norm of its key.

    Coefficients are mu^4 for signal queries and sigma_p^2 d mu^2 for noise queries, squared norms of keys mu^2 or
    sigma_p^2 d (times what is common to all). `printed` replaces the four products.

    >>> claim_2_exponents().holds, claim_2_exponents(CLAIM_2 | {"noise query, signal key": noise**2 * mu**2}).holds
    (True, False)
    """
    query, key = {"signal": mu**4, "noise": noise * mu**2}, {"signal": mu**2, "noise": noise}
    products = {f"{one} query, {other} key": query[one] * key[other] for one in query for other in key}
    holds = all(_is_zero(products[name] - value) for name, value in (printed or CLAIM_2).items())
    return Derivation("the exponents of F.5 are products of coefficient and squared norm",
                      ", ".join(sp.latex(value) for value in products.values()), holds, products)


def frobenius_norm() -> Derivation:
    """D.8 to D.10: ||X_n||_F^2 with sigma_p for all noise tokens is short by at most (C_p^2 + M - 2) / (M - 1).

    Squared norms at their means: ||mu||^2 + C_p^2 sigma_p^2 d + (M - 2) sigma_p^2 d, in print with (M - 1) sigma_p^2 d
    for the noise. The ratio is largest for a weak signal, and then for M = 2; with C_p^2 = 25 M it is `at_c_p`, 50 at
    most:

    >>> frobenius_norm().parts["largest"], [frobenius_norm().parts["at_c_p"].subs(M, m) for m in (2, 4)]
    (C_p**2, [50, 34])
    """
    extra, more = sp.symbols("extra more", nonnegative=True)  # C_p^2 - 1 and M - 2
    true = mu**2 + (1 + extra) * noise + more * noise
    printed = mu**2 + (1 + more) * noise
    room = sp.expand((1 + extra) * printed - true)  # a sum of products of what is not negative
    weak_signal = sp.simplify(sp.limit(true / printed, mu, 0))
    largest = weak_signal.subs(more, 0).subs(extra, C_p**2 - 1)
    at_c_p = sp.factor(weak_signal.subs({more: M - 2, extra: 25 * M - 1}))
    return Derivation("||X_n||_F^2 exceeds the printed bound by at most C_p^2",
                      rf"\lVert X_n \rVert_F^2 \le {sp.latex(sp.simplify(largest))} (\ldots)",
                      room.is_nonnegative is True and bool(_is_zero(largest - C_p**2)),
                      {"largest": sp.simplify(largest), "at_c_p": at_c_p})


def harmful_margin(rate=1 / (N * M)) -> Derivation:
    """E.3: at T_1 the dominance of V_{n,2} is not negative if |Delta gamma| <= 2 eta sigma_p^2 d `rate`.

    One display has the rate 1 / N, the next but one 1 / (N M); T_1 is that of the lemma, C_p^2 = 25 M.

    >>> harmful_margin().holds, harmful_margin(1 / N).holds, sp.factor(harmful_margin(1 / N).parts["margin"])
    (True, False, -24*(M - 1)*(3*M + 1)/d_h**(1/4))
    """
    t_1 = 4 * (3 * M + 1) * N * quarter / (eta * noise * w_o**2)
    strong = -quarter + t_1 * eta * 25 * M * noise * w_o**2 / (4 * N * M)
    signal = quarter + t_1 * 2 * eta * noise * w_o**2 * rate
    margin = sp.simplify(strong - 3 * M * signal)
    holds = bool(margin.subs(M, 2).is_nonnegative) and bool(margin.subs(M, 16).is_nonnegative)
    return Derivation("V_{n,2} - 3M |V_+| >= 0 at T_1",
                      rf"V_{{n,2}} - 3M\lvert V_+ \rvert \ge {sp.latex(margin)}", holds, {"margin": margin})


def last_display_of_e_6(of_the_loss: bool = True) -> Derivation:
    """E.6: y f <= 1/2 gives l(y f) >= log(1 + e^(-1/2)), and not y f >= log(1 + e^(-1/2)), as printed.

    >>> last_display_of_e_6().holds, last_display_of_e_6(of_the_loss=False).holds
    (True, False)
    """
    z = sp.Symbol("z", real=True)
    half = sp.Rational(1, 2)
    loss = sp.log(1 + sp.exp(-z))
    floor = loss.subs(z, half)
    said = loss if of_the_loss else z
    # the loss falls, so that its smallest value on z <= 1/2 is at 1/2; z itself has none: 0 is below the floor
    slope = sp.simplify(sp.diff(said, z) * (1 + sp.exp(-z)))
    holds = slope.is_negative is True and _is_zero(said.subs(z, half) - floor)
    return Derivation("y f <= 1/2 implies l >= log(1 + e^(-1/2))", rf"\ell(yf) \ge {sp.latex(floor)}", holds,
                      {"floor": floor, "at_zero": said.subs(z, 0)})


def key_norm_order(claimed=mu**2 * sigma_h_squared * d_h) -> Derivation:
    """F.12: E ||k_+||^2 = ||mu||^2 sigma_h^2 d_h; printed O(eta ||mu||^2), smaller by lg^2 / d_h at the least.

    The squared norm of mu^T W_K is a sum of d_h Gaussian squares of variance ||mu||^2 sigma_h^2. `parts` has the
    largest quotient of the printed one and the true one that Condition 4.1 (6) and (8) allow.

    >>> key_norm_order().holds, key_norm_order(eta * mu**2).holds, key_norm_order().parts["printed"]
    (True, False, lg**2/d_h)
    """
    i = sp.Symbol("i", integer=True)
    true = sp.summation(mu**2 * sigma_h_squared, (i, 1, d_h))
    energy = sp.Symbol("e", positive=True)  # max{||mu||^2, sigma_p^2 d}
    largest_step = 1 / (energy * sp.sqrt(d_h))
    smallest_variance = largest_step / lg**2
    quotient = sp.simplify((eta * mu**2 / true).subs(eta, largest_step).subs(sigma_h_squared, smallest_variance))
    return Derivation("||k_+||^2 = Theta(||mu||^2 sigma_h^2 d_h)",
                      rf"\mathbb{{E}} \lVert k_+ \rVert^2 = {sp.latex(true)}", _is_zero(true - claimed),
                      {"printed": quotient})


def equal_indices(excluded: bool = True) -> Derivation:
    """C.3: inner products of queries of distinct noise tokens are at most 2 sigma_p_tilde^2 sigma_h^2 d (d_h lg)^(1/2).

    Their mean is 0. For equal tokens (`excluded` = False) it is sigma_p_tilde^2 sigma_h^2 d d_h, beyond the bound from
    d_h = 4 lg on.

    >>> equal_indices().holds, equal_indices(excluded=False).holds, equal_indices().parts["d_h"]
    (True, False, 4*lg)
    """
    bound = 2 * sigma_p_tilde**2 * sigma_h_squared * d * sp.sqrt(d_h * lg)
    mean = 0 if excluded else sigma_p_tilde**2 * sigma_h_squared * d * d_h
    equal = sigma_p_tilde**2 * sigma_h_squared * d * d_h
    crossing = sp.solve(sp.Eq(equal / bound, 1), d_h)[0]
    return Derivation("means of inner products stay below the bound of C.3", rf"d_h \le {sp.latex(crossing)}",
                      bool(sp.limit(mean / bound, d_h, sp.oo) < 1),
                      {"d_h": crossing, "ratio": sp.simplify(equal / bound)})


def class_balance_delta(factor: int = 8) -> Derivation:
    """C.1: N >= 8 log(4 / delta) allows delta >= 4 e^(-N/8); at or above 1 the lemma says nothing. `factor` is the 8.

    >>> [round(float(class_balance_delta().parts["delta"].subs(N, n)), 2) for n in (11, 12, 20)]
    [1.01, 0.89, 0.33]
    """
    delta = sp.Symbol("delta", positive=True)
    smallest = sp.solve(sp.Eq(N, factor * sp.log(4 / delta)), delta)[0]
    return Derivation("the smallest delta of C.1 at N", rf"\delta \ge {sp.latex(smallest)}",
                      bool(_is_zero(smallest - 4 * sp.exp(-N / 8))), {"delta": smallest})


def fewer_samples(cnn_power=q) -> Derivation:
    """Section 4: for SNR <= 1 and q > 2, SNR^-2 <= SNR^-q, the N that the ViT and the CNN of Cao et al. ask for.

    With s = -log SNR >= 0 and q = 2 + r the quotient SNR^-q / SNR^-2 is e^(r s) >= 1. `cnn_power` replaces q.

    >>> fewer_samples().holds, fewer_samples(sp.Rational(3, 2)).holds
    (True, False)
    """
    s, r = sp.symbols("s r", nonnegative=True)
    quotient = sp.powsimp((snr ** (2 - cnn_power)).subs(q, 2 + r).subs(snr, sp.exp(-s)), force=True)
    exponent = sp.expand(sp.log(quotient), force=True)
    return Derivation("SNR^-2 <= SNR^-q for SNR <= 1, q > 2", r"\mathrm{SNR}^{-q} / \mathrm{SNR}^{-2} = e^{rs} \ge 1",
                      sp.simplify(exponent).is_nonnegative is True, {"exponent": exponent})
