"""The view Time: a run at points in its training."""

import numpy as np

from regard.runs.load import load
from regard.web.lab.work_time import in_one_plane, neighbours


def test_the_slider_shows_the_weights_of_its_moment(lab, page, trained_folder):
    page.goto(f"{lab.url}#/time?run=lstm&text=The+cat")
    page.wait_for_selector(".time[data-moment='24'] .words button")
    steps = [int(path.stem) for path in sorted((trained_folder / "lstm" / "snapshots").iterdir())]
    assert steps == [0, 8, 16, 24]
    assert page.get_attribute("input[type=range]", "max") == "3"
    page.wait_for_selector(".scatter .point")
    before = page.get_attribute(".scatter .point >> nth=0", "transform")
    page.locator("input[type=range]").focus()
    page.keyboard.press("Home")
    page.wait_for_selector(".time[data-moment='0']")
    assert "before any training" in page.inner_text(".time-bar")
    assert page.get_attribute(".scatter .point >> nth=0", "transform") != before
    untrained = load(trained_folder / "lstm", weights="0", device="cpu")
    assert page.inner_text(".wrote") == untrained.generate("The cat", max_tokens=60, temperature=0.8, seed=1).strip()
    shown = page.locator(".words .p").first.inner_text()
    assert abs(float(shown.split("\N{NO-BREAK SPACE}")[0]) / 100 - untrained.trace("The cat").probability[0]) < 0.006


def test_a_run_without_moments_says_how_to_keep_some(lab, page):
    page.goto(f"{lab.url}#/time?run=gpt")
    page.wait_for_selector(".lead:has-text('gpt has no snapshots') code:has-text('--training.snapshots')")
    assert not page.is_visible("input[type=range]")
    page.goto(f"{lab.url}#/time?run=lstm")  # which has some
    page.wait_for_selector("input[type=range]")
    assert not page.is_visible("text=has no snapshots")


def test_the_plane_shows_the_last_moment_best_and_turns_with_nothing():
    random = np.random.default_rng(0)
    tables = [random.normal(size=(40, 9)) * scale for scale in (0.1, 1.0)]
    tables[1][:, 3] *= 5
    tables[1][:, 6] *= 3
    places, share = in_one_plane(tables)
    assert share > np.sort(tables[1].var(0))[-2:].sum() / tables[1].var(0).sum() - 1e-9
    other, _ = in_one_plane([table + 7 for table in tables])  # each is centred at its own mean
    assert np.allclose(places, other)
    assert np.allclose(places[0] / 0.1, in_one_plane([tables[0] / 0.1, tables[1]])[0][0])


def test_neighbours_point_the_same_way():
    table = np.array([[1.0, 0.0], [2.0, 0.1], [0.0, 1.0], [0.1, 3.0]])
    assert neighbours(table, 1)[:, 0].tolist() == [1, 0, 3, 2]


def test_the_film_plays_to_its_end_and_is_saved_as_a_page_that_plays(lab, page, tmp_path):
    page.goto(f"{lab.url}#/time?run=lstm&text=The+cat&at=16")
    page.wait_for_selector(".time[data-moment='16'] .words button")
    page.click("text=▶ Play")
    page.wait_for_selector("text=❚❚ Pause")
    page.wait_for_selector(".time[data-moment='24']")
    page.wait_for_selector("text=▶ Play")
    with page.expect_download() as saved:
        page.click("text=Save the film as HTML")
    saved.value.save_as(tmp_path / "film.html")
    page.goto((tmp_path / "film.html").as_uri())
    frames = page.locator("[data-frame]")
    assert [one.split(" · ")[0] for one in frames.evaluate_all("all => all.map(one => one.dataset.frame)")] == [
        f"step {step} of 24" for step in (0, 8, 16, 24)
    ]
    assert [one.is_visible() for one in frames.all()] == [False, False, False, True]
    slider = page.locator("input[aria-label='Training step']")
    slider.press("Home")
    assert frames.first.is_visible()
    assert page.inner_text(".time-bar p").startswith("step 0 of 24")
    before = frames.first.locator(".words .p").first.inner_text()
    page.click("text=▶ Play")
    page.wait_for_selector("[data-frame]:visible >> nth=0")
    frames.last.wait_for()
    assert frames.last.locator(".words .p").first.inner_text() != before
