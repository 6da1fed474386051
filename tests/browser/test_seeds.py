"""Runs of one recipe: their mean and its interval as one line with a band; another recipe stays a line of its own."""

import math

import pytest
from playwright.sync_api import expect

import regard
from regard.evaluation.intervals import student_interval

SMALL = {
    "data": {"tokenizer": "char"},
    "model": {"width": 8, "embedding": 8},
    "training": {"steps": 6, "batch_tokens": 256, "window": 32, "evaluate_every": 2, "threads": 1, "device": "cpu"},
}


@pytest.fixture(scope="module")
def repeated(tmp_path_factory, text_file, lab_over):
    """Three seeds of one recipe, and one run with another learning rate."""
    folder = tmp_path_factory.mktemp("seeds")
    for seed in (1, 2, 3):
        regard.train("nnlm", data=text_file, run=folder / f"seed{seed}", size="tiny", seed=seed, settings=SMALL)
    other = SMALL | {"training": SMALL["training"] | {"learning_rate": 0.5}}
    regard.train("nnlm", data=text_file, run=folder / "other", size="tiny", settings=other)
    return lab_over(folder)


@pytest.mark.slow
def test_seeds_of_one_recipe_become_a_mean_with_a_band(repeated, page):
    page.add_init_script("try { localStorage.setItem('tour', 'seen'); } catch { /* about:blank */ }")
    names = "&".join(f"show={name}" for name in ("seed1", "seed2", "seed3", "other"))
    page.goto(f"{repeated.url}#/runs?{names}&lines=validation&run=seed1")
    expect(page.locator(".plot .line")).to_have_count(4)
    expect(page.locator(".run-list")).to_contain_text(["seed 2, one of 3 runs of this recipe"])
    page.get_by_role("button", name="mean of seeds").click()
    expect(page.locator(".plot .line")).to_have_count(2)  # the other rate is another experiment
    assert "seeds=mean" in page.url
    page.get_by_text("As a table").click()
    row = page.locator(".chart tbody tr", has_text="mean of seed")
    runs = [regard.load(repeated.folder / f"seed{seed}", device="cpu") for seed in (1, 2, 3)]
    last = [run.history.validations[-1]["loss"] for run in runs]
    shown = float(row.locator("td").nth(2).inner_text())
    assert math.isclose(shown, sum(last) / 3, rel_tol=2e-3)
    low, high = student_interval(last)
    assert low < shown < high
    page.get_by_role("button", name="each seed").click()
    expect(page.locator(".plot .line")).to_have_count(4)
