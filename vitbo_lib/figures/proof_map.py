"""The proof map: which statement rests on which, as an inline SVG whose nodes are links.

It is no matplotlib figure: an SVG inside the page can hold links, take the colours of the page, and be walked by
keyboard. The layout is a small function of the statements alone.
"""

import html
from collections.abc import Iterable
from dataclasses import dataclass

from vitbo_lib.figures import style
from vitbo_lib.statements import INDUCTIONS, LAYERS, Statement, order, proved_with

NODE_WIDTH, NODE_HEIGHT, GAP = 76, 28, 6  # CSS pixels: a whole row fits the column of text on a desktop
ROW, BAND, MARGIN = 50, 22, 8  # from row to row, extra between layers, around all
HALF = 4  # nodes in a row of one side; a row of what belongs to both has twice as many
WIDTH = 2 * MARGIN + 2 * HALF * (NODE_WIDTH + GAP) + GAP  # the middle gap is twice as wide


@dataclass(frozen=True)
class Box:
    """A node's place: its left upper corner, of size `NODE_WIDTH` x `NODE_HEIGHT`, in row `row`."""

    x: float
    y: float
    row: int

    @property
    def middle(self) -> float:
        return self.x + NODE_WIDTH / 2


def _depths(statements: dict[str, Statement]) -> dict[str, int]:
    """How many rows below the top of its layer a statement must stand: the longest chain within the layer."""
    found: dict[str, int] = {}
    for group in order(statements.values()):
        layer = statements[group[0]].layer
        above = [found[used] for label in group for used in statements[label].uses
                 if used not in group and statements[used].layer == layer]
        found |= dict.fromkeys(group, 1 + max(above, default=-1))
    return found


def _rows(statements: dict[str, Statement]) -> list[tuple[str, list[str], list[str], list[str]]]:
    """From above: layer, and what stands on the left (benign), in the middle (both) and on the right (harmful).

    What belongs to both proofs has rows of its own.
    """
    depths, rows = _depths(statements), []
    for layer in LAYERS:
        inside = [label for label, one in statements.items() if one.layer == layer]
        shared = sorted({depths[label] for label in inside if statements[label].side == "both"})
        for depth in shared:
            row = [x for x in inside if depths[x] == depth and statements[x].side == "both"]
            rows += [(layer, [], row[i:i + 2 * HALF], []) for i in range(0, len(row), 2 * HALF)]
        for depth in range(max((depths[label] for label in inside), default=-1) + 1):
            left, right = ([x for x in inside if depths[x] == depth and statements[x].side == side]
                           for side in ("benign", "harmful"))
            rows += [(layer, left[i:i + HALF], [], right[i:i + HALF])
                     for i in range(0, max(len(left), len(right)), HALF)]
    return rows


def _spread(labels: list[str], low: float, high: float, wished: dict[str, float]) -> dict[str, float]:
    """Left edges between `low` and `high`, in the order of the wished middles and as near to them as room allows.

    Neighbours that would overlap are moved together, about their common mean.
    """
    step = NODE_WIDTH + GAP
    labels = sorted(labels, key=lambda label: wished[label])
    blocks: list[list[float]] = []  # [sum, count] of first places, each less its rank times the step
    for rank, label in enumerate(labels):
        blocks.append([wished[label] - NODE_WIDTH / 2 - rank * step, 1])
        while len(blocks) > 1 and blocks[-2][0] / blocks[-2][1] > blocks[-1][0] / blocks[-1][1]:
            total, count = blocks.pop()
            blocks[-1] = [blocks[-1][0] + total, blocks[-1][1] + count]
    first = [total / count for total, count in blocks for _ in range(count)]
    last = high - (len(labels) - 1) * step - NODE_WIDTH
    return {label: min(max(first[rank], low), last) + rank * step for rank, label in enumerate(labels)}


def layout(statements: Iterable[Statement]) -> dict[str, Box]:
    """A place for every statement: layers from above, benign left, harmful right, what both use across.

    Each stands below all that it uses, and, as far as there is room, under the middle of what it uses on its own side.

    >>> from vitbo_lib.statements import all_statements
    >>> boxes = layout(all_statements().values())
    >>> len(boxes), boxes["theorem-4-1"].x < boxes["theorem-4-2"].x
    (71, True)
    """
    by_label = {one.label: one for one in statements}
    found: dict[str, Box] = {}
    y, last, middle = float(2 * MARGIN), None, WIDTH / 2
    zones = ((MARGIN, middle - GAP), (MARGIN, WIDTH - MARGIN), (middle + GAP, WIDTH - MARGIN))
    for number, (layer, *sides) in enumerate(_rows(by_label)):
        y += BAND if layer != last else 0
        last = layer
        for (low, high), labels in zip(zones, sides):
            wished = {}
            for label in labels:
                one = by_label[label]
                over = [found[used].middle for used in one.uses if by_label[used].side == one.side]
                wished[label] = sum(over) / len(over) if over else (low + high) / 2
            found |= {label: Box(x, y, number) for label, x in _spread(labels, low, high, wished).items()}
        y += ROW
    return found


def drawn_edges(statements: Iterable[Statement]) -> list[tuple[str, str]]:
    """Pairs (used, user) without those that a longer way already tells."""
    by_label = {one.label: one for one in statements}
    below: dict[str, set[str]] = {}  # all that a statement rests on, directly or not

    def rests(label: str) -> set[str]:
        if label not in below:
            below[label] = set()
            for used in by_label[label].uses:
                below[label] |= {used} | rests(used)
        return below[label]

    return [(used, label) for label, one in by_label.items() for used in one.uses
            if not any(used in rests(other) for other in one.uses if other != used)]


