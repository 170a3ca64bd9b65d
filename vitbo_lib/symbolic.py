"""The paper's small algebra, done by sympy: every function proves one statement and returns what a page prints.

Each takes the statement in question as an argument, so that another version (a slip in print, a planted fault) can be
put to the same proof: `Derivation.holds` then says no.
"""

from dataclasses import dataclass, field

import sympy as sp

M, N, C, C_p = sp.symbols("M N C C_p", positive=True)
eta, d, d_h, mu, sigma_p, w_o, lg, epsilon = sp.symbols("eta d d_h mu sigma_p w_o lg epsilon", positive=True)
sigma_p_tilde = C_p * sigma_p
HALF = sp.Rational(1, 2)


@dataclass(frozen=True)
class Derivation:
    """One statement, LaTeX for the page, whether it holds, and the sympy objects it rests on."""

    statement: str
    latex: str
    holds: bool
    parts: dict = field(default_factory=dict, repr=False)


def _is_zero(expression) -> bool:
    return sp.simplify(expression) == 0


def softmax_jacobian(tokens: int = 3, off_diagonal_sign: int = -1) -> Derivation:
    """Eqs. (3)-(5): the Jacobian of softmax is diag(phi) - phi^T phi, with a minus off the diagonal.

    The last line of (4) prints s_i s_j without the minus: `off_diagonal_sign` = +1.

    >>> softmax_jacobian().holds, softmax_jacobian(off_diagonal_sign=+1).holds
    (True, False)
    """
    a = sp.symbols(f"a_1:{tokens + 1}", real=True)
    phi = sp.Matrix([sp.exp(x) for x in a]) / sum(sp.exp(x) for x in a)
    jacobian = phi.jacobian(a)
    claimed = sp.Matrix(tokens, tokens, lambda i, j: phi[i] * (1 - phi[i]) if i == j
                        else off_diagonal_sign * phi[i] * phi[j])
    s = sp.Matrix(sp.symbols(f"s_1:{tokens + 1}"))
    shown = sp.diag(*s) - s * s.T
    holds = (jacobian - claimed).applyfunc(sp.simplify) == sp.zeros(tokens)
    return Derivation("d softmax_i / d a_j = s_i (delta_ij - s_j)",
                      rf"\frac{{\partial s}}{{\partial a}} = {sp.latex(shown)}", holds, {"jacobian": jacobian})


def _tiny_problem():
    """Eq. (1) at N = M = d = 2, d_h = d_v = 1, tokens whole numbers: the free weights, the samples (x, y, phi, f)."""
    q, k, v = (sp.Matrix(sp.symbols(f"{name}_1:3", real=True)) for name in "qkv")
    tokens = [sp.Matrix([[3, 0], [1, 1]]), sp.Matrix([[0, 3], [-1, 2]])]
    samples = []
    for x, y in zip(tokens, (1, -1)):
        weights = (x * q * k.T * x.T).applyfunc(sp.exp)
        phi = sp.Matrix(2, 2, lambda i, j, e=weights: e[i, j] / (e[i, 0] + e[i, 1]))
        samples.append((x, y, phi, sum(phi * x * v * w_o) / 2))
    return (q, k, v), samples


def lemma_b_1(noise_sign: int = 1, mean_over_tokens: bool = True) -> Derivation:
    """Lemma B.1 at N = M = d = 2: the closed-form gradients are sympy's own derivatives of the loss of eq. (1).

    `noise_sign` = -1 puts a minus before the sum over noise queries in the gradient of W_Q; `mean_over_tokens` =
    False drops the 1 / M. Both are seen:

    >>> lemma_b_1().holds, lemma_b_1(noise_sign=-1).holds, lemma_b_1(mean_over_tokens=False).holds
    (True, False, False)
    """
    weights, samples = _tiny_problem()
    q, k, v = weights
    outputs = sp.symbols("f_1:3", real=True)  # stand for f(X_n) until the chain rule has been applied
    loss = sum(sp.log(1 + sp.exp(-y * f)) for f, (_, y, _, _) in zip(outputs, samples)) / 2
    derivative = [[sum(sp.diff(loss, f) * sp.diff(sample[3], symbol) for f, sample in zip(outputs, samples))
                   for symbol in part] for part in weights]
    claimed = [sp.zeros(2, 1) for _ in weights]
    for f, (x, y, phi, _) in zip(outputs, samples):
        slope = -y / (1 + sp.exp(y * f)) / (4 if mean_over_tokens else 2)  # y l' / (N M)
        values = x * v * w_o
        for token in range(2):
            p = phi[token, :]
            jacobian = sp.diag(*p) - p.T * p
            claimed[0] += slope * x[token, :].T * (noise_sign if token else 1) * (values.T * jacobian * x * k)
            claimed[1] += slope * x.T * jacobian * values * (x[token, :] * q)
            claimed[2] += slope * x.T * p.T * w_o
    holds = all(_same(one, other) for part, closed in zip(derivative, claimed) for one, other in zip(part, closed))
    return Derivation("the gradients of Lemma B.1 are the derivatives of eq. (1)",
                      r"\nabla_{W_Q} L_S = \frac{1}{NM} \sum_n y_n \ell'_n \sum_l x_{n,l} v_n^\top J_{n,l} X_n W_K",
                      holds, dict(zip(("W_Q", "W_K", "W_V"), claimed)))


