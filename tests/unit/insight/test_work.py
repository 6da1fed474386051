"""Arithmetic one can follow: every line adds up, and to what the model computes in a pass of its own.

What the lines are called is compared with tests/golden/worked_examples.json: titles, names, formulas and sentences, no
numbers of the model. `python tests/unit/insight/test_work.py` writes it anew.
"""

import hashlib
import json
import math
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch

from regard.base.errors import RegardError
from regard.insight.arithmetic.calculation import calculate_classification, calculate_language, calculate_translation
from regard.insight.arithmetic.equation import FUNCTIONS, add_up, products, shown
from regard.insight.arithmetic.ngram import count_again
from regard.insight.arithmetic.terminal import show_work
from regard.insight.lecture_examples import lecture_example
from regard.insight.tracing import trace_classification, trace_language, trace_translation
from regard.laws.registry import VOCABULARY, stirred
from regard.layers.cell import Cell
from regard.systems import ngram
from regard.systems.catalogue import SYSTEMS, load_class, load_module
from regard.systems.classifier import ENCODERS, Classifier, Settings
from regard.systems.own.stack import LayerStack
from regard.systems.recurrent_stack import RecurrentSettings
from regard.text.tokenizers.tokenizer import Tokenizer

WORDS = Tokenizer.of_tokens(["<eos>", "<unk>", *"abcdefghijklmno"], "word")
LABELS = Tokenizer.of_tokens(["<eos>", "<unk>", "good", "bad", "very bad"], "word")
TEXT = "c a f a"
SOURCE = "d e a f b"
SMALL = {"width": 16, "heads": 2, "context": 24, "layers": 2, "embedding": 0, "dropout": 0.0}
VARIANTS = {
    "rnn": [{}, {"activation": "sigmoid"}, {"activation": "relu"}],
    "nnlm": [{"order": 4}, {"order": 3, "direct": True}],
    "dan": [{}, {"layers": 0}, {"activation": "relu", "tied": False}],
    "self-attention": [{"score": score, "bandwidth": 3.0} for score in ("scaled-dot", "dot", "bilinear", "additive")]
    + [{"score": kernel, "bandwidth": 2.0} for kernel in ("gaussian", "boxcar", "triangular", "epanechnikov")]
    + [{"score": "boxcar", "bandwidth": 1e-6, "projections": False, "position": "sine"}]
    + [{"score": "dot", "activation": activation} for activation in ("tanh", "relu")],
    "gpt": [{}, {"norm": "post", "position": "rotary"}, {"position": "alibi", "tied": False}],
    "linear-attention": [{}, {"decay": "gated", "rule": "delta"}, {"feature": "relu", "decay": "fixed"}],
    "seq2seq": [{}, {"cell": "gru", "reverse": False}],
    "bahdanau": [{"score": "additive"}, {"score": "dot", "cell": "lstm"}, {"score": "epanechnikov", "feed": False}],
    "transformer": [{}, {"norm": "post"}],
}
CASES = [
    pytest.param(system.name, settings, id=f"{system.name} {settings}")
    for system in SYSTEMS
    for settings in VARIANTS.get(system.name, [{}])
    if system.task != "classification"
]
GOLDEN = Path(__file__).parents[2] / "golden" / "worked_examples.json"
LAST = {"exp": lambda f: math.exp(f[0]), "/": lambda f: f[0] / f[1], "": math.prod}


def model_of(system, settings=(), dtype=torch.float64):
    torch.manual_seed(0)
    kind, known = load_class(system), load_module(system).Settings.__dataclass_fields__
    small = {name: value for name, value in SMALL.items() if name in known}
    if system == "ngram":
        model = kind(VOCABULARY, load_module(system).Settings(order=3)).double()
        model.count(np.array([*WORDS.encode("a b c a f e b a d e b"), 0, *WORDS.encode("c a f e a b"), 0]))
        return model.to(dtype).eval()
    model = stirred(lambda: kind(VOCABULARY, load_module(system).Settings(**{**small, **dict(settings)})))
    return model.to(dtype).eval()


@torch.no_grad()
def classifier(encoder, pool):
    torch.manual_seed(0)
    settings = Settings(encoder=encoder, pool=pool, width=8, heads=2, layers=2, dropout=0.0)
    model = Classifier(len(LABELS.tokens), settings, source_vocabulary=VOCABULARY).double().eval()
    for weight in model.parameters():
        weight.add_(0.3 * torch.randn_like(weight))
    return model


def calculated(system, model):
    """The calculation, and a trace of another pass."""
    if any(one.name == system and one.task == "translation" for one in SYSTEMS):
        return tuple(make(model, WORDS, WORDS, SOURCE, "b c a") for make in (calculate_translation, trace_translation))
    return calculate_language(model, WORDS, TEXT), trace_language(model, WORDS, TEXT)


