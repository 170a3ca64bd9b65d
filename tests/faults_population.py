"""Planted faults."""

from claim_faults import replaced

from vitbo_lib import augmentation, population


def stored(**columns):
    """The table of fresh points with columns changed."""
    return replaced(population, "load", lambda original: lambda: original().assign(**columns))


def scaling(**columns):
    """The table of the scaling with columns changed."""
    return replaced(population, "load_scaling", lambda original: lambda: original().assign(**columns))


def arms(change):
    """The table of augmentation with its test losses changed."""
    return replaced(augmentation, "load", lambda original: lambda: original().assign(test_loss=change))


def swapped(one, other):
    """Two arms of augmentation that are taken for one another."""
    names = {one: other, other: one}
    return replaced(augmentation, "load", lambda original: lambda: original().assign(
        arm=lambda rows: rows["arm"].map(lambda name: names.get(name, name))))


def helped_above(rows):
    """Copies that help where the signal is strong and harm where it is weak."""
    copies = rows["arm"].str.startswith("copies")
    return rows["test_loss"] + copies * (0.3 * (rows["ratio"] < 1) - 0.3 * (rows["ratio"] > 5))


FAULTS = {
    "C60-points": stored(attention=0.1),
    "C60-lab": stored(attention=0.1),
    "D.8-probability": stored(attention=0.1),
    "C61-gauss": stored(logit_xi2=lambda rows: rows["logit_xi2"] ** 3),
    "C61": scaling(logit_std=lambda rows: rows["logit_std"] * rows["d_h"] ** 0.25),
    "C62": stored(moved_k=lambda rows: 1e4 * rows["moved_k"]),
    "C62-lab": stored(moved_k=lambda rows: rows["moved_k"] / 100),
    "C63-lab": stored(noise_largest=lambda rows: 100 * rows["noise_largest"]),
    "C63-growth-benign": scaling(moved_v=lambda rows: 100 * rows["moved_v"]),
    "C63-growth-harmful": scaling(moved_v=lambda rows: 1e4 * rows["moved_v"]),
    "C64": replaced(population, "margin_bound", lambda _: lambda signal, noise, _: signal - noise),
    "lemma-5.5": stored(margin=lambda rows: rows["margin"] - 3),
    "lemma-D.10": scaling(test_loss=lambda rows: rows["test_loss"] + 3),
    "E.6-values": stored(noise_largest=lambda rows: 100 * rows["noise_largest"]),
    "E.6-loss": stored(margin=lambda rows: rows["margin"] + 3),
    "C88": arms(helped_above),
    "C88-copies": swapped("copies, s = 2", "fresh, s = 1"),
    "C88-fresh": swapped("copies, s = 2", "fresh, s = 1"),
}
