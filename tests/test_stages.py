"""Stage times, predicted training time and predicted boundary."""

import dataclasses
import math

import pytest
from scipy.integrate import solve_ivp

from vitbo_lib import stages
from vitbo_lib.errors import UserError
from vitbo_lib.theory import Constants, Parameters, paper_experiments

ROUND = Parameters(N=2, M=2, d=100, d_h=16, signal_norm=10.0, sigma_p=0.1, sigma_p_tilde=0.1, w_o_norm=2.0, eta=0.01,
                   epsilon=0.01, delta=0.01)


def test_first_stage_by_hand():
    """Benign: 10*2*7*2 / (0.01 * 2 * (2*100 - 240*1) * 4) has no room; with N = 4 the room is 160."""
    assert stages.benign_stage_times(ROUND).t_1 == math.inf
    assert "60 M^2 C_p^2" in stages.benign_stage_times(ROUND).note
    assert stages.benign_stage_times(dataclasses.replace(ROUND, N=4)).t_1 == pytest.approx(560 / (0.08 * 160))
    assert stages.harmful_stage_times(ROUND).t_1 == math.inf
    strong = dataclasses.replace(ROUND, sigma_p_tilde=1.0)
    assert stages.harmful_stage_times(strong).t_1 == pytest.approx(4 * 2 * 7 * 2 / (0.01 * 2 * (100 - 48) * 1 * 4))


def test_harmful_first_stage_in_the_papers_short_form():
    """At C_p = 5 sqrt(M): T_1 = 4 (3M + 1) N / (eta d_h^(1/4) sigma_p^2 d ||w_O||^2)."""
    p = dataclasses.replace(ROUND, sigma_p_tilde=0.5 * math.sqrt(2))
    assert stages.harmful_stage_times(p).t_1 == pytest.approx(4 * 7 * 2 / (0.01 * 2 * 1 * 4))


def test_later_stages_scale_as_the_theorems_say():
    benign, harmful = stages.benign_stage_times(ROUND), stages.harmful_stage_times(ROUND)
    assert benign.t_3 == pytest.approx(1 / (0.01 * 0.01 * 100 * 4))
    assert harmful.t_3 == pytest.approx(2 / (0.01 * 0.01 * 4))
    assert benign.t_2 == pytest.approx(benign.t_3 * 0.01 / ROUND.lg)
    assert harmful.t_2 == pytest.approx(harmful.t_3 * 0.01 / ROUND.lg)
    doubled = dataclasses.replace(ROUND, signal_norm=20.0)
    assert stages.benign_stage_times(doubled).t_3 == pytest.approx(benign.t_3 / 4)
    assert stages.harmful_stage_times(doubled).t_3 == harmful.t_3
    assert stages.harmful_stage_times(dataclasses.replace(ROUND, N=6)).t_3 == pytest.approx(3 * harmful.t_3)
    assert stages.benign_stage_times(ROUND, Constants(t_2=5, t_3=7)).t_3 == pytest.approx(7 * benign.t_3)
    assert stages.benign_stage_times(Parameters(N=3)) == stages.StageTimes(None, None, None)
    assert stages.harmful_stage_times(Parameters(N=3)) == stages.StageTimes(None, None, None)


@pytest.mark.parametrize("share", [0.5, 0.3, 0.1])
def test_predicted_benign_steps_do_not_depend_on_the_class_balance(share):
    """The reduced flow itself, integrated: two classes, each with its own V, all attention on the signal."""
    p = dataclasses.replace(ROUND, epsilon=1e-4)
    speed = p.eta * p.signal_norm**2 * p.w_o_norm**2

    def mean_loss(t, v):
        return share * math.log1p(math.exp(-v[0])) + (1 - share) * math.log1p(math.exp(-v[1])) - p.epsilon

    mean_loss.terminal = True
    flow = solve_ivp(lambda _, v: [speed * share / (1 + math.exp(v[0])), speed * (1 - share) / (1 + math.exp(v[1]))],
                     (0, 1e9), [0, 0], events=mean_loss, rtol=1e-9, atol=1e-12, method="LSODA")
    assert flow.t_events[0][0] == pytest.approx(stages.predicted_steps_benign(p), rel=0.01)


def test_predicted_harmful_steps_follow_the_reduced_flow():
    p = dataclasses.replace(ROUND, epsilon=1e-4, N=7)
    speed = p.eta * p.sigma_p_tilde**2 * p.d * p.w_o_norm**2 / p.N

    def reached(t, v):
        return math.log1p(math.exp(-v[0])) - p.epsilon

    reached.terminal = True
    flow = solve_ivp(lambda _, v: [speed / (1 + math.exp(v[0]))], (0, 1e9), [0], events=reached, rtol=1e-9, atol=1e-12,
                     method="LSODA")
    assert flow.t_events[0][0] == pytest.approx(stages.predicted_steps_harmful(p), rel=0.01)


def test_predicted_steps_at_the_papers_sizes():
    papers = paper_experiments()
    assert stages.predicted_steps_benign(papers["App. A, benign"]) == pytest.approx(2457.6)
    assert stages.predicted_steps_benign(papers["App. A, benign"], classes=1) == pytest.approx(1228.8)
    assert stages.predicted_steps_harmful(papers["App. A, harmful"]) == pytest.approx(3750)
    assert stages.predicted_steps_benign(Parameters()) is None
    with pytest.raises(UserError, match="classes = 3"):
        stages.predicted_steps_benign(ROUND, classes=3)


def test_boundary():
    assert stages.predicted_boundary(20) == 800
    assert stages.predicted_boundary(10, class_share=0.25) == 400
    for wrong in ((0, 0.5), (math.nan, 0.5), (3, 0), (3, 1.5)):
        with pytest.raises(UserError, match="give C_p"):
            stages.predicted_boundary(*wrong)