def _path(start: Box, end: Box) -> str:
    x, y = start.middle, start.y + NODE_HEIGHT
    bend = max(16.0, (end.y - y) / 2)
    return f"M{x:.0f} {y:.0f}C{x:.0f} {y + bend:.0f} {end.middle:.0f} {end.y - bend:.0f} {end.middle:.0f} {end.y:.0f}"


def _induction_boxes(boxes: dict[str, Box]) -> list[str]:
    """A dashed frame around the propositions that one induction proves."""
    frames = []
    for letters in INDUCTIONS:
        inside = [boxes[label] for label in proved_with(f"proposition-{letters[0]}") if label in boxes]
        if inside:
            x, y = min(box.x for box in inside) - 5, min(box.y for box in inside) - 5
            width = max(box.x for box in inside) + NODE_WIDTH + 5 - x
            height = max(box.y for box in inside) + NODE_HEIGHT + 5 - y
            frames.append(f'<rect class="frame" x="{x:.0f}" y="{y:.0f}" width="{width:.0f}" height="{height:.0f}" '
                          'rx="9"/>')
    return frames


def _css(edges: list[tuple[str, str]], labels: Iterable[str]) -> str:
    """Colours by theme, and rules that bring out the edges of the node under the pointer or in focus."""
    light, dark = ({"benign": palette["signal"], "harmful": palette["xi2"]} for palette in (style.LIGHT, style.DARK))

    def variables(palette):
        return "".join(f"--{side}:{colour};" for side, colour in palette.items())

    touching = ",".join(f".proof-map:has(.n-{label}:is(:hover,:focus-visible)) .e-{label}" for label in labels
                        if any(label in edge for edge in edges))
    return f"""<style>
.proof-map{{{variables(light)}--both:var(--pst-color-text-muted,#4d545e);overflow-x:auto;max-width:100%}}
html[data-theme="dark"] .proof-map{{{variables(dark)}}}
html[data-theme="dark"] .bd-content div.cell_output .text_html:has(.proof-map,.statements):not(:has(table.dataframe)){{
background:transparent;color:inherit;padding:0}}
.proof-map svg{{display:block;min-width:{WIDTH}px;margin-inline:auto}}
.proof-map a{{text-decoration:none}}
.proof-map text{{font:11px "DejaVu Sans","Segoe UI",Helvetica,Arial,sans-serif;
fill:var(--pst-color-text-base,currentColor)}}
.proof-map .name{{text-anchor:middle}}.proof-map .layer{{font-size:11px;font-style:italic}}
.proof-map .side{{font-weight:600;font-size:13px}}
.proof-map a rect{{fill:var(--pst-color-background,#fff);stroke-width:1.4}}
.proof-map a:hover rect{{stroke-width:2.6}}
.proof-map a:focus-visible{{outline:none}}
.proof-map a:focus-visible rect{{stroke-width:4}}
.proof-map .unused rect,.proof-map .frame{{stroke-dasharray:4 3}}
.proof-map .frame{{fill:none;stroke:currentColor;opacity:.55}}
.proof-map path{{fill:none;stroke-width:1.1;opacity:.45}}
.proof-map .benign{{stroke:var(--benign)}}.proof-map .harmful{{stroke:var(--harmful)}}
.proof-map .both{{stroke:var(--both)}}
.proof-map .rule{{stroke:currentColor;opacity:.2}}
{touching}{{stroke-width:2.6;opacity:1}}
</style>"""


def svg(statements: Iterable[Statement]) -> str:
    """The map as HTML: a box that scrolls sideways where it is narrow, in it an SVG with a link for every statement."""
    statements = list(statements)
    by_label, boxes, edges = {one.label: one for one in statements}, layout(statements), drawn_edges(statements)
    height = max(box.y for box in boxes.values()) + NODE_HEIGHT + MARGIN
    parts, layer = [], None
    for label, box in boxes.items():
        if by_label[label].layer != layer:
            layer = by_label[label].layer
            y = box.y - 16
            parts.append(f'<path class="rule" d="M{MARGIN} {y:.0f}H{WIDTH - MARGIN}"/>'
                         f'<text class="layer" x="{MARGIN}" y="{y + 11:.0f}">{html.escape(layer)}</text>')
            if layer == "stage I":  # here the two proofs part
                parts += [f'<text class="name side" x="{WIDTH * part:.0f}" y="{y + 26:.0f}">{side}</text>'
                          for side, part in (("benign", 0.22), ("harmful", 0.78))]
    parts += [f'<path class="{by_label[user].side} e-{used} e-{user}" d="{_path(boxes[used], boxes[user])}"/>'
              for used, user in edges]
    parts += _induction_boxes(boxes)
    for label, box in boxes.items():
        one = by_label[label]
        said = html.escape(f"{one.name}: {one.says}")
        parts.append(
            f'<a class="n-{label}{" unused" if one.unused else ""}" href="{html.escape(one.address)}" '
            f'aria-label="{said}"><title>{said}</title>'
            f'<rect class="{one.side}" x="{box.x:.0f}" y="{box.y:.0f}" width="{NODE_WIDTH}" '
            f'height="{NODE_HEIGHT}" rx="6"/>'
            f'<text class="name" x="{box.middle:.0f}" y="{box.y + 18:.0f}">{html.escape(one.short)}</text></a>')
    title = "Which statement of the paper rests on which; the list below says the same in words"
    return (f'<div class="proof-map" role="region" aria-label="Proof map" tabindex="0">{_css(edges, by_label)}'
            f'<svg viewBox="0 0 {WIDTH} {height:.0f}" width="{WIDTH}" height="{height:.0f}" role="group" '
            f'aria-label="{title}">' + "\n".join(parts) + "</svg></div>")