def every_work(calculation):
    for layer, heads in (calculation.layers or {None: 0}).items():
        place = calculation.places.get(layer)
        for step in range(len(place.words if place else calculation.read)):
            for head in range(heads) if heads else [None]:
                yield calculation.at(step, layer, head)


def adds_up(line, exact):
    near = exact * max(1.0, *(abs(term.value) for term in line.terms), abs(line.rest))
    assert math.fsum([*(term.value for term in line.terms), line.rest]) == pytest.approx(line.total, abs=near), line
    for term in line.terms:
        if term.factors:
            assert LAST[term.function](term.factors) == pytest.approx(term.value, rel=exact, abs=exact), (line, term)
    given = FUNCTIONS[line.function](line.total, line.by)
    assert given == pytest.approx(line.value, rel=exact, abs=near), line


def is_in_the_trace(line, trace, exact):
    kind, _, name = line.tensor.partition("/")
    assert getattr(trace, kind)[name][line.place] == pytest.approx(line.value, rel=exact, abs=exact), line


# -- every system ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("system", "settings"), CASES)
def test_every_line_adds_up_to_what_the_model_computes(system, settings):
    model = model_of(system, settings)
    calculation, trace = calculated(system, model)
    for work in every_work(calculation):
        for line in work.lines:
            adds_up(line, 1e-12)
            if line.tensor:
                is_in_the_trace(line, trace, 1e-12)


@pytest.mark.parametrize(("system", "settings"), CASES)
@torch.no_grad()
def test_the_probability_at_the_end_is_that_of_the_fast_path(system, settings):
    model = model_of(system, settings)
    calculation, trace = calculated(system, model)
    asked = torch.tensor([WORDS.tokens.index(word) for word in calculation.read])[None]
    state = model.begin(torch.tensor([[*WORDS.encode(SOURCE), WORDS.eos]])) if trace.source else None
    chances = model(asked, state)[0][0].softmax(-1)
    for step, then in enumerate(calculation.then):
        (line,) = [line for line in calculation.at(step).lines if line.name.startswith(f"P({then}")][-1:]
        assert line.value == pytest.approx(float(chances[step, WORDS.tokens.index(then)]), rel=1e-12)


def told(work):
    """All words of an example: what each section and line is called, and which terms it shows."""
    lines = [
        [section.title, section.about, [[line.name, line.formula, *(term.name for term in line.terms)]
                                        for line in section.lines]]
        for section in work.sections
    ]  # fmt: skip
    named = {"title": work.title, "read": work.read, "then": work.then, "step": work.step, "head": work.head}
    return json.loads(json.dumps({**named, "sections": lines}))


def all_told(calculation):
    """Every layer at the last step, by its last head."""
    layers = {name: max(0, heads - 1) if heads else None for name, heads in calculation.layers.items()} or {None: None}
    examples = {str(name): told(calculation.at(layer=name, head=head)) for name, head in layers.items()}
    every = [told(one) for name, head in layers.items() for one in
             calculation.at_all_steps(calculation.at(layer=name, head=head))]  # fmt: skip
    digest = hashlib.sha256(json.dumps(every, ensure_ascii=False).encode()).hexdigest()[:16]
    return {"layers": calculation.layers, "examples": examples, "all steps": digest}


def case_told(name):
    """Of a system with its settings, a classifier's encoder, or an example of the lectures with its string."""
    kind, _, more = name.partition(" ")
    if kind == "classifier":
        return all_told(calculate_classification(classifier(more, "mean"), WORDS, LABELS, SOURCE, "bad"))
    if kind.startswith("lecture:"):
        return {"layers": {}, "examples": {"None": told(lecture_example(kind, more))}}
    system, settings = next(case.values for case in CASES if case.id == name)
    return all_told(calculated(system, model_of(system, settings))[0])


NAMED = [case.id for case in CASES] + [f"classifier {encoder}" for encoder in ENCODERS]
NAMED += ["lecture:any-b AABA", "lecture:any-b ABAABBA", "lecture:any-b A"]


@pytest.mark.parametrize("name", NAMED)
def test_what_sections_lines_and_terms_are_called_stays_as_it_was(name):
    known, found = json.loads(GOLDEN.read_text(encoding="utf-8"))[name], case_told(name)
    assert found["layers"] == known["layers"]
    assert found.keys() == known.keys()
    assert found["examples"].keys() == known["examples"].keys()
    for layer, example in known["examples"].items():
        assert found["examples"][layer] == example
    assert found.get("all steps") == known.get("all steps")  # the other steps have other words