def _same(one, other) -> bool:
    """Whether two expressions agree that are rational in exp(m) for monomials m, each exp(m) a variable of its own."""

    def as_powers(argument):
        terms = sp.expand(argument).as_coefficients_dict().items()
        return sp.prod(sp.Symbol(f"exp[{monomial}]", positive=True) ** power for monomial, power in terms)

    return sp.cancel(sp.together((one - other).replace(sp.exp, as_powers))) == 0


def benign_first_stage(constant=60) -> Derivation:
    """Lemma 5.2 (D.5): at T_1 the bounds on V_+ and 3M |V_{n,i}| meet exactly, so T_1 is where they break even.

    Rates per step: V_+ at least eta ||mu||^2 ||w_O||^2 / (10 M), |V_{n,i}| at most 2 eta sigma_p_tilde^2 d
    ||w_O||^2 / N; both start within d_h^(-1/4). `constant` is the 60 in T_1.

    >>> benign_first_stage().holds, benign_first_stage(constant=30).holds
    (True, False)
    """
    room = N * mu**2 - constant * M**2 * sigma_p_tilde**2 * d
    t_1 = 10 * M * (3 * M + 1) * N / (eta * d_h ** sp.Rational(1, 4) * room * w_o**2)
    signal = -(d_h ** sp.Rational(-1, 4)) + t_1 * eta * mu**2 * w_o**2 / (10 * M)
    noise = d_h ** sp.Rational(-1, 4) + t_1 * 2 * eta * sigma_p_tilde**2 * d * w_o**2 / N
    margin = sp.simplify(signal - 3 * M * noise)
    return Derivation("V_+ - 3M |V_{n,i}| >= 0 at T_1, with equality of the bounds",
                      rf"V_+ - 3M \lvert V_{{n,i}} \rvert \ge {sp.latex(margin)}", margin == 0,
                      {"t_1": t_1, "signal": signal, "noise": noise})


def benign_floor(floor=None) -> Derivation:
    """D.5: T_1 <= C / (eta d_h^(1/4) ||mu||^2 ||w_O||^2) iff N SNR^2 >= 60 C M^2 C_p^2 / (C - 10 M (3M + 1)).

    Both sides are divided by what is positive (C > 10 M (3M + 1), and N SNR^2 > 60 M^2 C_p^2 for T_1 to exist). `floor`
    replaces the right side.

    >>> benign_floor().holds, benign_floor(60 * M**2 * C_p**2).holds
    (True, False)
    """
    x = sp.Symbol("x", positive=True)  # N SNR^2
    start = 10 * M * (3 * M + 1)
    ratio = start * x / (x - 60 * M**2 * C_p**2)  # T_1 in units of 1 / (eta d_h^(1/4) ||mu||^2 ||w_O||^2)
    claimed = 60 * C * M**2 * C_p**2 / (C - start) if floor is None else floor
    equality = _is_zero(ratio.subs(x, claimed) - C)
    falls = _is_zero(sp.diff(ratio, x) * (x - 60 * M**2 * C_p**2) ** 2 + start * 60 * M**2 * C_p**2)  # slope < 0
    limit = sp.limit(claimed, C, sp.oo)
    return Derivation("T_1 = O(.) iff N SNR^2 >= 60 C M^2 C_p^2 / (C - 10 M (3M + 1)), which tends to 60 M^2 C_p^2",
                      rf"N \cdot \mathrm{{SNR}}^2 \ge {sp.latex(claimed)} \to {sp.latex(limit)}",
                      bool(equality and falls and limit == 60 * M**2 * C_p**2),
                      {"at_c_p": sp.simplify(limit.subs(C_p, 5 * sp.sqrt(M)))})


