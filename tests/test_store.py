"""Tables survive crashes, edits and each other; what they say about themselves is true."""

import json
import math
import multiprocessing
import os
import re
import shutil

import numpy as np
import pytest

from vitbo_lib import provenance, store
from vitbo_lib.errors import UserError
from vitbo_lib.store import Table, load, provenance_line

NAME = 'plain, "quoted"'
ROWS = [{"N": n, "name": NAME, "seed": seed, "loss": 1 / (3 + n + seed), "steps": 10**17 + seed, "found": seed > 0}
        for n in (16, 4) for seed in range(3)]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "results" / "phase.csv"


def table(path, **more) -> Table:
    return Table(path, key=("N", "name", "seed"), columns=("loss", "steps", "found"),
                 **{"parameters": {"M": 4, "eta": 0.1}, "seeds": range(3), "command": "vitbo sweep phase"} | more)


def filled(path) -> Table:
    made = table(path)
    made.append(ROWS)
    return made


def test_rows_come_back_exactly(path):
    made = filled(path)
    found = made.rows()
    assert found.to_dict("records") == ROWS
    assert [kind.kind for kind in found.dtypes[["N", "seed", "loss", "steps", "found"]]] == list("iifib")
    assert made.done() == {(row["N"], row["name"], row["seed"]) for row in ROWS}


@pytest.mark.parametrize("value", [0.1 + 0.2, 5e-324, 1.7976931348623157e308, -0.0, math.inf, np.float32(0.1),
                                   np.float64(1) / 3, np.array(1 / 7), np.int64(2**62), 2**63,
                                   True, "Figure 1, left"])
def test_every_value_comes_back(path, value):
    made = table(path)
    made.append([ROWS[0] | {"loss": value}])
    (back,) = made.rows()["loss"]
    plain = value.item() if hasattr(value, "item") else value
    assert back == plain
    assert math.copysign(1, back) == math.copysign(1, plain) if isinstance(plain, float) else True


def test_missing_values_come_back_as_missing(path):
    made = table(path)
    made.append([ROWS[0] | {"loss": None}, ROWS[1] | {"loss": math.nan}, ROWS[2]])
    assert list(made.rows()["loss"].isna()) == [True, True, False]


@pytest.mark.parametrize("wrong", [{"loss": "0.5"}, {"loss": "nan"}, {"loss": ""}, {"loss": "two\nlines"},
                                   {"loss": [1]}, {"seed": None}, {"seed": math.nan},
                                   {"extra": 1}, {"loss": np.ones(2)}])
def test_what_cannot_be_stored_is_refused_and_nothing_is_written(path, wrong):
    made = filled(path)
    before = path.read_bytes()
    with pytest.raises(UserError, match=r"give exactly|cannot be stored|cannot be found again"):
        made.append([ROWS[0] | {"N": 99}, ROWS[0] | {"N": 98} | wrong])
    assert path.read_bytes() == before


@pytest.mark.parametrize("wrong", [{"key": ()}, {"key": ("N", "N")}, {"columns": ("row_check",)}, {"columns": ("N",)},
                                   {"path": "a.txt"}, {"columns": ("two\nlines",)}, {"parameters": {"x": math.nan}},
                                   {"parameters": {"x": object()}}])
def test_tables_that_cannot_be(wrong):
    with pytest.raises(UserError):
        Table(**{"path": "phase.csv", "key": ("N",), "columns": ("loss",)} | wrong)


# ------------------------------------------------------------------------------------------------------------- damage

def every_edit_is_seen(path) -> None:
    """Change each character of one row, in turn: never may a changed row pass for a valid one."""
    filled(path)
    whole = path.read_bytes()
    start = whole.index(b"\n") + 1
    for at in range(start, whole.index(b"\n", start)):
        path.write_bytes(whole[:at] + (b"7" if whole[at:at + 1] != b"7" else b"8") + whole[at + 1:])
        assert len(table(path).done()) == len(ROWS) - 1, f"character {at - start} was changed and not noticed"
    path.write_bytes(whole)


def test_a_hand_edited_character_is_detected(path):
    every_edit_is_seen(path)


def check_blind_to(column):
    def blind(names, fields, right=store.row_check):
        return right(names, ["" if name == column else text for name, text in zip(names, fields)])
    return blind


@pytest.mark.parametrize("column", ["N", "name", "seed", "loss", "steps", "found"])
def test_planted_checksum_that_ignores_a_column_is_seen(path, monkeypatch, column):
    monkeypatch.setattr(store, "row_check", check_blind_to(column))
    with pytest.raises(AssertionError, match="was changed and not noticed"):
        every_edit_is_seen(path)


def test_damaged_rows_are_reported_dropped_and_can_be_made_again(path, capsys):
    made = filled(path)
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([lines[0], lines[1].replace("0.05", "0.04"), "\0\xff,\"\n", lines[2], "\n", *lines[3:]]))
    assert len(made.done()) == 5
    made.prepare()
    errors = capsys.readouterr().err.splitlines()
    assert len(errors) == 2
    assert all(str(path) in line and "2 damaged rows" in line and "recomputed" in line for line in errors)
    assert path.read_text() == "".join([lines[0], *lines[2:]])
    made.append([ROWS[0]])
    assert len(made.done()) == 6
    assert capsys.readouterr().err == ""


