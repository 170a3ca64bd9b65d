"""One figure for both themes, legible with any colour vision, never half-written."""

import itertools
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

from vitbo_lib.errors import UserError
from vitbo_lib.figures import style

# Machado, Oliveira, Fernandes 2009: what dichromats see, as maps of linear RGB.
VISION = {
    "normal": np.eye(3),
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}
RGB_TO_XYZ = np.array([[.4124564, .3575761, .1804375], [.2126729, .7151522, .0721750], [.0193339, .1191920, .9503041]])
TOGETHER = [("signal", "xi2", "noise"), ("train", "test", "paper", "ours")]


def linear(colour: str) -> np.ndarray:
    value = np.array([int(colour[i:i + 2], 16) / 255 for i in (1, 3, 5)])
    return np.where(value <= .04045, value / 12.92, ((value + .055) / 1.055) ** 2.4)


def lab(rgb: np.ndarray) -> np.ndarray:
    ratio = RGB_TO_XYZ @ np.clip(rgb, 0, 1) / [.95047, 1, 1.08883]
    x, y, z = np.where(ratio > .008856, np.cbrt(ratio), 7.787 * ratio + 16 / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def contrast(one: str, other: str) -> float:
    low, high = sorted(float(RGB_TO_XYZ[1] @ linear(colour)) for colour in (one, other))
    return (high + .05) / (low + .05)


def distance(one: str, other: str, vision: str) -> float:
    return float(np.linalg.norm(lab(VISION[vision] @ linear(one)) - lab(VISION[vision] @ linear(other))))


@pytest.mark.parametrize("vision", VISION)
@pytest.mark.parametrize("palette", [style.LIGHT, style.DARK], ids=["light", "dark"])
def test_roles_that_stand_together_differ(palette, vision):
    for group in TOGETHER:
        for one, other in itertools.combinations(group, 2):
            assert distance(palette[one], palette[other], vision) >= 29.5, (one, other)
    for one, other in itertools.combinations(palette, 2):
        assert distance(palette[one], palette[other], vision) >= 18, (one, other)


def test_a_grey_and_purple_pair_would_be_seen():
    assert distance("#6a6f78", "#a3267a", "normal") > 40 > 29.5 > distance("#6a6f78", "#a3267a", "deuteranopia")


@pytest.mark.parametrize(("palette", "page", "ink"), [(style.LIGHT, style.PAGE_LIGHT, style.INK_LIGHT),
                                                      (style.DARK, style.PAGE_DARK, style.INK_DARK)])
def test_contrast_with_the_page(palette, page, ink):
    assert all(contrast(colour, page) >= 3 for colour in palette.values())
    assert contrast(ink, page) >= 7


def drawing():
    fig, ax = style.subplots()
    for role in style.LIGHT:
        ax.plot([0, 1], [0, 1], **style.look(role), label=role)
    ax.legend()
    return fig


def test_every_colour_follows_the_theme():
    text = style.themed_svg(drawing())
    ElementTree.fromstring(text)
    head, body = text.split("</style>", 1)
    for role, colour in style.LIGHT.items():
        assert f"var(--{role})" in body
        assert colour not in body
        assert f"--{role}:{style.DARK[role]}" in head
    assert style.INK not in body
    assert "currentColor" in body
    assert "#000000" not in body.replace("fill: #000000", "")


def test_same_figure_same_text():
    assert style.themed_svg(drawing()) == style.themed_svg(drawing())


def test_heat_map_keeps_its_own_colours():
    fig, ax = style.subplots()
    style.heat_map(ax, [1, 2, 3], [1, 2], [[0, 1, 2], [3, np.nan, 5]], label="loss")
    assert "data:image/png" in style.themed_svg(fig)


@pytest.mark.parametrize("kind", ["svg", "pdf", "png"])
def test_save(tmp_path, kind):
    path = style.save(drawing(), tmp_path / "deeper" / f"figure.{kind}")
    assert path.stat().st_size > 1000
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_bad_requests_say_what_to_do(tmp_path):
    with pytest.raises(UserError, match=r"\.svg, \.pdf or \.png"):
        style.save(drawing(), tmp_path / "figure.gif")
    with pytest.raises(UserError, match="choose one of signal"):
        style.look("mystery")
    with pytest.raises(UserError, match="at most 2"):
        style.subplots(1, 3)
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="choose a folder"):
        style.save(drawing(), tmp_path / "file" / "figure.svg")
