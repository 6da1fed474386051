"""A fourth task, tagging words, is the code between the two lines below: nothing else knows of it."""

import json
from itertools import product

import pytest
import torch

import regard
from regard.cli import main
from regard.runs.run import PairRun
from regard.runs.store.folder import Tokenizers
from regard.runs.tasks.pair_task import PairTask
from regard.runs.tasks.task import _tasks, register, task_of
from regard.systems import catalogue, sizes
from regard.systems.classifier import Classifier, Settings  # noqa: F401  # a system's file has its Settings
from regard.text.tokenizers.tokenizer import Tokenizer

# -- the task ----------------------------------------------------------------------------------------------------------


class TaggingRun(PairRun):
    @torch.no_grad()
    def tag(self, text):
        """One tag for each word."""
        words = torch.tensor([[*self.source_tokenizer.encode(text), self.source_tokenizer.eos]])
        logits, _ = self.model(torch.zeros_like(words), self.model.begin(words))
        return [self.tokenizer.token(number) for number in logits[0, :-1].argmax(-1).tolist()]

    def evaluate(self, split=None, *, data=None, columns="", encoding="utf-8"):
        name, pairs = self.chosen(data, split, columns, encoding)[1], self.pairs(data, split, columns, encoding)
        right = [one == other for text, tags in pairs for one, other in zip(self.tag(text), tags.split(), strict=True)]
        return {"system": self.recipe.system, "split": name, "words": len(right), "accuracy": sum(right) / len(right)}


class Tagging(PairTask):
    name, noun, purpose, verb = "tagging", "a tagger", "which tags words", "evaluate"
    reference = "tags"

    def learn_tokenizers(self, recipe, corpus):
        train = corpus.splits["train"]
        return Tokenizers(Tokenizer.train(train.targets, "word"), Tokenizer.train(train.sources, "word"))

    def resolved_data(self, recipe, corpus, tokenizers):
        return {"joint": False}

    def make_run(self, folder, recipe, tokenizers, model, unseen):
        return TaggingRun(folder, recipe, tokenizers.source, tokenizers.target, model, unseen)

    def answers(self, run, sources):
        return [" ".join(run.tag(source)) for source in sources]


# -- its system, and the test ------------------------------------------------------------------------------------------


class Tagger(Classifier):
    """P(tag of word t | all words): the encoder's vector of word t predicts its tag."""

    def remember(self, encoded):
        return {"memory": encoded["memory"]}

    def hidden_states(self, tokens, state, span):
        memory = state["source"]["memory"]  # [R, S, D]
        here = span.start[:, None] + torch.arange(tokens.size(1))
        here = here.clamp(max=memory.size(1) - 1)[..., None].expand(-1, -1, memory.size(2))
        return self.dropout(memory.gather(1, here)), {}


def sentences():
    """`fish` is a noun or a verb, by its place."""
    nouns, verbs = ("cat", "dog", "child", "fish", "teacher"), ("sees", "follows", "fish", "paints")
    for first, noun, verb, second, other in product(("the", "a"), nouns, verbs, ("the", "my"), nouns):
        yield f"{first} {noun} {verb} {second} {other}\tDET NOUN VERB DET NOUN"
        yield f"{noun} {verb} {second} {other}\tNOUN VERB DET NOUN"


@pytest.fixture(scope="module")
def tagger(tmp_path_factory):
    """A trained tagger."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        yield trained(tmp_path_factory.mktemp("tagger"), monkeypatch)
    _tasks().pop("tagging")


def trained(tmp_path, monkeypatch):
    entry = catalogue.System("tagger", 2015, "tags", "", f"{__name__}:Tagger", task="tagging")
    monkeypatch.setattr(catalogue, "SYSTEMS", (*catalogue.SYSTEMS, entry))
    monkeypatch.setattr(sizes, "FOLDER", tmp_path)
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    (tmp_path / "tagger.toml").write_text("".join(f"[{size}]\n" for size in sizes.SIZES), encoding="utf-8")
    register(Tagging())
    lines = [*dict.fromkeys(sentences())]
    (tmp_path / "data").mkdir()
    for number, split in enumerate(("test", "valid", "train")):
        some = lines[number::10] if split != "train" else [line for n, line in enumerate(lines) if n % 10 > 1]
        (tmp_path / "data" / f"{split}.tsv").write_text("".join(f"{line}\n" for line in some), encoding="utf-8")
    settings = {
        "model": {"encoder": "gru", "width": 16, "dropout": 0.0},
        "training": {"steps": 60, "learning_rate": 0.02, "warmup": 5, "batch_tokens": 256, "threads": 1,
                     "device": "cpu", "evaluate_every": 20},
    }  # fmt: skip
    return regard.train("tagger", data=str(tmp_path / "data"), run=tmp_path / "run", size="tiny", settings=settings)


def test_a_fourth_task_is_trained_loaded_evaluated_and_listed_by_the_ordinary_verbs(tagger, capsys):
    assert task_of(tagger).name == task_of("tagger").name == "tagging"
    again = regard.load(tagger.folder, TaggingRun, device="cpu")
    assert again.tag("the fish fish my dog") == ["DET", "NOUN", "VERB", "DET", "NOUN"]
    assert again.evaluate()["accuracy"] > 0.95
    capsys.readouterr()
    main(["evaluate", str(tagger.folder), "--device", "cpu", "--json"])
    assert json.loads(capsys.readouterr().out) == again.evaluate()
    page = (tagger.folder / "report.html").read_text(encoding="utf-8")
    assert "Accuracy on the test split" in page
    assert "NOUN VERB DET NOUN" in page
    main(["runs", str(tagger.folder.parent), "--json"])
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["system"], row["state"]) == ("tagger", "done")
    assert regard.resume(tagger.folder).tag("a dog sees the cat") == ["DET", "NOUN", "VERB", "DET", "NOUN"]


@pytest.mark.parametrize(
    "words, sentence",
    [
        (["evaluate", "RUN", "--beam", "2"], "is a tagger (tagger): --beam does not apply here."),
        (["translate", "RUN"], "is a tagger, which tags words: use `regard evaluate"),
        (["chat", "RUN"], "is a tagger: use `regard evaluate"),
        (["serve", "RUN"], "is a tagger, which this server has no API for: use `regard evaluate"),
        (["inspect", "RUN", "the dog"], "is a tagger: `inspect` has nothing to show for it."),
        (["compare", "tagger", "--data", "pyref"], "Systems for the task tagging cannot be compared"),
    ],
)
def test_what_a_fourth_task_does_not_have_is_refused_in_one_sentence(tagger, capsys, words, sentence):
    with pytest.raises(SystemExit) as stopped:
        main([word.replace("RUN", str(tagger.folder)) for word in words])
    assert stopped.value.code == 2
    assert sentence in " ".join(capsys.readouterr().err.split())
