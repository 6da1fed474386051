"""Every recipe that comes with Regard is what it says: it composes, names its command, and trains."""

import json
import re
from pathlib import Path

import pytest

import regard
from regard.base.errors import RegardError
from regard.corpora.downloads import CATALOGUE
from regard.corpora.phrasebook import make_pairs
from regard.runs.compose import compose_recipe
from regard.runs.recipe import SHIPPED
from regard.runs.resolve import small_corpus_defaults
from regard.runs.store.history import read_metrics

ROOT = Path(__file__).parents[3]
RECIPES = sorted(SHIPPED.glob("*.toml"))
WORDS = ("the", "cat", "sat", "on", "a", "mat", "while", "dogs", "and", "birds", "sang", "of", "<unk>", "rain", ".")
GOLDEN = json.loads((ROOT / "tests" / "golden" / "recipes.json").read_text(encoding="utf-8"))
named = pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A tiny text in the files of the Penn Treebank."""
    folder = tmp_path_factory.mktemp("text")
    for split, lines in {"train": 60, "valid": 12, "test": 12}.items():
        text = [" ".join(WORDS[(line * k) % len(WORDS)] for k in range(1, 9)) for line in range(1, lines + 1)]
        (folder / f"ptb.{split}.txt").write_text("\n".join(text) + "\n", encoding="utf-8")
    return folder


def lm(path):
    """Is it the recipe of a language model? Those of translation systems are tested with the translation systems."""
    corpus = compose_recipe(None, recipe=path).data.corpus
    return corpus in CATALOGUE and not CATALOGUE[corpus].pairs


@named
def test_a_recipe_says_what_it_is_and_how_it_is_run(path):
    recipe = compose_recipe(None, recipe=path)
    comment = "".join(line for line in path.read_text(encoding="utf-8").splitlines(True) if line.startswith("#"))
    assert f"regard train recipes/{path.name}" in comment
    assert re.search(r"regard evaluate runs/\S+", comment)
    assert recipe.data.corpus in CATALOGUE


@named
def test_what_a_recipe_decides_does_not_change(path):
    """Its number was measured with exactly these settings; golden/recipes.json is rewritten only with the number."""
    assert compose_recipe(None, recipe=path).tree() == GOLDEN[path.name]


@pytest.mark.parametrize(
    "path", [path for path in RECIPES if "ngram" not in GOLDEN[path.name]["system"]], ids=lambda path: path.stem
)
def test_no_default_for_small_corpora_touches_a_recipe(path):
    recipe = compose_recipe(None, recipe=path)
    assert small_corpus_defaults(recipe.training, 10, 10, recipe.given) == {}
    assert small_corpus_defaults(recipe.training, 10, 10, {}).keys() >= {
        "steps",
        "batch_tokens",
    }  # without them


def test_a_recipe_is_found_by_its_name_from_any_folder_and_a_file_of_ones_own_comes_first(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("ptb-kn5.toml", "recipes/ptb-kn5.toml"):
        assert compose_recipe(None, recipe=name) == compose_recipe(None, recipe=SHIPPED / "ptb-kn5.toml")
    with pytest.raises(RegardError, match=r"did you mean .?ptb-kn5\.toml"):
        compose_recipe(None, recipe="ptb-kn.toml")
    with pytest.raises(RegardError, match=r"There is no recipe other/ptb-kn5\.toml"):
        compose_recipe(None, recipe="other/ptb-kn5.toml")
    (tmp_path / "ptb-kn5.toml").write_text('system = "lstm"\n')
    assert compose_recipe(None, recipe="ptb-kn5.toml").system == "lstm"


@named
def test_the_perplexities_in_the_table_of_recipes_stand_in_the_recipe(path):
    table = (ROOT / "docs" / "reference" / "recipes.md").read_text(encoding="utf-8").splitlines()
    rows = [line.split("|")[3:] for line in table if line.startswith(f"| `{path.stem}` |")]
    if not rows:
        pytest.skip("it has no row in docs/reference/recipes.md")
    comment = "".join(line for line in path.read_text(encoding="utf-8").splitlines(True) if line.startswith("#"))
    perplexities = [cell.strip() for row in rows for cell in row if re.fullmatch(r"\d+\.\d+", cell.strip())]
    assert perplexities
    assert set(perplexities) <= set(re.findall(r"\d+\.\d+", comment))


@named
def test_a_recipe_whose_number_was_measured_has_the_budget_that_the_table_says(path):
    table = (ROOT / "docs" / "reference" / "recipes.md").read_text(encoding="utf-8").splitlines()
    rows = [line for line in table if line.startswith(f"| `{path.stem}` |")]
    read = [int(found.replace(",", "")) for row in rows for found in re.findall(r"\d+(?:,\d{3}){2}", row)]
    recipe = compose_recipe(None, recipe=path)
    if not read or not getattr(recipe.training, "budget", ""):
        pytest.skip("counted, or not measured")
    assert [recipe.training.limit.amount] == read


@named
def test_a_recipe_trains_on_any_folder_of_text(path, folder, tmp_path):
    if not lm(path):
        return train_on_pairs(path, tmp_path)
    settings = {}
    if "ngram" not in compose_recipe(None, recipe=path).system:
        settings["training"] = {"steps": 2, "budget": "", "device": "cpu", "threads": 1, "evaluate_every": 1}
        full = compose_recipe(None, recipe=path).model
        settings["model"] = {"width": 16} | ({"embedding": 16} if getattr(full, "embedding", 0) else {})
        settings["model"] |= {"heads": 2} if hasattr(full, "heads") else {}
    run = regard.train(recipe=path, data=str(folder), run=tmp_path / "run", settings=settings)
    check_run(run, path, settings, run.evaluate("test")["perplexity"])


def train_on_pairs(path, tmp_path):
    recipe = compose_recipe(None, recipe=path)
    made = list(make_pairs(400, seed=1, longest=6))
    for split, part in {"train": made[:360], "valid": made[360:380], "test": made[380:]}.items():
        (tmp_path / f"{split}.{recipe.data.source}").write_text("".join(f"{p.source}\n" for p in part), "utf-8")
        (tmp_path / f"{split}.{recipe.data.target}").write_text("".join(f"{p.target}\n" for p in part), "utf-8")
    training = {"steps": 2, "device": "cpu", "threads": 1, "evaluate_every": 1, "checkpoint_every": 2, "keep": 0}
    settings = {"model": {"width": 16}, "data": {"vocabulary": 400}, "training": training}
    if hasattr(recipe.model, "embedding"):
        settings["model"]["embedding"] = 8
    run = regard.train(recipe=path, data=str(tmp_path), run=tmp_path / "run", settings=settings)
    check_run(run, path, settings, run.evaluate("test", beam=1)["perplexity"])


# What training finds out itself, and keeps in the run's recipe.
RESOLVED = {"data": {"corpus", "columns", "vocabulary", "normalise"}, "training": {"threads"}, "model": set()}


def check_run(run, path, changed, perplexity):
    """It was trained with the recipe's settings, but for those that were changed; two steps hardly teach anything."""
    recipe, used = compose_recipe(None, recipe=path).tree(), run.recipe.tree()
    assert used["system"] == recipe["system"]
    for section, resolved in RESOLVED.items():
        kept = {key for key, value in recipe[section].items() if value != "auto"}
        kept -= resolved | changed.get(section, {}).keys()
        assert {key: used[section][key] for key in kept} == {key: recipe[section][key] for key in kept}
        assert changed.get(section, {}).items() <= used[section].items()
    assert 1 < perplexity < 2 * run.tokenizer.vocabulary  # who knows nothing has as many words to choose from
    if "training" in changed:
        steps = [row["step"] for row in read_metrics(run.folder / "metrics.jsonl") if row.get("split") == "valid"]
        assert steps == [1, 2]


def test_a_recipe_whose_corpus_is_not_here_says_how_to_get_it(monkeypatch, tmp_path):
    monkeypatch.delenv("REGARD_DATA", raising=False)
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path))
    path = next(path for path in RECIPES if path.stem == "ptb-kn5")
    with pytest.raises(RegardError, match="regard data fetch ptb"):
        regard.train(recipe=path, run=tmp_path / "run")


def test_the_penn_treebank_is_found_in_the_data_folder(folder, monkeypatch, tmp_path):
    (tmp_path / "ptb").symlink_to(folder)
    monkeypatch.setenv("REGARD_DATA", str(tmp_path))
    path = next(path for path in RECIPES if path.stem == "ptb-kn5")
    run = regard.train(recipe=path, run=tmp_path / "run")
    assert run.recipe.data.corpus == "ptb"
