"""Attempts to break what works: sizes at the edge, damaged files beside the good ones, streams that are closed."""

import json
import math
import signal
import subprocess
import sys
import time
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch

from vitbo_lib import cli, provenance
from vitbo_lib.data import DataSet, SignalNoise, positive, sample, whole
from vitbo_lib.errors import UserError
from vitbo_lib.initialization import GaussianInit, sample_weights
from vitbo_lib.simulation import Setting, simulate
from vitbo_lib.span import concatenate, reduce
from vitbo_lib.theory import Parameters
from vitbo_lib.training import gradient_descent

COMMAND = Path(sys.executable).with_name("vitbo")
QUICK = "--N 6 --M 3 --d 200 --d-h 40 --n-test 20 --seeds 2"
TABLE = "results --profile smoke --only figure_1_undivided --workers 1 --out"
LAW = SignalNoise(n_tokens=3, d=20, signal_norm=2, sigma_p=0.1, sigma_p_tilde=1)
NO_NUMBERS = [True, "3", None, 2 + 0j, math.nan, math.inf, -math.inf, 10**400, torch.tensor(3.0), [3]]


def run(*arguments: str, shell: str = "") -> subprocess.CompletedProcess:
    if shell:
        return subprocess.run(f"{COMMAND} {shell}", shell=True, capture_output=True, text=True)
    return subprocess.run([COMMAND, *arguments], capture_output=True, text=True)


# --------------------------------------------------------------------------------------------------- edges that work

@pytest.mark.parametrize("sizes", [
    "--N 1", "--M 1", "--M 2", "--d 3", "--d-h 1", "--n-test 1", "--max-steps 1", "--epsilon 0.7", "--epsilon 1e300",
    "--N 1 --M 1 --d 3 --d-h 1 --n-test 1 --seeds 1", "--sigma-h 0 --sigma-v 0", "--no-project", "--dtype float32",
    "--init torch --max-steps 20", "--d-v 1 --engine full", "--eta 1e10", "--d 1e21 --max-steps 2"])
@pytest.mark.parametrize("method", ["gd", "flow"])
def test_the_smallest_and_oddest_sizes_give_valid_json(sizes, method, capsys):
    if method == "flow" and any(word in sizes for word in ("full", "max-steps", "1e10")):
        pytest.skip("no flow there")
    assert cli.main(f"simulate {QUICK} {sizes} --method {method} --json".split()) == 0
    answer = json.loads(capsys.readouterr().out, parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))
    assert 0 <= answer["test_error"]["mean"] <= 1
    assert 0 <= answer["attention_signal"]["mean"] <= 1


def test_above_log_2_nothing_is_trained(capsys):
    assert cli.main(f"simulate {QUICK} --epsilon 5 --json".split()) == 0
    assert json.loads(capsys.readouterr().out)["steps"]["values"] == [0, 0]


def test_flow_may_start_at_a_loss_that_rounds_to_zero(capsys):
    call = "simulate --N 1 --M 1 --d 10 --d-h 4 --n-test 4 --seeds 4 --signal-norm 1e6 --sigma-v 1 --method flow --json"
    assert cli.main(call.split()) == 0
    assert 0.0 in json.loads(capsys.readouterr().out)["train_loss"]["values"]


def test_help_states_the_defaults(capsys):
    with pytest.raises(SystemExit):
        cli.main(["simulate", "--help"])
    text = " ".join(capsys.readouterr().out.split())
    for words in ("training samples (16)", "mu_- (25)", "learning rate of gradient descent (0.1)",
                  "fresh points (1000)", "how many seeds (8)", "device used in training (cpu)"):
        assert words in text


# ------------------------------------------------------------------------------------------------------- the library

@pytest.mark.parametrize("value", NO_NUMBERS)
def test_what_is_no_number_is_refused_in_one_line(value):
    for attempt in (lambda: whole("d", value), lambda: positive("eta", value), lambda: replace(LAW, sigma_p=value),
                    lambda: GaussianInit(sigma_h=value, sigma_v=1),
                    lambda: Parameters(N=math.nan if value is None else value)):  # None: not given
        with pytest.raises(UserError, match=r"^[^\n]*$"):
            attempt()


