"""What the tracked text and the built pages must not say."""

import re
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
TEXT = {".py", ".md", ".yml", ".yaml", ".toml", ".txt", ".lock", ".css", ".js", ".svg", ".bib", ".cff", ".json", ".csv",
        ""}

# Written in pieces, so that this file does not contain what it looks for.
REGISTRIES = ["pypi" + ".org", "python" + "hosted.org", "registry." + "npmjs", "deb." + "debian.org",
              "conda." + "anaconda"]
MACHINE_PATH = re.compile("(?:^|[^A-Za-z0-9_.])/(?:" + "|".join(["work", "root", "farm", "home/[a-z]+"]) + ")(?:/|\\b)")
OUTSIDE = re.compile(r"https?://([A-Za-z0-9.-]+)")


class Words(HTMLParser):
    """The text a reader sees."""

    def __init__(self, html: str):
        super().__init__()
        self.parts, self.skipping = [], 0
        self.feed(html)

    def handle_starttag(self, tag, _):
        self.skipping += tag in ("script", "style", "pre", "code")

    def handle_endtag(self, tag):
        self.skipping -= tag in ("script", "style", "pre", "code")

    def handle_data(self, data):
        if not self.skipping:
            self.parts.append(data)


def visible(html: str) -> str:
    return " ".join(" ".join(Words(html).parts).split())


def tracked() -> list[Path]:
    """Files of the project: what git tracks or would track; outside a repository, all but what is built."""
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode == 0:
        found = [ROOT / name for name in listed.stdout.splitlines()]
    else:
        found = [p for p in ROOT.rglob("*") if not {".venv", "_build", ".git"} & set(p.relative_to(ROOT).parts)]
    return [p for p in found if p.is_file() and p.suffix in TEXT]


def told_places(text: str) -> list[str]:
    """Registry hosts and machine paths in a text."""
    return [host for host in REGISTRIES if host in text] + [m[0].strip() for m in MACHINE_PATH.finditer(text)]


def unresolved(text: str) -> list[str]:
    """Signs of a reference or of a glued number that was not filled in."""
    signs = [r"\?\?", r"\{(?:glue|prf|ref|numref|eq|doc|cite)[:}]", r"glue:text",
             r"\bNone\b(?=\s*(?:steps|runs|seeds|s on))", r"\bnan\b", r"\[[a-z]+\d{4}\]"]
    return [m[0] for sign in signs for m in re.finditer(sign, text)]


def test_files_name_no_registry_and_no_machine():
    files = tracked()
    assert ROOT / "README.md" in files
    told = {str(p.relative_to(ROOT)): told_places(p.read_text(encoding="utf8", errors="replace")) for p in files}
    assert {name: found for name, found in told.items() if found} == {}


def test_pages_name_no_registry_and_no_machine(pages, site):
    told = {str(p.relative_to(site)): told_places(p.read_text(encoding="utf8")) for p in pages}
    assert {name: found for name, found in told.items() if found} == {}
    assert not [p for p in pages if str(ROOT) in p.read_text(encoding="utf8")]


def test_every_reference_and_number_is_filled_in(pages, site):
    left = {str(p.relative_to(site)): unresolved(visible(p.read_text(encoding="utf8"))) for p in pages}
    assert {name: found for name, found in left.items() if found} == {}


def test_pages_show_no_traceback_and_no_warning(pages, site):
    signs = r"Traceback \(most recent|UserWarning|FutureWarning|DeprecationWarning"
    bad = [str(p.relative_to(site)) for p in pages if re.search(signs, p.read_text(encoding="utf8"))]
    assert bad == []


@pytest.mark.parametrize("text", ["see ?? above", "is {glue:text}`x`", "at {prf:ref}`t`", "loss is nan now",
                                  "by [cao2022]"])
def test_planted_gap_is_seen(text):
    assert unresolved(text)


@pytest.mark.parametrize("text", ["from https://" + REGISTRIES[0] + "/x", "open /" + "root/file", "cd /" + "work/main",
                                  " /" + "home/me/x"])
def test_planted_place_is_seen(text):
    assert told_places(text)


@pytest.mark.parametrize("text", ["a/work/b", "framework/x", "results/figure_1.csv", "the work/life balance"])
def test_harmless_words_pass(text):
    assert told_places(text) == []


def test_code_is_not_read_as_prose():
    assert visible("<p>words <code>nan ??</code></p><script>nan</script>") == "words"


def test_style():
    """ruff, with the rules of pyproject.toml."""
    import sys

    checked = subprocess.run([sys.executable, "-m", "ruff", "check", "--no-cache", "."], cwd=ROOT, capture_output=True,
                             text=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr
