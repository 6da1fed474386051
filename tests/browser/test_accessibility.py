"""axe-core, which `make test` takes from npm, finds no serious violation in any view, in light and in dark."""

import sys
from pathlib import Path

import pytest

AXE = Path(sys.prefix) / "npm" / "node_modules" / "axe-core" / "axe.min.js"
SENTENCE = "#/sentence?run=gpt&run=lstm&text=The+cat+sees+a+tree.&show="
TRANSLATION = "#/translation?run=transformer&text=I+see+a+dog.&show="
TIME = "#/time?run=lstm&text=The+cat&show="
VIEWS = {  # address: what is there once it is drawn
    "#/runs?run=lstm": ".run-card .samples pre, .run-card .samples .pairs",
    "#/new?system=lstm&data=pyref": ".step select",
    "#/ladder": "h1",
    "#/ladder/new": ".choice",
    SENTENCE + "expected": ".panel + .panel .choice-row",
    SENTENCE + "attention": ".part.attention canvas",
    SENTENCE + "states": ".part.states canvas",
    SENTENCE + "gradients": ".part.gradients button",
    SENTENCE + "write": ".write .choice-row",
    TRANSLATION + "expected": ".aligned button",  # it has hardly learned: the map comes on request
    TRANSLATION + "attention": ".part.attention canvas",
    TRANSLATION + "search": ".tree",
    "#/translation/file?run=transformer": ".card button",
    TIME + "expected": ".scatter .point",
    TIME + "states": ".part.states canvas",
    "#/time?run=gpt": "text=--training.snapshots",
    "#/claims": ".claim",
    "#/claims/hull": "text=Run it",
    "#/text?corpus=copy": ".piece",
}


@pytest.mark.slow
@pytest.mark.skipif(not AXE.exists(), reason="axe-core is not here: `npm install axe-core` into the environment")
@pytest.mark.parametrize("view", VIEWS)
def test_no_view_has_a_serious_violation(lab, page, view):
    page.goto(lab.url + view)
    page.wait_for_selector(VIEWS[view])
    page.wait_for_function("() => !document.querySelector('[aria-busy]')")
    page.evaluate(AXE.read_text(encoding="utf-8"))
    serious = []
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
        found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
        serious += [
            f"{scheme}: {one['id']}: {one['help']}: {[node['html'][:160] for node in one['nodes'][:3]]}"
            for one in found["violations"]
            if one["impact"] in ("serious", "critical")
        ]
    assert not serious, "\n".join(serious)
