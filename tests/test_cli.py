"""The command line: its contract, and that a mistake is one line and exit code 2."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from vitbo_lib import cli, commands, mnist
from vitbo_lib.simulation import OBSERVABLES

QUICK = "--N 6 --M 3 --d 200 --d-h 40 --n-test 20 --seeds 2"

# Every call is a mistake; the word must stand in the one line that answers it.
BAD_CALLS = [
    ("", "COMMAND"),
    ("simulat", "invalid choice"),
    ("simulate --N 0", "--N 0"),
    ("simulate --N -3", "--N -3"),
    ("simulate --N 2.5", "2.5"),
    ("simulate --N many", "many"),
    ("simulate --N nan", "nan"),
    ("simulate --N", "--N"),
    ("simulate --M 0", "--M 0"),
    ("simulate --d 2", "d >= 3"),
    ("simulate --d inf", "inf"),
    ("simulate --d 1e22", "--d"),
    ("simulate --d-h 0", "--d-h 0"),
    ("simulate --signal-norm 0", "--signal-norm"),
    ("simulate --snr 0", "--snr"),
    ("simulate --snr -1", "--snr"),
    ("simulate --snr 1 --signal-norm 2", "not allowed with"),
    ("simulate --sigma-p 0", "--sigma-p"),
    ("simulate --sigma-p-tilde -1", "--sigma-p-tilde"),
    ("simulate --sigma-h -1", "--sigma-h"),
    ("simulate --eta 0", "--eta"),
    ("simulate --epsilon 0", "--epsilon"),
    ("simulate --epsilon nan", "nan"),
    ("simulate --max-steps 0", "--max-steps"),
    ("simulate --n-test 0", "--n-test"),
    ("simulate --seeds 0", "--seeds"),
    ("simulate --seed -1", "--seed"),
    ("simulate --w-o-norm 0", "--w-o-norm"),
    ("simulate --init torch --w-o-norm 1 --w-o-scale 1", "--w-o-scale and --w-o-norm"),
    ("simulate --init torch --sigma-h 1", "--sigma-h"),
    ("simulate --init-scale 0.1", "--init-scale"),
    ("simulate --init torch --init-scale 0", "--init-scale"),
    ("simulate --init torch --engine drawn", "Gaussian"),
    ("simulate --engine full --method flow", "flow"),
    ("simulate --engine magic", "magic"),
    ("simulate --device nowhere", "nowhere"),
    ("simulate --device meta", "meta"),
    ("simulate --eta -1e-3", "--eta -0.001"),
    ("simulate --N -inf", "finite"),
    ("simulate --snr 1e300", "--snr 1e+300 means"),
    ("simulate --signal-norm 1e200", "--signal-norm 1e+200"),
    ("simulate --init torch --sigma-p 1e-200", "--sigma-p 1e-200"),
    ("simulate --sigma-h 1e200", "--sigma-h 1e+200"),
    ("simulate --seeds 1e9", "--seeds 1000000000"),
    ("simulate --seed 9223372036854775807 --seeds 2", "--seed"),
    ("simulate --max-steps 1e20", "--max-steps"),
    ("simulate --n-test 1e6 --M 80", "memory"),
    ("simulate --N 1 --M 10000", "memory"),
    ("simulate --engine full --d 1e8", "memory"),
    ("simulate --engine reduced --d 1e16", "memory"),
    (f"simulate {QUICK} --dtype float32 --eta 1e39", "--eta 1e+39 is beyond float32"),
    (f"simulate {QUICK} --dtype float32 --signal-norm 1e25", "before the first step"),
    (f"simulate {QUICK} --dtype float32 --signal-norm 1e25 --method flow", "before the first step"),
    (f"simulate {QUICK} --dtype float32 --signal-norm 1e15 --method flow", "on the flow's way"),
    (f"simulate {QUICK} --sigma-v 0 --sigma-h 0 --signal-norm 1e-10 --sigma-p 1e-10 --sigma-p-tilde 1e-10 --eta 1e308 "
     "--max-steps 5 --json", "time = "),
    (f"simulate {QUICK} --method flow --max-steps 1", "more than 1 evaluations"),
    ("simulate --N 3000", "training tokens"),
    (f"simulate {QUICK} --eta 1e200 --engine reduced", "diverged"),
    ("condition --N 0", "--N 0"),
    ("condition --d 2", "--d 2"),
    ("condition --epsilon 2", "--epsilon 2"),
    ("condition --snr 0", "--snr"),
    ("condition --snr 1", "--sigma-p"),
    ("condition --snr 1 --sigma-p 0 --d 100", "--sigma-p 0"),
    ("condition --snr 1e300 --sigma-p 1 --d 100", "--snr 1e+300 means"),
    ("condition --N 1e30 --M 2 --d-h 9 --d 9 --signal-norm 1e-30 --sigma-p 1e30 --epsilon 1e-30 --delta 1e-30",
     "too large"),
    ("condition --d 100 --N 4 --constant polylog_exponent=1e300", "too large"),
    ("condition --constant frobnicate=1", "frobnicate"),
    ("condition --constant d=x", "'x'"),
    ("condition --smallest --N 64", "missing"),
    ("condition --smallest --N 64 --M 2 --snr 1e10 --epsilon 0.01", "the smallest d is"),
    ("condition --smallest --N 64 --M 2 --snr 1 --epsilon 0.01 --d 3", "leave out: --d"),
    ("condition --smallest --N 2 --M 2 --snr 1 --epsilon 0.01", "meet"),
    ("figures --only nonsense", "nonsense"),
    ("figures --format gif", "gif"),
    ("figures --out /proc/nothing/here", "/proc/nothing/here"),
    ("results --only nonsense", "nonsense"),
    ("results --profile huge", "huge"),
    ("results --workers 1e9", "--workers"),
    ("results --workers 0", "--workers"),
    ("results --profile smoke --only figure_1_undivided --out /proc/nothing", "/proc/nothing"),
    ("claims --only C999", "C999"),
    ("claims --all --only C01", "--all and --only"),
    ("claims --only C01 --minutes 0", "minutes"),
    ("claims --only C01 --workers 0", "workers"),
    ("claims --only C01 --seed -1", "--seed -1"),
]


def call(arguments: str, capsys) -> tuple[int, str, str]:
    code = cli.main(arguments.split())
    out, err = capsys.readouterr()
    return code, out, err


@pytest.mark.parametrize(("arguments", "word"), BAD_CALLS)
def test_a_mistake_is_one_line_and_exit_code_2(arguments, word, capsys):
    code, out, err = call(arguments, capsys)
    assert (code, out, err.count("\n")) == (2, "", 1), err
    assert err.startswith("vitbo: error: ")
    assert word in err


def test_the_table_of_mistakes_is_long_enough():
    assert len(set(BAD_CALLS)) >= 25


def test_a_traceback_would_be_noticed(monkeypatch, capsys):
    """The planted fault: an error that nobody expected is not swallowed as a user's mistake."""
    monkeypatch.setattr(commands, "simulate", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        call(f"simulate {QUICK}", capsys)


def test_json_contract_of_simulate(capsys):
    code, out, _ = call(f"simulate {QUICK} --json", capsys)
    answer = json.loads(out)
    assert code == 0
    assert set(answer) == {"parameters", *OBSERVABLES}
    for name in OBSERVABLES:
        assert set(answer[name]) == {"mean", "low", "high", "values"}
        assert len(answer[name]["values"]) == 2
        assert answer[name]["low"] <= answer[name]["mean"] <= answer[name]["high"]
    assert answer["parameters"]["N"] == 6
    assert answer["parameters"]["engine"] == "drawn"


def test_flow_has_no_steps(capsys):
    answer = json.loads(call(f"simulate {QUICK} --method flow --json", capsys)[1])
    assert answer["steps"] is None
    assert answer["time"]["mean"] > 0


def test_a_single_seed_has_no_interval(capsys):
    answer = json.loads(call(f"simulate {QUICK} --seeds 1 --json", capsys)[1])
    assert answer["test_loss"]["low"] is None
    assert len(answer["test_loss"]["values"]) == 1


def test_one_token_has_no_xi_2(capsys):
    answer = json.loads(call("simulate --N 4 --M 1 --d 50 --d-h 10 --n-test 5 --seeds 2 --json", capsys)[1])
    assert answer["attention_xi2"] is None
    assert answer["attention_signal"]["mean"] == 1.0


def test_runs_that_do_not_arrive_are_said(capsys):
    code, out, err = call(f"simulate {QUICK} --max-steps 1", capsys)
    assert code == 0
    assert "did not come down" in err
    assert "test loss" in out


def test_engines_agree_in_law_where_they_are_both_possible(capsys):
    means = [json.loads(call(f"simulate {QUICK} --seeds 40 --engine {engine} --d-v 5 --json", capsys)[1])
             for engine in ("drawn", "reduced", "full")]
    for name in ("test_loss", "attention_signal"):
        drawn, reduced, full = (mean[name] for mean in means)
        assert full["mean"] == pytest.approx(reduced["mean"], rel=1e-9)
        assert drawn["low"] < reduced["high"]
        assert reduced["low"] < drawn["high"]


def test_dimensions_nobody_can_store(capsys):
    code, out, _ = call("simulate --engine drawn --d 1e16 --d-h 1e9 --snr 10 --sigma-p 1e-8 --sigma-p-tilde 1e-7 "
                        "--seeds 2 --n-test 20 --json", capsys)
    assert code == 0
    assert json.loads(out)["parameters"]["d"] == 10**16


def test_condition_json(capsys):
    code, out, _ = call("condition --N 16 --M 4 --d 2048 --d-h 1024 --json", capsys)
    answer = json.loads(out)
    assert code == 0
    assert len(answer["items"]) == 10
    assert answer["parameters"]["N"] == 16


def test_smallest_configuration_meets_the_condition(capsys):
    out = call("condition --smallest --N 64 --M 2 --snr 1 --epsilon 0.01 --json", capsys)[1]
    assert json.loads(out)["all_met"] is True


def test_constants_can_be_set(capsys):
    given = "condition --N 16 --M 4 --epsilon 0.01 --signal-norm 1 --sigma-p 0.1 --d 1000 --json"
    needed = [json.loads(call(f"{given} {extra}", capsys)[1])["items"][0]["needed"]
              for extra in ("", "--constant d_h=3")]
    assert needed[1] == pytest.approx(3 * needed[0])


def test_nothing_is_left_behind_by_a_mistake(tmp_path, capsys):
    (tmp_path / "file").write_text("not a folder")
    code, _, err = call(f"results --profile smoke --only figure_1_undivided --out {tmp_path}/file/deep", capsys)
    assert code == 2
    assert err.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_damaged_digits_are_one_line(tmp_path, monkeypatch, capsys):
    for name in (name for name in mnist.SHA256 if name.endswith(".gz")):
        (tmp_path / name).write_bytes(b"\x1f\x8b not an idx file")
    monkeypatch.setenv("VITBO_DATA", str(tmp_path))
    code, _, err = call(f"results --profile smoke --only figure_2_first_look --out {tmp_path}/out", capsys)
    assert (code, err.count("\n")) == (2, 1), err


@pytest.mark.slow
def test_the_installed_command_answers_like_this():
    command = Path(sys.executable).with_name("vitbo")
    bad = subprocess.run([command, "simulate", "--N", "0"], capture_output=True, text=True)
    assert (bad.returncode, bad.stderr.count("\n"), bad.stdout) == (2, 1, "")
    version = subprocess.run([command, "--version"], capture_output=True, text=True)
    assert version.stdout.startswith("vitbo ")
    head = subprocess.run(f"{command} condition --N 4 | head -n 1", shell=True, capture_output=True, text=True)
    assert head.stderr == ""