def test_numbers_of_other_kinds_are_taken():
    assert whole("N", Fraction(6, 2)) == 3
    assert positive("eta", np.float32(0.5)) == 0.5


def problem_parts(law=LAW, n=4, seed=0):
    rng = np.random.default_rng(seed)
    return sample(law, n, rng, rng), sample(law, 5, rng, rng), sample_weights(
        GaussianInit(sigma_h=0.1, sigma_v=0.1), law.d, 8, 8, rng)


@pytest.mark.parametrize("wrong", ["weights of another d", "test of another d", "test of another M", "flat noise",
                                   "too few labels", "labels 0", "no samples", "w_o"])
def test_shapes_that_do_not_fit_are_refused(wrong):
    train, test, weights = problem_parts()
    wide = problem_parts(replace(LAW, d=30))
    nothing = DataSet(train.signals, train.noise[:0], train.labels[:0])
    parts = {"weights of another d": (train, test, wide[2]), "test of another d": (train, wide[1], weights),
             "test of another M": (train, problem_parts(replace(LAW, n_tokens=2))[1], weights),
             "flat noise": (replace(train, noise=train.noise.flatten(0, 1)), test, weights),
             "too few labels": (replace(train, labels=train.labels[:2]), test, weights),
             "labels 0": (replace(train, labels=train.labels * 0), test, weights),
             "no samples": (nothing, test, weights),
             "w_o": (train, test, replace(weights, w_o=weights.w_o[:3]))}[wrong]
    with pytest.raises(UserError):
        reduce(*parts)
    reduce(train, test, weights)


def test_problems_of_different_shapes_are_not_joined():
    one, other = (reduce(*problem_parts(n=n)) for n in (4, 5))
    for problems in ([], [one, other]):
        with pytest.raises(UserError, match="cannot be joined"):
            concatenate(problems)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_numbers_that_are_none_are_said_before_the_first_step(bad):
    train, test, weights = problem_parts()
    noise = train.noise.clone()
    noise[1, 0, 3] = bad
    with pytest.raises(UserError, match="before the first step"):
        gradient_descent(reduce(replace(train, noise=noise), test, weights), eta=0.1, epsilon=0.1)


def test_fresh_points_that_overflow_are_said(monkeypatch):
    """The planted fault: a test loss that is no number would be an empty entry, or a puzzle about intervals."""
    from vitbo_lib import simulation

    right = simulation.observe
    monkeypatch.setattr(simulation, "observe", lambda *given: right(*given) | {"test_loss": torch.tensor([math.nan])})
    setting = Setting(law=LAW, n_samples=4, d_h=8, init=GaussianInit(sigma_h=0.1, sigma_v=0.1), n_test=5)
    with pytest.raises(UserError, match="test_loss = nan after training: its numbers overflow float64"):
        simulate(setting, [0])


# ------------------------------------------------------------------------------------------- files, streams, signals

@pytest.mark.parametrize("entry", provenance.ENTRIES)
def test_an_entry_of_the_wrong_kind_beside_a_table_is_one_line(entry, tmp_path):
    beside, good = tmp_path / "t.json", dict.fromkeys(provenance.ENTRIES, "") | {
        name: kind[0]() if isinstance(kind, tuple) else kind() for name, kind in provenance.KINDS.items()}
    beside.write_text(json.dumps(good))
    provenance.read(tmp_path / "t.csv")
    beside.write_text(json.dumps(good | {entry: {"odd": 1} if provenance.KINDS.get(entry) is not dict else []}))
    with pytest.raises(UserError, match="not a complete JSON object"):
        provenance.read(tmp_path / "t.csv")


def test_a_figure_that_cannot_take_its_name_leaves_nothing(tmp_path, capsys):
    (tmp_path / "condition_margins.svg").mkdir()
    assert cli.main(f"figures --only condition_margins --out {tmp_path}".split()) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert len(list(tmp_path.iterdir())) == 1


