"""Each chapter that holds code runs from top to bottom, at smoke size, in a kernel of its own."""

import os
from pathlib import Path

import jupytext
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

ROOT = Path(__file__).resolve().parents[1]
CELL_SECONDS = 300


def is_notebook(path: Path) -> bool:
    head = path.read_text(encoding="utf8")[:800]
    return head.startswith("---") and "kernelspec:" in head


CHAPTERS = sorted(p for p in [ROOT / "intro.md", *(ROOT / "chapters").glob("*.md")] if is_notebook(p))


def run_notebook(path: Path) -> None:
    """Execute every cell; raises `CellExecutionError` at the first that fails without announcing it."""
    environment = os.environ | {"VITBO_SMOKE": "1", "PYTHONPATH": str(ROOT), "MPLBACKEND": "agg"}
    NotebookClient(jupytext.read(path, fmt="md:myst"), timeout=CELL_SECONDS, kernel_name="python3",
                   resources={"metadata": {"path": str(path.parent)}}).execute(env=environment)


@pytest.mark.slow
@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_chapter_runs(path):
    run_notebook(path)


def test_a_failing_cell_is_seen(tmp_path):
    chapter = tmp_path / "planted.md"
    chapter.write_text("---\nkernelspec:\n  display_name: Python 3\n  language: python\n  name: python3\n---\n\n"
                       "```{code-cell} ipython3\nraise RuntimeError('planted')\n```\n")
    assert is_notebook(chapter)
    with pytest.raises(CellExecutionError, match="planted"):
        run_notebook(chapter)


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_chapter_opens_with_its_question_and_ends_with_its_verdicts(path):
    """The landing page and the notes at the back are no chapters with a claim."""
    if path.stem in ("intro", "cite_and_rerun", "bibliography"):
        pytest.skip("no claim is checked here")
    text = path.read_text(encoding="utf8")
    assert "**Question.**" in text
    if path.stem not in ("verdicts", "notation"):
        assert text.rstrip().rfind("\n## ") == text.rfind("\n## Verdicts"), "the last section must be Verdicts"
