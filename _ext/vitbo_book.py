"""Sphinx helpers of the book: a page cache that sees the library, formulas without a network, accessible pages."""

import hashlib
import importlib.util
import os
import re
import shutil
import sys
from pathlib import Path

from sphinx.errors import ExtensionError
from sphinx.util import logging

try:
    import fcntl
except ImportError:  # Windows: two builds at once are the reader's own business there
    fcntl = None

logger = logging.getLogger(__name__)

CACHES_KEPT = 4  # results of the latest sources: switching between two branches stays cheap

# ---------------------------------------------------------------------------------------------------------------------
# The page cache
#
# jupyter-cache recognises a page by its cells alone, so an edit of the library would leave old numbers on the page.
# The cache folder is therefore named after everything else that a page can depend on.


def page_inputs(root: Path) -> list[Path]:
    """Files outside the chapters that decide what a page shows."""
    library = list((root / "vitbo_lib").rglob("*.py"))
    results = [p for p in (root / "results").rglob("*") if p.is_file() and not p.name.startswith(".")]
    single = [p for p in (root / "data/mnist/SHA256SUMS", root / "requirements.lock") if p.is_file()]
    return sorted(library + results + single)


def source_digest(root: Path) -> str:
    """Fingerprint of `page_inputs`, the Python version and the size (VITBO_SMOKE) at which chapters run."""
    digest = hashlib.sha256()
    for path in page_inputs(root):
        digest.update(path.relative_to(root).as_posix().encode() + b"\0")
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    digest.update(f"python {sys.version_info.major}.{sys.version_info.minor}".encode())
    digest.update(f"smoke {os.environ.get('VITBO_SMOKE', '0')}".encode())
    return digest.hexdigest()[:16]


def _choose_cache(app, config) -> None:
    base = Path(app.outdir).parent / ".jupyter_cache"
    cache = base / source_digest(Path(app.srcdir))
    config.nb_execution_cache_path = str(cache)
    cache.mkdir(parents=True, exist_ok=True)
    os.utime(cache)
    for old in sorted((p for p in base.iterdir() if p.is_dir()), key=lambda p: -p.stat().st_mtime)[CACHES_KEPT:]:
        shutil.rmtree(old, ignore_errors=True)


def _one_build_at_a_time(app) -> None:
    """Two builds into one folder would mix their pages: the second waits for the first."""
    if fcntl is None:
        return
    lock_file = Path(app.outdir).parent / ".lock"
    lock_file.parent.mkdir(parents=True, exist_ok=True)
    app.vitbo_lock = lock_file.open("w")  # released with the process
    try:
        fcntl.flock(app.vitbo_lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        logger.info("waiting for another build of this book to finish")
        fcntl.flock(app.vitbo_lock, fcntl.LOCK_EX)


def _config_inited(app, config) -> None:
    _one_build_at_a_time(app)
    # Kernels inherit this: a chapter imports the library that lies beside it, whatever its working directory.
    paths = [p for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p and p != str(app.srcdir)]
    os.environ["PYTHONPATH"] = os.pathsep.join([str(app.srcdir), *paths])
    if config.nb_execution_mode == "cache":
        _choose_cache(app, config)
    config.mathjax_path = "mathjax/tex-mml-chtml.js"


# ---------------------------------------------------------------------------------------------------------------------
# Formulas without a network

# what tex-mml-chtml.js may ask for at run time
MATHJAX_PARTS = ("tex-mml-chtml.js", "output/chtml/fonts/woff-v2", "input/tex/extensions", "a11y", "sre")


def mathjax_folder() -> Path:
    """Folder of the MathJax files that the package sphinx-mathjax-offline installs."""
    spec = importlib.util.find_spec("sphinx-mathjax-offline")
    if spec is None or spec.origin is None:
        raise ExtensionError("sphinx-mathjax-offline is missing; run `make book`, which installs it")
    return Path(spec.origin).parent / "static" / "mathjax"


def _copy_mathjax(app) -> None:
    target = Path(app.outdir) / "_static" / "mathjax"
    for part in MATHJAX_PARTS:
        source, destination = mathjax_folder() / part, target / part
        if source.is_dir():
            shutil.copytree(source, destination, dirs_exist_ok=True)
        else:
            destination.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, destination)