@pytest.mark.parametrize("system", [one.name for one in SYSTEMS if one.task != "classification"])
def test_in_single_precision_it_adds_up_to_six_digits(system):
    calculation, _ = calculated(system, model_of(system, dtype=torch.float32))
    for layer in calculation.layers or [None]:
        for line in calculation.at(layer=layer).lines:
            adds_up(line, 1e-6)


@pytest.mark.parametrize("encoder", ENCODERS)
@pytest.mark.parametrize("pool", ["mean", "last"])
@torch.no_grad()
def test_a_classifier_adds_up(encoder, pool):
    if (encoder, pool) == ("dan", "last"):
        return
    model = classifier(encoder, pool)
    trace = trace_classification(model, WORDS, LABELS, SOURCE)
    calculation = calculate_classification(model, WORDS, LABELS, SOURCE)
    for work in every_work(calculation):
        for line in work.lines:
            adds_up(line, 1e-12)
            if line.tensor:
                is_in_the_trace(line, trace, 1e-12)
        assert work.then == trace.label
        assert work.lines[-1].value == pytest.approx(trace.top[0][0].probability, rel=1e-12)
    asked = calculate_classification(model, WORDS, LABELS, SOURCE, "bad").at()
    assert asked.lines[-1].name == "P(bad)"


def test_what_a_gate_attention_and_a_state_are_called_is_where_the_trace_has_them():
    names = {line.tensor for line in calculated("lstm", model_of("lstm"))[0].at(layer=1).lines}
    assert {f"gates/layer/1/{gate}" for gate in ("forget", "store", "update", "output", "cell")} < names
    assert "attention/cross/1" in {
        line.tensor for line in calculated("transformer", model_of("transformer"))[0].at().lines
    }


# -- n-grams ---------------------------------------------------------------------------------------------------------

LINES = ["a b c a b d", "a b c", "b c a b", "d a b c d", "c a", "e f a b", "a c b d"]


def counted(smoothing, order=3):
    ids = [token for line in LINES for token in (*WORDS.encode(line), WORDS.eos)]
    model = ngram.NGram(VOCABULARY, ngram.Settings(order=order, smoothing=smoothing)).double()
    model.count(np.array(ids))
    return model, np.array(ids)


def test_counts_of_an_n_gram_are_those_of_its_text():
    model, ids = counted("counts")
    calculation = calculate_language(model, WORDS, "a b c", counts=lambda: count_again(model, ids))
    (line,) = [line for line in calculation.at(2).lines if line.name == "P(c | a b)"]
    followed = Counter(after for text in LINES for before, after in re.findall(r"(?=(a b) (\w))", text + " ."))
    whole = sum(text.count("a b") for text in LINES)
    assert line.terms[0].factors == (followed["c"], whole)
    assert line.value == pytest.approx(followed["c"] / whole, rel=1e-12)


def test_kneser_ney_shows_its_discounts_and_agrees_with_the_model():
    model, ids = counted("kneser-ney")
    with_counts = calculate_language(model, WORDS, "a b c e", counts=lambda: count_again(model, ids))
    without = calculate_language(model, WORDS, "a b c e")
    for step in range(5):
        lines, stored = with_counts.at(step).lines, without.at(step).lines
        for line in (*lines, *stored):
            adds_up(line, 1e-12)
        assert lines[-1].name == stored[-1].name
        assert lines[-1].value == stored[-1].value
    names = {line.name for line in with_counts.at(2).lines}
    assert {"p", "γ", "P(c)", "P(c | b)", "P(c | a b)"} < names
    assert any(name.startswith("D") for name in names)
    assert "not available" in show_work(without.at(2))
    assert count_again(model, ids[:10]) is None  # another text


def test_no_order_reaches_over_the_end_of_a_line():
    model, _ = counted("kneser-ney")
    work = calculate_language(model, WORDS, "a b\nc d").at(4)
    assert [line.name for line in work.lines if line.name.startswith("P")] == ["P(d)", "P(d | c)", "P(d | <eos> c)"]


# -- beam search -----------------------------------------------------------------------------------------------------


@torch.no_grad()
def test_sums_of_the_search_are_those_of_the_model():
    model = model_of("seq2seq")
    calculation = calculate_translation(model, WORDS, WORDS, SOURCE, beam=3, length_penalty=0.6)
    work = calculation.at(1)
    ranked = next(section for section in work.sections if section.title == "beam search: hypotheses").lines
    source = torch.tensor([[*WORDS.encode(SOURCE), WORDS.eos]])
    for line in ranked:
        text = line.name.split(". ")[1]
        written = [*WORDS.encode("" if text == "(empty)" else text), *([] if "not finished" in line.formula else [0])]
        read = torch.tensor([[WORDS.eos, *written[:-1]]])
        logs = model(read, model.begin(source))[0][0].log_softmax(-1)
        each = [float(logs[place, token]) for place, token in enumerate(written)]
        assert line.total == pytest.approx(sum(each), rel=1e-9)
        assert line.value == pytest.approx(sum(each) / len(each) ** 0.6, rel=1e-9)
    candidates = next(section for section in work.sections if section.title == "beam search: candidates").lines
    assert sum(line.name.startswith("kept") for line in candidates) == 3
    totals = [line.total for line in candidates if line.name.startswith("kept")]
    assert totals == sorted(totals, reverse=True)