def harmful_first_stage(constant=24) -> Derivation:
    """Lemma E.3: at the harmful T_1 the bounds on V_{n,2} and on 3M times the others meet exactly; needs C_p^2 > 24 M.

    Rates: V_{n,2} at least eta C_p^2 sigma_p^2 d ||w_O||^2 / (4 N M), the others at most 2 eta sigma_p^2 d ||w_O||^2 /
    (N M). `constant` is the 24 in T_1.

    >>> harmful_first_stage().holds, harmful_first_stage(constant=25).holds
    (True, False)
    """
    speed = eta * sigma_p**2 * d * w_o**2 / (N * M)
    quarter = d_h ** sp.Rational(-1, 4)
    t_1 = 4 * M * (3 * M + 1) * N * quarter / (eta * (C_p**2 - constant * M) * sigma_p**2 * d * w_o**2)
    margin = sp.simplify(-quarter + t_1 * speed * C_p**2 / 4 - 3 * M * (quarter + t_1 * 2 * speed))
    printed = sp.simplify(t_1.subs(C_p, 5 * sp.sqrt(M)) * (eta * sigma_p**2 * d * w_o**2) / (N * quarter))
    return Derivation("V_{n,2} - 3M max(others) >= 0 at T_1, with equality of the bounds; T_1 > 0 iff C_p^2 > 24 M",
                      rf"V_{{n,2}} - 3M \max\lvert V \rvert \ge {sp.latex(margin)}", margin == 0,
                      {"t_1": t_1, "factor_at_c_p": printed})


def harmful_ceiling() -> Derivation:
    """Lemma E.3's chain 3 eta ||mu||^2 / (8M) <= eta ||mu||^2 / (2M) <= 2 eta sigma_p^2 d / (N M), in N SNR^2.

    The last step is N SNR^2 <= 4; going from first to last at once would allow any value below 16/3.

    >>> harmful_ceiling().parts
    {'chain': 4, 'direct': 16/3}
    """
    x = sp.Symbol("x", positive=True)
    limits = {name: sp.solve(sp.Eq(rate * x, 2), x)[0]  # in units of eta sigma_p^2 d / (N M)
              for name, rate in (("chain", sp.Rational(1, 2)), ("direct", sp.Rational(3, 8)))}
    return Derivation("the harmful proof needs N SNR^2 <= 4", rf"N \cdot \mathrm{{SNR}}^2 \le {limits['chain']}",
                      limits == {"chain": 4, "direct": sp.Rational(16, 3)}, limits)


def window_8(lower=-2, upper=-3 * HALF) -> Derivation:
    """Condition 4.1 (8): the window [lg^-2, lg^-3/2] is non-empty exactly for lg >= 1.

    >>> window_8().holds, window_8(lower=-1).holds
    (True, False)
    """
    ratio = sp.powsimp(lg**upper / lg**lower)  # upper end over lower end; 1 at lg = 1 and increasing
    return Derivation("the window of item (8) is non-empty iff lg >= 1",
                      rf"lg^{{{sp.latex(upper)}}} / lg^{{{sp.latex(lower)}}} = {sp.latex(ratio)} \ge 1 \iff lg \ge 1",
                      ratio.subs(lg, 1) == 1 and sp.diff(ratio, lg).is_positive is True, {"ratio": ratio})


def initial_logits() -> Derivation:
    """Lemma C.3 under Condition 4.1 (8): initial logits are at most 2 / lg for signals, 2 C_p^2 / lg between xi_2's.

    With e = max{||mu||^2, sigma_p^2 d} and sigma_h^2 at the top of its window. C_p^2 = 25 M turns the second into
    50 M / lg: it vanishes in the limit, and is far from small while lg is a two-digit number.

    >>> initial_logits().parts
    {'signal': 2/lg, 'xi_2': 50*M/lg}
    """
    energy = sp.Symbol("e", positive=True)
    sigma_h_squared = 1 / (energy * sp.sqrt(d_h) * lg ** sp.Rational(3, 2))  # min of inverses = 1 / max
    signal = sp.simplify(2 * energy * sigma_h_squared * sp.sqrt(d_h * lg))
    strong = sp.simplify(signal * C_p**2).subs(C_p, 5 * sp.sqrt(M))
    return Derivation("initial logits are O(1 / lg)",
                      rf"\lvert \langle q_\pm, k_\pm \rangle \rvert \le {sp.latex(signal)}, \quad "
                      rf"\lvert \langle q_{{n,2}}, k_{{n',2}} \rangle \rvert \le {sp.latex(strong)}",
                      _is_zero(signal - 2 / lg) and sp.limit(strong, lg, sp.oo) == 0,
                      {"signal": signal, "xi_2": strong})


def loss_at_target(bound=epsilon) -> Derivation:
    """D.7: log(1 + epsilon) <= epsilon, so a margin of log(1 / epsilon) on every sample gives a loss of epsilon.

    The gap is 0 at epsilon = 0 and grows with epsilon. `bound` replaces the right side.

    >>> loss_at_target().holds, loss_at_target(bound=epsilon / 2).holds
    (True, False)
    """
    gap = bound - sp.log(1 + epsilon)
    slope = sp.factor(sp.together(sp.diff(gap, epsilon)))
    return Derivation("log(1 + epsilon) <= epsilon", r"\log(1 + \epsilon) \le " + sp.latex(bound),
                      sp.limit(gap, epsilon, 0) == 0 and slope.is_nonnegative is True, {"gap": gap, "slope": slope})


