"""Sweeps compute each cell once, whatever happens to the processes that do it."""

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import sweep_cells
from sweep_cells import Cell, compute, compute_with_faults, loss, table, threads

from vitbo_lib import sweep
from vitbo_lib.errors import UserError
from vitbo_lib.store import Table, load
from vitbo_lib.sweep import Outcome, cell_keys, run_sweep

CELLS = [Cell(n, (0, 1)) for n in range(4)]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "results" / "try.csv"


def assert_whole(path, cells: range) -> None:
    """Each key once, each with its own value, nothing else in the file."""
    frame, found = load(path)
    wanted = [(n, seed) for n in cells for seed in (0, 1)]
    assert list(zip(frame["N"], frame["seed"])) == wanted
    assert list(frame["loss"]) == [loss(n, seed) for n, seed in wanted]
    assert len(path.read_text().splitlines()) == len(wanted) + 1
    assert found["complete"] is True


@pytest.mark.parametrize("workers", [1, 2])
def test_each_cell_once(path, workers, capfd):
    assert run_sweep(table(path), CELLS[:3], compute, workers) == Outcome(computed=3, skipped=0)
    assert run_sweep(table(path), [*CELLS, CELLS[3]], compute, workers) == Outcome(computed=1, skipped=4)
    assert_whole(path, range(4))
    own = set(load(path)[0]["worker"]) & {os.getpid()}
    assert bool(own) == (workers == 1)
    before = path.with_suffix(".json").read_bytes()
    assert run_sweep(table(path), CELLS, compute, workers) == Outcome(computed=0, skipped=4)
    assert path.with_suffix(".json").read_bytes() == before
    assert capfd.readouterr().err == ""


def test_any_executor(path):
    with ThreadPoolExecutor(2) as executor:
        assert run_sweep(table(path), CELLS, compute, executor=executor).computed == 4
        assert executor.submit(int).result() == 0, "the executor is the caller's to end"
    assert_whole(path, range(4))


def test_cells_as_dicts_and_one_row_each(path):
    made = Table(path, key=("N", "seed"), columns=("loss",))
    cells = [{"N": n, "seed": 7} for n in (1, 2.5)]
    assert run_sweep(made, cells, lambda cell: cell | {"loss": 0.5}, workers=1).computed == 2
    assert made.done() == {(1, 7), (2.5, 7)}
    assert cell_keys(made, {"N": (1, 2), "seeds": range(2)}) == [(1, 0), (1, 1), (2, 0), (2, 1)]
    for wrong, text in ((3, "not a cell"), ({"N": 3}, "has no seed"), ({"N": None, "seed": 0}, "cannot be found")):
        with pytest.raises(UserError, match=text):
            run_sweep(made, [wrong], compute, workers=1)


def test_a_cell_that_lacks_a_row_is_computed_again_without_duplicates(path):
    made = table(path)
    made.append(compute(CELLS[0])[:1] + compute(CELLS[1]))
    assert run_sweep(made, CELLS, compute, workers=1) == Outcome(computed=3, skipped=1)
    assert_whole(path, range(4))


