"""Condition 4.1 item by item, and the hypotheses of Theorems 4.1 and 4.2, in numbers.

The paper writes most of these with O, Omega, Theta and their tilde versions. A number can be compared with such a
statement only after a constant was chosen for each; all of them stand in `Constants`, are ours, and can be changed.
How long training takes, and where the two phases meet, is in `vitbo_lib.stages`.
"""

import dataclasses
import math
import sys
from dataclasses import dataclass, field
from numbers import Real

from vitbo_lib.errors import UserError

ROUNDING = 1e-9  # relative; a number that sits exactly on its bound is not lost to the last bits
LARGEST = 1e30  # numbers beyond it, or below its inverse, would overflow in SNR^4 N^2 / epsilon^2
WHOLE = {"N": 1, "M": 2, "d": 3, "d_h": 1}  # smallest value of each count
FRACTIONS = ("epsilon", "delta")


def if_given(formula, *values):
    """`formula(*values)`, or None as soon as one value is None (not given)."""
    return None if any(value is None for value in values) else formula(*values)


def _checked(name: str, value):
    """The value, once it is sure that it can stand for `name`."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise UserError(f"{name} = {value!r} is not a number; give one, or leave it out")
    if (isinstance(value, int) and abs(value) > sys.float_info.max) or not math.isfinite(value):
        raise UserError(f"{name} = {value} is not finite; give a finite number, or leave it out")
    if name in WHOLE:
        if value != int(value) or value < WHOLE[name]:
            raise UserError(f"{name} = {value} is not possible; give a whole number, at least {WHOLE[name]}")
        value = int(value)
    elif name in FRACTIONS and not 0 < value < 1:
        raise UserError(f"{name} = {value} is not possible; give a number between 0 and 1, both excluded")
    elif value <= 0:
        raise UserError(f"{name} = {value} is not possible; give a number above 0")
    if not 1 / LARGEST <= value <= LARGEST:
        raise UserError(f"{name} = {value:.3g} is out of range; give a number between {1 / LARGEST:g} and {LARGEST:g}")
    return value if name in WHOLE else float(value)


def _ceil(value: float) -> int:
    """The next whole number, where an exact one is not pushed up by its last bits."""
    nearest = round(value)
    return nearest if abs(value - nearest) <= 1e-12 * value else math.ceil(value)


@dataclass(frozen=True, kw_only=True)
class Parameters:
    """The numbers that Condition 4.1 speaks about; what is not given (None) is never guessed.

    Counts: `N` samples, `M` tokens, `d` and `d_h` dimensions. Data (Definition 3.1): `signal_norm`, `sigma_p`,
    `sigma_p_tilde`. Weights: `w_o_norm`, and the standard deviations `sigma_v`, `sigma_h` of the initial entries of
    W_V and of W_Q, W_K. Training: learning rate `eta`, target loss `epsilon`. `delta` is the failure probability of
    the paper's concentration lemmas. `UserError` for a value that cannot be (N < 1, M < 2, d < 3, a norm <= 0, ...).

    >>> Parameters(N=2, signal_norm=8.0, sigma_p=0.5, d=64).n_snr2
    8.0
    """

    N: int | None = None
    M: int | None = None
    d: int | None = None
    d_h: int | None = None
    signal_norm: float | None = None
    sigma_p: float | None = None
    sigma_p_tilde: float | None = None
    w_o_norm: float | None = None
    eta: float | None = None
    sigma_v: float | None = None
    sigma_h: float | None = None
    epsilon: float | None = None
    delta: float | None = None

    def __post_init__(self):
        for entry in dataclasses.fields(self):
            if (value := getattr(self, entry.name)) is not None:
                object.__setattr__(self, entry.name, _checked(entry.name, value))

    @property
    def snr(self) -> float | None:
        """SNR = ||mu|| / (sigma_p sqrt(d)); with sigma_p, not sigma_p_tilde."""
        return if_given(lambda mu, sigma, d: mu / (sigma * math.sqrt(d)), self.signal_norm, self.sigma_p, self.d)

    @property
    def c_p(self) -> float | None:
        """C_p = sigma_p_tilde / sigma_p."""
        return if_given(lambda tilde, sigma: tilde / sigma, self.sigma_p_tilde, self.sigma_p)

    @property
    def n_snr2(self) -> float | None:
        """N SNR^2 = N ||mu||^2 / (sigma_p^2 d)."""
        return if_given(lambda n, mu, sigma, d: n * mu**2 / (sigma**2 * d),
                        self.N, self.signal_norm, self.sigma_p, self.d)

    @property
    def lg(self) -> float | None:
        """The logarithm that the proofs carry everywhere: log(6 N^2 M^2 / delta)."""
        return if_given(lambda n, m, delta: math.log(6 * n**2 * m**2 / delta), self.N, self.M, self.delta)

    @property
    def inverse_energy(self) -> float | None:
        """min{||mu||^-2, (sigma_p^2 d)^-1}, the scale of items (6), (7) and (8)."""
        return if_given(lambda mu, sigma, d: min(mu**-2, 1 / (sigma**2 * d)), self.signal_norm, self.sigma_p, self.d)


@dataclass(frozen=True, kw_only=True)
class Constants:
    """What O, Omega, Theta and the tildes hide: chosen here, since the paper gives no values.

    A constant multiplies the bound of its item; 1 unless said otherwise. `tilde_exponent` k puts lg^k on the bounds
    of items (1), (2) and lg^-k on those of (6), (7), lg = log(6 N^2 M^2 / delta); 0 drops the logarithms, the easiest
    reading. `polylog_exponent` reads polylog(d) as log(d)^k in items (3) and (9). "M = Theta(1)" and
    "||w_O|| = Theta(1)" speak of a sequence of problems; for a single one we ask M <= `tokens_max` (the paper's own
    largest) and `w_o_low` <= ||w_O|| <= `w_o_high`. `n_snr2_benign` and `n_snr2_harmful` are the Omega(1) of the
    hypotheses of Theorems 4.1 and 4.2; `t_2`, `t_3` those of the stage times. `c_p_tolerance` is relative.
    """

    d_h: float = 1.0
    d: float = 1.0
    n_samples: float = 1.0
    tokens_max: int = 16
    w_o_low: float = 0.1
    w_o_high: float = 10.0
    eta: float = 1.0
    sigma_v: float = 1.0
    sigma_h_low: float = 1.0
    sigma_h_high: float = 1.0
    epsilon: float = 1.0
    c_p_tolerance: float = 1e-3
    tilde_exponent: float = 0.0
    polylog_exponent: float = 1.0
    n_snr2_benign: float = 1.0
    n_snr2_harmful: float = 1.0
    t_2: float = 1.0
    t_3: float = 1.0

    def __post_init__(self):
        for entry in dataclasses.fields(self):
            value = getattr(self, entry.name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
                raise UserError(f"constant {entry.name} = {value!r} is not a finite number; give one")
            if value < 0 or (value == 0 and not entry.name.endswith(("exponent", "tolerance"))):
                raise UserError(f"constant {entry.name} = {value} is not possible; give a number above 0")


@dataclass(frozen=True)
class Item:
    """One requirement: `given` stands in `relation` (>=, <=, in, =) to `needed`; None where it cannot be said."""

    number: int
    statement: str
    relation: str
    needed: float | tuple[float, float] | None
    given: float | None
    met: bool | None = field(init=False)
    note: str = ""
    tolerance: float = field(default=ROUNDING, repr=False)

    def __post_init__(self):
        object.__setattr__(self, "met", if_given(self._compare, self.needed, self.given))

    def _compare(self, needed, given) -> bool:
        low, high = needed if isinstance(needed, tuple) else (needed, needed)
        above = given >= low * (1 - self.tolerance) if self.relation != "<=" else True
        below = given <= high * (1 + self.tolerance) if self.relation != ">=" else True
        return above and below

    @property
    def margin(self) -> float | None:
        """Orders of magnitude between `given` and the bound it is nearest to violating; below 0 where it is missed."""
        if self.met is None:
            return None
        low, high = self.needed if isinstance(self.needed, tuple) else (self.needed, self.needed)
        above, below = math.log10(self.given / low), math.log10(high / self.given)
        return above if self.relation == ">=" else below if self.relation == "<=" else min(above, below)


def condition_4_1(p: Parameters, constants: Constants | None = None) -> tuple[Item, ...]:
    """Condition 4.1: its ten items in the paper's order, each with what is needed, what is given, whether it is met.

    Item (3) asks N = Omega(polylog(d)) while item (2) makes d grow with N: read with `constants`. The harmful example
    of Appendix A has C_p = 20 where item (10) wants 5 sqrt(4) = 10:

    >>> items = condition_4_1(Parameters(M=4, sigma_p=0.05, sigma_p_tilde=1.0))
    >>> items[9].needed, items[9].given, items[9].met
    (10.0, 20.0, False)
    >>> items[0].met is None
    True
    """
    c = constants or Constants()
    tilde = 1.0 if c.tilde_exponent == 0 else if_given(lambda lg: lg**c.tilde_exponent, p.lg)
    polylog = if_given(lambda d: math.log(d) ** c.polylog_exponent, p.d)
    scale = if_given(lambda e, d_h: e / math.sqrt(d_h), p.inverse_energy, p.d_h)
    d_h = if_given(lambda snr, n, eps, t: c.d_h * max(snr**4, snr**-4) * n**2 / eps**2 * t,
                   p.snr, p.N, p.epsilon, tilde)
    d = if_given(lambda n, h, eps, t: c.d * n**2 * h / eps**2 * t, p.N, p.d_h, p.epsilon, tilde)
    eta = if_given(lambda s, t: c.eta * s / t, scale, tilde)
    sigma_v = if_given(lambda w, s, t: c.sigma_v * math.sqrt(s) / (w * t), p.w_o_norm, scale, tilde)
    sigma_h = if_given(lambda s, lg: (c.sigma_h_low * s / lg**2, c.sigma_h_high * s / lg**1.5), scale, p.lg)
    populated = if_given(lambda delta: f"both classes populated (Lemma C.1) also needs N >= 8 log(4/delta) = "
                                       f"{8 * math.log(4 / delta):.4g}", p.delta)
    return (
        Item(1, "d_h >= max(SNR^4, SNR^-4) N^2 / epsilon^2", ">=", d_h, p.d_h),
        Item(2, "d >= N^2 d_h / epsilon^2", ">=", d, p.d),
        Item(3, "N >= polylog(d)", ">=", if_given(lambda q: c.n_samples * q, polylog), p.N, populated or ""),
        Item(4, "M = Theta(1)", "in", (2, c.tokens_max), p.M, "the range is our choice"),
        Item(5, "|w_O| = Theta(1)", "in", (c.w_o_low, c.w_o_high), p.w_o_norm, "the range is our choice"),
        Item(6, "eta <= 1 / (max(|mu|^2, sigma_p^2 d) d_h^1/2)", "<=", eta, p.eta),
        Item(7, "sigma_V <= 1 / (|w_O| max(|mu|, sigma_p d^1/2) d_h^1/4)", "<=", sigma_v, p.sigma_v),
        Item(8, "sigma_h^2 in [lg^-2, lg^-3/2] / (max(|mu|^2, sigma_p^2 d) d_h^1/2)", "in", sigma_h,
             if_given(lambda s: s**2, p.sigma_h)),
        Item(9, "epsilon <= 1 / polylog(d)", "<=", if_given(lambda q: c.epsilon / q, polylog), p.epsilon),
        Item(10, "C_p = sigma_p~ / sigma_p = 5 sqrt(M)", "=", if_given(lambda m: 5 * math.sqrt(m), p.M), p.c_p,
             tolerance=c.c_p_tolerance),
    )


@dataclass(frozen=True)
class Hypothesis:
    """The hypothesis of a theorem on N SNR^2, read literally (our constant) and with the constant of its proof."""

    theorem: str
    statement: str
    n_snr2: float | None
    relation: str
    literal_needed: float
    literal_met: bool | None
    explicit_relation: str
    explicit_needed: float | None
    explicit_met: bool | None
    note: str


def hypothesis_4_1(p: Parameters, constants: Constants | None = None) -> Hypothesis:
    """Theorem 4.1 (benign): N SNR^2 = Omega(1); the proof of Lemma 5.2 needs N SNR^2 > 60 M^2 C_p^2.

    >>> h = hypothesis_4_1(Parameters(N=16, M=4, signal_norm=25, sigma_p=0.05, sigma_p_tilde=1, d=2048))
    >>> h.literal_met, h.explicit_needed, h.explicit_met
    (True, 384000.0, False)
    """
    needed = (constants or Constants()).n_snr2_benign
    floor = if_given(lambda m, c_p: 60 * m**2 * c_p**2, p.M, p.c_p)
    literal = if_given(lambda x: x >= needed * (1 - ROUNDING), p.n_snr2)
    return Hypothesis("4.1", "N SNR^2 = Omega(1)", p.n_snr2, ">=", needed, literal, ">", floor,
                      if_given(lambda x, y: x > y, p.n_snr2, floor),
                      "proof of Lemma 5.2: N SNR^2 > 60 M^2 C_p^2 (1500 M^3 by item 10)")


def hypothesis_4_2(p: Parameters, constants: Constants | None = None) -> Hypothesis:
    """Theorem 4.2 (harmful): N^-1 SNR^-2 = Omega(1); the proof of Lemma E.3 needs N SNR^2 <= 4 and C_p^2 > 24 M.

    >>> h = hypothesis_4_2(Parameters(N=10, M=4, signal_norm=15, sigma_p=0.05, sigma_p_tilde=1, d=2048))
    >>> h.literal_met, h.explicit_met
    (False, False)
    """
    needed = 1 / (constants or Constants()).n_snr2_harmful
    explicit = if_given(lambda x, c_p, m: x <= 4 * (1 + ROUNDING) and c_p**2 > 24 * m, p.n_snr2, p.c_p, p.M)
    literal = if_given(lambda x: x <= needed * (1 + ROUNDING), p.n_snr2)
    return Hypothesis("4.2", "N^-1 SNR^-2 = Omega(1)", p.n_snr2, "<=", needed, literal, "<=", 4.0, explicit,
                      "proof of Lemma E.3: N SNR^2 <= 4, and C_p^2 > 24 M")


def at_condition(p: Parameters, constants: Constants | None = None) -> Parameters:
    """`p` with eta and sigma_V at their caps (6), (7), and sigma_h^2 at the geometric mean of its window (8).

    A cap whose numbers are not all given stays None; `UserError` where those of items (7) and (8) are missing.

    >>> at_condition(Parameters(N=64, M=2, d=10**16, d_h=10**8, signal_norm=1, sigma_p=1e-8, w_o_norm=1, delta=0.01)
    ...              ).sigma_v
    0.01
    """
    needs(p, "N", "M", "d", "d_h", "signal_norm", "sigma_p", "w_o_norm", "delta")
    items = condition_4_1(p, constants)
    low, high = items[7].needed
    return dataclasses.replace(p, eta=items[5].needed, sigma_v=items[6].needed, sigma_h=(low * high) ** 0.25)


def smallest_configuration(N: int, M: int, snr: float, epsilon: float, delta: float,
                           constants: Constants | None = None, signal_norm: float = 1.0) -> Parameters:
    """The smallest d_h, then the smallest d, that meet Condition 4.1, with eta, sigma_V at their caps.

    sigma_h^2 is the geometric mean of its window (8), ||w_O|| the one of (5), C_p = 5 sqrt(M), and sigma_p follows
    from `snr` at the free scale `signal_norm`. `UserError` where no d will do: items (3) and (9) cap d from above.

    >>> p = smallest_configuration(N=40, M=2, snr=1.0, epsilon=0.01, delta=0.01)
    >>> p.d_h, p.d
    (16000000, 256000000000000)
    >>> all(item.met for item in condition_4_1(p))
    True
    """
    c = constants or Constants()
    snr = _checked("snr", snr)
    base = Parameters(N=N, M=M, epsilon=epsilon, delta=delta, signal_norm=signal_norm)
    needs(base, "N", "M", "epsilon", "delta", "signal_norm")
    N, M = base.N, base.M
    log_factor = base.lg**c.tilde_exponent
    d_h = _ceil(c.d_h * max(snr**4, snr**-4) * N**2 / epsilon**2 * log_factor)
    d = max(3, _ceil(c.d * N**2 * d_h / epsilon**2 * log_factor))
    if d > LARGEST or d_h > LARGEST:
        raise UserError(f"the smallest d is {float(d):.3g}, beyond {LARGEST:g}; give a larger epsilon, a smaller N, or "
                        "an SNR nearer to 1")
    sigma_p = signal_norm / (snr * math.sqrt(d))
    p = dataclasses.replace(base, d=d, d_h=d_h, sigma_p=sigma_p, sigma_p_tilde=5 * math.sqrt(M) * sigma_p,
                            w_o_norm=math.sqrt(c.w_o_low * c.w_o_high))
    p = at_condition(p, c)
    unmet = [item for item in condition_4_1(p, c) if not item.met]
    if unmet:
        said = "; ".join(f"({i.number}) {i.statement}: given {i.given:.4g}, needed {_number(i.needed)}" for i in unmet)
        raise UserError(f"no d and d_h meet Condition 4.1 here: {said}; change N or epsilon, or the constants")
    return p


def needs(p: Parameters, *names: str) -> None:
    """`UserError` that says which of the numbers `names` are not given, if any.

    >>> needs(Parameters(N=16), "N", "d")
    Traceback (most recent call last):
        ...
    vitbo_lib.errors.UserError: d not given; this cannot be computed without
    """
    missing = [name for name in names if getattr(p, name) is None]
    if missing:
        raise UserError(f"{', '.join(missing)} not given; this cannot be computed without")


def paper_experiments() -> dict[str, Parameters]:
    """The three settings of the paper whose numbers are stated, Figure 1 at one cell near its curve N SNR^2 = 1000.

    Where the paper is silent: `sigma_h`, `sigma_v` and `w_o_norm` are those of bias-free linear layers at PyTorch's
    default, all divided by 16 (w_O too); App. A takes eta and epsilon of Figure 1; delta = 0.01.

    >>> {name: round(p.n_snr2) for name, p in paper_experiments().items()}
    {'App. A, benign': 1953, 'App. A, harmful': 439, 'Fig. 1, near its curve': 1000}
    """
    common = {"eta": 0.1, "epsilon": 0.01, "delta": 0.01, "w_o_norm": math.sqrt(1 / 3) / 16}

    def weights(d: int) -> dict[str, float]:
        return {"d": d, "sigma_h": 1 / math.sqrt(3 * d) / 16, "sigma_v": 1 / math.sqrt(3 * d) / 16}

    app_a = common | weights(2048) | {"M": 4, "d_h": 1024, "sigma_p": 0.05, "sigma_p_tilde": 1.0}
    fig_1 = common | weights(1024) | {"M": 16, "d_h": 512, "sigma_p": 0.2, "sigma_p_tilde": 4.0}
    return {"App. A, benign": Parameters(N=16, signal_norm=25.0, **app_a),
            "App. A, harmful": Parameters(N=10, signal_norm=15.0, **app_a),
            "Fig. 1, near its curve": Parameters(N=10, signal_norm=64.0, **fig_1)}


def condition_report(p: Parameters, constants: Constants | None = None) -> dict:
    """What ``vitbo condition --json`` prints: parameters, constants, quantities, items, hypotheses, all_met.

    `all_met` is None where no item fails but some cannot be said.

    >>> report = condition_report(Parameters(N=16, M=4))
    >>> sorted(report), report["all_met"], len(report["items"])
    (['all_met', 'constants', 'hypotheses', 'items', 'parameters', 'quantities'], None, 10)
    """
    c = constants or Constants()
    items = condition_4_1(p, c)
    met = [item.met for item in items]
    keys = ("number", "statement", "relation", "needed", "given", "met", "note")
    return {
        "parameters": dataclasses.asdict(p),
        "constants": dataclasses.asdict(c),
        "quantities": {name: getattr(p, name) for name in ("snr", "n_snr2", "c_p", "lg")}
        | {"n_snr2_over_c_p2": if_given(lambda x, c_p: x / c_p**2, p.n_snr2, p.c_p)},
        "items": [{key: list(value) if isinstance(value := getattr(item, key), tuple) else value for key in keys}
                  for item in items],
        "hypotheses": [dataclasses.asdict(h) for h in (hypothesis_4_1(p, c), hypothesis_4_2(p, c))],
        "all_met": False if False in met else None if None in met else True,
    }


def _number(value) -> str:
    """A number, a window or what is missing, in a few characters."""
    if value is None:
        return "nothing"
    if isinstance(value, list | tuple):
        return f"[{value[0]:.3g}, {value[1]:.3g}]"
    return f"{value:.4g}"


def scientific(value: float) -> str:
    """A number as the book prints large and small ones.

    >>> scientific(38146972656.25)
    '3.8·10¹⁰'
    """
    mantissa, exponent = f"{value:.1e}".split("e")
    return f"{mantissa}·10{str(int(exponent)).translate(str.maketrans('-0123456789', '⁻⁰¹²³⁴⁵⁶⁷⁸⁹'))}"


def format_condition(report: dict) -> str:
    """The report as a table for a terminal, at most 80 columns wide.

    >>> print(format_condition(condition_report(Parameters(N=16, M=4))).splitlines()[0])
    Condition 4.1: not all can be said
    """
    words = {True: "met", False: "NOT met", None: "?"}
    whole = {True: "met", False: "not met", None: "not all can be said"}[report["all_met"]]
    lines = [f"Condition 4.1: {whole}", ""]
    for item in report["items"]:
        needed = "?" if item["needed"] is None else f"{item['relation']} {_number(item['needed'])}"
        lines += [f"({item['number']})".ljust(5) + item["statement"],
                  f"     {words[item['met']]}: given {_number(item['given'])}, needed {needed}"]
    lines += [""] + [f"{name:17} {_number(value)}" for name, value in report["quantities"].items()] + [""]
    for h in report["hypotheses"]:
        lines += [f"Theorem {h['theorem']}: {h['statement']}; here N SNR^2 = {_number(h['n_snr2'])}",
                  f"     literally ({h['relation']} {h['literal_needed']:.4g}): {words[h['literal_met']]};"
                  f" with its proof's constants: {words[h['explicit_met']]}",
                  f"     {h['note']}"]
    lines += ["", "What order notation hides was chosen here: see the fields of Constants."]
    return "\n".join(lines)
