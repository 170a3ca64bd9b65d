"""The figures of the setting show what their tables hold."""

import numpy as np
import pandas as pd
import pytest
from matplotlib.collections import QuadMesh

from vitbo_lib.figures import style
from vitbo_lib.figures.setting import inner_products, laws_compared, near_orthogonality, scalarized_moves


def test_tokens_are_ordered_by_kind_and_zeros_stay_empty():
    """N = 2, M = 3: rows mu_+, mu_-, xi_12, xi_13, xi_22, xi_23 become mu_+, mu_-, xi_12, xi_22, xi_13, xi_23."""
    gram = np.diag([1.0, 2, 30, 4, 50, 6])
    gram[2, 4] = gram[4, 2] = -7.0
    (mesh,) = [part for part in inner_products(gram, 2, 3).axes[0].collections if isinstance(part, QuadMesh)]
    shown = mesh.get_array()
    assert shown.diagonal().tolist() == [1, 2, 30, 50, 4, 6]
    assert shown[2, 3] == shown[3, 2] == 7
    assert int(shown.mask.sum()) == 36 - 8


def test_cosines_stand_at_their_dimension_beside_the_line():
    table = pd.DataFrame([(18, "direct", 0.25, 0.5), (102, "direct", 0.1, 0.3), (1e16, "drawn", 1e-8, 4e-8)],
                         columns=["d", "source", "rms", "largest"])
    lines = {line.get_label(): line for line in near_orthogonality(table).axes[0].lines}
    assert lines["root mean square, drawn directly"].get_xydata().tolist() == [[1e16, 1e-8]]
    assert lines["largest, all coordinates"].get_ydata().tolist() == [0.5, 0.3]
    assert lines[r"$1/\sqrt{d-2}$"].get_ydata() == pytest.approx([0.25, 1e-8])


def test_signals_stand_above_noise_below():
    tokens = [("mu_+", 0, 1), ("mu_-", 0, -1), ("xi_2", 1, 1), ("xi_2", 2, -1), ("xi_2", 3, 1)]
    rows = [(t, token, sample, label, label * t * (1 + sample)) for t in range(3) for token, sample, label in tokens]
    above, below = scalarized_moves(pd.DataFrame(rows, columns=["t", "token", "sample", "label", "moved"])).axes
    curves = [[line for line in ax.lines if len(line.get_xdata()) == 3] for ax in (above, below)]
    assert [line.get_ydata()[-1] for line in curves[0]] == [2, -2]
    assert sorted(line.get_ydata()[-1] for line in curves[1]) == [-6, 4, 8]
    assert {line.get_color() for line in curves[1]} == {style.XI2}
    assert len(below.get_legend().get_texts()) == 2  # one entry a label, not one a sample


def test_equal_laws_lie_on_the_diagonal():
    values = np.linspace(1, 2, 101)
    sides = {"full": values, "drawn": values[::-1], "fault": values + 1}
    table = pd.concat([pd.DataFrame({"engine": engine} | dict.fromkeys(
        ("steps", "test_loss", "attention_xi2", "v_signal"), some)) for engine, some in sides.items()])
    for ax in laws_compared(table).axes:
        fault, drawn, diagonal = ax.lines
        assert drawn.get_ydata() == pytest.approx(drawn.get_xdata())
        assert fault.get_ydata() == pytest.approx(fault.get_xdata() + 1)
        assert list(diagonal.get_xdata()) == list(diagonal.get_ydata())
        assert drawn.get_xdata()[[0, -1]] == pytest.approx([1.01, 1.99])
