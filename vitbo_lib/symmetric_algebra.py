"""The algebra of the symmetric limit, done by sympy: that the flow closes, and where its break-evens are."""

import functools

import sympy as sp

from vitbo_lib.symbolic import Derivation

WEAK_TOKENS, OF_CLASS = 2, 3  # the smallest problem in which every kind of pair of tokens exists
LETTERS = "mxw"  # mu, xi_2, weak
NOTHING = sp.Integer(0)


def _tokens(of_class: int, weak: int) -> list[tuple[str, int, int]]:
    """Distinct tokens of one class: type, sample, place."""
    return [("m", -1, -1)] + [token for n in range(of_class)
                              for token in [("x", n, 0), *[("w", n, i) for i in range(weak)]]]


def _relation(a: tuple, b: tuple) -> str:
    """What an entry of the pattern depends on: both types, and how near the tokens are."""
    kinds = a[0] + b[0]
    if "m" in kinds:
        return kinds
    if a[1] != b[1]:
        return f"{kinds} other sample"
    return f"{kinds} same token" if a == b else f"{kinds} same sample"


def _pattern(name: str, tokens: list, symmetric: bool = False, inside_samples: bool = False) -> sp.Matrix:
    """A matrix whose entries are one symbol for each relation; B has none between samples."""
    def entry(i, j):
        relation = _relation(tokens[i], tokens[j])
        if symmetric and LETTERS.index(relation[0]) > LETTERS.index(relation[1]):
            relation = relation[1] + relation[0] + relation[2:]
        return NOTHING if inside_samples and "other" in relation else sp.Symbol(f"{name}[{relation}]")

    return sp.Matrix(len(tokens), len(tokens), entry)


def _keeps_pattern(matrix: sp.Matrix, tokens: list) -> bool:
    """Whether entries with the same relation are the same polynomial."""
    seen = {}
    return all(sp.expand(matrix[i, j] - seen.setdefault(_relation(a, b), matrix[i, j])) == 0
               for i, a in enumerate(tokens) for j, b in enumerate(tokens))


def _directions(tokens: list) -> list[sp.Matrix]:
    """Columns of one copy of each block: class sums; differences of samples; a difference of weak tokens."""
    def column(weight):
        vector = sp.Matrix([weight(token) for token in tokens])
        return vector / sp.sqrt(sum(x**2 for x in vector))

    between = {0: 1, 1: -1}
    return [sp.Matrix.hstack(*[column(lambda t, k=kind: int(t[0] == k)) for kind in LETTERS]),
            sp.Matrix.hstack(*[column(lambda t, k=kind: between.get(t[1], 0) * (t[0] == k)) for kind in LETTERS[1:]]),
            column(lambda t: between.get(t[2], 0) * (t[0] == "w" and t[1] == 0))]


def _flow(d, b, p, a, c) -> tuple:
    """(dP, dA, dC) / dt."""
    return d * b * c + a * b * d, d * b * p.T + p * b.T * d, d * b.T * p + p.T * b * d


@functools.cache
def closed_system(classes_meet: bool = False, alike: bool = True) -> Derivation:
    """The flow keeps the pattern, stays inside a class, and is the same flow in every block (3 samples, 2 weak tokens).

    `classes_meet` = True begins with logits between the classes, `alike` = False with one sample unlike the others;
    then it does not hold.

    >>> closed_system().holds, closed_system(classes_meet=True).holds, closed_system(alike=False).holds
    (True, False, False)
    """
    tokens = _tokens(OF_CLASS, WEAK_TOKENS)
    energy = {kind: sp.Symbol(f"E_{kind}") for kind in LETTERS}
    d = sp.diag(*[energy[token[0]] for token in tokens])
    b = _pattern("B", tokens, inside_samples=True)
    p, a, c = _pattern("P", tokens), _pattern("A", tokens, True), _pattern("C", tokens, True)
    if not alike:
        p[1, 1] += sp.Symbol("odd")
    size = len(tokens)
    meeting = sp.Symbol("meeting") if classes_meet else NOTHING

    def both(matrix, between=NOTHING):
        return sp.Matrix(sp.BlockMatrix([[matrix, between * sp.eye(size)], [between * sp.eye(size), matrix]]))

    whole = _flow(both(d), both(b), both(p, meeting), both(a), both(c))
    holds = all(matrix[:size, size:].is_zero_matrix and _keeps_pattern(matrix[:size, :size], tokens)
                for matrix in whole)
    for columns in _directions(tokens):
        block = _flow(*(columns.T * matrix * columns for matrix in (d, b, p, a, c)))
        holds = holds and all(_is_zero(columns.T * matrix[:size, :size] * columns - small)
                              for matrix, small in zip(whole, block))
    names = {"P": p, "A": a, "C": c}
    scalars = 3 + sum(len(matrix.free_symbols - {sp.Symbol("odd")}) for matrix in names.values())
    return Derivation("the symmetric flow closes, class by class and block by block",
                      r"\dot P = D B C + A B D, \quad \dot A = D B P^\top + P B^\top D, \quad "
                      r"\dot C = D B^\top P + P^\top B D", bool(holds), {"scalars": scalars})


