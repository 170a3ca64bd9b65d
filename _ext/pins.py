"""The resolved set of packages: what the direct requirements bring in, and whether it is what the lock file says.

``python _ext/pins.py`` prints the lock file of this environment.
"""

import sys
from collections.abc import Callable, Iterable
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[1]
HEADER = "# The whole resolved set, by `make lock`. Versions only: which build of torch is the machine's business.\n"

Distribution = Callable[[str], metadata.Distribution]


def read_pins(path: Path) -> dict[str, str]:
    """Version by canonical name of a requirements file in which every line pins one."""
    pins = {}
    for line in path.read_text(encoding="utf8").splitlines():
        line = line.split("#")[0].strip()
        if line:
            requirement = Requirement(line)
            (specifier,) = requirement.specifier
            pins[canonicalize_name(requirement.name)] = specifier.version
    return pins


def public_version(version: str) -> str:
    """The version without its local part: 2.13.0+cpu is 2.13.0, built for a machine without CUDA."""
    return Version(version).public


def closure(direct: Iterable[str], distribution: Distribution = metadata.distribution) -> dict[str, str | None]:
    """Public version of every package that the direct requirements need here; None where it is not installed."""
    found: dict[str, str | None] = {}
    waiting = [(name, ()) for name in direct]
    seen = set()
    while waiting:
        name, extras = waiting.pop()
        name = canonicalize_name(name)
        if (name, extras) in seen:
            continue
        seen.add((name, extras))
        try:
            package = distribution(name)
        except metadata.PackageNotFoundError:
            found[name] = None
            continue
        found[name] = public_version(package.version)
        for text in package.requires or ():
            needed = Requirement(text)
            if needed.marker is None or any(needed.marker.evaluate({"extra": extra}) for extra in ("", *extras)):
                waiting.append((needed.name, tuple(sorted(needed.extras))))
    return found


def is_accelerator(name: str) -> bool:
    """Whether a package belongs to the CUDA build of torch, which the lock leaves to torch itself."""
    return name.startswith(("nvidia-", "cuda-")) or name in ("triton", "pytorch-triton")


def drift(direct: dict[str, str], lock: dict[str, str], installed: dict[str, str | None]) -> list[str]:
    """What differs between the pins and the environment, one line each; empty where all agree."""
    lines = [f"{name}: requirements.txt pins {version}, requirements.lock {lock.get(name)}"
             for name, version in direct.items() if lock.get(name) != version]
    for name, version in installed.items():
        if version is None:
            lines.append(f"{name}: needed, not installed")
        elif name not in lock:
            if not is_accelerator(name):
                lines.append(f"{name}: {version} installed, not in requirements.lock")
        elif lock[name] != version:
            lines.append(f"{name}: {version} installed, requirements.lock pins {lock[name]}")
    return sorted(lines)


def main() -> None:
    installed = closure(read_pins(ROOT / "requirements.txt"))
    missing = [name for name, version in installed.items() if version is None]
    if missing:
        sys.exit(f"not installed: {', '.join(missing)}; run `make test` or `make book` first")
    lines = [f"{name}=={version}\n" for name, version in sorted(installed.items()) if not is_accelerator(name)]
    sys.stdout.write(HEADER + "".join(lines))


if __name__ == "__main__":
    main()
