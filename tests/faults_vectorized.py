"""Planted faults of the part on vectorized queries and keys."""

import functools

import torch
from claim_faults import replaced, token_gradients_with

from vitbo_lib import coefficients, symbolic_updates, transformer, vectorized
from vitbo_lib.evidence import vectorized as evidence


def own_inner_products(original):
    """Distinct tokens as if they were orthogonal."""
    return lambda points: torch.diag_embed(original(points).diagonal(dim1=1, dim2=2))


def keys_twice(original):
    """Full gradients that move W_K twice as far."""
    def gradients(*args):
        loss, found = original(*args)
        return loss, transformer.Weights(found.w_q, 2 * found.w_k, found.w_v, found.w_o)

    return gradients


def values_twice(original):
    """Full gradients that move W_V twice as far."""
    def gradients(*args):
        loss, found = original(*args)
        return loss, transformer.Weights(found.w_q, found.w_k, 2 * found.w_v, found.w_o)

    return gradients


def sweep(**columns):
    """The sweeps of lower order with columns changed."""
    return replaced(vectorized, "leading_order",
                    lambda original: lambda *args: original(*args).assign(**columns))


def on_the_way(name, place=None, **columns):
    """One of the tables of a training with columns changed, everywhere or at one place."""
    def change(original):
        def walked(side, where):
            found = original(side, where)
            return found | {name: found[name].assign(**columns)} if place in (None, where) else found

        return walked

    return replaced(evidence, "walked", change)


def put_to(name, **arguments):
    """A derivation put to the proof with another statement."""
    return replaced(symbolic_updates, name, lambda original: functools.partial(original, **arguments))


def constant(kind, value):
    """Another number in the place of a constant of F.4."""
    def plant(monkeypatch):
        monkeypatch.setitem(vectorized.F_4, kind, value)

    return plant


FAULTS = {
    "C11": replaced(coefficients, "token_gradients", token_gradients_with(logits=lambda part: part.mT)),
    "C12": replaced(coefficients, "gram", own_inner_products),
    "C13": replaced(transformer, "token_gradients", token_gradients_with(logits=torch.abs)),
    "C14": replaced(transformer, "gradients", keys_twice),
    "C17": replaced(coefficients, "token_gradients", token_gradients_with(logits=lambda part: 1.001 * part)),
    "C18": sweep(first=lambda rows: rows["first"] * rows["value"] ** 0.25),
    "C19": sweep(second=lambda rows: rows["second"] * rows["allowed"]),
    "C43": replaced(transformer, "token_gradients", token_gradients_with(logits=torch.neg)),
    "C43-lab": on_the_way("f_4", "lab", right=1.0),
    "C44": put_to("noise_share", constant=symbolic_updates.HALF),
    "F.4-fifth": constant("beta_{n,i,+}", 1 / 7),
    "F.4-regime": on_the_way("f_4", least=lambda rows: rows["least"] / 3),
    "lemma-5.1-signal": replaced(transformer, "gradients", values_twice),
    "C73": on_the_way("lemma", "regime", ratio=lambda rows: 3 * rows["ratio"]),
    "C73-lab": on_the_way("lemma", "lab", ratio=lambda rows: rows["ratio"] / 100),
    "C74": replaced(vectorized, "FROZEN", lambda kinds: dict.fromkeys(kinds, ())),
    "C39": put_to("summation_step", last="n * (n - 1) / 2"),
    "C45": put_to("am_gm", constant="1 / (3 * sqrt(a * c))"),
    "C84": put_to("max_min", product=2),
}
