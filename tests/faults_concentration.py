"""Planted faults."""

import dataclasses

from claim_faults import replaced, skewed

from vitbo_lib import concentration, data, draw

TOO_LONG = replaced(draw, "gaussian_factor", lambda original: lambda *args: original(*args) * 2**0.5)


def keys_are_queries(original):
    """One matrix for both."""
    return lambda *args: ((q, q) for q, _ in original(*args))


def strong_noise(original):
    """The proof of C.2 with sigma_p_tilde where it has sigma_p."""
    return lambda p, _: original(p, p.sigma_p_tilde)


def without_own(original):
    """C.3 as if it excluded equal indices."""
    def lemma(*args):
        found = original(*args)
        return dataclasses.replace(found, with_equal=found.products)

    return lemma


FAULTS = {
    "C20-regime": replaced(data, "sample_labels", skewed),
    "C21": TOO_LONG,
    "C21-print": replaced(concentration, "printed_value_bound", strong_noise),
    "C22": TOO_LONG,
    "C22-d_h": TOO_LONG,
    "C23": replaced(concentration, "queries_and_keys", keys_are_queries),
    "C23-print": replaced(concentration, "lemma_c_3", without_own),
    "C24-regime": TOO_LONG,
    "C89": replaced(concentration, "least_samples", lambda _: lambda _: 1.0),
}