# ---------------------------------------------------------------------------------------------------------------------
# Scripts


def _clean_scripts(app, pagename, templatename, context, doctree) -> None:
    """Drop inline scripts that Sphinx emits twice (a `const` declared twice is an error) and those of Thebe.

    Thebe runs cells on a public server and loads itself from a public host; this book asks nobody for anything.
    """
    seen, kept = set(), []
    for script in context.get("script_files", []):
        body = getattr(script, "attributes", {}).get("body")
        name = str(getattr(script, "filename", script) or "")
        if "thebe" in name.lower() or "thebe" in (body or "").lower() or (body is not None and body in seen):
            continue
        seen.add(body)
        kept.append(script)
    context["script_files"][:] = kept
    context["css_files"][:] = [c for c in context.get("css_files", [])
                               if "thebe" not in str(getattr(c, "filename", c)).lower()]


# ---------------------------------------------------------------------------------------------------------------------
# Accessibility: what axe-core finds in the markup of the theme and of its extensions

REPLACED = (
    ('<summary aria-label="Toggle hidden content">', "<summary>"),
    ('aria-label="Color mode"', 'aria-label="auto light dark: colour mode"'),
    (' role="doc-biblioentry"', ""),
    ('<div role="list" class="citation-list">', '<div class="citation-list">'),
)
SUBSTITUTED = (
    (r"<th[^>]*>\s*(?:<p>\s*</p>)?\s*</th>", "<td></td>"),  # an empty corner of a table is no heading
    # axe reads no formula, so that a heading of nothing else is an empty one to it
    (r'<th([^>]*)>(\s*<p>(?:\s*<span class="math[^>]*>[^<]*</span>\s*)+</p>\s*)</th>', r"<td\1>\2</td>"),
    (r'(<button class="btn search-button-field[^>]*?) aria-label="Search"', r"\1"),
    (r'(<button class="btn btn-sm nav-link pst-navbar-icon theme-switch-button[^>]*?) aria-label="[^"]*"', r"\1"),
    (r'<div class="sidebar-primary-item">(\s*<a class="navbar-brand logo")',
     r'<div class="sidebar-primary-item" role="region" aria-label="Book home">\1'),
)
# Blocks that scroll sideways on a phone must be reachable by keyboard.
SCROLLING = (
    (r'<div class="math notranslate nohighlight( amsmath)?"',
     r'<div class="math notranslate nohighlight\1" tabindex="0"'),
    (r"<pre>", r'<pre tabindex="0">'),
    (r'<div class="pst-scrollable-table-container">', r'<div class="pst-scrollable-table-container" tabindex="0">'),
)


def accessible(html: str) -> str:
    """The page with the theme's known accessibility faults corrected."""
    for old, new in REPLACED:
        html = html.replace(old, new)
    for pattern, replacement in SUBSTITUTED + SCROLLING:
        html = re.sub(pattern, replacement, html)
    return html


def _correct_pages(app) -> None:
    for page in Path(app.outdir).rglob("*.html"):
        if "_static" in page.relative_to(app.outdir).parts:
            continue
        text = page.read_text(encoding="utf8")
        corrected = accessible(text)
        if corrected != text:
            page.write_text(corrected, encoding="utf8")


def _build_finished(app, exception) -> None:
    if exception is None and app.builder.format == "html":
        _copy_mathjax(app)
        _correct_pages(app)


def setup(app) -> dict:
    app.connect("config-inited", _config_inited, priority=900)
    app.connect("html-page-context", _clean_scripts, priority=900)
    app.connect("build-finished", _build_finished)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
