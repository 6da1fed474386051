"""A model as one file: opened from the disk it writes, translates and shows its inside; it requests nothing, and no
string of a run becomes markup."""

import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from firefox import Firefox

import regard
from one_registry import one_registry
from regard.cli import main
from regard.exchange.formats import export
from regard.exchange.page_file import STYLES, log_probabilities
from regard.insight.interventions.ablation import ablate
from regard.insight.interventions.reading import read_text
from regard.insight.interventions.replacing import replacements
from regard.report.offline_page import STATIC

AXE = Path(sys.prefix) / "npm" / "node_modules" / "axe-core" / "axe.min.js"
MARKUP = "</script><img src=x onerror=alert(1)>"
FIREFOX = shutil.which("firefox-esr") or shutil.which("firefox")
READY = "() => globalThis.regard && regard.ready.then(() => true)"


@pytest.fixture(scope="module")
def pages(trained_folder, tmp_path_factory):
    """The page of a run, made once."""
    folder = tmp_path_factory.mktemp("pages")

    def get(name, **options):
        out = folder / f"{name}{len(options)}.html"
        if not out.exists():
            export(trained_folder / name, "page", out, options={"scores": "no", **options})
        return out

    with one_registry():
        yield get


def opened(page, file):
    page.goto(file.as_uri())
    page.wait_for_function(READY)
    return page


def test_it_writes_and_an_alternative_continues_the_text(page, pages):
    opened(page, pages("ngram"))
    page.get_by_label("Text", exact=True).fill("The cat")
    page.get_by_role("button", name="Finish the line").click()
    page.wait_for_function("() => document.querySelector('textarea').value.length > 8")
    page.wait_for_function("() => !document.querySelector('.buttons button').disabled")
    written = page.get_by_label("Text", exact=True).input_value()
    assert written.startswith("The cat")
    page.wait_for_selector(".reading .choice-row button.word")
    page.locator(".reading .words button").nth(2).click()
    page.locator(".reading .choice-row button.word").first.click()
    page.wait_for_function("(before) => document.querySelector('textarea').value !== before", arg=written)


def test_it_is_used_by_keyboard_alone(page, pages):
    opened(page, pages("ngram"))
    words = page.get_by_label("Text", exact=True)
    words.focus()
    page.keyboard.press("ControlOrMeta+a")
    page.keyboard.type("A bird ")
    page.get_by_role("button", name="One token").focus()
    page.keyboard.press("Enter")
    page.wait_for_function("() => document.querySelector('textarea').value.length === 8")
    page.locator(".reading .words [tabindex='0']").first.focus()
    page.keyboard.press("End")
    assert page.locator(".reading .words [aria-pressed=true]").count() == 1


def test_a_translator_is_used_by_keyboard_alone(page, pages):
    opened(page, pages("transformer"))
    page.wait_for_selector(".answer:not(:empty)")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.tagName") == "TEXTAREA"
    page.keyboard.press("ControlOrMeta+a")
    page.keyboard.type("A dog.")
    page.keyboard.press("Enter")
    read = "document.querySelectorAll('[aria-label=\"source words\"] button').length"
    page.wait_for_function(f"() => {read} === 7")  # six characters and the end
    assert page.get_by_label("Sentence").input_value() == "A dog."


def test_writing_stops_when_asked_and_the_page_goes_on(page, pages):
    opened(page, pages("gpt"))
    page.get_by_label("tokens").fill("1000000")
    page.get_by_role("button", name="Write").click()
    page.get_by_role("button", name="Stop").click()
    page.get_by_text("Stopped.").wait_for()
    page.get_by_role("button", name="One token").click()
    page.get_by_text("1 token in").wait_for()


def test_an_old_browser_gets_a_sentence(page, pages):
    page.add_init_script("delete globalThis.DecompressionStream")
    page.goto(pages("ngram").as_uri())
    page.get_by_role("alert").get_by_text("This browser is too old to open the model").wait_for()


