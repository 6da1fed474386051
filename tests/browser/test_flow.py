"""The tab Blocks: a step on its way through a model, with the numbers of its trace."""

import re

import pytest

import regard

TEXT = "The cat sleeps because it is tired."


def stage(page, number):
    slider = page.locator(".flow input[type=range]")
    slider.fill(str(number))
    return page.inner_text(".flow .in-short")


def test_each_block_of_a_gpt_is_passed_with_the_numbers_of_its_trace(lab, page):
    trace = regard.load("gallery/gpt").trace(TEXT)
    page.goto(f"{lab.url}#/sentence?run=gallery/gpt&text={TEXT.replace(' ', '+')}&show=flow&step=3")
    page.wait_for_selector(".flow .block.prediction")
    layers = len(trace.attention)
    assert (
        page.locator(".flow .block").count() == 2 + 2 * layers
    )  # words, attention and feed-forward of each, prediction
    for layer, maps in enumerate(trace.attention.values()):
        weights = maps[:, 3, :4]  # [heads, words] of step 3
        head, word = divmod(int(weights.argmax()), 4)
        said = stage(page, 1 + 2 * layer).replace("␣", "")
        assert f"most to “{trace.tokens[word].strip()}” (head {head + 1}, " in said
        percent = float(re.search(r"head \d, ([\d.]+)\s%", said)[1])
        assert abs(percent / 100 - float(weights.max())) < 0.01
        assert page.locator(".flow .block.now path.head").count() == int((weights >= 0.02).sum())
    said = stage(page, 1 + 2 * layers)
    shown = [float(one) / 100 for one in re.findall(r"” ([\d.]+)\s%", said)]
    assert shown == pytest.approx([one.probability for one in trace.top[3][:3]], abs=0.006)
    page.locator(".words button").nth(1).click()  # another step of the same text
    page.wait_for_selector(".flow text.chosen:has-text('The')")


@pytest.mark.parametrize(
    ("address", "kinds"),
    [
        ("sentence?run=gallery/lstm&text=The+cat", ["words", "state", "prediction"]),
        ("translation?run=gallery/bahdanau&text=They+sleep.", ["words", "attention", "state", "prediction"]),
        ("translation?run=gallery/transformer&text=They+sleep.",
         ["words", *["attention", "attention", "alone"] * 2, "prediction"]),
    ],
)  # fmt: skip
def test_the_blocks_of_other_systems(lab, page, address, kinds):
    page.goto(f"{lab.url}#/{address}&show=flow")
    page.wait_for_selector(".flow .block.prediction")
    classes = page.locator(".flow .block").evaluate_all("all => all.map(one => one.classList[1])")
    assert classes == kinds


def test_it_plays_to_the_prediction_and_an_n_gram_says_that_it_has_no_blocks(lab, page):
    page.goto(f"{lab.url}#/sentence?run=gallery/lstm&text=The+cat&show=flow")
    page.wait_for_selector(".flow .block.prediction")
    page.click(".flow button:has-text('Play')")
    page.wait_for_selector(".flow .block.prediction.now")
    assert page.inner_text(".flow .in-short").startswith("Top predictions: “")
    page.goto(f"{lab.url}#/sentence?run=gallery/ngram&text=The+cat&show=flow")
    page.wait_for_selector(".part.flow:has-text('no blocks')")
