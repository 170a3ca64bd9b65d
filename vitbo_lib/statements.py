"""Every numbered statement of the paper's main text and appendices: where the book has it, and what it rests on.

A `Statement` says in one line and in our words what is stated, and in a plain remark why it is there and what it
costs. `uses` are the statements that its proof, or its definition, rests on; together they are the proof map
(`vitbo_lib.figures.proof_map`). The entries themselves are in `vitbo_lib.statements_list`.
"""

import functools
import html
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from vitbo_lib import claims
from vitbo_lib.data import one_of
from vitbo_lib.pages import Rendered

LAYERS = ("setting", "gradients", "concentration", "stage I", "stage II", "stage III", "training loss",
          "population loss", "theorems")
SIDES = ("benign", "harmful", "both")
INDUCTIONS = ("bcde", "fghi", "jklm", "nopq")  # propositions that one induction over t proves together


@dataclass(frozen=True)
class Statement:
    """One statement: its `label`, the `chapter` that has its anchor, what it `says`, a `remark`, what it `uses`.

    `side` is the proof that it belongs to; `layer` its place in the map. `unused` says why no theorem rests on it,
    where none does.
    """

    label: str
    name: str
    chapter: str
    layer: str
    side: str
    says: str
    remark: str
    uses: tuple[str, ...] = ()
    unused: str = ""

    def __post_init__(self):
        if self.layer not in LAYERS or self.side not in SIDES:
            raise ValueError(f"statement {self.label}: no layer {self.layer!r}, or no side {self.side!r}")

    @property
    def address(self) -> str:
        """Where the built book has it, seen from another chapter."""
        return f"{self.chapter}.html#{self.label}"

    @property
    def short(self) -> str:
        """The name, as a map has room for.

        >>> Statement("definition-3-1", "Definition 3.1", "data", "setting", "both", "", "").short
        'Def. 3.1'
        """
        for long, brief in (("Definition", "Def."), ("Proposition", "Prop."), ("Equation", "Eq."),
                            ("Condition", "Cond."), ("Theorem", "Thm."), ("Appendix ", "")):
            if self.name.startswith(long):
                return brief + self.name.removeprefix(long)
        return self.name


@functools.cache
def all_statements() -> dict[str, Statement]:
    """Every statement by its label, in the paper's order of proof."""
    from vitbo_lib.statements_list import STATEMENTS

    return {one.label: one for one in STATEMENTS}


def proved_with(label: str) -> tuple[str, ...]:
    """The labels that the same induction proves, this one included.

    >>> proved_with("proposition-b")
    ('proposition-b', 'proposition-c', 'proposition-d', 'proposition-e')
    >>> proved_with("lemma-d-5")
    ('lemma-d-5',)
    """
    for letters in INDUCTIONS:
        group = tuple(f"proposition-{letter}" for letter in letters)
        if label in group:
            return group
    return (label,)


def order(statements: Iterable[Statement]) -> list[tuple[str, ...]]:
    """Groups of labels (an induction is one group, all else alone), each after all that it uses.

    `ValueError` names what is left when the statements go round in a circle, or use what is not among them.
    """
    by_label = {one.label: one for one in statements}
    needs: dict[tuple[str, ...], set] = {}
    for one in by_label.values():
        group = proved_with(one.label)
        needs.setdefault(group, set()).update(proved_with(used) for used in one.uses if used not in group)
    found: list[tuple[str, ...]] = []
    while needs:
        ready = [group for group, used in needs.items() if used <= set(found)]
        if not ready:
            raise ValueError(f"circular, or resting on what is not here: {', '.join(sorted(g[0] for g in needs))}")
        found += ready
        for group in ready:
            del needs[group]
    return found


def supports(statements: Iterable[Statement], ends: Sequence[str] = ("theorem-4-1", "theorem-4-2")) -> set[str]:
    """Labels on which one of `ends` rests, directly or not, the ends included."""
    by_label = {one.label: one for one in statements}
    for end in ends:
        one_of("statement", end, by_label)
    found, waiting = set(), list(ends)
    while waiting:
        label = waiting.pop()
        if label not in found:
            found.add(label)
            waiting += [*proved_with(label), *by_label[label].uses]
    return found


