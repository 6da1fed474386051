"""A model card is published: its numbers are those of the run, and it names no folder of this machine."""

import dataclasses
import json
import re

import pytest
import yaml

import regard
from regard.base.errors import RegardError
from regard.exchange.formats import export
from regard.exchange.model_card import METRICS, model_card
from regard.runs.recipe import Start, compose

SECRET = "secret-place"
ONE = [f"/home/{SECRET}/x", f"/home/a,{SECRET}/x", rf"C:\Users\{SECRET}\x", f"../{SECRET}/x"]
PATHS = {
    "corpus": ONE,
    "also": [f"/home/{SECRET}/x:2,/srv/{SECRET}/x:0.5", rf"C:\{SECRET}\x,{SECRET}/x:3", f"{SECRET}/x"],
    "monolingual": ONE,
    "translator": ONE,
}
WORDS = {"columns", "encoding", "source", "target", "budget", "device"}  # free text that names no file


@pytest.mark.parametrize(("name", "path"), [(name, path) for name, paths in PATHS.items() for path in paths])
def test_a_file_that_the_recipe_names_is_in_the_card_without_its_folder(runs, name, path):
    run = runs("transformer")
    together = {"monolingual": "x", "translator": "x"} if name in ("monolingual", "translator") else {}
    data = dataclasses.replace(run.recipe.data, **{**together, name: path})
    run.recipe = dataclasses.replace(run.recipe, data=data)
    card = model_card(run, "MarianMTModel", license="mit", scored=False)
    assert re.search(rf'^{name} = "(\./)?x', card, flags=re.M)
    assert SECRET not in card
    assert "home" not in card


@pytest.mark.parametrize("path", ONE)
def test_the_run_that_it_was_tuned_from_is_in_the_card_without_its_folder(runs, path):
    run = runs("transformer")
    run.recipe = dataclasses.replace(run.recipe, start=Start(path, "0123"))
    card = model_card(run, "MarianMTModel", license="mit", scored=False)
    assert 'run = "../x"' in card
    assert SECRET not in card


@pytest.mark.parametrize("system", ["gpt", "llama", "transformer"])
def test_every_free_text_of_a_recipe_is_known_as_a_path_or_as_words(system):
    """A new setting that may hold a path must be added to the paths, here and in the card."""
    recipe = compose(system, "tiny")
    free = {
        field.name
        for part in (recipe.data, recipe.model, recipe.training)
        for field in dataclasses.fields(part)
        if isinstance(getattr(part, field.name), str) and not field.metadata.get("choices")
    }
    assert free <= PATHS.keys() | WORDS


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run that learned from a file in a folder of this machine."""
    folder = tmp_path_factory.mktemp(SECRET)
    (folder / "my.txt").write_text("\n".join(f"Ship {n} left the harbour at dawn." for n in range(60)))
    settings = {
        "training": {"steps": 4, "evaluate_every": 1, "threads": 1},
        "model": {"width": 8, "heads": 1, "layers": 1},
        "data": {"tokenizer": "char"},
    }
    return regard.train("gpt", data=str(folder / "my.txt"), size="tiny", run=folder / "mine", settings=settings)


def test_the_card_has_the_scores_of_evaluate_and_the_best_validation(trained, tmp_path):
    export(trained.folder, "huggingface", tmp_path / "out", options={"license": "mit"})
    card = (tmp_path / "out/README.md").read_text()
    assert SECRET not in card
    scores = trained.evaluate()
    (result,) = yaml.safe_load(card.split("---\n")[1])["model-index"][0]["results"]
    assert (result["dataset"]["name"], result["dataset"]["split"]) == (scores["corpus"], scores["split"])
    found = {metric["type"]: (metric["name"], metric["value"]) for metric in result["metrics"]}
    assert found.keys() == {"perplexity", "bits_per_character"}
    for key, (title, value) in found.items():
        assert title == METRICS[key]
        assert value == pytest.approx(scores[key], abs=5e-5)
        assert f"| {title} | {scores[key]:.2f} |" in card
    lines = map(json.loads, (trained.folder / "metrics.jsonl").read_text().splitlines())
    loss, step = min((line["loss"], line["step"]) for line in lines if line.get("split") == "valid")
    assert f"Lowest validation loss in training: {loss:.4f} nats per token, at step {step}." in card


def test_the_card_of_a_run_whose_data_are_gone_names_no_folder(trained, tmp_path, capsys):
    data = trained.folder.parent / "my.txt"
    data.rename(tmp_path / "moved.txt")
    try:
        with pytest.raises(RegardError, match=SECRET):
            trained.evaluate()
        export(trained.folder, "huggingface", tmp_path / "out")
    finally:
        (tmp_path / "moved.txt").rename(data)
    card = (tmp_path / "out/README.md").read_text()
    assert "was not evaluated" in card
    assert SECRET not in card
    assert str(tmp_path) not in card
    assert SECRET in capsys.readouterr().err  # whoever exports is told where it was looked for
