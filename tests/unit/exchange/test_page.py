"""A page computes what Regard computes: probabilities, texts, translations and labels, of every system."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from test_onnx import NEURAL, small

import regard
from javascript import javascript
from regard.base.errors import RegardError
from regard.exchange import page_file, page_graphs
from regard.exchange.formats import export
from regard.exchange.page_weights import FORMATS
from regard.insight.interventions.ablation import ablate
from regard.insight.interventions.changing import names_of, parsed
from regard.insight.interventions.lens import lens
from regard.insight.interventions.reading import read_text
from regard.insight.interventions.replacing import replacements
from regard.report.offline_page import script_of
from regard.systems.classifier import Classifier
from regard.systems.translator import Translator

SETTINGS = (bool, int, float, str, tuple, type(None))
TOLERANCE = {"fp32": 1e-4, "fp16": 1e-2}
SENTENCES = ["Three ships left the harbour.", "Où vont-ils ?", "The sea was empty", "Das Schiff!", "(a captain)"]
ASK = """
  const ask = (name, given) => new Promise((done, failed) => answer({ id: 1, name, given }, (message) => {
    if ("answer" in message) done(message.answer);
    else if ("problem" in message) failed(new Error(message.problem));
  }));
  await ask("open", given);
  const out = [];
  for (const [name, what] of given.asked) out.push(await ask(name, what));
  return out;
"""


@pytest.fixture(autouse=True, scope="module")
def graphs_once():
    """The graphs of equal models are exported once: kinds of numbers and refusals do not change them."""
    made, graphs = {}, page_graphs.graphs

    def get(model):
        plain = [vars(module).items() for module in model.modules()]
        key = repr([model, *([(name, value) for name, value in own if isinstance(value, SETTINGS)] for own in plain)])
        key += repr([(name, leaf.tolist()) for name, leaf in model.state_dict().items()])
        made[key] = made.get(key) or list(graphs(model))
        return made[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(page_graphs, "graphs", get)
        yield


@pytest.fixture(scope="session")
def pages(runs, tmp_path_factory):
    """A run and its page, made once."""
    made = {}

    def get(system, weights="fp32", **settings):
        key = repr((system, weights, settings))
        if key not in made:
            run = counted(tmp_path_factory) if system == "ngram" else runs(system, **small(system) | settings)
            out = tmp_path_factory.mktemp("page") / "model.html"
            export(run.folder, "page", out, options={"weights": weights, "scores": "no"})
            made[key] = run, out
        return made[key]

    return get


def counted(tmp_path_factory):
    lines = [
        f"{a} {b} {c}."
        for a in ("the ship", "a captain", "the sea")
        for b in ("left", "saw")
        for c in ("it", "a harbour", "the sea")
    ]
    folder = tmp_path_factory.mktemp("run") / "ngram"
    return regard.train(
        "ngram", data=lines * 3, run=folder, settings={"model": {"order": 4}, "data": {"tokenizer": "word"}}
    )


def held(page: Path, name: str):
    (found,) = re.findall(rf'<script type="[\w/]+" id="{name}">(.*?)</script>', page.read_text(), re.S)
    return found


def asked(page: Path, *questions):
    """The answers of the page's worker."""
    given = {"made": json.loads(held(page, "model")), "letters": held(page, "weights"), "asked": questions}
    return javascript("page/worker", ASK, given)


def rows_of(run):
    """Token rows, and for a translator or classifier their sources."""
    draw = np.random.default_rng(0)
    length = min(40, run.model.context or 40)
    rows = [[0, *draw.integers(2, run.model.vocabulary, length - 1).tolist()] for _ in range(2)]
    if not isinstance(run.model, Translator):
        return [{"ids": row} for row in rows]
    sources = [[*draw.integers(2, run.model.source_vocabulary, 9).tolist(), 0] for _ in rows]
    return [{"ids": row, "source": source} for row, source in zip(rows, sources)]


@torch.no_grad()
def ours(run, ids, source=None):
    state = run.model.begin(torch.tensor([source])) if source else None
    tokens = torch.tensor([ids[:1] if isinstance(run.model, Classifier) else ids])
    return run.model(tokens, state)[0][0].double().log_softmax(-1).numpy()


