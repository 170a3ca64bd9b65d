"""Every built page in a real browser: nothing is fetched from elsewhere, nothing is broken, everybody can read it."""

from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag, urlsplit

import pytest

PHONE = {"width": 390, "height": 844}
DESKTOP = {"width": 1280, "height": 900}
# A page that only sends the reader on has no content of its own.
REDIRECT = 'http-equiv="Refresh"'


class Page(HTMLParser):
    """The addresses, anchors and images of a page."""

    def __init__(self, text: str):
        super().__init__()
        self.links, self.loaded, self.anchors, self.images = [], [], set(), []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.anchors.update(value for key, value in attrs.items() if key in ("id", "name") and value)
        if tag == "a" and attrs.get("href"):
            self.links.append(attrs["href"])
        if tag == "img":
            self.images.append(attrs)
        if tag in ("script", "img", "iframe", "source", "video", "audio", "embed") and attrs.get("src"):
            self.loaded.append(attrs["src"])
        if tag == "object" and attrs.get("data"):
            self.loaded.append(attrs["data"])
        places = ("canonical", "next", "prev", "search", "index")  # named, not loaded
        if tag == "link" and attrs.get("href") and attrs.get("rel") not in places:
            self.loaded.append(attrs["href"])


def read(path: Path) -> Page:
    return Page(path.read_text(encoding="utf8"))


def is_outside(address: str) -> bool:
    return bool(urlsplit(address).netloc) or urlsplit(address).scheme in ("http", "https", "ftp")


def broken_links(pages: list[Path], site: Path) -> list[str]:
    """Links inside the site whose page or anchor does not exist."""
    anchors = {path.resolve(): read(path).anchors for path in pages}
    broken = []
    for path in pages:
        for link in read(path).links:
            if is_outside(link) or urlsplit(link).scheme in ("mailto", "javascript"):
                continue
            address, fragment = urldefrag(link)
            target = (path.parent / unquote(urlsplit(address).path)).resolve() if address else path.resolve()
            if not target.is_file():
                broken.append(f"{path.relative_to(site)}: {link}")
            elif fragment and target in anchors and unquote(fragment) not in anchors[target] | {"", "top"}:
                broken.append(f"{path.relative_to(site)}: {link} (no such place on that page)")
    return broken


def nameless_images(pages: list[Path]) -> list[str]:
    """Images without alternative text; a decoration says so with an empty one and role or aria-hidden."""
    return [f"{path.name}: {image.get('src')}" for path in pages for image in read(path).images
            if not (image.get("alt") or "").strip() and image.get("role") != "presentation"
            and image.get("aria-hidden") != "true"]


def loaded_from_outside(pages: list[Path]) -> list[str]:
    return [f"{path.name}: {address}" for path in pages for address in read(path).loaded if is_outside(address)]


def test_links_resolve(pages, site):
    assert broken_links(pages, site) == []


def test_images_have_words(pages):
    assert nameless_images(pages) == []


def test_captioned_figures_say_what_is_seen(pages):
    """A file name or the bare word "figure" is no alternative text."""
    vague = [image["alt"] for path in pages for image in read(path).images
             if (image.get("alt", "").endswith((".svg", ".png")) and "logo" not in image["alt"].lower())
             or image.get("alt", "").strip().lower() in ("figure", "image", "plot")]
    assert vague == []


def test_pages_load_nothing_from_outside(pages):
    assert loaded_from_outside(pages) == []


def test_planted_faults_in_pages_are_seen(tmp_path):
    page = tmp_path / "page.html"
    page.write_text('<p id="here"><a href="#here">a</a><a href="#gone">b</a><a href="missing.html">c</a>'
                    '<img src="x.svg"><img src="y.svg" alt="words"><script src="https://example.org/x.js"></script>')
    assert len(broken_links([page], tmp_path)) == 2
    assert nameless_images([page]) == ["page.html: x.svg"]
    assert loaded_from_outside([page]) == ["page.html: https://example.org/x.js"]


class Visit:
    """One tab with its ears open: what it asked for outside `home`, and what went wrong."""

    def __init__(self, browser, home: str, **context):
        self.context = browser.new_context(**context)
        self.tab = self.context.new_page()
        self.outside, self.errors = [], []
        self.tab.on("request", lambda r: r.url.startswith((home, "data:", "blob:")) or self.outside.append(r.url))
        self.tab.on("requestfailed", lambda r: self.errors.append(f"not loaded: {r.url}"))
        self.tab.on("response", lambda r: r.status >= 400 and self.errors.append(f"{r.status}: {r.url}"))
        self.tab.on("pageerror", lambda e: self.errors.append(f"script: {e}"))
        self.tab.on("console", lambda m: m.type in ("error", "warning") and self.errors.append(f"{m.type}: {m.text}"))

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.context.close()

    def open(self, address: str):
        """Go there and wait until the formulas are set."""
        self.tab.goto(address)
        self.tab.wait_for_load_state("load")
        self.tab.evaluate("window.MathJax && MathJax.startup ? MathJax.startup.promise.then(() => 1) : 1")
        self.tab.wait_for_timeout(50)
        return self.tab


