"""Condition 4.1, the hypotheses and the solver, against numbers worked out by hand beforehand."""

import dataclasses
import json
import math

import numpy as np
import pytest

from vitbo_lib import theory
from vitbo_lib.errors import UserError
from vitbo_lib.theory import Constants, Parameters, condition_4_1, condition_report, format_condition

# Worked out with a pocket calculator from the paper's stated settings, two digits; delta = 0.01.
EXPECTED = {
    "App. A, benign": {"n_snr2": 1953, "floor": 384_000, "ratio": 4.88, "d_h": (1024, 3.8e10), "d": (2048, 2.6e9),
                       "eta": 5.0e-5, "sigma_h2": (6.36e-7, 2.3e-7, 8.9e-7, True), "c_p": (20, 10)},
    "App. A, harmful": {"n_snr2": 439, "floor": 384_000, "ratio": 1.10, "d_h": (1024, 1.9e9), "d": (2048, 1.0e9),
                        "eta": 1.4e-4, "sigma_h2": (6.36e-7, 7.3e-7, 2.7e-6, False), "c_p": (20, 10)},
    "Fig. 1, near its curve": {"n_snr2": 1000, "floor": 6_144_000, "ratio": 2.50, "d_h": (512, 1.0e10),
                               "d": (1024, 5.1e8), "eta": 1.1e-5,
                               "sigma_h2": (1.27e-6, 3.9e-8, 1.6e-7, False), "c_p": (20, 20)},
}
VALID = {"N": 40, "M": 2, "d": 100, "d_h": 50, "signal_norm": 1.0, "sigma_p": 0.1, "sigma_p_tilde": 0.7,
         "w_o_norm": 1.0, "eta": 0.1, "sigma_v": 0.1, "sigma_h": 0.1, "epsilon": 0.01, "delta": 0.01}


def two_digits(value):
    return pytest.approx(value, rel=0.05)


@pytest.mark.parametrize("name", EXPECTED)
def test_the_papers_experiments(name):
    p, want = theory.paper_experiments()[name], EXPECTED[name]
    items = {item.number: item for item in condition_4_1(p)}
    assert p.n_snr2 == pytest.approx(want["n_snr2"], rel=2e-3)
    assert theory.hypothesis_4_1(p).explicit_needed == pytest.approx(want["floor"])
    assert condition_report(p)["quantities"]["n_snr2_over_c_p2"] == pytest.approx(want["ratio"], rel=2e-3)
    for number, key in ((1, "d_h"), (2, "d")):
        assert items[number].given == want[key][0]
        assert items[number].needed == two_digits(want[key][1])
        assert items[number].met is False
    assert items[6].given == 0.1
    assert items[6].needed == two_digits(want["eta"])
    assert items[6].met is False
    given, low, high, met = want["sigma_h2"]
    assert items[8].given == two_digits(given)
    assert items[8].needed == (two_digits(low), two_digits(high))
    assert items[8].met is met
    assert (items[10].given, items[10].needed) == (pytest.approx(want["c_p"][0]), want["c_p"][1])
    assert items[10].met is (want["c_p"][0] == want["c_p"][1])
    for hypothesis in (theory.hypothesis_4_1(p), theory.hypothesis_4_2(p)):
        assert hypothesis.explicit_met is False  # all three lie in the gap between the explicit constants


