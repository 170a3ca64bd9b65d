"""Planted faults of the claims from the lab to the regime."""

from claim_faults import replaced

from vitbo_lib import figure_1_shift, finite_size


def stored(change):
    """The stored table changed."""
    return replaced(finite_size, "load", lambda original: lambda: change(original()))


def same_at_every_d(rows):
    """Every d has the runs of the smallest."""
    small = rows[rows["d"] == rows["d"].min()]
    return rows.assign(test_loss=_looked_up(rows, small, "test_loss"))


def _looked_up(rows, small, column):
    first = small.groupby(["path", "ratio", "seed"])[column].mean()
    keys = rows.set_index(["path", "ratio", "seed"]).index
    return first.reindex(keys).fillna(rows[column].mean()).to_numpy()


def shifted(rows):
    """N SNR^2 read with twice the number of samples."""
    return rows.assign(ratio=2 * rows["ratio"])


def jump(rows):
    """A loss that knows two values only, at the largest d: a transition within one step of the grid."""
    large = (rows["d"] == rows["d"].max()) & (rows["path"] != "M = 16")
    return rows.assign(test_loss=rows["test_loss"].where(~large, 0.7 - 0.6 * (rows["ratio"] > 2)))


def ever_sharper(rows):
    """At the largest d the whole fall in a single step, ten times finer than the grid."""
    large = rows["d"] == rows["d"].max()
    ratio = rows["ratio"].where(~large, 2 * (rows["ratio"] / 2) ** 0.1)
    return rows.assign(ratio=ratio)


def other_labels(original):
    """Class sizes of another seed."""
    return lambda seed, n: original(seed + 100, n)


def middle_late(rows):
    """A test loss that falls at twice the ratio."""
    return shifted(rows)


def half_d_h(original):
    """The problem of item (2) with twice the d_h that it allows."""
    return lambda _path, d, ratio: original("M = 2", d, ratio)


FAULTS = {
    "lab-to-regime-width": stored(same_at_every_d),
    "lab-to-regime-rest": stored(ever_sharper),
    "lab-to-regime-position": stored(shifted),
    "lab-to-regime-loss": stored(middle_late),
    "lab-to-regime-items": replaced(finite_size, "items_met", half_d_h),
    "lab-to-regime-cap": stored(jump),
    "cut-off-regime": stored(lambda rows: rows.assign(test_loss=rows["test_loss"] / 4)),
    "figure-1-constant": stored(shifted),
    "figure-1-tokens": stored(shifted),
    **{f"figure-1-classes-{reading}": replaced(figure_1_shift, "larger_class", other_labels)
       for reading in ("divided", "undivided")},
}