def test_windows_line_ends_are_no_damage(path):
    made = filled(path)
    header, rows = path.read_bytes().split(b"\n", 1)
    path.write_bytes(header + b"\n" + rows.replace(b"\n", b"\r\n"))
    assert made.rows().to_dict("records") == ROWS


def nothing_is_lost_at(path, cut: int) -> None:
    """A crash left `cut` bytes of the file: whole rows stay, the torn one goes, the next append is not glued to it."""
    made = filled(path)
    whole = path.read_bytes()
    path.write_bytes(whole[:cut])
    kept = set(whole[:cut].split(b"\n")[1:]) & set(whole.split(b"\n")) - {b""}
    made.append([ROWS[0] | {"N": 99}])
    assert len(made.done()) == len(kept) + 1, cut


def test_torn_last_line_wherever_it_is_torn(path, capsys):
    filled(path)
    size, header = path.stat().st_size, path.read_bytes().index(b"\n")
    for cut in [0, 1, header - 1, header, header + 1, *range(size - 80, size, 7), size - 1, size]:
        shutil.rmtree(path.parent)
        nothing_is_lost_at(path, cut)
    assert "1 damaged row (" in capsys.readouterr().err


def test_planted_append_that_does_not_mend_is_seen(path, monkeypatch):
    monkeypatch.setattr(Table, "_mend_end", lambda *_: None)
    with pytest.raises(AssertionError):
        nothing_is_lost_at(path, 200)


def test_first_of_duplicates_wins(path):
    made = filled(path)
    made.append([ROWS[2] | {"loss": 77.0}])
    assert made.rows().to_dict("records") == ROWS


def test_a_full_disk_leaves_the_table_as_it_was(path, monkeypatch):
    made, right = filled(path), os.write
    before = path.read_bytes()

    def full(descriptor, data):
        if len(data) < 20:
            raise OSError(28, "No space left on device")
        return right(descriptor, data[:15])

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(UserError, match="No space left on device"):
        made.append([ROWS[0] | {"N": 5}])
    assert path.read_bytes() == before


def write_many(path, start, barrier):
    made = table(path)
    barrier.wait()
    for n in range(start, start + 40):
        made.append([ROWS[0] | {"N": n, "name": "x" * 3000}, ROWS[1] | {"N": n}])


def test_two_processes_on_one_table(path):
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(2)
    writers = [context.Process(target=write_many, args=(path, start, barrier)) for start in (0, 1000)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0, 0]
    assert len(table(path).done()) == 160
    assert len(path.read_text().splitlines()) == 161


def test_a_writer_waits_while_another_replaces_the_file(path):
    """The file that was waited for is no longer the one that bears the name: the row must go to the new one."""
    import threading

    made = filled(path)
    late = threading.Thread(target=made.append, args=([ROWS[0] | {"N": 99}],))
    with store._locked(path, write=True):
        late.start()
        late.join(0.2)
        assert late.is_alive()
        provenance.write(path, path.read_bytes())
    late.join()
    assert len(made.done()) == 7


# --------------------------------------------------------------------------------------------------------- provenance

def test_provenance_says_where_the_rows_come_from(path):
    filled(path).record(1.5)
    table(path, seeds=(7,)).append([ROWS[0] | {"seed": 7}])
    table(path).record(2.0, complete=True)
    _, found = load(path)
    assert found["parameters"] == {"M": 4, "eta": 0.1}
    assert found["seeds"] == [0, 1, 2, 7]
    assert found["command"] == "vitbo sweep phase"
    assert found["wall_seconds"] == 3.5
    assert set(found["packages"]) == {"python", "numpy", "scipy", "torch"}
    assert found["packages"]["numpy"] == np.__version__
    assert set(found["machine"]) == {"cpus", "architecture"}
    assert re.fullmatch(r"[0-9a-f]{12}", found["fingerprint"])
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", found["date"])
    assert found["rows"] == 7
    assert found["complete"] is True
    assert os.uname().nodename not in json.dumps(found)
    assert str(path.parent) not in json.dumps(found)
    assert [p.name for p in sorted(path.parent.iterdir())] == ["phase.csv", "phase.json"]


def test_other_parameters_are_refused_and_nothing_changes(path):
    filled(path)
    before = path.read_bytes(), path.with_suffix(".json").read_bytes()
    other = table(path, parameters={"M": 4, "eta": 0.2, "d": 7})
    for deed in (other.prepare, other.rows, other.done, lambda: other.append([ROWS[0]]), lambda: other.record(1.0)):
        with pytest.raises(UserError, match=r"d: absent there, 7 here, eta: 0.1 there, 0.2 here\); choose another"):
            deed()
    assert (path.read_bytes(), path.with_suffix(".json").read_bytes()) == before
    other.prepare(fresh=True)
    assert other.done() == set()
    other.append(ROWS)
    with pytest.raises(UserError, match="other parameters"):
        table(path).append(ROWS)


