"""The views of a trace show what the trace holds, whatever system it is of, and the page works by itself."""

import html
import json
import re
import shutil
import subprocess
import xml.etree.ElementTree as ET
from base64 import b64decode
from dataclasses import replace

import numpy as np
import pytest
import torch
from rich.cells import cell_len

from regard.base.errors import RegardError
from regard.insight import trace_figures as figures
from regard.insight.search_drawing import search_drawing
from regard.insight.trace_page import fragment, trace_page
from regard.insight.trace_terminal import show
from regard.insight.tracing import trace_language, trace_translation
from regard.laws.registry import builder, stirred
from regard.systems.catalogue import SYSTEMS
from regard.text.tokenizer import Tokenizer

WORDS = Tokenizer.of_tokens(["<eos>", "<unk>", *"abcdefghijklmno"], "word")
NAMES = [system.name for system in SYSTEMS if system.task in ("language model", "translation")]


def trace_of(system, target=None):
    torch.manual_seed(0)
    model = stirred(builder(system))
    if next(one.task for one in SYSTEMS if one.name == system) == "translation":
        return trace_translation(model, WORDS, WORDS, "d e a f b", target, gradients=True, beam=3, system=system)
    return trace_language(model, WORDS, "c a f e b a d", gradients=True, system=system)


@pytest.fixture(scope="module", params=NAMES)
def trace(request):
    return trace_of(request.param)


def facts_of(page):
    return json.loads(re.search(r'<script type="application/json" id="trace">(.*?)</script>', page, re.DOTALL)[1])


def test_the_page_asks_for_nothing(trace):
    page = trace_page(trace)
    assert not re.search(r"https?:|\ssrc\s*=|@import|url\(|fetch\(|XMLHttpRequest|import\(", page)
    assert all(address.startswith("data:") for address in re.findall(r'href="([^"]*)', page))
    assert len(page) < 400_000


def test_the_page_holds_the_trace_up_to_the_steps_of_its_shades(trace):
    facts = facts_of(trace_page(trace))
    assert facts["tokens"] == list(trace.tokens)
    assert [[word for word, _ in choices] for choices in facts["top"]] == [[c.token for c in row] for row in trace.top]
    assert [entry["name"] for entry in facts["attention"]] == list(trace.attention)
    for entry in facts["attention"]:
        weights = trace.attention[entry["name"]]
        bytes_ = np.frombuffer(b64decode(entry["bytes"]), np.uint8).reshape(weights.shape)
        assert np.abs((bytes_[bytes_ > 0] - 1) / 254 - weights[bytes_ > 0]).max() <= 0.5 / 254 + 1e-6
        assert np.all(weights[bytes_ == 0] == 0)  # only what cannot be seen is left empty
    held = {**trace.gates, **trace.hidden}
    assert {entry["name"] for entry in facts["inside"]} == set(held)
    for entry in facts["inside"]:
        values = held[entry["name"]]
        shade = (np.frombuffer(b64decode(entry["bytes"]), np.uint8).reshape(values.shape) - 1.0) / 254
        step = (entry["high"] - entry["low"]) / 254
        assert np.abs(entry["low"] + shade * (entry["high"] - entry["low"]) - values).max() <= 0.6 * step


def test_every_part_that_the_script_fills_is_there_exactly_if_there_is_something_to_fill_it_with(trace):
    page = trace_page(trace)
    assert ('id="heads-target"' in page) == bool(trace.attention)
    assert ('id="gradient-map"' in page) == bool(facts_of(page)["gradients"])
    assert ('id="inside-map"' in page) == bool(trace.gates or trace.hidden)
    assert ('class="search"' in page) == bool(trace.beam)
    assert ('id="source-words"' in page) == bool(trace.source)


@pytest.mark.parametrize("width", [60, 100])
@pytest.mark.parametrize("colour", [False, True])
def test_the_terminal_shows_every_step_within_its_width(trace, width, colour):
    text = re.sub(r"\x1b\[[0-9;]*m", "", show(trace, width=width, colour=colour))
    lines = text.split("\n")
    assert max(map(cell_len, lines)) <= width
    first = 1 + next(number for number, line in enumerate(lines) if line.startswith("read"))
    table = lines[first : first + trace.steps]
    assert [line.split()[0] for line in table] == list(trace.tokens)
    for number in range(1, 1 + sum(branch.rank > 0 for branch in trace.beam)):
        assert chr(0x245F + number) in text


def test_a_head_is_shown_alone_where_it_is_named():
    trace = trace_of("gpt")
    whole, alone = figures.attention(trace, "self/0"), figures.attention(trace, "self/0", 1)
    assert np.allclose(np.nan_to_num(alone.values), trace.attention["self/0"][1])
    assert np.allclose(np.nan_to_num(whole.values), trace.attention["self/0"].mean(0))
    assert "head 1" in show(trace, width=80, colour=False, attention="self/0", head=1)
    with pytest.raises(RegardError, match="self/9"):
        show(trace, attention="self/9")
    with pytest.raises(RegardError, match="its heads are 0 to"):
        show(trace, attention="self/0", head=99)


