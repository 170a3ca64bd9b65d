"""Planted faults of the three stages: wrong signs, swapped tokens, dropped factors, seen by every claim."""

import dataclasses

from claim_faults import replaced

from vitbo_lib import stage_events, stage_scaling, stages


def ways(**columns):
    """The stored ways with columns changed."""
    return replaced(stage_events, "load", lambda original: lambda: original().assign(**columns))


def sweeps(**columns):
    """The stored sweeps with columns changed."""
    return replaced(stage_scaling, "load", lambda original: lambda: original().assign(**columns))


def another(column, other):
    """The stored ways with one column in the place of another."""
    return ways(**{column: lambda rows: rows[other]})


def times_power(column, free, power):
    """The stored sweeps with a column whose power of `free` is another one."""
    return sweeps(**{column: lambda rows: rows[column] * rows[free].astype(float) ** power})


def scaled_by(column, factor):
    """The stored ways with a factor too many."""
    return ways(**{column: lambda rows: rows[column] * factor})


def swapped_tokens(rows_of):
    """Signal and xi_2 exchanged in logits, attention and V."""
    def change(original):
        def load():
            rows = original()
            pairs = [(f"{name}_signal", f"{name}_xi2") for name in ("logit", "attention", "v")]
            return rows.rename(columns=dict(pairs) | {b: a for a, b in pairs})

        return load

    return replaced(rows_of, "load", change)


def never_late(original):
    """A formula for T_1 that has lost its constants."""
    return lambda *args: dataclasses.replace(original(*args), t_1=original(*args).t_1 / 1e4)


def forgot_the_class(original):
    """The predicted slope of e^V without the share of the class."""
    return lambda p, side, _share=1.0: original(p, side, 1.0)


def attention_at_the_end(original):
    """Events with the end of training for the time of attention."""
    def events(*args):
        found = original(*args)
        return found | {"attention": found["end"]}

    return events


FAULTS = {
    "C26": scaled_by("off_half", 2),  # 1/4 taken for 1/8
    "C27": scaled_by("gamma_fastest", 4),  # the mean over M tokens forgotten
    "C28": scaled_by("rho_fastest", 64),  # 1/N forgotten
    "C29": scaled_by("gamma_slowest", -1),
    "C32": another("dominance_signal", "dominance_xi2"),
    "C33": times_power("dominance", "d_h", 0.125),  # sigma_V not at its cap
    "C34": scaled_by("like_products", 100),
    "C35": scaled_by("v_minus", -1),  # the label forgotten
    "C36": another("signal_up", "psi_up"),
    "C36-lab": ways(noise_down=1.0),
    "C37": times_power("power_signal", "d_h", -0.05),
    "C38": times_power("c_signal", "N", -1.0),  # the printed 1/N
    "C40": sweeps(logit_3=lambda rows: rows["logit_3"] * 3),
    "C40-lab": scaled_by("logit_largest", 0.1),
    "C41": scaled_by("norm_highest", 1.2),
    "C41-lab": ways(norm_highest=1.0),
    "C42": scaled_by("cross_sample", 10),
    "C46": times_power("leak_noise", "d_h", 0.25),  # d_h^(-1/4) instead
    "F.7": sweeps(own_beta_2=lambda rows: rows["own_beta_2"] * rows["N"]),
    "stage-2-end": times_power("derivative", "d_h", -0.25),
    "C47": another("attention_signal_smallest", "attention_xi2_smallest"),
    "C47-four": ways(attention_signal_smallest=lambda rows: rows["attention_signal"].clip(0.95)),
    "C48": scaled_by("over_low", 0.5),  # the factor 1/2 forgotten
    "C49": replaced(stage_events, "exponential_slope", forgot_the_class),
    "C50": scaled_by("v_plus", 0.5),
    "C51": another("v_noise_largest", "v_signal"),
    "F.10": sweeps(same_3=lambda rows: rows["same_3"] * 1e6),
    "C66": another("noise_query_attention", "fresh_noise_attention"),
    "T1-before-T2": replaced(stages, "benign_stage_times", never_late),
    "stages-part": sweeps(attention=lambda rows: rows["derivative"] * 2),
    "C86": replaced(stage_events, "events", attention_at_the_end),
    "C68": another("dominance_xi2", "dominance_signal"),
    "C68-hidden": times_power("dominance", "d_h", 0.125),
    "C69": another("v_others_largest", "v_xi2"),
    "C70": another("twofold", "signal_up"),
    "C71": another("psi_up", "signal_up"),
    "C72": another("attention_xi2_smallest", "attention_signal_smallest"),
    "C72-hidden": times_power("leak_signal", "d_h", 0.25),
    "C42-harmful": ways(cross_sample=lambda rows: rows["cross_sample"] * (1 + rows["time"])),
    "stage-2-end-harmful": times_power("derivative", "d_h", -0.25),
    **{f"{name}-{reading}": swapped_tokens(stage_events) for name in ("C78", "C79")
       for reading in ("divided", "undivided")},
}