def _is_zero(matrix: sp.Matrix) -> bool:
    return matrix.applyfunc(lambda entry: sp.expand(sp.radsimp(entry))).is_zero_matrix


def force_at_logits(sign: int = 1) -> Derivation:
    """B = -dL/dlogit of sample n is -l' phi_lj (V_j - (phi V)_l) / (N M) in values signed by y, for either label.

    Checked with M = 3 by differentiating the loss; `sign` = -1 claims the opposite.

    >>> force_at_logits().holds, force_at_logits(sign=-1).holds
    (True, False)
    """
    size, n = 3, sp.Symbol("N", positive=True)
    weights = sp.Matrix(size, size, sp.symbols(f"e_:{size * size}", positive=True))  # e^logit
    values = sp.Matrix(sp.symbols(f"v_:{size}", real=True))  # signed by y
    phi = sp.Matrix(size, size, lambda i, j: weights[i, j] / sum(weights[i, :]))
    read = phi * values
    f, holds = sp.Symbol("f", real=True), True
    for label in (1, -1):
        output = sum(phi * (label * values)) / size  # the network's own values are y times the signed ones
        outer = -sp.diff(sp.log(1 + sp.exp(-label * f)) / n, f)
        slope = 1 / (1 + sp.exp(label * f))  # -l'
        for i, j in ((0, 0), (0, 1), (1, 1), (2, 0)):
            force = outer * weights[i, j] * sp.diff(output, weights[i, j])
            claimed = sign * slope * phi[i, j] * (values[j] - read[i]) / (n * size)
            holds = holds and sp.cancel(sp.together(sp.simplify((force - claimed) / slope))) == 0
    return Derivation("B has the same form for both labels",
                      r"B_{lj} = \frac{-\ell'}{NM} \varphi_{lj} \bigl(V_j - (\varphi V)_l\bigr)", bool(holds))


def smallest_constant(ratio=2) -> Derivation:
    """M = 2: at r = 2 even attention lasts for ever, at every N and every gain, since V_mu and V_xi grow alike.

    With phi = 1/2, dV_mu/dt : dV_xi/dt = r/2 : 1, and every force on logits is proportional to V_mu - V_xi.

    >>> smallest_constant().holds, smallest_constant(3).holds
    (True, False)
    """
    r, t, phi = sp.sympify(ratio), sp.Symbol("t", positive=True), sp.symbols("phi_1:3", positive=True)
    values = sp.Matrix([r / 2 * t, t])  # at even attention, in units of xi_2's rate
    read = phi[0] * values[0] + (1 - phi[0]) * values[1]
    forces = [sp.factor(phi[0] * (values[0] - read)), sp.factor((1 - phi[0]) * (values[1] - read))]
    return Derivation("at M = 2 and r = 2 logits do not move", rf"V_\mu - V_\xi = {sp.latex(values[0] - values[1])}",
                      all(force == 0 for force in forces), {"forces": forces})


def largest_constant(ratio=None) -> Derivation:
    """N to infinity, weak tokens negligible: at r = 2 (M - 1) the strong noise's query stays even for ever.

    Of all logits that of xi_2 on its own key moves first, its rate being the square of its energy. It moves by
    V_xi - (phi V), which at even attention is V_xi - (V_mu + V_xi + (M - 2) V_w) / M with V_mu : V_xi : V_w =
    r/2 : 1 : 1/C_p^2. `parts` has the root in r with C_p kept, too: that is the balance of the first moment, and above
    the constant at this C_p, since the query leaves the weak keys while it is undecided.

    >>> largest_constant().holds, largest_constant("M").holds
    (True, False)
    """
    m, r, c_p = sp.symbols("M r C_p", positive=True)

    def moved(weak_value):
        return 1 - (r / 2 + 1 + (m - 2) * weak_value) / m

    root, with_weak = (sp.factor(sp.solve(moved(weak), r)[0]) for weak in (0, 1 / c_p**2))
    claimed = 2 * (m - 1) if ratio is None else sp.sympify(ratio, locals={"M": m})
    return Derivation("xi_2 reads as much as its own value at r = 2 (M - 1)", rf"r = {sp.latex(root)}",
                      sp.simplify(root - claimed) == 0, {"root": root, "with_weak": with_weak})