def difference(run, page):
    rows = rows_of(run)
    found = asked(page, *(["logs", row] for row in rows))
    return max(float(np.abs(np.array(one) - ours(run, **row)).max()) for one, row in zip(found, rows, strict=True))


@pytest.mark.parametrize("system", ["ngram", *NEURAL])
def test_every_system_has_the_probabilities_of_regard(pages, system):
    assert difference(*pages(system)) < TOLERANCE["fp32"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "system,settings",
    [
        ("self-attention", {"score": "gaussian"}),
        ("self-attention", {"score": "additive"}),
        ("gpt", {"position": "alibi"}),
        ("gpt", {"position": "rotary"}),
        ("transformer", {"norm": "post", "position": "learned"}),
        ("bahdanau", {"feed": False, "cell": "lstm", "joint": False}),
        ("classifier", {"encoder": "transformer"}),
        ("classifier", {"encoder": "dan", "pool": "mean"}),
        ("linear-attention", {"rule": "delta", "decay": "gated"}),
    ],
)
def test_other_settings_too(pages, system, settings):
    assert difference(*pages(system, **settings)) < TOLERANCE["fp32"]


@pytest.mark.parametrize("weights", FORMATS[1:])
@pytest.mark.parametrize("system", ["ngram", "dan", "gpt"])
def test_shorter_numbers_change_little(pages, system, weights):
    run, page = pages(system, weights)
    if weights in TOLERANCE:
        assert difference(run, page) < TOLERANCE[weights]
    rows = rows_of(run)
    losses = []
    for one, row in zip(asked(page, *(["logs", row] for row in rows)), rows, strict=True):
        places = np.arange(len(row["ids"]) - 1), np.array(row["ids"][1:])
        losses.append(float(np.array(one)[places].mean() - ours(run, **row)[places].mean()))
    assert abs(np.mean(losses)) < 0.01


@pytest.mark.parametrize("system", ["ngram", "lstm", "gpt", "mingru", "linear-attention"])
def test_it_writes_what_regard_writes_greedily_and_by_seed(pages, system):
    run, page = pages(system)
    ways = [
        {"temperature": 0.0},
        {"temperature": 0.8, "top_k": 9, "seed": 3},
        {"temperature": 1.0, "top_p": 0.7, "seed": 4},
    ]
    names = {"top_k": "topK", "top_p": "topP"}
    questions = [
        ["write", {"text": text, "tokens": 60, **{names.get(key, key): value for key, value in way.items()}}]
        for way in ways
        for text in ("The ", "Three ships")
    ]
    found = [one["text"] for one in asked(page, *questions)]
    assert found == [run.generate(text, max_tokens=60, **way) for way in ways for text in ("The ", "Three ships")]


@pytest.mark.parametrize("system", ["seq2seq", "bahdanau", "transformer"])
@pytest.mark.parametrize("beam", [1, 4])
def test_it_translates_what_regard_translates(pages, system, beam):
    run, page = pages(system)
    found = asked(page, *(["translated", {"text": text, "beam": beam}] for text in SENTENCES))
    assert [one["text"] for one in found] == [run.translate(text, beam=beam) for text in SENTENCES]


def test_it_labels_as_regard_labels(pages):
    run, page = pages("classifier")
    found = asked(page, *(["trace", {"text": text}] for text in SENTENCES))
    for text, one in zip(SENTENCES, found, strict=True):
        labels = {choice["token"]: choice["p"] for choice in one["facts"]["top"][0]}
        top = dict(run(text).top(len(labels)))
        assert labels.keys() == top.keys()
        assert labels == pytest.approx(top, rel=1e-3)


@pytest.mark.parametrize("system", ["ngram", "gpt", "lstm", "linear-attention"])
def test_the_inside_is_that_of_a_trace(pages, system):
    run, page = pages(system)
    text = "The ship saw the sea"
    (found,) = asked(page, ["trace", {"text": text}])
    compare(found, run.trace(text))