# -- the lectures' numbers -------------------------------------------------------------------------------------------


def test_the_lectures_numbers_come_out():
    said = show_work(lecture_example("lecture:any-b"), width=80)
    for words in ("= 0.75 = 3/4", "= 0.25 = 1/4", "e / (e + 3) = 0.475", "e¹⁰ / (e¹⁰ + 3) = 0.99986", "= 22,027",
                  "3 / (3 + 3) = 0.5", "α(B) = 2.718/5.718 = 0.4754"):  # fmt: skip
        assert words in said
    assert max(map(len, said.splitlines())) <= 80
    for line in lecture_example("lecture:any-b", "ABAABBA").lines:
        adds_up(line, 1e-12)


# -- its form --------------------------------------------------------------------------------------------------------


def test_long_sums_show_their_largest_terms_and_the_rest_as_one_number():
    values = np.array([0.1, -5.0, 2.0, 0.2, 0.3, 3.0, -0.4])
    line = add_up("s", "s = Σ x", products([f"[{n}]" for n in range(7)], values, np.ones(7)))
    assert [term.value for term in line.terms] == [-5.0, 3.0, 2.0, -0.4]
    assert line.others == 3
    assert line.rest == pytest.approx(0.6)
    assert line.total == pytest.approx(values.sum())
    assert len(add_up("s", "", products([""] * 6, values[:6])).terms) == 6


@pytest.mark.parametrize(
    ("number", "words"),
    [(0.99986, "0.99986"), (22026.47, "22,026"), (-0.25, "−0.25"), (1.5e-7, "1.5e−7"), (0.0, "0"), (3.0, "3")],
)
def test_numbers_are_written_short(number, words):
    assert shown(number) == words


def test_json_has_every_term():
    work = calculated("gpt", model_of("gpt"))[0].at(3, 0, 1)
    told = json.loads(json.dumps(work.as_json()))
    assert (told["step"], told["layer"], told["head"], told["read"]) == (3, "self/0", 1, "f")
    assert told["layers"] == {"self/0": 2, "self/1": 2}
    lines = [line for section in told["sections"] for line in section["lines"]]
    assert len(lines) == len(work.lines)
    for line in lines:
        assert sum(term["value"] for term in line["terms"]) + line["rest"] == pytest.approx(line["total"], abs=1e-12)


@pytest.mark.parametrize(
    ("step", "layer", "head", "sentence"),
    [
        (5, None, None, "no step 5"),
        (-1, None, None, "no step -1"),
        (0, 2, None, "no layer '2'"),
        (0, "cross/0", None, "no layer 'cross/0'"),
        (0, 0, 2, "no head 2"),
        (0, 0, -1, "no head -1"),
    ],
)
def test_what_is_not_there_is_refused_in_a_sentence(step, layer, head, sentence):
    with pytest.raises(RegardError, match=re.escape(sentence)):
        calculated("gpt", model_of("gpt"))[0].at(step, layer, head)


def test_a_layer_of_one_head_has_no_second():
    with pytest.raises(RegardError, match="no head 1"):
        calculated("self-attention", model_of("self-attention"))[0].at(0, 0, 1)


def test_a_translators_steps_are_those_of_the_translation_or_of_the_source():
    calculation = calculated("transformer", model_of("transformer"))[0]
    with pytest.raises(RegardError, match="the steps of this translation are 0 to 3"):
        calculation.at(99)
    with pytest.raises(RegardError, match="the steps of this text are 0 to"):
        calculation.at(99, "encoder/0")


class Fading(Cell):
    def step(self, x, state):
        return {"hidden": 0.9 * state["hidden"] + x}


def test_equations_of_ones_own_are_not_known():
    class Own(LayerStack):
        layer = Fading

    model = Own(VOCABULARY, RecurrentSettings(layers=1, width=8, dropout=0.0))
    with pytest.raises(RegardError, match="your own"):
        calculate_language(model, WORDS, TEXT)


if __name__ == "__main__":
    rows = [f"{json.dumps(name)}: {json.dumps(case_told(name), ensure_ascii=False)}" for name in NAMED]
    GOLDEN.write_text("{\n" + ",\n".join(rows) + "\n}\n", encoding="utf-8")  # a line for each case
