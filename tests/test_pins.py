"""The environment is the one that requirements.txt and requirements.lock describe."""

import re
from importlib import metadata
from pathlib import Path

import pins
import pytest

ROOT = Path(__file__).resolve().parents[1]
DIRECT, LOCK = pins.read_pins(ROOT / "requirements.txt"), pins.read_pins(ROOT / "requirements.lock")


def test_environment_is_the_pinned_one():
    assert pins.drift(DIRECT, LOCK, pins.closure(DIRECT)) == []


def test_lock_holds_nothing_that_nobody_needs():
    """Every locked package is direct, or named by one that is installed (for whatever platform)."""
    named = set(DIRECT)
    for name in pins.closure(DIRECT):
        for text in metadata.requires(name) or ():
            named.add(pins.canonicalize_name(re.match(r"[\w.-]+", text)[0]))
    assert sorted(set(LOCK) - named) == []


def test_torch_is_locked_without_the_machine():
    assert "+" not in (ROOT / "requirements.lock").read_text()
    assert pins.public_version("2.13.0+cpu") == "2.13.0"


def test_the_library_imports_pinned_packages_only():
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set(project["dependencies"]) <= set(DIRECT)


class Installed:
    """A distribution as `importlib.metadata` would describe it."""

    def __init__(self, version, requires=()):
        self.version, self.requires = version, list(requires)


def environment(**changes):
    packages = {"book": Installed("1.0", ["theme>=2", "windows-only; sys_platform == 'win32'", "extra; extra == 'x'"]),
                "theme": Installed("2.1+local", ["book"]), "nvidia-blas": Installed("13")} | changes

    def distribution(name):
        if packages.get(name) is None:
            raise metadata.PackageNotFoundError(name)
        return packages[name]

    return distribution


@pytest.mark.parametrize(("changes", "lock", "expected"), [
    ({}, {"book": "1.0", "theme": "2.1"}, []),
    ({"book": Installed("1.1", ["theme"])}, {"book": "1.0", "theme": "2.1"}, ["book: 1.1 installed"]),
    ({"theme": Installed("2.2")}, {"book": "1.0", "theme": "2.1"}, ["theme: 2.2 installed"]),
    ({"theme": None}, {"book": "1.0", "theme": "2.1"}, ["theme: needed, not installed"]),
    ({}, {"book": "1.0"}, ["theme: 2.1 installed, not in requirements.lock"]),
    ({}, {"book": "0.9", "theme": "2.1"}, ["book: 1.0 installed", "book: requirements.txt pins 1.0"]),
    ({"theme": Installed("2.1", ["nvidia-blas"])}, {"book": "1.0", "theme": "2.1"}, []),
], ids=["agrees", "direct drifts", "indirect drifts", "gone", "not locked", "lock drifts", "cuda build of torch"])
def test_planted_drift_is_seen(changes, lock, expected):
    found = pins.drift({"book": "1.0"}, lock, pins.closure(["book"], environment(**changes)))
    assert len(found) == len(expected)
    assert all(line.startswith(start) for line, start in zip(found, expected))
