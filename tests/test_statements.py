"""Every numbered statement of the paper has its place in the book, the map of the proof is right, no claim is lost."""

import dataclasses
import re
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest

from vitbo_lib import claims, statements
from vitbo_lib.figures import proof_map
from vitbo_lib.statements import Statement

CHAPTERS = Path(__file__).resolve().parents[1] / "chapters"
ALL = statements.all_statements()


def numbered() -> set[str]:
    """Labels of all that the paper numbers: main text, appendices B to E, propositions, subsections of F."""
    counts = {"definition-b": 3, "lemma-5": 5, "lemma-b": 3, "lemma-c": 4, "lemma-d": 10, "lemma-e": 6,
              "equation": 5, "section-f": 12}
    found = {f"{kind}-{i}" for kind, last in counts.items() for i in range(1, last + 1)}
    found |= {f"proposition-{letter}" for letter in "abcdefghijklmnopq"}
    return found | {"definition-3-1", "definition-5-1", "definition-5-2", "condition-4-1", "theorem-4-1", "theorem-4-2"}


def test_registry_holds_every_numbered_statement():
    assert set(ALL) == numbered()


def anchors_in(text: str) -> list[str]:
    """Labels that a page in MyST defines, targets and labels of directives."""
    return re.findall(r"^\(([a-z0-9-]+)\)=$|^:label: ([a-z0-9-]+)$", text, flags=re.MULTILINE)


def places(folder: Path) -> dict[str, list[str]]:
    """In which chapters each label is defined; what a page writes when it runs counts for proof_map."""
    found: dict[str, list[str]] = {}
    texts = {path.stem: path.read_text(encoding="utf8") for path in folder.glob("*.md")}
    if "proof_map" in texts:
        texts["proof_map"] += "\n" + statements.appendix_f()
    for chapter, text in texts.items():
        for target, label in anchors_in(text):
            found.setdefault(target or label, []).append(chapter)
    return found


def misplaced(known: dict[str, Statement], found: dict[str, list[str]]) -> dict[str, str]:
    return {label: f"should be in {one.chapter}, is in {' and '.join(found.get(label, ['no chapter']))}"
            for label, one in known.items() if found.get(label) != [one.chapter]}


def test_every_statement_has_one_anchor_in_its_chapter():
    assert misplaced(ALL, places(CHAPTERS)) == {}


def test_a_missing_doubled_or_moved_anchor_is_seen(tmp_path):
    (tmp_path / "data.md").write_text("(lemma-b-1)=\ntext\n\n:::{prf:lemma}\n:label: lemma-b-2\n:::\n")
    (tmp_path / "transformer.md").write_text("(lemma-b-1)=\n\n(lemma-b-3)=\n")
    known = {label: dataclasses.replace(ALL[label], chapter="transformer") for label in
             ("lemma-b-1", "lemma-b-2", "lemma-b-3", "lemma-c-1")}
    assert set(misplaced(known, places(tmp_path))) == {"lemma-b-1", "lemma-b-2", "lemma-c-1"}


@pytest.mark.slow
def test_every_statement_is_in_the_built_pages(site):
    """As an id, where the map's links point."""
    class Ids(HTMLParser):
        def __init__(self, text):
            super().__init__()
            self.ids = []
            self.feed(text)

        def handle_starttag(self, _, attrs):
            self.ids += [value for key, value in attrs if key == "id"]

    pages = {path.name: Ids(path.read_text(encoding="utf8")).ids for path in (site / "chapters").glob("*.html")}
    counts = {one.address: pages.get(f"{one.chapter}.html", []).count(one.label) for one in ALL.values()}
    assert {address: count for address, count in counts.items() if count != 1} == {}


# --------------------------------------------------------------------------------------------------- what rests on what

def test_what_a_statement_uses_is_known_and_not_circular():
    assert {used for one in ALL.values() for used in one.uses} <= set(ALL)
    ranks = {label: rank for rank, group in enumerate(statements.order(ALL.values())) for label in group}
    assert set(ranks) == set(ALL)
    assert all(ranks[used] < ranks[label] for label, one in ALL.items() for used in one.uses)


def test_a_circle_is_seen():
    around = [ALL["lemma-d-5"], dataclasses.replace(ALL["lemma-d-4"], uses=("lemma-d-5",)),
              dataclasses.replace(ALL["lemma-d-5"], uses=("lemma-d-4",))]
    with pytest.raises(ValueError, match="lemma-d-4"):
        statements.order(around)


def test_every_statement_leads_to_a_theorem_or_says_why_not():
    found = statements.supports(ALL.values())
    assert {label for label, one in ALL.items() if bool(one.unused) == (label in found)} == set()


def test_a_loose_end_is_seen():
    cut = {label: dataclasses.replace(one, uses=tuple(used for used in one.uses if used != "section-f-8"))
           for label, one in ALL.items()}
    assert "section-f-8" not in statements.supports(cut.values())


def test_layers_and_sides_fit():
    """What a statement uses is in its own layer or one above, and on its own side or common to both."""
    rank = statements.LAYERS.index
    wrong = [(label, used) for label, one in ALL.items() for used in one.uses
             if rank(ALL[used].layer) > rank(one.layer) or ALL[used].side not in (one.side, "both")]
    assert wrong == []


def test_text_is_short_and_without_markup():
    """It also stands in tips and labels, which show plain text."""
    for one in ALL.values():
        assert 10 < len(one.says) < 140, one.label
        assert one.remark.endswith("."), one.label
        assert not one.says.endswith("."), one.label
        assert not set("$\\`{}") & set(one.says + one.remark), one.label


# ------------------------------------------------------------------------------------------------------------- the map

def overlaps(boxes: dict[str, proof_map.Box]) -> list[tuple[str, str]]:
    places = list(boxes.items())
    return [(one, other) for i, (one, a) in enumerate(places) for other, b in places[i + 1:]
            if abs(a.x - b.x) < proof_map.NODE_WIDTH and abs(a.y - b.y) < proof_map.NODE_HEIGHT]


def test_no_two_boxes_overlap_and_all_are_inside():
    boxes = proof_map.layout(ALL.values())
    assert set(boxes) == set(ALL)
    assert overlaps(boxes) == []
    assert all(0 <= box.x <= proof_map.WIDTH - proof_map.NODE_WIDTH for box in boxes.values())


def test_an_overlap_is_seen():
    boxes = proof_map.layout(ALL.values())
    moved = boxes | {"lemma-d-1": dataclasses.replace(boxes["lemma-d-2"], x=boxes["lemma-d-2"].x + 3)}
    assert overlaps(moved) == [("lemma-d-1", "lemma-d-2")]


def test_lines_run_downwards_and_sides_are_kept():
    boxes = proof_map.layout(ALL.values())
    assert all(boxes[used].y < boxes[user].y for used, user in proof_map.drawn_edges(ALL.values()))
    for label, box in boxes.items():
        side = ALL[label].side
        assert side == "both" or (box.middle < proof_map.WIDTH / 2) == (side == "benign")


def test_an_induction_stands_in_one_row():
    boxes = proof_map.layout(ALL.values())
    for letters in statements.INDUCTIONS:
        assert len({boxes[f"proposition-{letter}"].row for letter in letters}) == 1


def test_a_row_that_is_too_full_is_continued():
    many = [Statement(f"lemma-{i}", f"Lemma {i}", "data", "stage I", "benign", "", "") for i in range(7)]
    boxes = proof_map.layout(many)
    assert overlaps(boxes) == []
    assert {box.row for box in boxes.values()} == {0, 1}


