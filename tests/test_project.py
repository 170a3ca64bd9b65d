"""The files around the code agree with each other."""

import os
import re
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf8")


def test_version_stands_in_one_place():
    assert version("vitbo") == PROJECT["version"]
    released = [name for name in re.findall(r"^## (\S+)", text("CHANGELOG.md"), re.M) if name != "Unreleased"]
    assert released[0] == PROJECT["version"]
    assert "version" not in {key for key in yaml.safe_load(text("CITATION.cff")) if key != "cff-version"}


def test_citation_file():
    citation = yaml.safe_load(text("CITATION.cff"))
    assert citation["cff-version"] == "1.2.0"
    assert {"message", "title", "authors"} <= set(citation)
    (paper,) = citation["references"]
    assert {"type", "title", "authors"} <= set(paper)
    assert paper["title"] in text("references.bib")


def test_every_cited_key_is_in_the_bibliography():
    keys = set(re.findall(r"^@\w+\{(\w+),", text("references.bib"), re.M))
    assert len(keys) >= 9
    for entry in re.split(r"^@", text("references.bib"), flags=re.M)[1:]:
        assert {"author", "title", "year"} <= set(re.findall(r"^\s*(\w+)\s*=", entry, re.M))


@pytest.mark.parametrize("page", ["README.md", "intro.md", "chapters/cite_and_rerun.md"])
def test_every_make_command_exists(page):
    targets = set(re.findall(r"^([a-z]+):", text("Makefile"), re.M))
    named = set(re.findall(r"(?:`|^)make ([a-z]+)", text(page), re.M))
    assert named
    assert named <= targets


def test_contents_list_every_chapter():
    toc = yaml.safe_load(text("_toc.yml"))
    listed = [chapter["file"] for part in toc["parts"] for chapter in part["chapters"]]
    assert sorted(listed) == sorted(f"chapters/{path.stem}" for path in (ROOT / "chapters").glob("*.md"))


def test_what_the_check_needs_is_there():
    assert os.access(ROOT / ".ci/run", os.X_OK)
    for name in ("LICENSE", "LICENSE-text", "CONTRIBUTING.md", "data/mnist/README.md", "data/mnist/SHA256SUMS"):
        assert text(name).strip()
    assert "CC BY-SA 3.0" in text("data/mnist/README.md")
    assert "creativecommons.org/licenses/by/4.0/" in text("LICENSE-text")