def test_failing_cells_are_named_and_the_others_go_on(path, capsys):
    cells = [Cell(n, (0,)) for n in (1, 2, 3, 4, 7)]
    with pytest.raises(UserError, match=r"2 of 5 cells failed: \(N=3, .*unlucky.*N=7.*3 were stored in .*try\.csv"):
        run_sweep(table(path), cells, compute_with_faults, workers=1)
    assert table(path).done() == {(1, 0), (2, 0), (4, 0)}
    errors = capsys.readouterr().err.splitlines()
    assert len(errors) == 2
    assert "cell (N=3, seeds=(0,)" in errors[0]
    assert "returned rows for [(8, 0)], not for [(7, 0)]" in errors[1]
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        run_sweep(table(path), [Cell(0, (0,))], lambda cell: 1 // cell.N, workers=1)


@pytest.mark.slow
def test_a_worker_that_dies_takes_no_other_cell_along(path):
    with pytest.raises(RuntimeError, match=r"1 of 6 cells failed: \(N=5.*its worker process died"):
        run_sweep(table(path), [Cell(n, (0, 1)) for n in (5, 0, 1, 2, 4, 6)], compute_with_faults)
    assert table(path).done() == {(n, seed) for n in (0, 1, 2, 4, 6) for seed in (0, 1)}


@pytest.mark.slow
def test_workers_compute_on_one_thread_and_leave_the_environment_alone(path):
    before = dict(os.environ)
    run_sweep(table(path), CELLS[:2], threads)
    assert list(load(path)[0]["loss"]) == [1] * 4
    assert dict(os.environ) == before


@pytest.mark.parametrize("wrong", [{"workers": 0}, {"workers": 1.5}, {"compute": lambda cell: [cell]}])
def test_requests_that_cannot_be_met(path, wrong):
    with pytest.raises(UserError, match=r"give a (whole number|function)"):
        run_sweep(table(path), CELLS, **{"compute": compute} | wrong)
    assert not path.exists()


def test_places_that_cannot_be_written_are_refused_before_anything_is_computed(tmp_path):
    (tmp_path / "file").write_text("")
    (tmp_path / "folder.csv").mkdir()
    asked = []
    for wrong in (tmp_path / "file/try.csv", tmp_path / "folder.csv"):
        with pytest.raises(UserError, match="cannot write"):
            run_sweep(table(wrong), CELLS, asked.append, workers=1)
    assert asked == []


def test_a_table_that_fails_ends_the_sweep(path, monkeypatch):
    """A full disk is no failure of a cell: going on would compute the rest in vain."""
    computed = []

    def full(self, rows):
        raise UserError("cannot write: no space left; make room")

    monkeypatch.setattr(Table, "append", full)
    with pytest.raises(UserError, match="make room"):
        run_sweep(table(path), CELLS, lambda cell: computed.append(cell) or compute(cell), workers=1)
    assert len(computed) == 1


# -------------------------------------------------------------------------------------------------- killed and stopped

def start(path, folder, workers: int, cells: range) -> subprocess.Popen:
    folder.mkdir(exist_ok=True)
    command = [sys.executable, sweep_cells.__file__, path, folder, str(workers), str(cells.start), str(cells.stop)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_for(condition) -> None:
    for _ in range(1200):
        if condition():
            return
        time.sleep(0.05)
    pytest.fail("waited a minute for nothing")


def lines(path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def runs(pid: int) -> bool:
    """Whether a process lives; one that is dead and not yet buried does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def living(folder) -> list[int]:
    """The processes that computed a cell and are still there."""
    return [pid for name in os.listdir(folder) if runs(pid := int(name.split("-")[1]))]


def kill_and_continue(path, folder, workers: int) -> None:
    """SIGKILL in the middle, what was stored stays as it was, and the next run computes only the rest."""
    process = start(path, folder, workers, range(40))
    wait_for(lambda: lines(path) >= 6)
    process.kill()
    process.communicate()
    stored = path.read_bytes().rsplit(b"\n", 1)[0] + b"\n"
    assert 6 <= lines(path) < 81, "the sweep was not killed in the middle"
    wait_for(lambda: not living(folder))
    for name in folder.iterdir():
        name.unlink()
    process = start(path, folder, workers, range(40))
    out, err = process.communicate()
    assert process.returncode == 0, err
    assert path.read_bytes().startswith(stored), "stored rows were lost"
    assert_whole(path, range(40))
    finished = (stored.count(b"\n") - 1) // 2
    assert f"Outcome(computed={40 - finished}, skipped={finished})" in out
    assert len(list(folder.iterdir())) == 40 - finished, "finished cells were computed again"


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_killed_sweep_continues_with_nothing_lost_and_nothing_twice(path, tmp_path, workers):
    kill_and_continue(path, tmp_path / "seen", workers)


@pytest.mark.slow
def test_planted_sweep_that_forgets_is_seen(path, tmp_path, monkeypatch):
    """The same check on a sweep that starts over each time."""
    script = tmp_path / "sweep_that_forgets.py"
    text = Path(sweep_cells.__file__).read_text()
    script.write_text(text.replace("workers=int(workers))", "workers=int(workers), fresh=True)"))
    assert "fresh=True" in script.read_text()
    monkeypatch.setattr(sweep_cells, "__file__", str(script))
    with pytest.raises(AssertionError, match="stored rows were lost"):
        kill_and_continue(path, tmp_path / "seen", workers=1)


@pytest.mark.slow
@pytest.mark.parametrize(("number", "workers"), [(signal.SIGINT, 2), (signal.SIGTERM, 2), (signal.SIGINT, 1)])
def test_stopped_sweep_says_how_to_continue(path, tmp_path, number, workers):
    process = start(path, tmp_path / "seen", workers, range(60))
    wait_for(lambda: lines(path) >= 4)
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    (line,) = err.splitlines()
    stored = len(table(path).done()) // 2
    assert line == f"vitbo: stopped; {stored} of 60 cells are in {path}; continue with `vitbo sweep try`"
    assert not living(tmp_path / "seen")


@pytest.mark.slow
def test_two_sweeps_on_one_table(path, tmp_path):
    both = [start(path, tmp_path / f"seen{i}", 1, cells) for i, cells in enumerate((range(20), range(20, 40)))]
    assert [(process.communicate(), process.returncode)[1] for process in both] == [0, 0]
    assert_whole(path, range(40))


def test_progress_only_where_it_can_be_seen(path, capsys, monkeypatch):
    run_sweep(table(path), CELLS[:2], compute, workers=1)
    assert capsys.readouterr() == ("", "")
    run_sweep(table(path), CELLS, compute, workers=1, progress=True)
    out, err = capsys.readouterr()
    assert out == ""
    assert "4/4" in err


def test_signal_while_rows_are_written_waits():
    """Planted fault beside it: without `held` the write is cut in two."""
    def parts(held: bool) -> list[int]:
        done = []

        def write(signals):
            with signals.held() if held else sweep._nothing():
                done.append(1)
                os.kill(os.getpid(), signal.SIGINT)
                time.sleep(0.01)
                done.append(2)

        with sweep._Signals() as signals, pytest.raises(sweep._Stop):
            write(signals)
        return done

    assert parts(held=True) == [1, 2]
    assert parts(held=False) == [1]