@pytest.mark.parametrize("system", ["bahdanau", "transformer"])
def test_the_inside_of_a_translation_is_that_of_a_trace(pages, system):
    run, page = pages(system)
    (found,) = asked(page, ["translate", {"text": SENTENCES[0], "beam": 3}])
    trace = run.trace(SENTENCES[0], beam=3)
    compare(found, trace)
    assert found["facts"]["answer"] == trace.translation
    assert [one["text"] for one in found["facts"]["beam"] if one.get("rank")]


def compare(found, trace):
    from regard.insight.views.as_json import facts, part

    told, ours = found["facts"], json.loads(json.dumps(facts(trace)))
    for name in ("words", "known", "rank", "order", "leftward", "alignment"):
        assert told[name] == ours[name], name
    for name in ("probability", "entropy"):
        ours[name] = [one for one in ours[name] if one is not None]
        assert [one for one in told[name] if one is not None] == pytest.approx(ours[name], rel=1e-3, abs=1e-5), name
    for kind, names in {"attention": "attention", "inside": "inside", "matrix": "matrices"}.items():
        assert [one["name"] for one in told[names]] == [one["name"] for one in ours[names]]
        assert [one["title"] for one in told[names]] == [one["title"] for one in ours[names]]
        for one in told[names]:
            values, (low, high) = part(trace, f"{kind}/{one['name']}")
            array = found["arrays"][f"{kind}/{one['name']}"]
            assert array["shape"] == list(values.shape)
            assert (array["low"], array["high"]) == pytest.approx((low, high), rel=1e-3, abs=1e-5)
            assert np.abs(np.array(array["data"]) - values.reshape(-1).astype(int)).max() <= 1


TEXT, OTHER = "The captain left the ship.", "The ship left the captain."  # as many tokens in every tokenizer


def changed_readings(run):
    """The text and the one to swap with; for a translator with a target, for a classifier with its label."""
    pair = isinstance(run.model, Translator)
    target = "Le capitaine." if pair and not isinstance(run.model, Classifier) else None
    source = (target, run.source_tokenizer) if pair else ()
    return [read_text(run.model, run.tokenizer, text, *source) for text in (TEXT, OTHER)]


@torch.no_grad()
def known_probabilities(run, reading, values=None):
    logits = reading.logits(parsed(values or {}))[0]
    if isinstance(run.model, Classifier):  # a page shows labels alone
        logits[:, run.tokenizer.specials] = -torch.inf
    found = logits.softmax(-1)
    return [float(found[step, reading.targets[step]]) for step in reading.known]


def page_probabilities(answer):
    facts = answer["facts"]
    return [p for p, known in zip(facts["probability"], facts["known"], strict=True) if known]


@pytest.mark.parametrize("system", ["ngram", *NEURAL])
def test_every_part_is_changed_as_regard_changes_it(pages, system):
    """Removed, replaced by its mean and swapped with another text's: the whole part, and one column of it."""
    run, page = pages(system)
    first, second = changed_readings(run)
    assert first.source_words if isinstance(run.model, Translator) else len(first.words) == len(second.words)
    parts = first.parts()
    known = set(re.findall(r'\["Part",.*?"name":"(.*?)"', held(page, "model")))
    unread = [name for name in parts if name not in known and system != "ngram"]  # nothing depends on them
    for name in unread:
        assert known_probabilities(run, first, {name: 0.0}) == known_probabilities(run, first)
    ways = ["zero"] if system == "ngram" else ["zero", "mean", "swap"]
    places = [name for name in parts if name not in unread]
    changes = [f"{way} {name}" for name in names_of(places) for way in ways]
    if system != "ngram":
        changes += [f"{way} {name}@1" for name in places if parts[name].dim() > 2 for way in ("zero", "swap")]
    written = list(first.targets) if isinstance(run.model, Translator) else None
    how = {"text": TEXT, "other": OTHER, "written": written, "beam": 1}
    unchanged, *found = asked(
        page, *(["changed", {**how, "changes": some}] for some in ([], *([one] for one in changes)))
    )
    plain, moved = page_probabilities(unchanged), []
    assert plain == pytest.approx(known_probabilities(run, first), rel=1e-3)
    for one, answer in zip(changes, found, strict=True):
        expected = known_probabilities(run, first, replacements([one], first, second))
        assert page_probabilities(answer) == pytest.approx(expected, rel=1e-3, abs=1e-5), one
        moved.append(page_probabilities(answer) != plain)
    assert sum(moved) > len(moved) / 2


