"""A run's page tells what the run is and how good it is, whatever is in its folder, and never stops a training."""

import html
import json
import re
from html.parser import HTMLParser

import pytest

import regard
from regard.base.digests import with_digest
from regard.corpora.phrasebook import make_pairs
from regard.report.offline_page import script_of
from regard.report.table import significant
from regard.runs import run as run_module
from regard.runs.run_report import NAME, read_metrics, run_page, samples, write_report
from regard.runs.store.facts import read_facts

HOSTILE = """<script>alert("1")</script><img src=x onerror='alert(1)'>&"'"""
SHORT = {"steps": 4, "evaluate_every": 2, "batch_tokens": 256, "threads": 1}


OURS = f"<script>{script_of('report')}</script>"  # the lab's charts


class Tags(HTMLParser):
    """Tags, addresses, and what a reader sees."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.addresses, self.text, self.hidden = set(), [], "", False
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.tags.add(tag)
        self.addresses += [value for name, value in attributes if name in ("href", "src", "action")]
        self.hidden = tag == "style"

    def handle_data(self, data):
        self.text += "" if self.hidden else data


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """One run of each kind: counted, trained on text, on pairs, on labels."""
    folder = tmp_path_factory.mktemp("pages")
    pairs = list(make_pairs(200, seed=5, longest=6))
    (folder / "text.txt").write_text("".join(f"{p.source}\n" for p in pairs), encoding="utf-8")
    (folder / "pairs.tsv").write_text("".join(f"{p.source}\t{p.target}\n" for p in pairs), encoding="utf-8")
    (folder / "labels.tsv").write_text("".join(f"{p.source}\ten\n{p.target}\tfr\n" for p in pairs), encoding="utf-8")
    data = {"ngram": "text.txt", "lstm": "text.txt", "bahdanau": "pairs.tsv", "classifier": "labels.tsv"}
    return {
        system: regard.train(
            system, data=str(folder / name), run=folder / system, size="tiny",
            settings={"data": {"tokenizer": "word"}} | ({"training": SHORT} if system != "ngram" else {}),
        )
        for system, name in data.items()
    }  # fmt: skip


@pytest.mark.parametrize("system", ["ngram", "lstm", "bahdanau", "classifier"])
def test_a_training_ends_with_a_page_that_asks_for_nothing_and_tells_everything(runs, system):
    page = (runs[system].folder / NAME).read_text(encoding="utf-8")
    assert page.count(OURS) == ("<figure data-figure=" in page)
    seen = Tags(page := page.replace(OURS, ""))
    assert seen.addresses == []
    assert not {"script", "link", "iframe", "img"} & seen.tags
    assert not re.search(r"https?://|url\(|@import", page)
    facts = json.loads((runs[system].folder / "run.json").read_text())
    recipe = (runs[system].folder / "recipe.toml").read_text()
    for words in (system, "Samples", facts["corpus"]["checksum"], f"Regard {facts['regard']}", recipe):
        assert words in seen.text
    least = {"ngram": 0, "classifier": 2}.get(system, 1)  # besides, the learning rate where a training takes seconds
    assert least <= page.count("<svg role=") <= 2 * least
    assert page.count("<desc>") == page.count("<svg role=") == page.count("<figcaption>")


def test_the_finding_is_the_best_validation_and_the_curve_has_every_validation(runs):
    checked = [entry for entry in read_metrics(runs["lstm"].folder / "metrics.jsonl") if entry.get("split") == "valid"]
    best = min(checked, key=lambda entry: entry["loss"])
    seen = Tags(run_page(runs["lstm"], samples(runs["lstm"], [])))
    assert len(checked) == 2
    score = significant(best["perplexity"])
    assert f"Perplexity on the validation split: {score}, at step {best['step']}." in seen.text


def test_a_translator_shows_what_it_makes_of_held_out_sentences(runs):
    run = runs["bahdanau"]
    examples = list(run.pairs(None, "valid"))[:5]
    page = Tags((run.folder / NAME).read_text(encoding="utf-8")).text
    for (source, target), answer in zip(examples, run.translate([source for source, _ in examples])):
        assert source in page
        assert target in page
        assert answer in page


@pytest.mark.parametrize("system", ["ngram", "lstm", "bahdanau", "classifier"])
def test_an_evaluation_is_added_to_the_page(runs, system):
    run = runs[system]
    facts = run.evaluate()
    text = Tags(run_page(run, evaluation=facts)).text
    assert f"Score on the {facts['split']} split" in text
    score = {"bahdanau": "bleu", "classifier": "accuracy"}.get(system, "perplexity")
    value = facts[score]["score"] if score == "bleu" else facts[score]
    assert f"split: {significant(value)}." in text
    assert (facts["bleu"]["signature"] if score == "bleu" else facts.get("tokenizer")) in text


def test_no_word_of_a_text_a_name_or_a_recipe_becomes_markup(tmp_path):
    clean = HOSTILE.replace("\t", " ")
    folder = tmp_path / "<img src=x onerror=alert(1)>"
    lines = [f"{clean} {n}\tb {n} {clean}\n" for n in range(60)]
    (tmp_path / "<b>pairs.tsv").write_text("".join(lines), encoding="utf-8")
    run = regard.train(
        "seq2seq", data=str(tmp_path / "<b>pairs.tsv"), run=folder, size="tiny",
        settings={"data": {"tokenizer": "word"}, "training": SHORT},
    )  # fmt: skip
    facts = read_facts(folder)
    facts |= {"device": HOSTILE, "platform": HOSTILE, "code": {"file": HOSTILE, "sha256": HOSTILE}}
    facts["corpus"] |= {"name": HOSTILE, "notes": [HOSTILE]}
    (folder / "run.json").write_text(json.dumps(with_digest(facts)))
    page = run_page(run, samples(run, [(HOSTILE, HOSTILE)]), {"split": HOSTILE, "perplexity": 2.0, HOSTILE: HOSTILE})
    written = (folder / NAME).read_text(encoding="utf-8")
    for text in (page, written):
        assert not {"script", "img"} & Tags(text.replace(OURS, "")).tags
    assert page.count(html.escape(HOSTILE)) > 8
    assert html.escape(folder.name) in re.search(r"<title>(.*?)</title>", page)[1]


def test_what_stands_in_the_way_of_the_page_is_one_line_and_never_the_trainings_end(
    runs, tmp_path, capsys, monkeypatch
):
    run = runs["lstm"]
    (run.folder / NAME).unlink()
    (run.folder / NAME).mkdir()
    try:
        assert regard.resume(run.folder).parameters == run.parameters
        lines = capsys.readouterr().err.splitlines()
        assert sum("report.html could not be written" in line for line in lines) == 1
    finally:
        (run.folder / NAME).rmdir()
    write_report(run)
    assert (run.folder / NAME).is_file()


def test_someone_elses_page_is_left_as_it_is(runs, capsys):
    path = runs["ngram"].folder / NAME
    ours = path.read_text(encoding="utf-8")
    path.write_text("<p>my own notes</p>", encoding="utf-8")
    write_report(runs["ngram"])
    assert path.read_text(encoding="utf-8") == "<p>my own notes</p>"
    assert "left unchanged" in capsys.readouterr().err
    path.write_text(ours, encoding="utf-8")


def test_a_damaged_learning_curve_still_makes_a_page(runs):
    path = runs["lstm"].folder / "metrics.jsonl"
    whole = path.read_text(encoding="utf-8")
    path.write_text(whole + '{"step": 1\nnull\n{"step": 1, "tokens": "x"}\n\udcff'.encode("utf-8", "replace").decode())
    try:
        assert len(read_metrics(path)) == len(whole.splitlines())
        assert "Training curves" in run_page(runs["lstm"])
    finally:
        path.write_text(whole, encoding="utf-8")


def test_the_few_texts_of_a_page_start_no_engine_that_pays_only_for_many(runs, monkeypatch):
    handed = []
    monkeypatch.setattr(run_module, "install", lambda thing, **use: handed.append(thing))
    run = regard.load(runs["lstm"].folder)
    assert len(write_report(run)) == 2
    assert not handed
    assert run.generate(max_tokens=3, temperature=0.8, seed=1)
    assert handed
    before = list(run._engines)
    write_report(run)  # with an engine that is there already
    assert list(run._engines)[: len(before)] == before
