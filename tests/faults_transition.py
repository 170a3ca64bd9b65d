"""Faults for the claims about the transition."""

from claim_faults import replaced

from vitbo_lib import transition_map


def stored(**columns):
    """The map with columns changed."""
    return replaced(transition_map, "load", lambda original: lambda: original().assign(**columns))


def of_m(m):
    """The runs of one M at four times the ratio."""
    return stored(ratio=lambda rows: rows["ratio"] * (1 + 3 * (rows["M"] == m)))


def half_as_steep(original):
    """Steps that grow with the root of 1 / eta alone."""
    return lambda side: original(side).assign(steps=lambda rows: rows["steps"] * rows["eta"] ** 0.5)


def classes_exchanged(original):
    """Places of the classes with their sizes exchanged."""
    return lambda rows: original(rows.assign(positives=rows["N"] - rows["positives"]))


def as_in_the_map():
    """Runs whose weights were not made smaller."""
    rows = transition_map.even(transition_map.load())
    return rows[(rows["M"] == transition_map.CALM[0]) & (rows["N"] == transition_map.CALM[1])]


FAULTS = {
    "map-train": stored(train_loss=lambda rows: 2 * rows["train_loss"]),
    "plateau-time-benign": stored(time_benign=lambda rows: rows["time_benign"] * rows["ratio"]),
    "plateau-time-harmful": stored(time_harmful=lambda rows: rows["time_harmful"] / rows["ratio"]),
    "C53-eta": replaced(transition_map, "eta_runs", half_as_steep),
    "C54-eta": replaced(transition_map, "eta_runs", half_as_steep),
    "plateau-error": stored(test_error=lambda rows: rows["test_loss"] / 2),
    **{f"transition-M{m}": of_m(m) for m in (2, 3, 4, 8)},
    "transition-jumps": stored(share=lambda rows: (rows["ratio"] > 2) * 1.0),
    "transition-width": replaced(transition_map, "calm_runs", lambda _: as_in_the_map),
    "transition-between": stored(ratio=lambda rows: rows["ratio"] / 2),
    "transition-of-N": stored(ratio=lambda rows: rows["ratio"] * rows["N"]),
    "transition-classes": replaced(transition_map, "class_positions", classes_exchanged),
    "transition-queries": stored(xi2_query=lambda rows: rows["mu_query"]),
}