@pytest.mark.parametrize("system", ["gpt", "lstm", "self-attention", "transformer"])
def test_the_lens_is_that_of_regard(pages, system):
    run, page = pages(system)
    reading = changed_readings(run)[0]
    (found,) = asked(page, ["lens", {"text": TEXT, "written": list(reading.targets)}])
    expected = lens(reading)
    assert found["words"] == list(expected.words)
    for one, layer in zip(found["layers"], expected.layers, strict=True):
        assert (one["name"], one["rank"]) == (layer.name, list(layer.rank))
        assert [top[0][0] for top in one["top"]] == [top[0][0] for top in layer.top]
        np.testing.assert_allclose(one["divergence"], layer.divergence, atol=1e-4)
        known = [p for p in one["probability"] if p is not None]
        assert known == pytest.approx([p for p in layer.probability if p is not None], rel=1e-3)


@pytest.mark.parametrize(
    ("system", "kinds"),
    [
        ("gpt", ["heads", "feedforward"]),
        ("lstm", ["gates", "words"]),
        ("ngram", ["orders"]),
        ("transformer", ["heads"]),
    ],
)
def test_a_removed_part_costs_what_it_costs_in_regard(pages, system, kinds):
    run, page = pages(system)
    reading = changed_readings(run)[0]
    written = list(reading.targets) if isinstance(run.model, Translator) else None
    for kind in kinds:
        (found,) = asked(page, ["ablate", {"text": TEXT, "written": written, "kind": kind}])
        expected = {one.name: one for one in ablate([reading], kind).effects}
        assert {one["name"] for one in found["effects"]} == expected.keys()
        for one in found["effects"]:
            assert one["effect"] == pytest.approx(expected[one["name"]].effect, rel=1e-3, abs=1e-5)
            assert (one["control"] is None) == (expected[one["name"]].control is None)


def test_what_cannot_be_changed_is_said_in_one_sentence(pages):
    for system, what, sentence in [
        ("gpt", {"changes": ["swap self/0"], "other": "A"}, "swap self/0 at one word"),
        ("gpt", {"changes": ["swap self/0"]}, "needs a second text of equal length"),
        ("gpt", {"changes": ["zero self/9"]}, "There is no place “self/9”"),
        ("gpt", {"changes": ["zero self/0["]}, "does not name a part"),
        ("ngram", {"changes": ["mean order/2"]}, "can only be removed"),
    ]:
        with pytest.raises(AssertionError, match=sentence):
            asked(pages(system)[1], ["changed", {"text": TEXT, **what}])


def test_a_model_that_is_too_large_for_a_page_is_refused_with_its_size(runs, tmp_path, monkeypatch):
    monkeypatch.setattr(page_file, "LARGEST", 1000)
    with pytest.raises(RegardError, match=r"would be .* KiB, .*--weights int8"):
        export(runs("dan", **small("dan")).folder, "page", tmp_path / "model.html", options={"scores": "no"})
    assert not (tmp_path / "model.html").exists()


def test_a_page_holds_no_module_of_the_lab_but_its_views_of_a_text():
    names = {
        name
        for entry in ("page", "worker")
        for name in re.findall(r"^const module_(\w+)=", script_of(f"page/{entry}"), re.M)
    }
    assert {name for name in names if not name.startswith("page_")} == {
        "address", "arrays", "changes", "colours", "dom", "effects", "heat", "reading", "sampling_sliders", "saving",
        "search_tree", "sheet",
    }  # fmt: skip


def test_the_code_of_a_page_is_at_most_150_kB(pages):
    _, page = pages("dan")
    data = sum(len(held(page, name).encode()) for name in ("weights", "model", "shown"))
    assert len(page.read_bytes()) - data <= 150_000