def test_a_full_disk_is_one_line(monkeypatch, capsys):
    class Full:
        def write(self, _):
            raise OSError(28, "No space left on device")

        def flush(self):
            pass

        def fileno(self):
            raise OSError

    monkeypatch.setattr(sys, "stdout", Full())
    assert cli.main(["condition", "--N", "4"]) == 2
    assert capsys.readouterr().err == ("vitbo: error: cannot write or read the output: No space left on device; "
                                       "make room, or choose another place\n")


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory")])
def test_no_memory_is_one_line(error, monkeypatch, capsys):
    from vitbo_lib import commands

    def simulate(*_):
        raise error

    monkeypatch.setattr(commands, "simulate", simulate)
    assert cli.main(f"simulate {QUICK}".split()) == 2
    assert capsys.readouterr().err == "vitbo: error: these sizes do not fit in memory; give smaller ones\n"


def test_interrupted_is_one_line(monkeypatch, capsys):
    from vitbo_lib import commands

    def simulate(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(commands, "simulate", simulate)
    assert cli.main(f"simulate {QUICK}".split()) == 130
    assert capsys.readouterr().err == "vitbo: interrupted\n"


@pytest.mark.slow
@pytest.mark.parametrize(("shell", "code", "lines"), [
    ("condition --N 4 > /dev/full", 2, 1), ("condition --N 4 >&-", 0, 0), (f"simulate {QUICK} 2>&-", 0, 0)])
def test_streams_that_are_closed_or_full(shell, code, lines):
    found = run(shell=shell)
    assert (found.returncode, found.stderr.count("\n")) == (code, lines), found.stderr


def heeds_ctrl_c():
    """For a child of a test run that was itself started in the background, where Ctrl-C is ignored."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.mark.slow
@pytest.mark.parametrize("after", [0.4, 6.0])  # while torch is loading, and in training
def test_ctrl_c_is_one_line_at_any_time(after):
    endless = "simulate --epsilon 1e-30 --max-steps 1e9 --seeds 1"
    process = subprocess.Popen([COMMAND, *endless.split()], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               preexec_fn=heeds_ctrl_c)
    time.sleep(after)
    try:
        for _ in range(20):  # pressed again where the first was lost: Python ignores it in some moments of an import
            process.send_signal(signal.SIGINT)
            try:
                out, err = process.communicate(timeout=3)
                break
            except subprocess.TimeoutExpired:
                continue
    finally:
        process.kill()
    assert (process.returncode, out, err) == (130, "", "vitbo: interrupted\n")


SWALLOWS = """
import os, signal, sys, time
from vitbo_lib import cli
class Library:
    def find_spec(self, name, *_):
        if name == "vitbo_lib.commands":
            try:
                os.kill(os.getpid(), signal.SIGINT)
                time.sleep(10)
            except KeyboardInterrupt:
                raise RecursionError("half loaded") from None
sys.meta_path.insert(0, Library())
if {planted}:
    cli._interrupted = signal.default_int_handler
sys.exit(cli.main(["condition", "--N", "4"]))
"""


@pytest.mark.parametrize("planted", [False, True])
def test_ctrl_c_that_a_library_swallows_while_it_loads(planted):
    """As numpy did: the interrupt came out of its import as a RecursionError."""
    found = subprocess.run([sys.executable, "-c", SWALLOWS.format(planted=planted)], capture_output=True, text=True,
                           preexec_fn=heeds_ctrl_c)
    right = (found.returncode, found.stdout, found.stderr) == (130, "", "vitbo: interrupted\n")
    assert right != planted, found.stderr


def test_ctrl_c_is_heeded_as_before_once_libraries_are_loaded(capsys):
    before = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        assert cli.main(["condition", "--N", "4"]) == 0
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.slow
def test_a_killed_table_is_continued_and_two_at_once_agree(tmp_path):
    table = tmp_path / "killed/figure_1_undivided.csv"
    killed = subprocess.Popen([COMMAND, *TABLE.split(), table.parent])
    while killed.poll() is None and (not table.exists() or table.read_text().count("\n") < 3):
        time.sleep(0.01)
    killed.kill()
    killed.wait()
    assert run(*TABLE.split(), str(tmp_path / "killed")).returncode == 0
    both = [subprocess.Popen([COMMAND, *TABLE.split(), tmp_path / "both"]) for _ in range(2)]
    assert [process.wait() for process in both] == [0, 0]
    rows = [set((tmp_path / name / table.name).read_text().splitlines()) for name in ("killed", "both")]
    assert rows[0] == rows[1]
    assert len(rows[0]) == 17