# what the word before a number makes of it; "" is no statement
KINDS = {"lemma": "lemma", "theorem": "theorem", "definition": "definition", "def": "definition", "eq": "equation",
         "condition": "condition", "proposition": "proposition", "section": "", "figure": "", "app": "", "claim": ""}
TOKENS = re.compile(r"mathcal\{?\s*(?P<letter>[A-Q])\}?|(?P<number>\b[A-F]\.\d+(?:\.\d+)*|\b\d\.\d\b)"
                    r"|\((?P<equation>\d)\)|(?P<word>[A-Za-z]+)")


def mentioned(where: str) -> set[str]:
    """Labels of the statements that a claim's `where` names.

    >>> sorted(mentioned("Lemma 5.2, D.5; eq. (4), Section 5.3, $\\\\mathcal B$, D.2.1, F.4"))
    ['equation-4', 'lemma-5-2', 'lemma-d-5', 'proposition-b', 'section-f-4']
    """
    found, kind = set(), ""
    for token in TOKENS.finditer(where):
        if token["word"]:
            kind = KINDS.get(token["word"].lower().removesuffix("s"), kind)
        elif token["letter"]:
            found.add(f"proposition-{token['letter'].lower()}")
        elif token["equation"] and kind == "equation":
            found.add(f"equation-{token['equation']}")
        elif token["number"]:
            first = token["number"][0]
            if first.isalpha() and kind != "definition":
                kind = "section" if first == "F" else "lemma"
            found.add(f"{kind}-{token['number'].replace('.', '-').lower()}")
    return found & set(all_statements())


def checked_by() -> dict[str, list[claims.Claim]]:
    """The claims that speak of each statement, by its label."""
    found: dict[str, list[claims.Claim]] = {label: [] for label in all_statements()}
    for claim in claims.all_claims().values():
        for label in mentioned(claim.where):
            found[label].append(claim)
    return found


def _link(address: str, text: str) -> str:
    return f'<a href="{html.escape(address)}">{html.escape(text)}</a>'


def listing(layer: str) -> str:
    """The statements of a layer as a list in HTML: what each says, a remark, what it rests on, what checks it."""
    one_of("layer", layer, LAYERS)
    known, checks = all_statements(), checked_by()
    items = []
    for one in known.values():
        if one.layer != layer:
            continue
        lines = [f"<dt>{_link(one.address, one.name)}</dt>",
                 f"<dd>{html.escape(one.says)}. <em>{html.escape(one.remark)}</em>"]
        rests = ", ".join(_link(known[used].address, known[used].short) for used in one.uses)
        group = [known[label] for label in proved_with(one.label) if label != one.label]
        with_it = ", ".join(_link(other.address, other.short) for other in group)
        lines += [f"Rests on {rests}."] if rests else []
        lines += [f"Proved together with {with_it}."] if with_it else []
        lines += [f"Not part of the proof: {html.escape(one.unused)}."] if one.unused else []
        found = ", ".join(f"{_link(f'{claim.chapter}.html', claim.id)} ({claim.expected})"
                          for claim in checks[one.label])
        items.append("\n".join([*lines, f"Checked: {found}." if found else "No check of its own.", "</dd>"]))
    return '<dl class="statements">\n' + "\n".join(items) + "\n</dl>"


def appendix_f() -> Rendered:
    """The subsections of Appendix F with their anchors, as text in MyST."""
    entries = sorted((one for one in all_statements().values() if one.label.startswith("section-f-")),
                     key=lambda one: int(one.label.removeprefix("section-f-")))
    return Rendered("\n\n".join(f"({one.label})=\n**{one.name.removeprefix('Appendix ')}** {one.says}. *{one.remark}*"
                                for one in entries))


# Claims of our list of checkable statements that another one covers: into which, and why.
MERGED: dict[str, tuple[str, str]] = {}
