"""Which evaluation is added to a run's page: that of the run's own test split by its best weights, and no other."""

import pytest

import regard
from regard.cli.evaluate import evaluate


@pytest.fixture(scope="module", params=["gpt", "classifier", "seq2seq"])
def run(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    lines = [
        f"the ship {n}" if request.param == "gpt" else f"the ship {n}\t{'even' if n % 2 == 0 else 'odd'}"
        for n in range(80)
    ]
    (folder / "data.txt").write_text("".join(f"{line}\n" for line in lines))
    training = {"steps": 3, "evaluate_every": 1, "checkpoint_every": 1, "threads": 1, "device": "cpu"}
    sizes = {"gpt": {"width": 8, "heads": 1, "layers": 1}, "seq2seq": {"width": 8, "embedding": 8}}
    settings = {"training": training, "model": sizes.get(request.param, {"width": 8})}
    made = regard.train(request.param, data=folder / "data.txt", size="tiny", run=folder / "run", settings=settings)
    return made.folder


OTHERS = {
    "the last weights": {"weights": "last"},
    "averaged weights": {"average": 2},
    "another split": {"split": "valid"},
    "other data": {"data": "data.txt"},
}


@pytest.mark.parametrize("other", OTHERS)
def test_the_page_shows_the_test_split_by_the_best_weights_alone(run, other):
    page = run / "report.html"
    options = dict(OTHERS[other])
    if "average" in options and regard.load(run).recipe.system == "gpt":
        pytest.skip("a language model keeps no weights to average")
    if "data" in options:
        options["data"] = str(run.parent / "data.txt")
    page.unlink(missing_ok=True)
    evaluate(run, device="cpu", json=True, **options)
    assert not page.exists()
    evaluate(run, device="cpu", split="test", json=True)  # the run's own, by its name
    assert page.exists()
