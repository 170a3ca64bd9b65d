"""What several test files share: the built site, a browser, a server for it."""

import os
import shutil
import subprocess
import sys
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
BOOK_COMMAND = [str(Path(sys.prefix) / "bin/jupyter-book"), "build", ".", "-n", "-W", "--keep-going", "--all"]
CHROMIUM_FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-component-update",
                  "--disable-background-networking", "--disable-sync"]
os.environ.setdefault("OMP_NUM_THREADS", "1")  # small matrices; read when torch is imported, after this file

sys.path.insert(0, str(ROOT / "_ext"))


def build_book(folder: Path, **environment: str) -> subprocess.CompletedProcess:
    """Build the book in `folder` as `make book` does, at full size unless `environment` says otherwise."""
    for built in ("html", ".doctrees"):
        shutil.rmtree(folder / "_build" / built, ignore_errors=True)
    env = {key: value for key, value in os.environ.items() if key not in ("VITBO_SMOKE", "PYTHONPATH")}
    env |= {"JUPYTER_PREFER_ENV_PATH": "1"} | environment
    return subprocess.run(BOOK_COMMAND, cwd=folder, env=env, capture_output=True, text=True)


@pytest.fixture(scope="session")
def site() -> Path:
    """Folder of the book's pages, built now; pages that are still valid come from the cache, as in `make book`."""
    built = build_book(ROOT)
    if built.returncode != 0:
        pytest.fail(f"the book does not build:\n{(built.stdout + built.stderr)[-6000:]}", pytrace=False)
    return ROOT / "_build/html"


@pytest.fixture(scope="session")
def pages(site) -> list[Path]:
    """Every page of the site."""
    found = sorted(p for p in site.rglob("*.html") if "_static" not in p.relative_to(site).parts)
    assert len(found) > 3, f"only {len(found)} pages under {site}"
    return found


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, format, *args):
        pass


@pytest.fixture(scope="session")
def server(site):
    """Address of the site on the loopback interface."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(QuietHandler, directory=str(site))) as http:
        threading.Thread(target=http.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{http.server_port}"
        http.shutdown()


def find_chromium() -> str | None:
    """Path of a Chromium: VITBO_CHROMIUM, or the first of the usual names."""
    named = os.environ.get("VITBO_CHROMIUM")
    names = [named] if named else ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"]
    return next((path for path in map(shutil.which, names) if path), None)


@pytest.fixture(scope="session")
def browser():
    """A headless Chromium; without one the test is skipped, or fails where CI=true."""
    path = find_chromium()
    if path is None:
        message = "no Chromium found: install the package chromium, or set VITBO_CHROMIUM"
        if os.environ.get("CI") == "true":
            pytest.fail(message, pytrace=False)
        pytest.skip(message)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=CHROMIUM_FLAGS)
        yield chromium
        chromium.close()