def test_a_gradient_that_is_exactly_zero_is_an_empty_cell_and_no_other():
    trace = trace_of("lstm")
    shown = np.array(figures.gradients(trace)["words"].values)
    known = np.isfinite(trace.gradients)
    assert np.array_equal(np.isnan(shown[known]), trace.gradients[known] == 0)
    assert np.allclose(10 ** shown[~np.isnan(shown)], trace.gradients[known & (trace.gradients > 0)])


def test_words_that_look_like_code_stay_words():
    evil = '</script><script>alert("x")</script><img src=x onerror=alert(1)>'
    trace = trace_of("gpt")
    page = trace_page(replace(trace, tokens=(evil, *trace.tokens[1:]), notes=(evil,)))
    assert "<script>alert" not in page
    assert "<img" not in page
    assert facts_of(page)["tokens"][0] == evil


def test_the_tree_has_every_beginning_and_a_thick_line_to_the_best():
    trace = trace_of("bahdanau")
    drawing = ET.fromstring(search_drawing(trace.beam))
    assert len(list(drawing.iter("text"))) == len(trace.beam)
    best = next(branch for branch in trace.beam if branch.rank == 1)
    assert sum(path.get("stroke-width") == "3" for path in drawing.iter("path")) == best.step - 1
    assert len(list(drawing.iter("path"))) == sum(branch.parent >= 0 for branch in trace.beam)


def test_a_notebook_shows_the_page_in_a_frame_of_its_own():
    trace = trace_of("rnn")
    frame = re.fullmatch(r'<iframe srcdoc="([^"]*)" .*></iframe>', fragment(trace), re.DOTALL)
    assert html.unescape(frame[1]) == trace_page(trace)
    assert trace._repr_html_() == fragment(trace)


# -- in a browser ----------------------------------------------------------------------------------------------------

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
ACT = """<script>
window.addEventListener("error", (event) => document.body.dataset.error = event.message);
</script>%s<script>{
const result = {};
const said = () => document.getElementById("said").textContent;
const shades = () => [...document.querySelectorAll("#target-words button")].map((one) => one.style.background);
document.querySelectorAll("#target-words button")[2].click();
result.clicked = said(); result.step = document.getElementById("step").value; result.shades = shades();
const slider = document.getElementById("step");
slider.value = 1; slider.dispatchEvent(new Event("input"));
result.slid = said();
const map = document.getElementById("map");
if (map) { map.selectedIndex = map.options.length - 1; map.dispatchEvent(new Event("change")); result.headed = said(); }
const source = document.querySelector("#source-words button");
if (source) { source.click(); result.source = said(); }
const shading = document.getElementById("shading");
shading.value = "probability"; shading.dispatchEvent(new Event("change"));
result.probable = shades();
result.painted = [...document.querySelectorAll("canvas")].filter((one) => one.width > 60 && one.height > 20).length;
result.error = document.body.dataset.error ?? null;
const box = Object.assign(document.createElement("pre"), { id: "result", textContent: JSON.stringify(result) });
document.body.append(box);
}</script>"""


def acted(trace, folder):
    """What the page says after a click on a word, a move of the slider and a choice of a head."""
    page = trace_page(trace)
    at = page.rindex("<script>")
    path = folder / "page.html"
    path.write_text(page[:at] + ACT.replace("%s", page[at:].replace("</body>\n</html>\n", "")), encoding="utf-8")
    quiet = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder / 'profile'}", "--dump-dom"]
    done = subprocess.run([BROWSER, *quiet, path.as_uri()], capture_output=True, text=True)
    return json.loads(html.unescape(re.search(r'<pre id="result">(.*?)</pre>', done.stdout, re.DOTALL)[1]))


@pytest.mark.skipif(BROWSER is None, reason="there is no Chromium")
@pytest.mark.parametrize("system", ["gpt", "transformer", "lstm"])
def test_in_a_browser_a_chosen_word_shows_its_step(system, tmp_path):
    trace = trace_of(system, target="c a f e b")
    result = acted(trace, tmp_path)
    assert result["error"] is None
    assert result["step"] == "2"
    assert f"Step 3 of {trace.steps} read “{trace.tokens[2]}”" in result["clicked"]
    assert f"Then came “{trace.targets[2]}”" in result["clicked"]
    assert f"rank {trace.rank[2]}." in result["clicked"]
    assert f"Step 2 of {trace.steps}" in result["slid"]
    assert result["painted"] >= 1
    assert result["probable"][0] == "" != result["probable"][1]
    if system == "gpt":
        name = list(trace.attention)[-1]
        weights = trace.attention[name].mean(0)[2]
        said = rf"{name}, mean of heads of “{trace.tokens[2]}” looked most at “(.*?)” \(([\d.]+)\)"
        word, number = re.search(said, result["clicked"]).groups()
        assert abs(float(number) - weights.max()) < 0.008  # two digits of one of 255 shades
        assert max(w for w, token in zip(weights, trace.tokens) if token == word) > weights.max() - 1 / 254
        assert [shade == "" for shade in result["shades"]] == [s > 2 for s in range(trace.steps)]  # no word sees ahead
    if system == "transformer":
        assert f"of “{trace.source[0]}” looked most at" in result["source"]
