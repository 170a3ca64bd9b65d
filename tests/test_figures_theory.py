"""The figures of the introduction and of Condition 4.1 show what their tables hold."""

import numpy as np
import pandas as pd
import pytest

from vitbo_lib.figures import style
from vitbo_lib.figures.theory import condition_margins, two_kinds_of_overfitting
from vitbo_lib.theory import condition_4_1, paper_experiments


def curves(seeds: int) -> pd.DataFrame:
    rows = [(phase, seed, t, 1 / (t + 2), 0.7 if phase == "harmful" else 1 / (t + 3))
            for phase in ("benign", "harmful") for seed in range(seeds) for t in (0, 10, 100 + seed)]
    return pd.DataFrame(rows, columns=["phase", "seed", "t", "train_loss", "test_loss"])


@pytest.mark.parametrize("seeds", [1, 3])
def test_every_run_is_drawn_in_its_panel(seeds):
    fig = two_kinds_of_overfitting(curves(seeds))
    for ax, phase in zip(fig.axes, ("benign", "harmful")):
        drawn = [line for line in ax.lines if len(line.get_xdata()) == 3]
        assert len(drawn) == 2 * seeds
        colours = [line.get_color() for line in drawn]
        assert colours.count(style.TRAIN) == colours.count(style.TEST) == seeds
        test = next(line for line in drawn if line.get_color() == style.TEST)
        assert test.get_ydata()[-1] == pytest.approx(0.7 if phase == "harmful" else 1 / 103)
        assert min(test.get_xdata()) > 0  # the axis is logarithmic
    assert [text.get_text() for text in fig.axes[0].get_legend().get_texts()] == ["training loss", "test loss"]


def test_margins_stand_at_their_item():
    experiments = {name: condition_4_1(p) for name, p in paper_experiments().items()}
    fig = condition_margins(experiments)
    lines = [line for line in fig.axes[0].lines if len(line.get_xdata()) == 10]
    assert [line.get_label() for line in lines] == list(experiments)
    for line, items in zip(lines, experiments.values()):
        np.testing.assert_allclose(line.get_xdata(), [item.margin for item in items])
        assert [round(y) for y in line.get_ydata()] == list(range(1, 11))


def test_what_is_unknown_is_not_drawn():
    p = paper_experiments()["App. A, benign"]
    items = condition_4_1(type(p)(N=p.N, M=p.M, d=p.d))
    (line,) = [line for line in condition_margins({"few": items}).axes[0].lines if line.get_label() == "few"]
    assert [round(y) for y in line.get_ydata()] == [3, 4]