def addresses(pages, site, base):
    """Address of every page that has content."""
    return [f"{base}/{path.relative_to(site).as_posix()}" for path in pages
            if REDIRECT.lower() not in path.read_text().lower()]


OVERFLOW = """() => {
  const room = document.documentElement.clientWidth, page = document.scrollingElement.scrollWidth;
  if (page <= room) return [];
  const scrolls = e => e && (getComputedStyle(e).overflowX !== 'visible' || scrolls(e.parentElement));
  return [...document.querySelectorAll('main *')]
    .filter(e => e.getBoundingClientRect().right > room + 1 && !scrolls(e.parentElement))
    .slice(0, 5).map(e => e.outerHTML.slice(0, 120)).concat([`page ${page} px wide in a window of ${room}`]);
}"""


@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.parametrize("origin", ["file", "http"])
def test_pages_are_whole_and_fit_a_phone(browser, site, pages, origin, request):
    base = site.as_uri() if origin == "file" else request.getfixturevalue("server")
    faults = []
    with Visit(browser, base, viewport=PHONE, color_scheme="light") as visit:
        for address in addresses(pages, site, base):
            tab = visit.open(address)
            faults += [f"{address}: wide: {what}" for what in tab.evaluate(OVERFLOW)]
            faults += [f"{address}: formula: {text}" for text in tab.evaluate(
                "[...document.querySelectorAll('mjx-merror')].map(e => e.textContent)")]
            if tab.evaluate("document.querySelectorAll('.math').length && !document.querySelector('mjx-container')"):
                faults.append(f"{address}: its formulas are not set")
            broken = tab.evaluate("[...document.images].filter(i => i.complete && !i.naturalWidth).map(i => i.src)")
            faults += [f"{address}: image: {src}" for src in broken]
            faults += [f"{address}: {error}" for error in visit.errors]
            faults += [f"{address}: asks {url}" for url in visit.outside]
            visit.errors.clear()
            visit.outside.clear()
    assert faults == []


def violations(tab) -> list[str]:
    """What axe-core finds on the page, with the first element of each finding."""
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(tab).response["violations"]
    return [f"{v['id']}: {v['help']}: {v['nodes'][0]['html'][:160]}" for v in found]


@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_pages_are_accessible(browser, site, pages, server, theme):
    faults = []
    with Visit(browser, server, viewport=DESKTOP, color_scheme=theme) as visit:
        for address in addresses(pages, site, server):
            tab = visit.open(address)
            assert tab.evaluate("document.documentElement.dataset.theme") == theme
            tab.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")
            faults += [f"{address}: {fault}" for fault in violations(tab)]
    assert faults == []


@pytest.mark.browser
def test_planted_faults_in_the_browser_are_seen(browser, tmp_path):
    (tmp_path / "page.html").write_text(
        "<!DOCTYPE html><html lang=en><title>t</title><main><h1>t</h1><img src=gone.svg>"
        "<div style='width:2000px'>w</div>"
        "<p style='color:#ccc;background:#fff'>pale</p><script>throw Error('planted')</script></main></html>")
    with Visit(browser, tmp_path.as_uri(), viewport=PHONE) as visit:
        tab = visit.open(f"{tmp_path.as_uri()}/page.html")
        assert tab.evaluate(OVERFLOW)
        assert any("planted" in error for error in visit.errors)
        assert any("gone.svg" in error for error in visit.errors)
        assert {fault.split(":")[0] for fault in violations(tab)} >= {"image-alt", "color-contrast"}
        tab.evaluate("const i = new Image(); i.src = 'http://127.0.0.1:9/x.png'; document.body.append(i)")
        tab.wait_for_timeout(300)
        assert visit.outside == ["http://127.0.0.1:9/x.png"]


@pytest.mark.browser
def test_a_figure_follows_the_theme(browser, tmp_path):
    """The axes are dark on a light page and light on a dark one, in one and the same file."""
    import io

    from PIL import Image

    from vitbo_lib.figures import style

    fig, ax = style.subplots()
    ax.plot([0, 1], [0, 1], **style.look("signal"))
    style.save(fig, tmp_path / "figure.svg")
    (tmp_path / "page.html").write_text("<!DOCTYPE html><meta name=color-scheme content='light dark'>"
                                        "<img src=figure.svg alt=f>")
    extremes = {}
    for theme in ("light", "dark"):
        with Visit(browser, tmp_path.as_uri(), viewport=DESKTOP, color_scheme=theme) as visit:
            tab = visit.open(f"{tmp_path.as_uri()}/page.html")
            picture = Image.open(io.BytesIO(tab.locator("img").screenshot())).convert("L")
            extremes[theme] = picture.getextrema()
    assert extremes["light"][0] < 60
    assert extremes["light"][1] > 240
    assert extremes["dark"][1] > 190
    assert extremes["dark"][0] < 40