def test_each_item_reacts_to_its_own_number_alone():
    """From a problem that meets all ten, spoil one number at a time and see which items turn."""
    good = theory.smallest_configuration(N=64, M=2, snr=1.0, epsilon=0.01, delta=0.01)
    assert [item.met for item in condition_4_1(good)] == [True] * 10
    spoiled = {"d_h": (good.d_h - 1, {1}), "d": (good.d // 2, {1, 2}), "eta": (good.eta * 1.01, {6}),
               "sigma_v": (good.sigma_v * 1.01, {7}), "sigma_h": (good.sigma_h * 2, {8}), "w_o_norm": (20.0, {5, 7}),
               "sigma_p_tilde": (good.sigma_p_tilde * 1.01, {10})}
    for name, (value, turned) in spoiled.items():
        items = condition_4_1(dataclasses.replace(good, **{name: value}))
        assert {item.number for item in items if not item.met} == turned, name
    low = dataclasses.replace(good, sigma_h=good.sigma_h / 2)
    assert [item.number for item in condition_4_1(low) if not item.met] == [8]
    few = dataclasses.replace(good, N=20)
    assert 3 in {item.number for item in condition_4_1(few) if not item.met}
    assert 4 in {item.number for item in condition_4_1(dataclasses.replace(good, M=17)) if not item.met}
    assert 9 in {item.number for item in condition_4_1(dataclasses.replace(good, epsilon=0.5)) if not item.met}


def test_items_three_and_nine_read_polylog_as_asked():
    p = Parameters(N=10, d=round(math.e**8), epsilon=0.05)
    met = {k: [condition_4_1(p, Constants(polylog_exponent=k))[i].met for i in (2, 8)] for k in (0, 1, 2)}
    assert met == {0: [True, True], 1: [True, True], 2: [False, False]}
    assert condition_4_1(p, Constants(n_samples=2))[2].needed == pytest.approx(16, rel=1e-3)


def test_constants_and_logarithms_scale_the_bounds():
    p = Parameters(**VALID)
    plain, logs = condition_4_1(p), condition_4_1(p, Constants(tilde_exponent=2))
    lg2 = math.log(6 * 40**2 * 2**2 / 0.01) ** 2
    for i, factor in ((0, lg2), (1, lg2), (5, 1 / lg2), (6, 1 / lg2)):
        assert logs[i].needed / plain[i].needed == pytest.approx(factor)
    assert [logs[i].needed == plain[i].needed for i in (2, 7, 8, 9)] == [True] * 4
    tripled = Constants(d_h=3, d=3, n_samples=3, eta=3, sigma_v=3, epsilon=3)
    for i in (0, 1, 2, 5, 6, 8):
        assert condition_4_1(p, tripled)[i].needed == pytest.approx(3 * plain[i].needed)


@pytest.mark.parametrize("snr", [0.25, 4.0])
def test_snr_and_its_inverse_ask_the_same_of_d_h(snr):
    p = theory.smallest_configuration(N=64, M=2, snr=snr, epsilon=0.01, delta=0.01)
    assert p.d_h == 256 * 4096 * 10_000
    assert p.d == 4096 * p.d_h * 10_000
    assert p.snr == pytest.approx(snr)


@pytest.mark.parametrize("scale", [0.3, 1.0, 700.0])
def test_smallest_configuration_at_any_scale_of_the_data(scale):
    p = theory.smallest_configuration(N=64, M=4, snr=0.7, epsilon=0.02, delta=0.1, signal_norm=scale)
    assert condition_report(p)["all_met"] is True
    assert p.signal_norm == scale


def test_smallest_configuration_with_logarithms():
    c = Constants(tilde_exponent=2, d_h=0.3, d=2.0)
    p = theory.smallest_configuration(N=100, M=3, snr=1.3, epsilon=0.01, delta=0.01, constants=c)
    assert all(item.met for item in condition_4_1(p, c))
    for name in ("d_h", "d"):  # one less would not do
        items = condition_4_1(dataclasses.replace(p, **{name: getattr(p, name) * (1 - 1e-6) // 1}), c)
        assert not items[0 if name == "d_h" else 1].met


@pytest.mark.parametrize(("change", "number"), [({"N": 5}, 3), ({"epsilon": 0.2}, 9), ({"M": 40}, 4)])
def test_what_no_dimension_can_meet_is_said(change, number):
    with pytest.raises(UserError, match=rf"\({number}\) .*given .*needed"):
        theory.smallest_configuration(**({"N": 64, "M": 2, "snr": 1.0, "epsilon": 0.01, "delta": 0.01} | change))


def test_explicit_constants_of_the_proofs():
    """At C_p = 5 sqrt(M) the benign floor is 1500 M^3, and the harmful proof allows N SNR^2 up to 4."""
    for m, floor in ((2, 12_000), (4, 96_000), (16, 6_144_000)):
        data = {"M": m, "sigma_p": 1.0, "sigma_p_tilde": 5 * math.sqrt(m), "d": 100}
        p = Parameters(N=1, signal_norm=10 * math.sqrt(floor) * 1.001, **data)
        assert theory.hypothesis_4_1(p).explicit_needed == pytest.approx(floor)
        assert theory.hypothesis_4_1(p).explicit_met is True
        assert theory.hypothesis_4_1(dataclasses.replace(p, signal_norm=p.signal_norm * 0.998)).explicit_met is False
        assert theory.hypothesis_4_2(dataclasses.replace(p, signal_norm=20.0)).explicit_met is True
        assert theory.hypothesis_4_2(dataclasses.replace(p, signal_norm=20.1)).explicit_met is False
    weak = Parameters(N=1, M=4, signal_norm=5.0, sigma_p=1.0, sigma_p_tilde=9.7, d=100)  # C_p^2 = 94 < 96
    assert theory.hypothesis_4_2(weak).explicit_met is False


def test_both_hypotheses_hold_literally_at_one():
    p = Parameters(N=64, signal_norm=1.0, sigma_p=0.8, d=100)
    assert p.n_snr2 == pytest.approx(1)
    assert theory.hypothesis_4_1(p).literal_met
    assert theory.hypothesis_4_2(p).literal_met
    at_1000 = Constants(n_snr2_benign=1000)
    assert theory.hypothesis_4_1(p, at_1000).literal_met is False


def test_what_is_not_given_is_not_guessed():
    items = condition_4_1(Parameters())
    assert [item.given for item in items] == [None] * 10
    assert [item.met for item in items] == [None] * 10
    for name in ("epsilon", "delta", "sigma_p_tilde"):
        p = Parameters(**(VALID | {name: None}))
        unknown = {item.number for item in condition_4_1(p) if item.met is None}
        assert unknown == {"epsilon": {1, 2, 9}, "delta": {8}, "sigma_p_tilde": {10}}[name]
    assert "given nothing" in format_condition(condition_report(Parameters(N=4)))


def test_all_met_has_three_values():
    good = theory.smallest_configuration(N=64, M=2, snr=1.0, epsilon=0.01, delta=0.01)
    assert condition_report(good)["all_met"] is True
    assert condition_report(dataclasses.replace(good, eta=None))["all_met"] is None
    assert condition_report(dataclasses.replace(good, eta=None, d=1000))["all_met"] is False


def test_equality_has_a_tolerance():
    p = Parameters(M=2, sigma_p=1.0, sigma_p_tilde=7.071)
    assert condition_4_1(p)[9].met is True
    assert condition_4_1(p, Constants(c_p_tolerance=1e-6))[9].met is False
    assert condition_4_1(Parameters(M=2, sigma_p=1.0, sigma_p_tilde=7.09))[9].met is False


@pytest.mark.parametrize(("name", "values"), [
    ("N", [0, -3, 2.5]), ("M", [1, 0]), ("d", [2, 0]), ("d_h", [0]), ("signal_norm", [0, -1.0]), ("sigma_p", [0]),
    ("sigma_p_tilde", [-1]), ("w_o_norm", [0]), ("eta", [0]), ("sigma_v", [0]), ("sigma_h", [-0.1]),
    ("epsilon", [0, 1, 2]), ("delta", [0, 1]),
])
def test_impossible_numbers_are_refused_with_their_name(name, values):
    for value in [*values, math.nan, math.inf, "four", True, 1e99]:
        with pytest.raises(UserError, match=f"^{name} = .*; give"):
            Parameters(**{name: value})


@pytest.mark.parametrize("wrong", [{"d": 0}, {"eta": math.nan}, {"sigma_h_low": -1}, {"epsilon": "x"}])
def test_impossible_constants_are_refused(wrong):
    with pytest.raises(UserError, match="constant"):
        Constants(**wrong)


def test_numbers_of_numpy_are_taken():
    p = Parameters(N=np.int64(16), signal_norm=np.float32(25), d=2048.0)
    assert (type(p.N), type(p.signal_norm), type(p.d)) == (int, float, int)
    assert json.loads(json.dumps(condition_report(p)))["parameters"]["N"] == 16


def test_report_is_json_and_keeps_everything():
    for p in theory.paper_experiments().values():
        report = condition_report(p)
        assert json.loads(json.dumps(report, allow_nan=False)) == report
        assert [item["number"] for item in report["items"]] == list(range(1, 11))
        assert report["items"][7]["needed"] == list(condition_4_1(p)[7].needed)
        assert [h["theorem"] for h in report["hypotheses"]] == ["4.1", "4.2"]


def test_table_for_the_terminal_fits():
    huge = Parameters(**(VALID | {"d": 10**29, "d_h": 10**28, "N": 10**9, "signal_norm": 1e-29, "epsilon": 1e-20}))
    for p in [*theory.paper_experiments().values(), Parameters(), huge]:
        text = format_condition(condition_report(p))
        assert max(map(len, text.splitlines())) <= 80
        assert text.split("Theorem 4.1")[0].count("NOT met") == sum(item.met is False for item in condition_4_1(p))
        assert text.isascii()


def test_margin_in_orders_of_magnitude():
    items = condition_4_1(Parameters(N=10, M=8, d=1000, d_h=10, epsilon=0.1, signal_norm=1.0, sigma_p=1.0, eta=1e-6,
                                     sigma_p_tilde=500 * math.sqrt(8), w_o_norm=10.0))
    assert items[1].needed == pytest.approx(1e5)
    assert items[1].margin == pytest.approx(-2)
    assert items[3].margin == pytest.approx(math.log10(2))  # the nearer end of [2, 16]
    assert items[4].margin == 0
    assert items[5].margin == pytest.approx(6 - 3 - 0.5)
    assert items[9].margin == pytest.approx(-2)
    assert items[7].margin is None


@pytest.mark.parametrize(("value", "text"), [(3.815e10, "3.8·10¹⁰"), (5e-5, "5.0·10⁻⁵"), (9.96e9, "1.0·10¹⁰")])
def test_scientific(value, text):
    assert theory.scientific(value) == text


def test_a_printed_slip_is_not_confirmed_by_a_proof_that_fails(monkeypatch):
    from vitbo_lib import symbolic
    from vitbo_lib.evidence import theory as evidence

    unproved = dataclasses.replace(symbolic.loss_at_target(), holds=False)
    monkeypatch.setattr(symbolic, "loss_at_target", lambda: unproved)
    assert evidence.printed_loss_bound().verdict == "not checkable at this scale"