def harmful_population_loss(floor=0.1) -> Derivation:
    """E.6: with probability at least 1/2 y f <= 1/2, so the population loss is at least log(1 + e^(-1/2)) / 2.

    >>> round(float(harmful_population_loss().parts["value"]), 3), harmful_population_loss(floor=0.25).holds
    (0.237, False)
    """
    value = sp.log(1 + sp.exp(sp.Rational(-1, 2))) / 2
    return Derivation("L_D >= log(1 + e^(-1/2)) / 2 >= 0.1", rf"L_D \ge {sp.latex(value)} \approx {value.evalf(3)}",
                      bool(value >= floor), {"value": value})


def boundary(signal_share=HALF) -> Derivation:
    """Break-even of the initial rates of signal and strong noise: N SNR^2 = 2 C_p^2 for even classes (ours).

    At uniform attention 1/M and -l' = 1/2, V_+ gains eta ||mu||^2 ||w_O||^2 (share / 2) / M a step, V_{n,2} gains
    eta sigma_p_tilde^2 d ||w_O||^2 / (2 N M). `signal_share` is |S_+| / N.

    >>> boundary().parts["n_snr2"], boundary(signal_share=1).holds
    (2*C_p**2, False)
    """
    snr2 = sp.Symbol("SNR2", positive=True)
    signal = eta * snr2 * sigma_p**2 * d * w_o**2 * signal_share / 2 / M  # ||mu||^2 = SNR^2 sigma_p^2 d
    strong = eta * sigma_p_tilde**2 * d * w_o**2 / (2 * N * M)
    n_snr2 = sp.simplify(N * sp.solve(sp.Eq(signal, strong), snr2)[0])
    return Derivation("signal and xi_2 start equally fast at N SNR^2 = 2 C_p^2",
                      rf"N \cdot \mathrm{{SNR}}^2 = {sp.latex(n_snr2)}", _is_zero(n_snr2 - 2 * C_p**2),
                      {"signal": signal, "xi_2": strong, "n_snr2": n_snr2})


def figure_2_factors(image=None, noise=None) -> Derivation:
    """Figure 2: factors that add up to 1 with ratio SNR are SNR / (1 + SNR) and 1 / (1 + SNR).

    The paper's two examples are 1/6 and 5/6 at SNR 0.2, 2/3 and 1/3 at SNR 2. `image`, `noise` replace the rule.

    >>> figure_2_factors().parts["examples"]
    {1/5: (1/6, 5/6), 2: (2/3, 1/3)}
    """
    snr = sp.Symbol("SNR", positive=True)
    image = snr / (1 + snr) if image is None else sp.sympify(image)
    noise = 1 / (1 + snr) if noise is None else sp.sympify(noise)
    examples = {value: (image.subs(snr, value), noise.subs(snr, value)) for value in (sp.Rational(1, 5), sp.Integer(2))}
    printed = {sp.Rational(1, 5): (sp.Rational(1, 6), sp.Rational(5, 6)),
               sp.Integer(2): (sp.Rational(2, 3), sp.Rational(1, 3))}
    return Derivation("Figure 2 multiplies the image by SNR / (1 + SNR), the noise by 1 / (1 + SNR)",
                      rf"{sp.latex(image)}, \quad {sp.latex(noise)}",
                      _is_zero(image + noise - 1) and _is_zero(image / noise - snr) and examples == printed,
                      {"examples": examples})


def population_bound(tokens: int, target="1/100") -> Derivation:
    """D.10: the bound 3 epsilon^(1 / (2 M^2)) on the benign test loss, without its second term and at C_20 = 1.

    It is vacuous where it exceeds log 2, the loss of a constant guess; `parts` has the bound, and log10 of the target
    loss at which it stops to be.

    >>> bound = population_bound(4)
    >>> bound.holds, round(float(bound.parts["bound"]), 2), round(float(bound.parts["log10_epsilon"]), 1)
    (True, 2.6, -20.4)
    """
    exponent = sp.Rational(1, 2 * tokens**2)
    bound = 3 * sp.sympify(target) ** exponent
    log10_epsilon = sp.log(sp.log(2) / 3, 10) / exponent
    return Derivation(f"at M = {tokens} and epsilon = {target} the bound of D.10 exceeds log 2",
                      rf"3 \epsilon^{{{sp.latex(exponent)}}} = {bound.evalf(3)}", bool(bound > sp.log(2)),
                      {"bound": bound, "log10_epsilon": log10_epsilon})
