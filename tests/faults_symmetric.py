"""Planted faults of the symmetric limit's claims."""

import dataclasses
import functools

from claim_faults import replaced

from vitbo_lib import regime, symmetric, symmetric_algebra, symmetric_drawn, symmetric_explicit
from vitbo_lib.symmetric_flow import Flow


def other_statement(name, **arguments):
    """A derivation put to the proof with another statement."""
    return replaced(symmetric_algebra, name, lambda original: functools.partial(original, **arguments))


def constants(**columns):
    """The table of constants with columns changed."""
    return replaced(symmetric, "load", lambda original: lambda: original().assign(**columns))


def drawn(change):
    """The drawn runs, changed."""
    return replaced(symmetric_drawn, "load", lambda original: lambda: change(original()))


def one_signal_only(monkeypatch):
    """A flow in which mu's value learns from one sample, not from its class."""
    original = Flow.velocity

    def velocity(self, rows, vectors):
        found = original(self, rows, vectors)
        found[:, 0] /= self.of_class[rows, 0, 0]
        return found

    monkeypatch.setattr(symmetric_explicit.Flow, "velocity", velocity)


def exchanged(rows):
    """Runs as asked and runs with small initial values exchanged."""
    return rows.assign(start=rows["start"].map({"asked": "values", "values": "asked", "both": "both"}))


def values_twice(original):
    """A configuration whose sigma_V falls with d_h as d_h^(-1/2)."""
    def parameters(*args, **options):
        p = original(*args, **options)
        return dataclasses.replace(p, sigma_v=p.sigma_v * p.d_h**-0.25)

    return parameters


def with_logarithm(rows):
    """Constants that never stop growing."""
    return (rows["xi2"] + 0.3 * rows["M"]) * rows["N"] ** 0.05


FAULTS = {
    "symmetric-closed": other_statement("closed_system", classes_meet=True),
    "symmetric-force": other_statement("force_at_logits", sign=-1),
    "symmetric-exact": one_signal_only,
    "symmetric-matches-drawn": drawn(lambda rows: rows.assign(attention_signal=1 - rows["attention_signal"])),
    "symmetric-start-values": drawn(exchanged),
    "symmetric-start-sizes": replaced(regime, "parameters", values_twice),
    "symmetric-no-error": drawn(lambda rows: rows.assign(test_error=0.1)),
    "transition-constant-M2": constants(loss=lambda rows: rows["loss"] * 1.01),
    "transition-grows-with-N": constants(xi2=3.0),
    "transition-saturates": constants(xi2=with_logarithm),
    "transition-no-log": constants(xi2=with_logarithm),
    "transition-2M-2": other_statement("largest_constant", ratio="M"),
    "transition-loss-first": constants(loss=lambda rows: rows["xi2"]),
    "omega-is-sharp": constants(xi2=with_logarithm),
}