def test_a_translator_shows_alignment_heads_and_search(page, pages):
    opened(page, pages("transformer"))
    page.get_by_label("Sentence").fill("I see a dog.")
    page.get_by_role("button", name="Translate").click()
    page.wait_for_selector(".answer:not(:empty)")
    for name, drawn in {
        "Attention": ".part.attention canvas",
        "Search": ".tree",
        "States": ".part.states canvas",
    }.items():
        page.get_by_role("button", name=name, exact=True).click()
        page.wait_for_selector(drawn)


RULES = """(sheets) => {
  const text = (rule) => rule.selectorText ?? ([...(rule.cssRules ?? [])].map(text).join());
  const cut = (list) => list.split("").reduce(([depth, ...all], sign) => {
    const inside = depth + (sign === "(") - (sign === ")");
    return sign === "," && !inside ? [0, "", ...all] : [inside, all[0] + sign, ...all.slice(1)];
  }, [0, ""]).slice(1).map((one) => one.trim()).filter(Boolean);
  const kept = new Set(cut(text(document.styleSheets[0]))), lost = [];
  for (const words of sheets) {
    const sheet = new CSSStyleSheet();
    sheet.replaceSync(words);
    const all = [...sheet.cssRules].flatMap((rule) => [rule, ...(rule.selectorText ? [] : rule.cssRules ?? [])]);
    for (const one of all.flatMap((rule) => cut(rule.selectorText ?? ""))) {
      const of = one.replace(/:not\\(:[\\w-]+\\)|::?(before|after|hover|focus|focus-visible|disabled|empty)/g, "");
      if (of && document.querySelector(of) && !kept.has(one)) lost.push(one);
    }
  }
  return lost;
}"""


@pytest.mark.parametrize("name", ["ngram", "transformer"])
def test_every_rule_of_the_lab_that_an_element_needs_is_on_the_page(page, pages, name):
    opened(page, pages(name))
    sheets = [(STATIC / f"{one}.css").read_text(encoding="utf-8") for one in STYLES]
    for _ in sections(page):
        assert page.evaluate(RULES, sheets) == []


@pytest.mark.parametrize("name,button", [("ngram", "One token"), ("transformer", "Translate")])
def test_it_requests_nothing_and_its_policy_allows_nothing(page, pages, name, button):
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    page.context.set_offline(True)
    file = pages(name)
    opened(page, file)
    page.get_by_role("button", name=button).click()
    page.wait_for_selector(".reading .choice-row")
    assert [url for url in asked if not url.startswith("blob:")] == [file.as_uri()]
    policy = page.locator("meta[http-equiv=Content-Security-Policy]").get_attribute("content")
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    assert "http" not in policy


def sections(page):
    """Shows one section of the inside after the other."""
    page.wait_for_selector(".reading .choice-row")
    buttons = page.locator(".inside .segments button")
    yield
    for place in range(1, buttons.count()):
        buttons.nth(place).click()
        yield


@pytest.mark.parametrize("name", ["ngram", "transformer"])
@pytest.mark.parametrize("width", [390, 1280])
def test_nothing_is_wider_than_the_screen(page, pages, name, width):
    page.set_viewport_size({"width": width, "height": 800})
    opened(page, pages(name))
    for _ in sections(page):
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_no_string_of_a_run_becomes_markup(page, tmp_path):
    text = tmp_path / "<img src=x onerror=alert(2)>.txt"
    text.write_text("".join(f"{MARKUP} sees </script><script>alert({n})</script> &lt;b&gt;\n" for n in range(80)))
    run = tmp_path / "runs" / MARKUP.replace("/", "")
    main(["train", "ngram", "--data", str(text), "--data.tokenizer", "word", "--run", str(run)])
    out = tmp_path / "model.html"
    export(run, "page", out, options={"license": MARKUP, "scores": "no"})
    said = []
    page.on("dialog", lambda dialog: (said.append(dialog.message), dialog.dismiss()))
    opened(page, out)
    page.wait_for_selector(".reading .choice-row")
    page.get_by_label("Text", exact=True).fill(MARKUP)
    page.get_by_role("button", name="Finish the line").click()
    page.wait_for_function("() => !document.querySelector('.buttons button').disabled")
    assert page.locator("img").count() == 0
    assert page.locator("body script:not([type])").count() == 1
    assert MARKUP in page.locator(".about").inner_text()
    assert "<img src=x onerror=alert(2)>.txt" in page.locator("h1").inner_text()
    part = tmp_path / "part.html"
    export(run, "page", part, options={"license": MARKUP + "' onload='alert(3)", "scores": "no", "embed": "yes"})
    page.goto(part.as_uri())
    page.frame_locator("iframe").locator(".reading .choice-row").first.wait_for()
    assert page.locator("img").count() == page.frame_locator("iframe").locator("img").count() == 0
    assert page.locator("iframe").evaluate("one => one.getAttributeNames()") == [
        "title", "sandbox", "loading", "style", "srcdoc",
    ]  # fmt: skip
    assert said == []


def test_two_parts_work_inside_another_page_and_are_opened_when_they_are_seen(page, pages, tmp_path):
    part = pages("ngram", embed="yes").read_text()
    around = tmp_path / "around.html"
    far = '<div style="height: 20000px">A long lesson</div>'
    around.write_text(f"<!doctype html><title>Around</title><h1>Before</h1>{part}{far}{part}", encoding="utf-8")
    page.goto(around.as_uri())
    first, second = (page.frame_locator(f"iframe >> nth={place}") for place in (0, 1))
    first.get_by_role("button", name="Finish the line").click()
    first.locator(".reading .choice-row").first.wait_for()
    assert second.get_by_label("Text", exact=True).is_disabled()
    assert second.locator(".loading").count() == 1
    page.locator("iframe").nth(1).scroll_into_view_if_needed()
    second.get_by_role("button", name="Finish the line").click()
    second.locator(".reading .choice-row").first.wait_for()
    outside = "() => { try { return parent.document.title; } catch { return 'refused'; } }"
    assert page.frames[1].evaluate(outside) == "refused"


def test_a_part_is_hardly_larger_than_the_page(pages):
    sizes = [pages("ngram", **options).stat().st_size for options in ({}, {"embed": "yes"})]
    assert sizes[1] < sizes[0] + 5000


FACTS = """
  await regard.ready;
  const button = [...document.querySelectorAll("button")].find((one) => one.textContent === given[0]);
  button.click();
  while (button.disabled) await new Promise((done) => setTimeout(done, 20));
  const logs = await regard.call("logs", { ids: [0, 5, 6, 7], source: given[1] });
  const asked = performance.getEntriesByType("resource").filter((one) => !one.name.startsWith("blob:"));
  return [logs, document.querySelectorAll(".reading .choice-row").length, asked.length];
"""


@pytest.mark.skipif(FIREFOX is None, reason="Firefox is not here: Debian's is `apt-get install firefox-esr`")
def test_a_page_of_each_kind_computes_the_same_in_firefox(pages, trained_folder, tmp_path):
    kinds = {"ngram": ("One token", None), "gpt": ("One token", None), "transformer": ("Translate", [5, 6, 0])}
    with Firefox.start(FIREFOX, tmp_path) as firefox:
        for name, (button, source) in kinds.items():
            firefox.open(pages(name).as_uri())
            logs, choices, requests = firefox.run(FACTS, button, source)
            run = regard.load(trained_folder / name, device="cpu")
            expected = log_probabilities(run, [0, 5, 6, 7], source)
            seen = expected > -1e4
            assert np.array(logs)[seen] == pytest.approx(expected[seen], abs=1e-4)
            assert choices
            assert requests == 0


@pytest.mark.skipif(not AXE.exists(), reason="axe-core is not here: `npm install axe-core` into the environment")
@pytest.mark.parametrize("name", ["ngram", "transformer"])
def test_a_page_has_no_serious_violation(page, pages, name):
    opened(page, pages(name))
    page.evaluate(AXE.read_text(encoding="utf-8"))
    serious = []
    for _ in sections(page):
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
            found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")["violations"]
            serious += [
                f"{scheme}: {one['id']}: {[node['html'][:160] for node in one['nodes'][:3]]}"
                for one in found
                if one["impact"] in ("serious", "critical")
            ]
    assert not serious, "\n".join(serious)


