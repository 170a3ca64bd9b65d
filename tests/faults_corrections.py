"""For every claim on the print a fault that must change its verdict."""

import dataclasses
import functools

import sympy as sp
from claim_faults import replaced

from vitbo_lib import symbolic_corrections, theory
from vitbo_lib.initialization import TorchInit


def blind(name):
    """A proof that no longer looks at what is in question: the printed version passes."""
    return replaced(symbolic_corrections, name, lambda original: lambda *_, **__: original())


def another(name, **arguments):
    """A proof of another statement."""
    return replaced(symbolic_corrections, name, lambda original: functools.partial(original, **arguments))


def no_strong_noise(original):
    """Token 2 as weak as the others."""
    def proof():
        found = original()
        return dataclasses.replace(found, parts=found.parts | {"at_c_p": sp.Integer(1)})

    return proof


def weaker_signal(original):
    """The harmful example with a signal fifteen times weaker."""
    return lambda: {name: dataclasses.replace(p, signal_norm=p.signal_norm / 15) for name, p in original().items()}


exponents = symbolic_corrections.CLAIM_2 | {"noise query, signal key": symbolic_corrections.CLAIM_2[
    "noise query, noise key"]}

FAULTS = {
    "C82": another("fewer_samples", cnn_power=sp.Rational(3, 2)),
    "print-T_3": blind("third_stage"),
    "print-lg": blind("gap_at_second_time"),
    "print-w_O": blind("gap_at_second_time"),
    "print-D.2.1": blind("growth_of_dominance"),
    "print-D.2.3": blind("summed_gap"),
    "F.5-exponents": another("claim_2_exponents", printed=exponents),
    "print-D.3": blind("first_stage_values"),
    "print-D.8": replaced(symbolic_corrections, "frobenius_norm", no_strong_noise),
    "print-E.3": blind("harmful_margin"),
    "print-E.6": blind("last_display_of_e_6"),
    "print-F.12": blind("key_norm_order"),
    "print-C.3": blind("equal_indices"),
    "C.1-small-N": another("class_balance_delta", factor=4),
    "App-A-harmful": replaced(theory, "paper_experiments", weaker_signal),
    "w_O-norm": replaced(TorchInit, "read_out", lambda original: lambda *args: original(*args) * 1.2),
}
