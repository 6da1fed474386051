"""What the page may cost, and that it asks nobody but its own server."""

import gzip

from regard.report.colours import lab_module, lab_variables
from regard.web.lab.application import STATIC


def test_the_whole_front_end_is_less_than_135_kB(lab):
    """Without the program of exported pages, which the lab never sends."""
    own = [path for path in STATIC.rglob("*") if path.is_file() and STATIC / "page" not in path.parents]
    files = [path.read_bytes() for path in own]
    parts = [*files, lab_variables().encode(), lab_module().encode()]
    assert sum(len(gzip.compress(part, 9)) for part in parts) < 135_000


def test_the_page_asks_for_few_files_and_nobody_else(lab, page):
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(lab.url)
    page.wait_for_selector("h1")
    assert len(asked) < 25
    assert all(url.startswith(lab.url) for url in asked)
