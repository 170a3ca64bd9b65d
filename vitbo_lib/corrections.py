"""Where the print of the paper and its content part: one entry a place, with what computation says about it.

The text that we had was read by machine, so that a slip may be the reader's and not the paper's: `artefact` marks
these. Nothing here overturns a theorem of the paper.
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass

from vitbo_lib import claims
from vitbo_lib.data import one_of
from vitbo_lib.pages import Rendered

GROUPS = ("Statements", "Signs and formulas", "Theory and experiments")
ARTEFACT = "May be an artefact of the copy that we read."


@dataclass(frozen=True, kw_only=True)
class Correction:
    """One place: what is `printed`, how we `read` it and `why`, in MyST.

    `claims` are identifiers of `vitbo_lib.claims` that confirm it by computation; where there are none,
    `unconfirmed` says why there is nothing to compute. `artefact`: it may be the copy and not the paper.
    """

    number: int
    group: str
    where: str
    printed: str
    read: str
    why: str
    claims: tuple[str, ...] = ()
    unconfirmed: str = ""
    artefact: bool = False

    def __post_init__(self):
        if self.group not in GROUPS or bool(self.claims) == bool(self.unconfirmed):
            raise ValueError(f"correction {self.number}: unknown group, or not exactly one of claims and unconfirmed")


WORDS = "a matter of wording"
NOTATION = "a matter of notation; the formulas that are checked carry what we read"
_statement, _formula, _experiment = (functools.partial(Correction, group=group) for group in GROUPS)

_STATEMENTS = (
    _statement(
        number=1, where="Lemma E.5",
        printed=r"$L_S(\theta(T)) \ge 0.1$, under a title on convergence",
        read=r"$L_S(\theta(T)) \le \epsilon$",
        why="Its proof ends there, and Theorem 4.2 needs it; 0.1 is the bound of the next lemma, on the test loss.",
        claims=("C57", "thm-4.2-train")),
    _statement(
        number=2, where="Lemmas 5.4 and 5.5; D.3, D.7, Theorem 4.1",
        printed="$T_3$ carries $lg^{-1}$ in the two lemmas, and none elsewhere",
        read="no power of $lg$",
        why=r"With it $V_+$ reaches only $\log(1 / (\epsilon\, lg))$, and the loss $\epsilon\, lg$.",
        claims=("print-T_3",)),
    _statement(
        number=3, where="Section 5.3, D.2; beginnings of D.3 and of stage III in E.3; Lemma 5.3",
        printed=r"$T_2$ with $lg^{-1}$, without it, and as $\widetilde O(\cdot)$",
        read="with $lg^{-1}$ throughout",
        why="Lemma D.6 keeps all values $o(1)$ only up to this time; which one was put in is seen from the powers "
            "of $lg$ that follow (next entry).",
        claims=("print-lg",)),
    _statement(
        number=4, where="D.3 and E.3, logit gaps at $T_2$",
        printed=r"$lg^{-3}$ beside $d_h^{1/2}$; and $\norm{w_O}^2$ in the harmful gaps",
        read=r"$lg^{-4}$ (or $lg^{-2}$, if $T_2$ has no logarithm), and $\norm{w_O}^{-2}$",
        why=r"The gaps are $(T_2)^2$ times the coefficient of Propositions $\mathcal D$ and $\mathcal L$. A tilde "
            r"hides the first, $\norm{w_O} = \Theta(1)$ the second.",
        claims=("print-lg", "print-w_O")),
    _statement(
        number=5, where="Theorems 4.1 and 4.2",
        printed=r"$\Omega(1)$ in both hypotheses",
        read=r"$N \cdot \SNR^2 > 1500 M^3$ and $N \cdot \SNR^2 \le 4$",
        why=r"These are the constants of the proofs. Read literally, both hypotheses hold at $N \cdot \SNR^2 = "
            r"\Theta(1)$, and between the two numbers neither proof speaks.",
        claims=("C90", "C31", "C67", "thm-4.1-omega")),
    _statement(
        number=6, where="Theorem 4.2 (2), Lemma E.6",
        printed=r"$L_D = \Theta(1)$",
        read=r"$L_D \ge 0.1$ is what is proved",
        why=r"The upper bound is not written out. Measured, the loss is close to $\log 2$, as $\Theta(1)$ says.",
        claims=("C58", "thm-4.2-test")),
    _statement(
        number=7, where="Theorems 4.1 and 4.2; all lemmas",
        printed=r"probability $1 - d^{-1}$ in the theorems, $1 - \delta$ in the lemmas",
        read=r"$\delta$ of the order of $1/d$",
        why=r"The link is not stated. It matters a little: $\delta$ also stands in item (8) and in $T_1$ and $T_2$, "
            "through $lg$.",
        claims=("C89",)),
    _statement(
        number=8, where=r"Lemma 5.3; Propositions $\mathcal J$, $\mathcal N$; stage III in E.3",
        printed="noise values at time $T$; right-hand sides at time $T_1$",
        read="time $t$, and $T_2$ in stage III",
        why="The induction compares both sides at the same time.",
        unconfirmed=NOTATION),
    _statement(
        number=9, where="E.2",
        printed=r"$\Psi_\pm^{(t)}$",
        read=r"$\Psi_{n,\pm}^{(t)}$",
        why=r"It compares $k_{n,2}$ with $k_\pm$ and so depends on $n$.",
        unconfirmed=NOTATION),
    _statement(
        number=10, where="Sections 5.1 and 5.2",
        printed=r"the vector $(\alpha_{+,+}, \alpha_{n,+,2}, \dots)$ as a sum over $n \in S_+$",
        read=r"the sum belongs to $\alpha_{+,+}$ alone",
        why=r"$\mu_+$ is in all samples of its class, $\xi_{n,i}$ in one. F.1 has it right.",
        claims=("C11",)),
    _statement(
        number=11, where="Lemma 5.1, second line",
        printed=r"$\abs{\rho_{V,n,i}^{(t+1)} - \rho_{V,n,i}^{(t)}}$ bounded by the attention of sample $n$ alone",
        read="a bound on the sample's own part",
        why=r"Inner products $\inner{\xi_{n,i}}{\xi_{n',i'}}$ bring in the attention of other samples. Where one's "
            "own is tiny they dominate. The title and number of the lemma were not readable.",
        claims=("C73",), artefact=True),
)
_FORMULAS = (
    _formula(
        number=12, where="Eq. (4), last line; the sentence below; F.7",
        printed=r"$\partial s_i / \partial a_j = s_i s_j$ for $i \ne j$",
        read="$-s_i s_j$",
        why="Eq. (5), which the proofs use, has the minus.",
        claims=("print-eq-4", "C06")),
    _formula(
        number=13, where="Lemma B.1, first statement; eq. (9)",
        printed=r"a minus before the sum over noise queries, and no samples of $S_-$; $x_{n,l}$ for $x_{n,l}^\top$; "
                "$W_k$ for $W_K$",
        read="the restatement in F.1, eq. (178)",
        why="With the minus it is no gradient of eq. (1).",
        claims=("print-B.1", "C08"), artefact=True),
    _formula(
        number=14, where="after Definition B.3; headings of Lemma B.3 and F.2; Section 3, App. A, D.4; Sections 3 "
                         "and 6",
        printed=r"$x^\top W_Q W_K X^\top$; $\mu_\pm W_V w_O$; $[M]/\{1\}$",
        read=r"$x^\top W_Q W_K^\top X^\top$; $\mu_\pm^\top W_V w_O$; $[M] \setminus \{1\}$",
        why="The shapes leave no other reading.",
        unconfirmed=NOTATION),
    _formula(
        number=15, where="Lemma B.3; tails of eqs. (213) and (214)",
        printed="inner products of rows as (row)(column); one sum over $l$ missing; $S_+$ for $S_-$",
        read=r"$\inner{\Delta q}{\Delta k}$; the sum over all tokens; $S_-$",
        why="The rule then agrees with a step of gradient descent to rounding.",
        claims=("C17",), artefact=True),
    _formula(
        number=16, where="last lines of D.3 and E.1; E.1 and E.3",
        printed=r"$O(d^{-1/4})$; $\gamma_{V,n,i}$",
        read=r"$O(d_h^{-1/4})$; $\rho_{V,n,i}$",
        why="The bounds that are added are in $d_h$, and $d$ is much larger.",
        claims=("print-D.3",)),
    _formula(
        number=17, where="D.2.1",
        printed=r"growth of $V_+ - 3M \abs{V_{n,i}}$ without $\norm{w_O}^2$",
        read=r"with the factor $\norm{w_O}^2$",
        why=r"$V$ moves by $\norm{w_O}^2$ times what $\gamma_V$ and $\rho_V$ do.",
        claims=("print-D.2.1",)),
    _formula(
        number=18, where="D.2.3",
        printed=r"$\log(\inner{q_+}{k_+} + \dots)$; $\int e^x \le e^b - e^a$",
        read=r"$\log(\exp(\inner{q_+}{k_+}) + \dots)$; equality",
        why="Without exp the bound does not start at its own initial value.",
        claims=("print-D.2.3",)),
    _formula(
        number=19, where="D.2.2",
        printed=r"other exponents of $\norm{\mu}$ at noise queries than in F.5",
        read="those of F.5",
        why="Those are coefficient times squared norm; the printed ones we could not read with certainty.",
        claims=("F.5-exponents",), artefact=True),
    _formula(
        number=20, where="D.3",
        printed=r"loss derivatives are no longer at $o(1)$; $\mathcal F(T_1)$ is true; $V_+^{(T_2)} = \Theta(1)$",
        read=r"no longer at $\frac12 \pm o(1)$; $\mathcal F(T_2)$; $V_+^{(T_2)} = o(1)$",
        why=r"Stage III begins where stage II has left small values. The upper bounds that use $\Theta(1)$ stay "
            "true.",
        claims=("C26",)),
    _formula(
        number=21, where="D.7",
        printed=r"(68), (69), (70) and (68); $\mathcal I$ as $\mathcal T$ or $\mathcal Z$",
        read=r"(71) for the last; $\mathcal I$",
        why="There are four attention bounds, one each.",
        unconfirmed="a reference between equations",
        artefact=True),
    _formula(
        number=22, where="D.8 to D.10",
        printed=r"$\sigma_p$ for all tokens in $\norm{X_n}_F$; $d_h^{-1/4}$ in (118); $C_{21}$ for two constants; a "
                "product from $i = 1$",
        read=r"$\tilde\sigma_p$ for token 2; $d_h^{1/2}$; two names; from $i = 2$",
        why="The first is a constant factor, $(C_p^2 + M - 2)/(M - 1) \\le 50$ in the square.",
        claims=("print-D.8",), artefact=True),
    _formula(
        number=23, where="E.1, E.2, E.3",
        printed=r"titles and openings of the benign proof: $\abs{V_\pm}$ pulls ahead, $N \cdot \SNR^2 = \Omega(1)$, "
                "signal attention grows",
        read=r"$\abs{V_{n,2}}$ pulls ahead, $N^{-1} \cdot \SNR^{-2} = \Omega(1)$, attention on $\xi_{n,2}$ grows",
        why="The formulas below them are those of the harmful proof.",
        unconfirmed=WORDS),
    _formula(
        number=24, where="E.3, proof",
        printed=r"$\abs{\Delta\gamma_V} \le 2\eta\sigma_p^2 d / N$ in one display, over $NM$ two lines on",
        read=r"$2\eta\sigma_p^2 d / (NM)$",
        why="Only then do the bounds meet at $T_1$.",
        claims=("print-E.3", "C67"), artefact=True),
    _formula(
        number=25, where="E.6, last display; E.2",
        printed=r"$y f \ge \log(1 + e^{-1/2})$; a reference to D.6",
        read=r"$\ell(y f) \ge \log(1 + e^{-1/2})$, from $y f \le \frac12$; E.4",
        why="The loss falls in its argument; the argument itself may be 0.",
        claims=("print-E.6", "C58")),
    _formula(
        number=26, where="F.4",
        printed=r"1/5 for $\beta_{n,i,\pm}$ and $\beta_{n,j,n,i}$, 1/9 for $\alpha_{n,i,n,j}$",
        read="1/6 for all three, with the norms of Lemma C.4",
        why="All rest on the same estimate of $g_{n,l,j}$, whose worst case falls with $M$. With norms within "
            "$1 \\pm o(1)$, as Condition 4.1 gives, the printed 1/5 holds too. Only constants depend on it.",
        claims=("F.4-fifth",)),
    _formula(
        number=27, where="F.6, F.9, F.10, F.11",
        printed=r"stage II in F.9; values up to $\log O(1/\epsilon)$ in F.6; one sum listed twice in F.10; "
                "differences of the same time in F.11",
        read="stage III; $o(1)$; the smaller of the two; from $T_2$",
        why="Each is what the lemma before it provides.",
        unconfirmed=WORDS),
    _formula(
        number=28, where="F.12",
        printed=r"$\norm{k_+}^2 = O(\eta \norm{\mu}^2)$",
        read=r"$\norm{k_+}^2 = \Theta(\norm{\mu}^2 \sigma_h^2 d_h)$",
        why="As in Lemmas C.3 and D.4; the step size has no part in it.",
        claims=("print-F.12",)),
    _formula(
        number=29, where="C.1; C.2; C.3 and D.4",
        printed=r"$n$ for $N$; $\sigma_p$ for token 2; inner products of $q$'s and of $k$'s without excluding equal "
                "indices",
        read=r"$N$; $\tilde\sigma_p$; only for $(n,i) \ne (n',j)$",
        why=r"For equal indices it is a squared norm, and $\xi_{n,2}$ has the variance $\tilde\sigma_p^2$.",
        claims=("print-C.3", "C23", "C21-print")),
    _formula(
        number=30, where="contents; F.6 and F.9; F.7 and F.10",
        printed="a misspelt heading; two pairs share a title",
        read="stage II and stage III in the titles",
        why="They do the same for two stages.",
        unconfirmed=WORDS),
)
_EXPERIMENTS = (
    _experiment(
        number=31, where="App. A; Condition 4.1 (10)",
        printed="$C_p = 20$ at $M = 4$",
        read=r"$5\sqrt 4 = 10$ would be it",
        why="Figure 1, with $C_p = 20$ at $M = 16$, agrees with the condition.",
        claims=("C85-c_p",)),
    _experiment(
        number=32, where="Section 6; Definition 3.1",
        printed=r"noise $\mathcal N(0, \sigma^2 I)$",
        read="not projected, other than in the definition",
        why="In paired runs it makes little difference.",
        claims=("C87",)),
    _experiment(
        number=33, where="Section 6; Section 3",
        printed="PyTorch's default initialisation divided by 16",
        read="uniform, where the theory has Gaussian",
        why="It makes no difference that we can see.",
        claims=("init-law",)),
    _experiment(
        number=34, where="Condition 4.1; Lemma C.1; Section 6 and App. A",
        printed="the sizes of the experiments",
        read="not instances of the theorems, and not called so",
        why="Items (1), (2) and (6) are missed by orders of magnitude; (8) is met by one of the examples. Lemma "
            "C.1 is empty up to $N = 11$.",
        claims=("C85", "C.1-small-N")),
    _experiment(
        number=35, where="App. A, Figure 4",
        printed="an example of harmful overfitting",
        read=r"below the measured boundary, though $N \cdot \SNR^2 \gg 1$",
        why=r"$\SNR$ is defined with $\sigma_p$. What initial rates compare is $N \cdot \SNR^2 / C_p^2 = N "
            r"\norm{\mu}^2 / (\tilde\sigma_p^2 d)$, and on that scale the example is on the harmful side.",
        claims=("App-A-harmful", "C56-divided")),
    _experiment(
        number=36, where="Section 6, Figure 1",
        printed=r"the curve $N \cdot \SNR^2 = 1000$, from the theory",
        read="the theory gives the form; a constant near $2C_p^2 = 800$ follows from equal initial rates (ours)",
        why="No derivation of 1000 is given.",
        claims=("break-even", "C76-1000-divided", "C77-divided")),
    _experiment(
        number=37, where="Section 6, Figure 2",
        printed=r"$\SNR$ 0.2 and 2.0 of digits",
        read=r"a ratio of two factors, not $\norm{\mu} / (\sigma_p \sqrt d)$",
        why="The network there, with two layers, four heads and an MLP, is outside the theory too.",
        claims=("C81",)),
    _experiment(
        number=38, where="title of Section 3 and throughout",
        printed="two-layer transformer",
        read="one layer of attention and a fixed linear read-out",
        why="This is eq. (1).",
        unconfirmed=WORDS),
    _experiment(
        number=39, where="checklist",
        printed="all data are synthetic, no existing assets; 2-sigma error bars",
        read="Figure 2 uses MNIST; over what the bars run is not said",
        why="Section 6 says so.",
        unconfirmed=WORDS),
    _experiment(
        number=40, where="Condition 4.1 (5); Section 6",
        printed=r"$\norm{w_O} = \Theta(1)$; unspecified in the experiments",
        read=r"about $1/\sqrt 3$ for a default layer, $1/(16 \sqrt 3)$ if divided by 16 with the others",
        why="The two readings give two versions of Figure 1; both are in this book.",
        claims=("w_O-norm", "C76-divided", "C76-undivided")),
    _experiment(
        number=41, where="after Condition 4.1; App. E",
        printed=r"extensions to larger $M$ and to other $\norm{w_O}$; Claims 9 to 16 by analogy",
        read="stated, not proved",
        why="Most steps of the harmful proof are said to be similar to the benign ones.",
        unconfirmed="there is no proof to check; the propositions themselves are measured in "
                    "{doc}`three_stages_harmful`"),
)
CORRECTIONS = _STATEMENTS + _FORMULAS + _EXPERIMENTS


def confirmation(correction: Correction, known: dict) -> str:
    """How it was confirmed, with links to the pages that show the claims; a claim that is not `known` is plain text."""
    if correction.unconfirmed:
        return f"Not by computation: {correction.unconfirmed}."
    names = [f"[{name}]({known[name].chapter}.md)" if name in known else f"`{name}`" for name in correction.claims]
    return f"By computation: {', '.join(names)}."


def definition_list(group: str, corrections: Sequence[Correction] = CORRECTIONS) -> Rendered:
    """The corrections of a group as a list in MyST: where; printed, read, why, how it was confirmed."""
    one_of("group", group, GROUPS)
    known = claims.all_claims()
    items = []
    for entry in (one for one in corrections if one.group == group):
        note = f" *{ARTEFACT}*" if entry.artefact else ""
        items.append(f"[{entry.number}]{{#correction-{entry.number}}} · {entry.where}\n"
                     f": **In print:** {entry.printed}. **We read:** {entry.read}. {entry.why} "
                     f"{confirmation(entry, known)}{note}\n")
    return Rendered("\n".join(items))
