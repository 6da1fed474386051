"""The site of `make docs`, opened from its folder in a browser: no server, no network, search, dark, a phone."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CHAPTERS = ("counting", "recurrent", "attention", "transformer", "mistakes")


@pytest.fixture(scope="module")
def site(tmp_path_factory, warm):
    build = pytest.importorskip("sphinx.cmd.build", reason="Sphinx builds the site: pip install '.[docs]'")
    pytest.importorskip("furo")
    pytest.importorskip("myst_parser")
    out = tmp_path_factory.mktemp("site")
    # A link that leads nowhere is a warning, and a warning is an error.
    words = ["-q", "-W", "-c", str(ROOT / "docs"), "-D", "gallery_pages=gallery/ngram", str(ROOT), str(out)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "executable", warm)  # of the process that makes the gallery's page
        assert build.build_main(words) == 0
    return out


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", CHAPTERS)
def test_a_chapter_is_shown_at_two_widths(site, page, name, scheme):
    page.emulate_media(color_scheme=scheme)
    page.goto((site / "docs" / "learn" / f"{name}.html").as_uri())
    assert page.locator("article section section").count() > 3
    assert page.locator("article math").count() > 10
    assert name == "mistakes" or page.locator("article .highlight .hll").count() >= 4  # the line of code, marked
    assert name == "mistakes" or page.locator("article details summary").count() > 1
    assert "$" not in page.locator("article p").first.inner_text()
    assert page.evaluate("[...document.images].every(one => one.complete && one.naturalWidth > 0)")
    for width in (1280, 390):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_the_search_finds_without_a_server(site, page):
    page.goto((site / "search.html").as_uri() + "?q=epanechnikov")
    found = page.locator("#search-results a", has_text="Common mistakes")
    found.first.wait_for()
    found.first.click()
    page.wait_for_url("**/mistakes.html*")
    assert "epanechnikov" in page.inner_text("article").lower()
    page.goto((site / "search.html").as_uri() + "?q=zyxwvutsrq")
    page.wait_for_selector("text=did not match any documents")
    assert page.locator("#search-results a").count() == 0


def test_the_first_page_leads_to_all_others(site, page):
    page.goto((site / "docs" / "index.html").as_uri())
    links = page.locator(".sidebar-tree a").evaluate_all("links => links.map(link => link.href)")
    pages = {(site / path.relative_to(ROOT)).with_suffix(".html").as_uri() for path in (ROOT / "docs").rglob("*.md")}
    assert pages - {(site / "docs" / "index.html").as_uri()} <= set(links)
    assert links[0].endswith("/tutorials/first-model.html")
    assert not [link for link in links if "/notes/" in link]  # the diary is built, and in no sidebar


def test_the_folder_opens_on_the_first_page(site, page):
    page.goto((site / "index.html").as_uri())
    page.wait_for_url("**/docs/index.html")
    assert "Regard" in page.inner_text("h1")


KINDS = (
    "docs/index", "docs/tutorials/your-own-layer", "docs/guides/data", "docs/reference/settings", "docs/benchmarks"
)  # fmt: skip


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", KINDS)
def test_a_page_of_each_kind_fits_a_desk_and_a_phone(site, page, name, scheme):
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    page.emulate_media(color_scheme=scheme)
    page.goto((site / f"{name}.html").as_uri())
    for width in (1280, 390):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate("[...document.images].every(one => one.complete && one.naturalWidth > 0)")
    assert not [url for url in asked if not url.startswith(("file:", "data:"))]


@pytest.mark.parametrize(("name", "figure"), [("recurrent", "gradient"), ("translation", "alignment")])
def test_a_live_figure_opens_when_it_is_scrolled_to_and_obeys_the_keyboard(site, page, name, figure):
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto((site / "docs" / "learn" / f"{name}.html").as_uri())
    held = page.locator(f'[data-live="{figure}"]')
    assert held.locator("img").count() == 1
    assert not [url for url in asked if url.endswith(".js") and "/live/" in url]
    held.scroll_into_view_if_needed()
    held.locator(".live-figure svg").wait_for()
    assert all(url.startswith(("file:", "data:")) for url in asked)
    before = held.locator("[role=status]").inner_text()
    if figure == "gradient":
        held.locator("input[type=range]").first.press("ArrowLeft")
    else:
        held.locator("input[type=text]").fill("zyxwvut")
        assert "does not know “zyxwvut”" in held.locator("[role=status]").inner_text()
    assert held.locator("[role=status]").inner_text() != before


def test_without_javascript_a_picture_is_in_the_place_of_a_live_figure(site, page):
    plain = page.context.browser.new_context(java_script_enabled=False)
    try:
        one = plain.new_page()
        one.goto((site / "docs" / "learn" / "gpt.html").as_uri())
        assert one.locator('[data-live="temperature"] img').is_visible()
    finally:
        plain.close()


def test_a_model_of_the_gallery_runs_on_the_site(site, page):
    page.goto((site / "docs" / "guides" / "gallery.html").as_uri())
    frame = page.locator("article iframe")
    frame.scroll_into_view_if_needed()
    frame.content_frame.locator(".following .choice-row").first.wait_for()
    page.locator("article a", has_text="gallery/ngram").last.click()
    page.wait_for_url("**/gallery/ngram.html")
    page.locator(".about").get_by_text("perplexity on the test split").wait_for()


def test_formulas_are_typeset_and_commands_can_be_copied(site, page):
    page.goto((site / "docs" / "tutorials" / "your-own-layer.html").as_uri())
    assert page.locator("article math").count() >= 3
    assert page.locator("article math mi", has_text="σ").count() >= 1
    assert page.locator("button.copybtn").count() >= 5


def test_the_reference_is_made_from_the_code(site, page):
    page.goto((site / "docs" / "reference" / "settings.html").as_uri())
    text = page.inner_text("article")
    for name in ("learning_rate", "batch_tokens", "label_smoothing", "tokenizer", "order", "heads"):
        assert name in text
    page.goto((site / "docs" / "reference" / "python.html").as_uri())
    assert {"regard.train", "regard.LanguageRun"} <= {
        *page.locator("article dt.sig").evaluate_all("all => all.map(one => one.id)")
    }
    page.goto((site / "docs" / "reference" / "commands.html").as_uri())
    assert page.locator("article h3", has_text="regard train").count() == 1


def test_no_page_swallows_a_word_in_angle_brackets(site, page):
    """<bos> outside of code is an element that no browser knows, and nobody sees."""
    unknown = """(text) => [...new DOMParser().parseFromString(text, "text/html").querySelectorAll("article *")]
      .filter((one) => one instanceof HTMLUnknownElement).map((one) => one.localName)"""
    for path in set(site.rglob("*.html")) - {site / "index.html"}:  # which goes on to another
        assert page.evaluate(unknown, path.read_text(encoding="utf-8")) == [], path.name
