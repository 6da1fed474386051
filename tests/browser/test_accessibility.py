"""axe-core, which `make test` takes from npm, finds no serious violation in any view, in light and in dark."""

import sys
from pathlib import Path

import pytest

AXE = Path(sys.prefix) / "npm" / "node_modules" / "axe-core" / "axe.min.js"
VIEWS = {
    "#/runs": "h1",
    "#/new?system=lstm&data=pyref": ".step select",
    "#/ladder": "h1",
    "#/sentence?run=gpt&run=lstm&text=The+cat+sees+a+tree.": "canvas",
    "#/translation?run=transformer": "h1",
    "#/time?run=lstm": "h1",
    "#/claims": ".claim",
    "#/claims/hull": "text=Run it again",
    "#/text?corpus=copy": ".piece",
}


@pytest.mark.slow
@pytest.mark.skipif(not AXE.exists(), reason="axe-core is not here: `npm install axe-core` into the environment")
@pytest.mark.parametrize("view", VIEWS)
def test_no_view_has_a_serious_violation(lab, page, view):
    page.emulate_media(color_scheme="dark" if len(view) % 2 else "light")
    page.goto(lab.url + view)
    page.wait_for_selector(VIEWS[view])
    page.wait_for_load_state("networkidle")
    page.evaluate(AXE.read_text(encoding="utf-8"))
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    serious = [
        f"{one['id']}: {one['help']}: {[node['html'][:160] for node in one['nodes'][:3]]}"
        for one in found["violations"]
        if one["impact"] in ("serious", "critical")
    ]
    assert not serious, "\n".join(serious)
