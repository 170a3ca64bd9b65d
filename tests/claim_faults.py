"""For every claim a fault in the library that must change its verdict."""

import dataclasses
import functools
import importlib

import sympy as sp
import torch

from vitbo_lib import (
    data,
    draw,
    mnist,
    mnist_experiment,
    phase_diagram,
    regime,
    simulation,
    span,
    stages,
    symbolic,
    theory,
    training,
    transformer,
)
from vitbo_lib.evidence import experiments, reduction


def replaced(module, name, change):
    """A fault that puts `change(original)` in the place of `module.name`."""
    def plant(monkeypatch):
        monkeypatch.setattr(module, name, change(getattr(module, name)))

    return plant


def with_argument(name, **arguments):
    """A derivation of `symbolic` put to the proof with another statement."""
    return replaced(symbolic, name, lambda original: functools.partial(original, **arguments))


def unproved(name):
    """A derivation of `symbolic` that does not go through."""
    def change(original):
        return lambda *args, **kwargs: dataclasses.replace(original(*args, **kwargs), holds=False)

    return replaced(symbolic, name, change)


def half_of_d_h(original):
    """The smallest configuration with half the d_h that item (1) asks for."""
    def configuration(*args):
        p = original(*args)
        return dataclasses.replace(p, d_h=p.d_h // 2)

    return configuration


def no_gap(original):
    return lambda: dataclasses.replace(original(), parts=original().parts | {"chain": sp.Integer(10**9)})


def small_c_p(original):
    """Experiments with the C_p of the theory."""
    def experiments_():
        return {name: dataclasses.replace(p, sigma_p_tilde=5 * p.M**0.5 * p.sigma_p) for name, p in original().items()}

    return experiments_


def theorems_own(original):
    """Experiments at the theorems' sizes."""
    return lambda: {"chosen": theory.smallest_configuration(64, 2, 1.0, 0.01, 0.01)}


def column_changed(column, change):
    """The stored table with one column changed."""
    return replaced(experiments, "_phase", lambda original: lambda reading: original(reading).assign(
        **{column: lambda rows: change(rows)}))


def digits_changed(column, change):
    return replaced(experiments, "_digits", lambda original: lambda: original().assign(**{column: change}))


def swapped_snr(rows):
    """The labels of the two SNR exchanged."""
    return rows["snr"].map({0.2: 2.0, 2.0: 0.2})


def _figure_1(reading):
    """Faults under one reading of w_O."""
    upside_down = column_changed("test_loss", lambda rows: 0.8 - rows["test_loss"])
    # the boundary moved along: SNR read with sigma_p_tilde, or the noise's norm forgotten
    far = replaced(phase_diagram, "snr", lambda original: lambda norm: original(norm) * 3)
    # a boundary of another shape: N and SNR exchanged in weight
    bent = replaced(phase_diagram, "snr", lambda original: lambda norm: original(norm) ** 3)
    return {
        f"C75-{reading}": upside_down,
        f"C76-{reading}": bent,
        f"C76-1000-{reading}": far,
        f"C77-{reading}": far,
        f"cut-off-{reading}": column_changed("test_loss", lambda rows: 0.3 - 0.2 * (rows["test_loss"] > 0.2)),
    }


def stored(**columns):
    """The table of the theorems' regime with columns changed."""
    return replaced(regime, "load", lambda original: lambda: original().assign(**columns))


def lab(**columns):
    """The table of the examples of Appendix A with columns changed."""
    return replaced(regime, "load_lab", lambda original: lambda: original().assign(**columns))


def half_and_half(rows):
    """A test loss that depends on the seed."""
    return 0.7 * (rows["seed"] % 2)


def never_projected(original):
    """Sampling that forgets the projector."""
    return lambda law, *args, **options: original(dataclasses.replace(law, project=False), *args, **options)


def with_larger_leak(original):
    """Sampling in which noise, where it is not projected, has ten times too much along the signals."""
    def sample(law, *args, **options):
        points = original(law, *args, **options)
        points.noise[..., :2] *= 10
        return points

    return sample


def skewed(original):
    """Labels of which two in three are +1."""
    return lambda n_samples, rng: (rng.integers(0, 3, size=n_samples) > 0) * 2.0 - 1.0


def total_output(original):
    """f without its mean over the tokens."""
    def outputs(phi, values):
        read, f = original(phi, values)
        return read, f * read.shape[-1]

    return outputs


def token_gradients_with(**changes):
    """Derivatives at the tokens with `logits` or `values` changed."""
    def change(original):
        def token_gradients(*args):
            loss, found = original(*args)
            return loss, dataclasses.replace(found, **{name: f(getattr(found, name)) for name, f in changes.items()})

        return token_gradients

    return change


def minus_for_noise(logits):
    """The sign that the first statement of Lemma B.1 has at the noise queries."""
    logits = logits.clone()
    logits[..., 1:, :] *= -1
    return logits


def no_inner_products(original):
    """Training tokens seen as if they were orthogonal."""
    def look(*args):
        seen = original(*args)
        return dataclasses.replace(seen, inner_products=seen.inner_products * torch.eye(*seen.inner_products.shape))

    return look


def values_not_divided(original):
    """Full weights with W_V moved ||w_O||^2 times too far."""
    def restore(problem, *args):
        return original(dataclasses.replace(problem, w_o_norm_squared=problem.w_o_norm_squared**2), *args)

    return restore


def fault_as_drawn(original):
    """The runs with a planted fault in the place of those drawn directly."""
    def runs():
        rows = original()
        return rows.assign(engine=rows["engine"].map({"full": "full", "fault": "drawn", "drawn": "fault"}))

    return runs


def no_spread(original):
    """Bartlett's factor with sqrt(m) on the diagonal, the mean of chi and not chi."""
    def factor(rows, columns, rng, batch=()):
        found = original(rows, columns, rng, batch)
        if columns >= rows:
            found[..., range(rows), range(rows)] = columns**0.5
        return found

    return factor


def keys_faster(original):
    """A flow whose keys move 5 % too fast."""
    def velocity(self, into):
        original(self, into)
        into[1].mul_(1.05)

    return velocity


FAULTS = {
    "C01": replaced(data, "sample", never_projected),
    "C02": replaced(data, "sample", never_projected),
    "C20": replaced(data, "sample_labels", skewed),
    "C24": replaced(draw, "gaussian_factor", lambda original: lambda *args: original(*args) * 2**0.5),
    "C87": replaced(simulation, "sample", with_larger_leak),
    "C04": replaced(transformer, "outputs", total_output),
    "C05": replaced(transformer, "sample_losses", lambda _: lambda f, labels: (1 - labels * f) ** 2 / 2),
    "C06": with_argument("softmax_jacobian", off_diagonal_sign=+1),
    "print-eq-4": replaced(symbolic, "softmax_jacobian", lambda original: lambda **_: original()),
    "C07": replaced(transformer, "attention", lambda _: lambda queries, keys: (queries @ keys.mT).sigmoid()),
    "C08": replaced(transformer, "token_gradients", token_gradients_with(logits=minus_for_noise)),
    "print-B.1": replaced(symbolic, "lemma_b_1", lambda original: lambda **_: original()),
    "C09": replaced(transformer, "token_gradients", token_gradients_with(logits=lambda part: part.mT)),
    "C10": replaced(transformer, "token_gradients", token_gradients_with(values=lambda part: 4 * part)),
    "C15": replaced(transformer, "token_gradients", token_gradients_with(values=lambda part: 4 * part)),
    "C16": replaced(training, "token_gradients", token_gradients_with(values=torch.abs)),  # the label is lost
    "exact-reduction": replaced(span, "look", no_inner_products),
    "weights-restored": replaced(span, "restore", values_not_divided),
    "hidden-2K": replaced(span, "hidden_basis", lambda original: lambda seen: original(seen)[:, 1:]),
    "drawn-in-law": replaced(reduction, "runs", fault_as_drawn),
    "flow-order": replaced(training.Descent, "velocity", keys_faster),
    "any-dimension": replaced(draw, "gaussian_factor", no_spread),
    "thm-4.1-train": stored(train_loss=lambda rows: 2 * rows["train_loss"]),
    "thm-4.1-time": stored(time=lambda rows: rows["time"] * rows["N"]),
    "C52": stored(time=lambda rows: rows["time"] * rows["epsilon"] ** 0.2),
    "C53": stored(time=lambda rows: rows["time"] * rows["N"]),
    "thm-4.1-probability": stored(test_loss=half_and_half),
    "thm-4.1-test": stored(test_loss=0.3),
    "test-exponent": stored(test_loss=lambda rows: rows["epsilon"]),
    "thm-4.1-omega": stored(ratio=lambda rows: 1000 * rows["ratio"]),
    "C60": stored(fresh_attention=0.2),
    "C63": stored(fresh_noise_largest=1.1),
    "thm-4.2-train": stored(train_loss=lambda rows: 2 * rows["train_loss"]),
    "thm-4.2-time": stored(time=lambda rows: rows["time"] / rows["N"]),
    "C54-epsilon": stored(time=lambda rows: rows["time"] * rows["epsilon"] ** 0.2),
    "C54": stored(time=lambda rows: rows["time"] / rows["N"]),
    "thm-4.2-probability": stored(test_loss=half_and_half),
    "thm-4.2-test": stored(test_loss=0.05),
    "harmful-error": stored(test_error=0.5),
    "harmful-error-small": stored(test_error=lambda rows: rows["test_loss"]),
    "jump-attention": stored(ratio=lambda rows: 2 * rows["ratio"]),
    "jump-loss": stored(ratio=lambda rows: 10 * rows["ratio"]),
    **{f"C55-{reading}": lab(test_loss=0.5) for reading in regime.LAB_READINGS},
    **{f"C56-{reading}": lab(test_loss=0.05) for reading in regime.LAB_READINGS},
    "cond-4.1-met": replaced(theory, "smallest_configuration", half_of_d_h),
    "C83": with_argument("window_8", lower=-1),
    "C25": unproved("initial_logits"),
    "C30": with_argument("benign_first_stage", constant=30),
    "C31": with_argument("benign_floor", floor=60 * symbolic.M**2 * symbolic.C_p**2),
    "C67": with_argument("harmful_first_stage", constant=25),
    "C90": replaced(symbolic, "harmful_ceiling", no_gap),
    "C85-c_p": replaced(theory, "paper_experiments", small_c_p),
    "C85": replaced(theory, "paper_experiments", theorems_own),
    "C59": with_argument("loss_at_target", bound=symbolic.epsilon / 2),
    "C65": with_argument("population_bound", target="1e-4000"),
    "C57": with_argument("loss_at_target", bound=symbolic.epsilon / 2),
    "C58": with_argument("harmful_population_loss", floor=0.25),
    "break-even": replaced(stages, "predicted_boundary", lambda original: lambda c_p: original(c_p, class_share=1.0)),
    "C03": replaced(phase_diagram, "snr", lambda original: lambda norm: original(norm) / 20),
    **_figure_1("divided"), **_figure_1("undivided"),
    "loss-only": column_changed("test_error", lambda rows: rows["test_loss"]),
    "init-law": column_changed("test_loss", lambda rows: rows["test_loss"] + 0.1 * (rows["init"] == "gaussian")),
    "C81": replaced(mnist, "factors", lambda original: lambda snr: original(1 / snr)),
    "C80-train": digits_changed("train_loss", lambda rows: rows["train_loss"] * 2),
    **{f"C80-{setting}-{what}": digits_changed("snr", swapped_snr)
       for setting in ("usual", "bare") for what in ("loss", "error")},
}
assert mnist_experiment.SNRS == (0.2, 2.0)
# The later parts of the record keep their faults beside them; their own file imports the helpers above.
PARTS = ("transition", "symmetric", "finite_size", "vectorized", "stages", "concentration", "population", "corrections")


def all_faults() -> dict:
    """Every planted fault by its claim."""
    return FAULTS | {name: fault for part in PARTS
                     for name, fault in importlib.import_module(f"faults_{part}").FAULTS.items()}