def test_other_columns_and_foreign_files_are_refused(path):
    filled(path)
    with pytest.raises(UserError, match="has the columns"):
        Table(path, key=("N",), columns=("loss",)).prepare()
    path.write_text("a,b\n1,2\n")
    for fresh in (False, True):
        with pytest.raises(UserError, match="choose another file"):
            table(path).prepare(fresh)
    with pytest.raises(UserError, match="choose another file"):
        table(path).append(ROWS)
    assert path.read_text() == "a,b\n1,2\n"


@pytest.mark.parametrize("text", [None, "{", "[]", "{}", "3"])
def test_rows_without_provenance_are_refused(path, text):
    made = filled(path)
    beside = path.with_suffix(".json")
    beside.unlink() if text is None else beside.write_text(text)
    for deed in (made.prepare, made.rows, lambda: made.append(ROWS), lambda: load(path)):
        with pytest.raises(UserError, match="start over"):
            deed()


def test_a_changed_library_is_warned_about_and_recorded(path, monkeypatch, capsys):
    old = provenance.library_fingerprint()
    made = filled(path)
    made.prepare()
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(provenance, "library_fingerprint", lambda: "0123456789ab")
    made.prepare()
    (warning,) = capsys.readouterr().err.splitlines()
    assert old in warning
    assert "another library version" in warning
    assert load(path)[1]["fingerprint"] == old
    made.append([ROWS[0] | {"N": 5}])
    _, found = load(path)
    assert found["fingerprint"] == "0123456789ab"
    assert [entry["fingerprint"] for entry in found["earlier"]] == [old]


def test_fingerprint_sees_what_computes_and_nothing_else(tmp_path):
    (tmp_path / "figures").mkdir()
    names = ["theory.py", "figures/theory.py", "cli.py", "notes.md"]
    for name in names:
        (tmp_path / name).write_text("x = 1\n")
    before = provenance.library_fingerprint.__wrapped__(tmp_path)
    changed = []
    for name in names:
        (tmp_path / name).write_text("x = 2\n")
        after = provenance.library_fingerprint.__wrapped__(tmp_path)
        changed, before = [*changed, name] if after != before else changed, after
    assert changed == ["theory.py"]
    (tmp_path / "theory.py").rename(tmp_path / "stages.py")
    assert provenance.library_fingerprint.__wrapped__(tmp_path) != before


def test_places_that_cannot_be_written(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    (tmp_path / "folder.csv").mkdir()
    for path in (tmp_path / "file" / "phase.csv", tmp_path / "folder.csv"):
        with pytest.raises(UserError, match="cannot write"):
            table(path).prepare()

    def refuse(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(UserError, match="Permission denied"):
        table(tmp_path / "phase.csv").prepare()


# ----------------------------------------------------------------------------------------------------------- chapters

def test_load_sorts_and_says_when_a_run_was_not_finished(path, capsys):
    made = filled(path)
    frame, _ = load(path)
    assert list(zip(frame["N"], frame["seed"])) == [(4, 0), (4, 1), (4, 2), (16, 0), (16, 1), (16, 2)]
    assert "not finished, 6 rows so far; continue it with `vitbo sweep phase`" in capsys.readouterr().err
    made.record(1.0, complete=True)
    load(path)
    assert capsys.readouterr().err == ""


def test_load_never_gives_less_than_was_stored(path):
    with pytest.raises(UserError, match="is missing; make it with `vitbo sweep phase`"):
        load(path, command="vitbo sweep phase")
    filled(path).record(1.0, complete=True)
    whole = path.read_text()
    path.write_text(whole.replace("0.0", "0.1", 1))
    with pytest.raises(UserError, match=r"1 damaged rows .* with `vitbo sweep phase`"):
        load(path)
    path.write_text(whole.rsplit("\n", 2)[0] + "\n")
    with pytest.raises(UserError, match="has 5 rows, but 6 were stored"):
        load(path)
    path.write_text(whole.split("\n", 1)[0] + "\n")
    with pytest.raises(UserError, match="has 0 rows"):
        load(path)


def test_provenance_line():
    def line(seconds, seeds, path="results/phase.csv", command="vitbo sweep phase"):
        found = {"command": command, "wall_seconds": seconds, "seeds": seeds, "machine": {"cpus": 2}}
        return provenance_line(found, path)

    assert line(0.3, []) == ("Rerun with `vitbo sweep phase`: less than a second on 2 cores, no seeds; rows in "
                             "`results/phase.csv`.")
    assert "40 s on 2 cores, seed 5;" in line(40.2, [5])
    assert "34 min on 2 cores, seeds 2 to 4;" in line(2040, [2, 3, 4])
    assert "2.5 h on 2 cores, seeds 0, 2;" in line(9000, [0, 2])
    assert line(1, [], "/somewhere/else/phase.csv", "").startswith("Computed once: ")
    assert "somewhere" not in line(1, [], "/somewhere/else/phase.csv")
    assert "`results/x.csv`" in line(1, [], store.provenance.LIBRARY.parent / "results/x.csv")
