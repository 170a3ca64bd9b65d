"""A page follows the library, the data and the results: on a copy of the project with one small page."""

import shutil
import time
from pathlib import Path

import pytest
import vitbo_book
from conftest import ROOT, build_book

PAGE = """---
jupytext:
  text_representation:
    extension: .md
    format_name: myst
    format_version: 0.13
kernelspec:
  display_name: Python 3
  language: python
  name: python3
---

# One page

```{code-cell} ipython3
:tags: [remove-cell]
from myst_nb import glue
import vitbo_lib.constant
glue("constant", vitbo_lib.constant.CONSTANT, display=False)
with open(vitbo_lib.constant.__file__ + ".runs", "a") as runs:
    runs.write("x")
```

The constant is {glue:text}`constant:d`.
"""


@pytest.fixture
def project(tmp_path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    for name in ("_ext", "_static"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("_config.yml", "references.bib", "requirements.lock"):
        shutil.copy2(ROOT / name, folder)
    (folder / "vitbo_lib").mkdir()
    (folder / "vitbo_lib/__init__.py").touch()
    write_constant(folder, 4242)
    (folder / "_toc.yml").write_text("format: jb-book\nroot: intro\n")
    (folder / "intro.md").write_text(PAGE)
    return folder


def write_constant(project: Path, value: int) -> None:
    (project / "vitbo_lib/constant.py").write_text(f"CONSTANT = {value}\n")


def build(project: Path) -> tuple[str, int, float]:
    """Text of the page, how often its cells have run, seconds."""
    start = time.perf_counter()
    built = build_book(project)
    seconds = time.perf_counter() - start
    assert built.returncode == 0, built.stdout + built.stderr
    runs = len((project / "vitbo_lib/constant.py.runs").read_text())
    return (project / "_build/html/intro.html").read_text(), runs, seconds


@pytest.mark.slow
def test_page_follows_the_library(project):
    page, runs, _ = build(project)
    assert "4242" in page
    assert runs == 1

    page, runs, seconds = build(project)
    assert "4242" in page
    assert runs == 1, "nothing changed, and the page was executed again"
    assert seconds < 60

    write_constant(project, 6464)
    page, runs, _ = build(project)
    assert "6464" in page
    assert "4242" not in page, "the page kept the number of the old library"
    assert runs == 2

    write_constant(project, 4242)
    page, runs, _ = build(project)
    assert "4242" in page
    assert runs == 2, "going back to a library whose pages are still cached executed them again"


@pytest.mark.slow
def test_failing_cell_fails_every_build(project):
    (project / "intro.md").write_text(PAGE.replace("import vitbo_lib.constant", "raise RuntimeError('planted')"))
    for attempt in (1, 2):
        built = build_book(project)
        assert built.returncode != 0, f"build {attempt} passed with a failing cell"
        assert "planted" in built.stdout + built.stderr


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["{prf:ref}`thm-that-is-not`", "{numref}`fig-that-is-not`",
                                   "{glue:text}`not_glued:d`", "{cite}`nobody1900`", "{doc}`chapters/nowhere`",
                                   "[words](#nowhere)"])
def test_broken_reference_fails_the_build(project, fault):
    (project / "intro.md").write_text(f"# Words\n\nSee {fault}.\n")
    built = build_book(project)
    assert built.returncode != 0, f"the book builds with {fault}"


@pytest.mark.parametrize("changed", ["vitbo_lib/constant.py", "vitbo_lib/figures/new.py", "data/mnist/SHA256SUMS",
                                     "results/figure_1/table.csv", "requirements.lock"])
def test_fingerprint_sees(project, changed):
    before = vitbo_book.source_digest(project)
    path = project / changed
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write("# one more line\n")
    assert vitbo_book.source_digest(project) != before


def test_fingerprint_sees_size_and_names_only_what_matters(project, monkeypatch):
    before = vitbo_book.source_digest(project)
    (project / "README.md").write_text("words")
    assert vitbo_book.source_digest(project) == before
    monkeypatch.setenv("VITBO_SMOKE", "1")
    assert vitbo_book.source_digest(project) != before


def test_fingerprint_sees_a_file_that_moves(project):
    before = vitbo_book.source_digest(project)
    (project / "vitbo_lib/constant.py").rename(project / "vitbo_lib/other.py")
    assert vitbo_book.source_digest(project) != before
