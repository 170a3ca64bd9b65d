"""The corrections: complete, each either confirmed by a claim or with a reason why not, and the algebra turns."""

import re

import pytest

from vitbo_lib import claims, corrections, symbolic_corrections
from vitbo_lib.corrections import CORRECTIONS, GROUPS
from vitbo_lib.symbolic import M, N, d, d_h, eta, mu

TRUE = ["third_stage", "gap_at_second_time", "first_stage_values", "growth_of_dominance", "summed_gap",
        "claim_2_exponents", "frobenius_norm", "harmful_margin", "last_display_of_e_6",
        "key_norm_order", "equal_indices", "class_balance_delta", "fewer_samples"]


@pytest.mark.parametrize("name", TRUE)
def test_our_reading_goes_through(name):
    found = getattr(symbolic_corrections, name)()
    assert found.holds is True
    assert found.latex.count("{") == found.latex.count("}")


@pytest.mark.parametrize("planted", [
    lambda: symbolic_corrections.third_stage(-1),
    lambda: symbolic_corrections.gap_at_second_time(power_of_lg=-2),
    lambda: symbolic_corrections.gap_at_second_time(power_of_w_o=0),
    lambda: symbolic_corrections.first_stage_values(d_h * d),
    lambda: symbolic_corrections.growth_of_dominance(power_of_w_o=1),
    lambda: symbolic_corrections.claim_2_exponents(symbolic_corrections.CLAIM_2 | {"signal query, signal key": mu**4}),
    lambda: symbolic_corrections.harmful_margin(2 / (N * M)),
    lambda: symbolic_corrections.key_norm_order(eta * d_h),
    lambda: symbolic_corrections.class_balance_delta(4),
    lambda: symbolic_corrections.fewer_samples(1),
])
def test_another_statement_does_not(planted):
    assert planted().holds is False


@pytest.mark.parametrize(("tokens", "most"), [(2, 50.0), (4, 34.0), (16, 414 / 15)])
def test_frobenius_norm_is_short_by_what_is_said(tokens, most):
    """The largest ratio of true and printed squared norms over signals from none to strong, counted token by token."""
    signals = [0.0, 0.1, 1.0, 10.0]
    ratios = [(signal + 25 * tokens + sum(1 for _ in range(tokens - 2))) / (signal + tokens - 1) for signal in signals]
    assert max(ratios) == pytest.approx(most)
    assert float(symbolic_corrections.frobenius_norm().parts["at_c_p"].subs(M, tokens)) == pytest.approx(most)


def test_initial_norm_of_keys_against_sampling():
    """F.12: E ||k_+||^2 is ||mu||^2 sigma_h^2 d_h."""
    import numpy as np

    norm, sigma_h, width = 3.0, 0.2, 50
    keys = norm * sigma_h * np.random.default_rng(0).standard_normal((4000, width))  # rows mu^T W_K
    assert (keys**2).sum(1).mean() == pytest.approx(norm**2 * sigma_h**2 * width, rel=0.02)


def test_all_entries_are_there_in_order():
    assert [entry.number for entry in CORRECTIONS] == list(range(1, 42))
    assert [GROUPS.index(entry.group) for entry in CORRECTIONS] == sorted(GROUPS.index(e.group) for e in CORRECTIONS)


def test_claims_that_confirm_exist():
    known = claims.all_claims()
    missing = {name: entry.number for entry in CORRECTIONS for name in entry.claims if name not in known}
    assert missing == {}


def test_every_claim_of_the_chapter_confirms_an_entry():
    named = {name for entry in CORRECTIONS for name in entry.claims}
    assert {name for name, claim in claims.all_claims().items() if claim.chapter == "corrections"} <= named


def test_an_entry_without_confirmation_or_reason_is_refused():
    fields = {"number": 1, "group": GROUPS[0], "where": "", "printed": "", "read": "", "why": ""}
    for more in ({}, {"claims": ("C57",), "unconfirmed": "words"}, {"group": "Other", "claims": ("C57",)}):
        with pytest.raises(ValueError, match="correction 1"):
            corrections.Correction(**(fields | more))


def test_list_shows_every_entry_once():
    text = "".join(corrections.definition_list(group) for group in GROUPS)
    assert re.findall(r"\{#correction-(\d+)\}", text) == [str(i) for i in range(1, 42)]
    assert text.count(corrections.ARTEFACT) == sum(entry.artefact for entry in CORRECTIONS)
    assert text.count("$") % 2 == 0


def test_unknown_claim_is_shown_without_a_link():
    entry = CORRECTIONS[0]
    assert corrections.confirmation(entry, {}) == "By computation: `C57`, `thm-4.2-train`."
    assert "[C57](theorem_4_2.md)" in corrections.confirmation(entry, claims.all_claims())


def test_symbols_are_those_of_the_theory():
    """An entry about d_h must not pass because d and d_h are one symbol."""
    assert d != d_h
