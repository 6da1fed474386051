"""The page of a trace is one file that works from the disk, with pointer and keyboard."""

import pytest
import torch
from playwright.sync_api import expect

from regard.insight.arithmetic.calculation import calculate_language
from regard.insight.tracing import trace_language, trace_translation
from regard.insight.views.page import trace_page
from regard.laws.registry import builder, stirred
from regard.text.tokenizers.tokenizer import Tokenizer

WORDS = Tokenizer.of_tokens(["<eos>", "<unk>", *"abcdefghijklmno"], "word")


def trace_of(system):
    torch.manual_seed(0)
    model = stirred(builder(system))
    if system in ("transformer", "bahdanau"):
        return trace_translation(model, WORDS, WORDS, "d e a f b", gradients=True, beam=3, system=system)
    return trace_language(model, WORDS, "c a f e b a d", gradients=True, system=system)


@pytest.mark.parametrize("system", ["gpt", "transformer", "lstm", "ngram"])
def test_a_chosen_word_shows_its_step(system, page, tmp_path):
    trace = trace_of(system)
    file = tmp_path / "page.html"
    file.write_text(trace_page(trace), encoding="utf-8")
    page.goto(file.as_uri())
    target = page.locator(".words").last
    step = min(2, trace.steps - 1)
    target.locator("button").nth(step).click()
    said = page.inner_text(".said")
    assert f"Step {step} of {trace.steps - 1} reads “{trace.tokens[step]}”" in said
    assert f"The next word was “{trace.targets[step]}”" in said
    assert f"rank {trace.rank[step]}." in said
    page.keyboard.press("ArrowLeft")
    assert f"Step {max(step - 1, 0)} of " in page.inner_text(".said")
    for name, there in {
        "attention": trace.attention, "states": trace.hidden,
        "gradients": trace.gradients_by_name, "search": trace.beam,
    }.items():  # fmt: skip
        assert page.locator(f".part.{name}").is_visible() == bool(there)
    if trace.attention:
        page.wait_for_selector(".sheet canvas[data-chosen*=layer]")
        expect(page.locator(".part.attention .readout")).to_contain_text("attended to")
    if trace.source:
        target.locator("button").first.hover()
        shades = page.evaluate(
            "() => [...document.querySelector('.words').children].map(one => one.style.background).filter(Boolean)"
        )
        assert len(shades) == len(trace.source)  # partners of the word under the pointer light up
        expect(page.locator(".tree .edge.best")).to_have_count(max(b.step for b in trace.beam if b.rank == 1) - 1)


def test_the_arithmetic_follows_the_word(page, tmp_path):
    torch.manual_seed(0)
    model, text = stirred(builder("gpt")), "c a f e"
    calculation = calculate_language(model, WORDS, text)
    works = calculation.at_all_steps(calculation.at(layer=0, head=1))
    file = tmp_path / "page.html"
    file.write_text(trace_page(trace_language(model, WORDS, text), works=works), encoding="utf-8")
    page.goto(file.as_uri())
    page.locator(".words").last.locator("button").nth(2).click()
    panel = page.locator(".part", has=page.locator(".work"))
    assert "Self-attention, layer 1, head 2" in panel.locator("h3").inner_text()
    assert [line.replace("\u00a0", " ") for line in panel.locator("dd").all_inner_texts()] == [
        f"{line.name} = {line.written}".replace("\u00a0", " ") for line in works[2].lines
    ]
    assert "step 2: reads" in panel.locator("select option").nth(2).inner_text()  # as `--work --step 2`
    panel.locator("select").select_option("4")
    assert panel.locator("dd").count() == len(works[4].lines)


def test_the_notebook_shows_it_in_a_frame(page):
    page.set_content(trace_of("rnn")._repr_html_())
    frame = page.frame_locator("iframe")
    frame.locator(".words button").nth(3).click()
    assert "Step 3 of " in frame.locator(".said").inner_text()