def test_a_part_is_changed_and_both_sides_are_shown(page, pages, trained_folder):
    """A head removed, a word swapped, the lens and the cost of each head: the numbers of Regard."""
    run, text, other = regard.load(trained_folder / "gpt", device="cpu"), "The cat sees", "The dog sees"
    opened(page, pages("gpt"))
    page.get_by_label("Text", exact=True).fill(text)
    page.get_by_role("button", name="Attention", exact=True).click()
    part = page.get_by_label("Part of the model to change")
    page.wait_for_function("() => document.querySelectorAll('.words button').length > 12")
    page.locator(".sheet canvas").focus()
    for key in ("PageUp", "Home", "ArrowRight", "ArrowRight"):
        page.keyboard.press(key)
    page.wait_for_function("() => document.querySelector('.change-bar select').value === 'self/0[1]'")
    page.get_by_role("button", name="Remove", exact=True).click()
    assert after(page, 5) == pytest.approx(
        np.log(run.trace(text, intervene={"self/0[1]": 0.0}).probability[5]), abs=0.006
    )
    assert page.locator(".pair.two .head-name").count() == 2
    page.get_by_role("button", name="Undo", exact=True).click()
    page.locator(".compared").wait_for(state="hidden")
    page.get_by_role("button", name="Predictions", exact=True).click()
    page.locator(".words button").nth(5).click()
    assert part.input_value() == "embedding@5"
    page.get_by_role("button", name="Swap in from another text").click()
    page.get_by_label("Text to take values from").fill(other)
    page.keyboard.press("Enter")
    readings = [read_text(run.model, run.tokenizer, one) for one in (text, other)]
    swapped = run.trace(text, intervene=replacements(["swap embedding@5"], *readings))
    assert after(page, 7) == pytest.approx(np.log(swapped.probability[7]), abs=0.006)
    page.get_by_role("button", name="Causes").click()
    page.wait_for_selector(".lens td")
    page.get_by_role("button", name="Remove each part").click()
    page.wait_for_selector(".effects tbody tr")
    worst = ablate(readings[:1], "heads").effects[0]
    assert page.locator(".effects tbody th").first.inner_text() == worst.name
    page.locator(".effects tbody button").first.click()
    page.wait_for_function("() => document.querySelectorAll('.chips .tag').length === 2")


def test_a_changed_translator_says_what_it_would_write(page, pages, trained_folder):
    run, text = regard.load(trained_folder / "transformer", device="cpu"), "I see a dog."
    opened(page, pages("transformer"))
    page.get_by_label("Sentence").fill(text)
    page.get_by_label("search").select_option("1")
    page.get_by_role("button", name="Translate").click()
    page.wait_for_function("() => document.querySelectorAll('[aria-label=\"source words\"] button').length === 13")
    page.locator("[aria-label='source words'] button").nth(2).click()
    part = page.get_by_label("Part of the model to change")
    assert part.input_value() == "encoder/embedding@2"
    page.get_by_role("button", name="Replace with mean").click()
    after(page, 0)
    reading = read_text(run.model, run.tokenizer, text, run.translate(text, beam=1), run.source_tokenizer)
    own = run.trace(text, beam=1, intervene=replacements(["mean encoder/embedding@2"], reading)).translation
    told = "the same" if own == run.translate(text, beam=1) else f"“{own}”"
    assert f"the translation would be {told}" in page.locator(".compared").inner_text()


def after(page, step):
    """log P after the change of the word that followed a step."""
    page.wait_for_selector(":not([aria-busy]) > .compared:not([hidden]) tbody tr")
    cells = page.locator(".compared table").first.locator("tbody tr").nth(step).locator("td").all_inner_texts()
    return float(cells[2].replace("−", "-"))