def test_lines_that_a_longer_way_tells_are_left_out():
    a, b, c = (Statement(f"lemma-{i}", "", "data", "stage I", "both", "", "", uses)
               for i, uses in (("a", ()), ("b", ("lemma-a",)), ("c", ("lemma-a", "lemma-b"))))
    assert proof_map.drawn_edges([a, b, c]) == [("lemma-a", "lemma-b"), ("lemma-b", "lemma-c")]
    drawn = proof_map.drawn_edges(ALL.values())
    assert set(drawn) <= {(used, label) for label, one in ALL.items() for used in one.uses}
    # the lines that are left still connect all that was connected
    rest = {label: dataclasses.replace(one, uses=tuple(u for u, user in drawn if user == label))
            for label, one in ALL.items()}
    assert statements.supports(rest.values()) == statements.supports(ALL.values())


def test_map_is_well_formed_and_every_box_is_a_named_link():
    picture = re.search(r"<svg.*</svg>", proof_map.svg(ALL.values()), flags=re.DOTALL)[0]
    links = ElementTree.fromstring(picture).findall(".//a")
    assert {link.get("href") for link in links} == {one.address for one in ALL.values()}
    assert all(link.get("aria-label") == link.find("title").text for link in links)


def test_map_names_no_colour_that_the_dark_theme_cannot_change():
    picture = re.search(r"<svg.*</svg>", proof_map.svg(ALL.values()), flags=re.DOTALL)[0]
    assert not re.search(r'(?:fill|stroke|style|color)="', picture)


def test_list_says_what_the_map_shows():
    text = "".join(statements.listing(layer) for layer in statements.LAYERS)
    assert all(f'<dt><a href="{one.address}">{one.name}</a></dt>' in text for one in ALL.values())
    for used, user in proof_map.drawn_edges(ALL.values()):
        entry = text[text.index(f'<dt><a href="{ALL[user].address}"'):].split("</dd>")[0]
        assert f'<a href="{ALL[used].address}">' in entry


@pytest.mark.parametrize(("where", "labels"), [
    ("Lemma 5.2, D.5", {"lemma-5-2", "lemma-d-5"}),
    ("Theorems 4.1, 4.2", {"theorem-4-1", "theorem-4-2"}),
    ("Section 5.2, F.12", {"section-f-12"}),
    ("Definition B.1; Lemma B.1", {"definition-b-1", "lemma-b-1"}),
    ("Definitions 5.1 and 5.2, eq. (2)", {"definition-5-1", "definition-5-2", "equation-2"}),
    ("Condition 4.1 (8), Lemma D.4", {"condition-4-1", "lemma-d-4"}),
    ("$\\mathcal D$, $\\mathcal H$", {"proposition-d", "proposition-h"}),
    ("App. D.1", {"lemma-d-1"}), ("D.2.1", set()), ("eq. (178)", set()), ("Section 4, Figure 1(a)", set()),
])
def test_places_of_claims_are_understood(where, labels):
    assert statements.mentioned(where) == labels


# ------------------------------------------------------------------------------------------------------------ coverage

def uncovered(names: set[str], merged: dict) -> list[str]:
    """Which of C01 to C90 is neither a claim, nor the beginning of its name, nor merged into one that exists."""
    listed = {f"C{i:02d}" for i in range(1, 91)}
    own = {name.split("-")[0] for name in names}
    return sorted(listed - own - {one for one, (into, _) in merged.items() if into in names})


def test_every_claim_of_the_list_is_checked_or_merged():
    assert uncovered(set(claims.all_claims()), statements.MERGED) == []


def test_merged_claims_say_why_and_are_not_claims_themselves():
    names = set(claims.all_claims())
    own = {name.split("-")[0] for name in names}
    assert all(reason.endswith(".") and into in names and one not in own
               for one, (into, reason) in statements.MERGED.items())


def test_a_lost_claim_is_seen():
    names = {f"C{i:02d}" for i in range(1, 91)} - {"C13", "C55", "C20"} | {"C55-divided"}
    assert uncovered(names, {"C20": ("C24", "Said there."), "C13": ("C99", "Nowhere.")}) == ["C13"]
