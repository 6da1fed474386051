"""What a page and ONNX graphs are made of: free sizes, constants, parts, and the questions of a check. No graph is
exported and no browser is started."""

import json
import logging
import os
import re
from contextlib import contextmanager
from html import unescape
from types import SimpleNamespace

import numpy as np
import onnx_ir as ir
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

from regard.base.errors import RegardError
from regard.exchange import onnx_graphs, page_file, page_weights, parity
from regard.exchange.chromium import LOADED, Chromium, OpenPage
from regard.exchange.onnx_files import ALIGNED, MIN_EXTERNAL_BYTES, SharedWeights, save_graph
from regard.exchange.onnx_graphs import Example, OutputComparison, leaves
from regard.exchange.onnx_readme import example
from regard.exchange.page_model import PageGraph
from regard.exchange.page_weights import PageWeights
from regard.layers import cell
from regard.runs.run_report import MEASURES
from regard.systems.translator import Translator

# -- texts and tokens of a comparison --------------------------------------------------------------------------------


def words(vocabulary, specials=(0, 1)):
    return SimpleNamespace(
        vocabulary=vocabulary, specials=specials, decode=lambda ids: " ".join(f"{vocabulary}:{one}" for one in ids)
    )


def compared(system="lstm", context=None, splits=None, source=None, vocabulary=9):
    def corpus():
        if splits is None:
            raise RegardError("gone")
        return SimpleNamespace(splits=splits)

    recipe, model = SimpleNamespace(system=system), SimpleNamespace(context=context)
    return SimpleNamespace(
        recipe=recipe, model=model, tokenizer=words(vocabulary), source_tokenizer=source, corpus=corpus
    )


def test_a_comparison_reads_the_same_rows_of_ordinary_tokens_each_time():
    run = compared(source=words(5, ()))
    rows = parity.token_rows(run)
    assert [len(row) for row in rows] == [24] * 4
    assert {token for row in rows for token in row} == set(range(2, 9))
    assert rows == parity.token_rows(run)
    assert {token for row in parity.token_rows(run, source=True) for token in row} == set(range(5))
    assert [len(row) for row in parity.token_rows(compared(context=7), 3, 12)] == [7] * 3
    assert [len(row) for row in parity.token_rows(compared(context=70), 2)] == [24] * 2
    assert parity.token_rows(compared(vocabulary=3), 1, 3) == [[2, 2, 2]]
    with pytest.raises(RegardError, match="contains only special symbols"):
        parity.token_rows(compared(vocabulary=2))


def test_a_comparison_reads_the_first_eight_held_out_lines_or_makes_some():
    lines = [f"line {n}" for n in range(30)]
    assert parity.texts(compared(splits={"valid": lines[::-1], "test": lines})) == lines[:8]
    assert parity.texts(compared(splits={"valid": lines}), 3) == lines[:3]
    pairs = SimpleNamespace(sources=lines, targets=lines[::-1])
    assert parity.texts(compared("seq2seq", splits={"test": pairs}), 2) == lines[:2]
    made = parity.texts(compared(source=words(5)))
    assert [len(line.split()) for line in made] == [8] * 8
    assert all(word.startswith("5:") for line in made for word in line.split())  # words of the source
    assert parity.texts(compared(), 1)[0].startswith("9:")


# -- the page --------------------------------------------------------------------------------------------------------


class Browser:
    """Answers as a page would, and notes what it was asked."""

    def __init__(self, run):
        self.run, self.asked, self.opened = run, [], []

    @contextmanager
    def start(self):
        yield self

    def open_file(self, path):
        self.opened.append(path.read_text(encoding="utf-8"))
        return self

    def evaluate(self, expression):
        if not (found := re.fullmatch(r"regard\.call\((.*)\)", expression, re.S)):
            return "Chrome 1.0" if "userAgent" in expression else None
        name, given = json.loads(f"[{found[1]}]")
        self.asked.append((name, given))
        if name == "logs":
            found = page_file.log_probabilities(self.run, given["ids"], given["source"])
            found[-1, -1] += 0.25 * len(self.asked)
            return found.tolist()
        if name == "write":
            how = {"max_tokens": given["tokens"], "temperature": given["temperature"]}
            return {"text": self.run.generate(given["text"], **how)}
        if name == "translated":
            return {"text": self.run.translate(given["text"], beam=given["beam"])}
        return {"facts": {"top": [[{"token": self.run.classify(given["text"])}, {"token": "x"}]]}}


@pytest.mark.parametrize("system", ["gpt", "transformer", "classifier"])
def test_a_page_is_asked_for_the_rows_and_texts_of_the_comparison(runs, system, tmp_path, monkeypatch):
    run = runs(system, **({"encoder": "dan", "width": 8} if system == "classifier" else {}))
    browser, lines = Browser(run), parity.texts(run, 3)
    monkeypatch.setattr(page_file, "Chromium", browser)
    monkeypatch.setattr(page_file, "texts", lambda run: lines)
    (tmp_path / "model.html").write_text("a page", encoding="utf-8")
    found = page_file.check(run, tmp_path / "model.html", embed="no")
    logs = [given for name, given in browser.asked if name == "logs"]
    assert (found.system, found.format, found.program) == (system, "page", "Chrome 1.0")
    assert found.compared == "log-probabilities"
    assert found.largest_difference == pytest.approx(0.75, abs=1e-6)  # of the third row
    assert found.same_text == "3 of 3 answers"
    assert [given["ids"] for given in logs] == [[0, *row[:-1]] for row in parity.token_rows(run, 3)]
    if system == "gpt":
        assert {given["source"] for given in logs} == {None}
        assert [name for name, _ in browser.asked[3:]] == ["write"] * 3
        assert [given["text"] for _, given in browser.asked[3:]] == [" ".join(line.split(" ")[:3]) for line in lines]
        assert {(given["tokens"], given["temperature"]) for _, given in browser.asked[3:]} == {(24, 0)}
    else:
        assert [given["source"] for given in logs] == [[*row, 0] for row in parity.token_rows(run, 3, 12, source=True)]
        assert [given["text"] for _, given in browser.asked[3:]] == lines
        assert {given.get("beam") for _, given in browser.asked[3:]} == {1 if system == "transformer" else None}
    if system == "classifier":
        monkeypatch.setattr(page_file, "page_answer", lambda run, line, ask: "other")
        assert page_file.check(run, tmp_path / "model.html").same_text == "0 of 3 answers"


def test_what_another_page_includes_is_checked_as_the_page_in_it(runs, tmp_path, monkeypatch):
    run = runs("gpt")
    browser = Browser(run)
    monkeypatch.setattr(page_file, "Chromium", browser)
    whole = '<p>It\'s "<b>&amp; more</b>" & less</p>'
    frame = page_file._embedded(run, whole)
    assert frame.count("'") == 2  # those of srcdoc
    assert unescape(re.findall("srcdoc='([^']*)'", frame)[0]) == whole
    (tmp_path / "frame.html").write_text(frame, encoding="utf-8")
    page_file.check(run, tmp_path / "frame.html", embed="yes")
    assert browser.opened == [whole]
    page_file.check(run, tmp_path / "frame.html")
    assert browser.opened[1:] == [frame]


def test_an_impossible_word_is_as_impossible_as_it_is(runs, tmp_path, monkeypatch):
    """log 0 is −∞ in Regard and only a very low number in a page."""
    run = runs("gpt")
    monkeypatch.setattr(page_file, "Chromium", Browser(run))
    monkeypatch.setattr(page_file, "texts", lambda run: [])
    monkeypatch.setattr(page_file, "log_probabilities", lambda *_: np.array([[-1.0, -2e4, -9999.0]]))
    monkeypatch.setattr(Browser, "evaluate", lambda self, asked: [[-1.5, -5e3, -9998.75]] if "logs" in asked else "")
    (tmp_path / "model.html").write_text("")
    assert page_file.check(run, tmp_path / "model.html").largest_difference == pytest.approx(0.5)


def test_a_page_writes_and_embeds_only_what_it_was_asked_for(runs, tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(page_file, "page", lambda run, **how: asked.append(how) or "it's whole")
    for number, how in enumerate(({}, {"scores": "no", "weights": "int8", "license": "mit"}, {"embed": "yes"})):
        page_file.write(runs("gpt"), tmp_path / f"{number}.html", **how)
    assert asked == [
        {"weights": "fp32", "license": "", "scored": True},
        {"weights": "int8", "license": "mit", "scored": False},
        {"weights": "fp32", "license": "", "scored": True},
    ]
    assert [(tmp_path / f"{n}.html").read_text()[:7] for n in range(3)] == ["it's wh", "it's wh", "<iframe"]


@pytest.mark.parametrize(
    ("weights", "said"), [("fp32", ": --weights int8 makes it smaller; --to onnx"), ("int8", ": --to onnx")]
)
def test_the_size_of_a_page_is_that_of_its_numbers_in_base64(weights, said, runs, monkeypatch):
    monkeypatch.setattr(page_file, "LARGEST", 400)
    monkeypatch.setattr(page_file, "_page", lambda run, made, block, *more: more)
    for size, fits in ((300, True), (301, False)):
        monkeypatch.setattr(page_file, "model_data", lambda run, block, size=size: setattr(block, "size", size))
        if fits:
            assert page_file.page(None, weights=weights) == (weights, "", False)
        else:
            with pytest.raises(RegardError, match=f"would be 401 B, but the limit is 400 B{said}"):
                page_file.page(None, weights=weights)
    with pytest.raises(RegardError, match="--weights must be"):
        page_file.page(None, weights="int4")


PARTS = {
    "alignment": {"kind": "alignment", "name": "alignment"},
    "attention/cross/0": {"rows": "written", "columns": "source", "causal": False},
    "attention/encoder/1": {"rows": "source", "columns": "source", "causal": False},
    "attention/self/0": {"rows": "read", "columns": "read", "causal": True, "kind": "attention", "name": "self/0"},
    "matrices/layer/0": {"kind": "matrices", "name": "layer/0"},
    "hidden/layer/0": {"rows": "read", "unit": "value of the unit", "name": "layer/0"},
    "hidden/encoder/0": {"rows": "source", "unit": "value of the unit"},
    "gates/layer/0/forget": {"rows": "read", "unit": "gate: 0 closed, 1 open", "kind": "gates"},
    "hidden": None,
    "logits": None,
    "new.past.0.hidden": None,
}


@pytest.mark.parametrize("output", PARTS)
def test_a_part_of_a_page_is_shown_over_its_own_words(output):
    found = page_file._part(output)
    if PARTS[output] is None:
        assert found is None
    else:
        assert found.items() >= {"output": output, **PARTS[output]}.items()


def test_parts_come_as_in_a_trace():
    order = ["attention/self/0", "gates/layer/0/forget", "hidden/layer/0", "gates/encoder/0/reset", "hidden/encoder/0"]
    parts = [page_file._part(one) for one in reversed(order)]
    found = sorted(parts, key=lambda part: (part["kind"] in ("hidden", "gates"), *page_file._order(part)))
    assert [one["output"] for one in found] == order
    assert page_file._order(page_file._part("attention/encoder/0")) == (False, False)


def test_json_in_a_page_ends_nothing_and_stays_what_it_is():
    value = {"a": "</script><!-- & \u2028\u2029é", "b": [1, None, 0.5]}
    text = page_file._json(value)
    assert not set("<&\u2028\u2029") & set(text)
    assert json.loads(text) == value
    assert "é" in text
    assert " " not in text.replace("<!-- ", "").replace("-- \\u0026 \\u2028", "")


def test_a_lens_says_of_each_layer_whether_it_is_a_plain_sum(runs, monkeypatch):
    monkeypatch.setattr(page_file, "output_map", lambda model: None)
    layers = [SimpleNamespace(norm_first=True), SimpleNamespace(norm_first=False), SimpleNamespace()]
    assert page_file._lens(SimpleNamespace(layers=layers)) == {"lens": [True, False, False]}
    monkeypatch.setattr(page_file, "output_map", lambda model: (_ for _ in ()).throw(RegardError("It has none.")))
    assert page_file._lens(None) == {"cannot": "It has none."}


@pytest.mark.parametrize(("vocabulary", "kind"), [(4, "uint16"), (1 << 16, "uint16"), ((1 << 16) + 1, "uint32")])
def test_words_of_an_ngram_lie_between_the_places_of_their_contexts(vocabulary, kind):
    last = vocabulary - 1
    level = {
        "unigrams": torch.tensor([0, 1, last, -1]),
        "bigrams": torch.tensor([1, last, vocabulary + 1, 2 * vocabulary, -1]),
    }
    numbers = {name: torch.arange(len(keys), dtype=torch.float32) for name, keys in level.items()}
    levels = [
        SimpleNamespace(keys=keys, log_probability=numbers[name], log_backoff=-numbers[name])
        for name, keys in level.items()
    ]
    added = []
    block = SimpleNamespace(add=lambda array: added.append(array) or len(added) - 1)
    places = list(page_file._levels(SimpleNamespace(vocabulary=vocabulary, levels=levels), block))
    assert places == [{"begin": n, "words": n + 1, "logs": n + 2, "backoffs": n + 3} for n in (0, 4)]
    assert [array.tolist() for array in added] == [
        [0, 3], [0, 1, last], [0, 1, 2], [0, -1, -2],
        [0, 2, 3, 4], [1, last, 1, 0], [0, 1, 2, 3], [0, -1, -2, -3],
    ]  # fmt: skip
    assert (str(added[1].dtype), str(added[0].dtype)) == (kind, "uint32")


def test_examples_are_five_different_lines_of_middle_length(monkeypatch):
    lines, asked = ["x" * size for size in (3, 44, 45, 46, 45, 60, 200, 40, 50)] + [" ", ""], []
    monkeypatch.setattr(page_file, "texts", lambda run, count: asked.append(count) or lines)
    assert [len(line) for line in page_file._examples(None)] == [45, 44, 46, 40, 50]
    assert asked == [24]
    monkeypatch.setattr(page_file, "texts", lambda run, count: (_ for _ in ()).throw(RegardError("gone")))
    assert page_file._examples(None) == []


FACTS = {"corpus": {"name": "harbour", "checksum": "01ab", "notes": ["short"]}, "seed": 3, "created": "2026-11-20",
         "regard": "1.0", "torch": "2.0", "gallery": {"score": {"split": "valid", "perplexity": 5.5}}}  # fmt: skip


def test_a_page_says_what_is_known_of_its_model(runs, monkeypatch, capsys):
    run = runs("gpt")
    monkeypatch.setattr(run, "evaluate", lambda: {"split": "test", "perplexity": 12.3456, "bits_per_character": None})
    found = page_file._told(run, FACTS, "int8", "mit", True)
    about = dict(found["about"])
    assert about["system"].startswith("gpt: ")
    assert (about["data"], about["data checksum"], about["license"]) == ("harbour", "01ab", "mit")
    assert (about["seed"], about["started"], about["created with"]) == ("3", "2026-11-20", "Regard 1.0, PyTorch 2.0")
    assert about["weights in this page"] == "8-bit integers, which change the probabilities slightly"
    assert (found["split"], found["scores"]) == ("test", [[MEASURES["perplexity"], page_file._value(12.3456)]])
    assert (found["unscored"], found["notes"]) == ("", ["short"])
    assert 'system = "gpt"' in found["recipe"]
    plain = page_file._told(run, {}, "fp32", "", False)
    about = dict(plain["about"])
    assert (about["data"], about["license"], about["weights in this page"]) == ("unknown", "not stated", "fp32")
    assert not {"data checksum", "seed", "started"} & about.keys()
    assert (plain["scores"], plain["split"], plain["notes"]) == ([], "", [])
    assert plain["unscored"] == "no scores were measured for this page."
    assert not capsys.readouterr().err
    monkeypatch.setattr(run, "evaluate", lambda: (_ for _ in ()).throw(RegardError("/home/me is gone")))
    failed = page_file._told(run, FACTS, "fp16", "", True)
    assert (failed["scores"], failed["unscored"]) == ([], "the scores could not be measured for this page.")
    assert "note: the page has no scores: /home/me is gone" in capsys.readouterr().err
    assert dict(failed["about"])["weights in this page"] == "fp16, half precision"
    monkeypatch.setattr(page_file, "is_shipped", lambda folder: True)
    shipped = page_file._told(run, FACTS, "fp32", "", True)
    assert (shipped["split"], shipped["scores"]) == ("valid", [[MEASURES["perplexity"], page_file._value(5.5)]])
    assert page_file._value({"score": 30.251}) == page_file._value(30.251)


def test_the_title_of_a_page_is_the_run_its_system_and_its_data(runs, monkeypatch):
    run = runs("gpt")
    assert page_file._title(run) == f"{run.folder.name}: gpt on harbour"
    monkeypatch.setattr(page_file, "read_facts", lambda folder: {})
    assert page_file._title(run) == f"{run.folder.name}: gpt"
    own = SimpleNamespace(folder=run.folder, recipe=SimpleNamespace(system="mine.py:Mine"))
    assert page_file._title(own) == f"{run.folder.name}: Mine"
    assert page_file._system(own) == "Mine"


@pytest.mark.parametrize("shape", [(page_weights.FEW,), (64, 64)])
def test_numbers_share_a_scale_by_row_or_by_256(shape):
    draw = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    weights = PageWeights("int8")
    entry = weights.table[weights.add(draw)]
    assert (entry["type"], entry["row"], entry["count"]) == ("int8", 256 if len(shape) == 1 else 64, draw.size)
    assert weights.table[entry["scale"]]["count"] == draw.size // entry["row"]
    small = PageWeights("int8")
    assert small.table[small.add(draw.reshape(-1)[1:])]["type"] == "float32"  # one number fewer


# -- graphs as data --------------------------------------------------------------------------------------------------


def graph_of(nodes, initializers=(), inputs=("x",), outputs=("y",), opsets=(("", 18),)):
    def info(name):
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 8])

    made = helper.make_graph(
        nodes, "g", [info(name) for name in inputs], [info(name) for name in outputs],
        [numpy_helper.from_array(array, name) for name, array in dict(initializers).items()],
    )  # fmt: skip
    return ir.from_proto(helper.make_model(made, opset_imports=[helper.make_opsetid(*one) for one in opsets]))


def described(*given, **more):
    weights = PageWeights("fp32")
    return weights, PageGraph(graph_of(*given, **more), weights).description


def node(kind, inputs, outputs, **attributes):
    return helper.make_node(kind, inputs, outputs, **attributes)


@pytest.mark.parametrize(
    ("array", "kind", "kept"),
    [
        (np.arange(64, dtype=np.float32), "f", [float(n) for n in range(64)]),
        (np.arange(65, dtype=np.float32), "f", {"weight": 0}),
        (np.array([1.0, np.inf], np.float32), "f", {"weight": 0}),
        (np.array([2**40, -(2**40), 7]), "i", [2**31 - 1, -(2**31), 7]),
        (np.array([True, False]), "b", [1, 0]),
        (np.array(3, np.uint8), "i", [3]),
        (np.ones((13, 5), np.float32), "f", {"weight": 0}),
    ],
)
def test_a_small_constant_is_written_out_and_a_large_one_is_a_weight(array, kind, kept):
    weights, found = described([node("Add", ["x", "c"], ["y"])], {"c": array})
    assert found["constants"] == [[found["nodes"][0][1][1], list(array.shape), kind, kept]]
    assert len(weights.table) == isinstance(kept, dict)


@pytest.mark.parametrize("place", ["second", "first", "elsewhere too", "three axes"])
def test_a_matrix_lies_by_rows_where_it_is_only_multiplied_from_the_right(place):
    matrix = np.arange(10 * 8, dtype=np.float32).reshape((8, 10) if place != "three axes" else (1, 8, 10))
    nodes = [node("MatMul", ["w", "x"] if place == "first" else ["x", "w"], ["y"])]
    nodes += [node("Identity", ["w"], ["z"])] if place == "elsewhere too" else []
    weights, found = described(nodes, {"w": matrix})
    (kept,) = [constant[3] for constant in found["constants"]]
    stored = np.frombuffer(b"".join(weights.parts), np.float32)[: matrix.size]
    if place == "second":
        assert kept == {"weight": 0, "turned": True}
        assert np.array_equal(stored.reshape(10, 8), matrix.T)
    else:
        assert kept == {"weight": 0}
        assert np.array_equal(stored.reshape(matrix.shape), matrix)


def test_nodes_name_their_values_by_number_and_attributes_as_plain_data():
    fill = numpy_helper.from_array(np.array([3], np.int64))
    nodes = [
        node("Constant", [], ["size"], value=numpy_helper.from_array(np.array([2], np.int64))),
        node("ConstantOfShape", ["size"], ["c"], value=fill),
        node("Transpose", ["x"], ["t"], perm=[1, 0]),
        node("Clip", ["t", "", "c"], ["y"]),
        node("Gelu", ["y"], ["z"], approximate="tanh"),
    ]
    _, found = described(nodes, outputs=("y", "z"))
    number = dict(zip(("size", "c", "x", "t", "y", "z"), range(6)))
    assert found["constants"] == [[number["size"], [1], "i", [2]]]
    assert found["inputs"] == {"x": number["x"]}
    assert found["outputs"] == {"y": number["y"], "z": number["z"]}
    assert found["nodes"] == [
        ["ConstantOfShape", [number["size"]], [number["c"]], {"value": ["i", [3]]}],
        ["Transpose", [number["x"]], [number["t"]], {"perm": [1, 0]}],
        ["Clip", [number["t"], -1, number["c"]], [number["y"]], {}],
        ["Gelu", [number["y"]], [number["z"]], {"approximate": "tanh"}],
    ]
    with pytest.raises(RegardError, match="cannot compute the ONNX operator Softsign"):
        described([node("Softsign", ["x"], ["y"])])


def loop(**attributes):
    def info(name, shape):
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)

    body = helper.make_graph(
        [node("Add", ["before", "now"], ["sum"]), node("Mul", ["sum", "two"], ["after"]),
         node("Identity", ["sum"], ["each"])],
        "body", [info("before", [8]), info("now", [8])], [info("after", [8]), info("each", [8])],
        [numpy_helper.from_array(np.float32([2.0]), "two")],
    )  # fmt: skip
    return node("Scan", ["s", "x"], ["end", "y"], body=body, num_scan_inputs=1, **attributes)


def test_a_loop_is_over_the_first_axis_and_has_a_body():
    for directions in ({}, {"scan_input_axes": [0], "scan_output_directions": [0]}):
        _, found = described([loop(**directions)], inputs=("s", "x"))
        ((kind, inputs, outputs, about),) = found["nodes"]
        assert (kind, len(inputs), len(outputs), about["scans"]) == ("Scan", 2, 2, 1)
        assert [one[0] for one in about["body"]["nodes"]] == ["Add", "Mul", "Identity"]
        (before, now), (after, each) = about["body"]["inputs"], about["body"]["outputs"]
        assert about["body"]["nodes"][0][1] == [before, now]
        assert [one[2] for one in about["body"]["nodes"][1:]] == [[after], [each]]
        assert [constant[1:] for constant in found["constants"]] == [[[1], "f", [2.0]]]
    for name in ("scan_input_axes", "scan_output_axes", "scan_input_directions", "scan_output_directions"):
        with pytest.raises(RegardError, match="supports only loops over the first axis"):
            described([loop(**{name: [1]})], inputs=("s", "x"))


# -- ONNX ------------------------------------------------------------------------------------------------------------


def test_weights_of_several_graphs_are_in_one_file_once_and_aligned(tmp_path):
    arrays = [np.arange(10, dtype=np.float32), np.arange(100, dtype=np.float32), np.arange(10, dtype=np.float32)]
    with open(tmp_path / "weights.bin", "xb") as file:
        shared = SharedWeights(file)
        kept = [shared.add(ir.tensor(array, name=f"w{n}")) for n, array in enumerate(arrays)]
    assert [one.offset for one in kept] == [0, ALIGNED, 0]
    assert [one.name for one in kept] == ["w0", "w1", "w2"]
    assert (tmp_path / "weights.bin").stat().st_size == ALIGNED + 400
    assert all(np.array_equal(one.numpy(), array) for one, array in zip(kept, arrays))


def test_only_large_weights_lie_outside_a_graph(tmp_path):
    least = MIN_EXTERNAL_BYTES // 4
    arrays = {"a": np.ones(least, np.float32), "b": np.ones(least - 1, np.float32)}
    model = graph_of([node("Add", ["x", "a"], ["t"]), node("Add", ["t", "b"], ["y"])], arrays)
    with open(tmp_path / "weights.bin", "xb") as file:
        facts = save_graph(model, tmp_path / "model.onnx", SharedWeights(file))
    free = {"type": "float32", "shape": ["n", 8]}
    assert facts == {"inputs": {"x": free}, "outputs": {"y": free}}
    kept = {name: value.const_value for name, value in ir.load(tmp_path / "model.onnx").graph.initializers.items()}
    assert {name: isinstance(one, ir.ExternalTensor) for name, one in kept.items()} == {"a": True, "b": False}


def test_free_sizes_are_found_and_bounded_by_the_context(runs):
    model = runs("transformer").model
    axes = onnx_graphs.free_axes(model)
    past, source = {0: "rows", 2: "past"}, {0: "sources", 1: "source_columns"}
    kinds = {("seen",): {0: "rows"}, ("past", "keys"): past, ("past", "values"): past}
    kinds |= {("source", "valid"): source, ("source", "keys_values"): source}
    assert axes == {path: kinds[tuple(part for part in path.split(".") if not part.isdigit())] for path in axes}
    sizes = {name: (one.min, one.max) for name, one in onnx_graphs.named_sizes(model).items()}
    free = (1, 1 << 20)
    assert sizes == {"rows": free, "sources": free, "columns": free, "source_columns": free, "past": (0, free[1])}
    assert onnx_graphs.named_sizes(runs("gpt").model)["columns"].max == 48
    bounded = SimpleNamespace(context=5, source_context=7)
    found = onnx_graphs.named_sizes(bounded)
    assert (found["columns"].max, found["source_columns"].max, found["rows"].max) == (5, 7, free[1])


def test_examples_of_a_call_have_rows_for_each_source_and_a_past(runs):
    assert (Example().rows, Example(sources=3, width=4).rows) == (2, 12)
    tokens, lengths = Example(sources=3, source_columns=4).source()
    assert (tokens.shape, lengths.tolist()) == ((3, 4), [4, 4, 4])
    given, free = onnx_graphs.tokens_example(runs("transformer").model)
    assert (given["tokens"].shape, given["lengths"].tolist(), given["seen"].shape[0]) == ((4, 4), [4] * 4, 4)
    assert given["past.0.keys"].size(2) == 3
    assert given["source.valid"].shape == (2, 5)
    assert (free["tokens"], free["lengths"], free["seen"]) == ({0: "rows", 1: "columns"}, {0: "rows"}, {0: "rows"})
    given, _ = onnx_graphs.tokens_example(runs("gpt").model)
    assert given["tokens"].shape == (2, 4)
    assert Example(sources=1, past=0).state(runs("gpt").model)["past.0.keys"].shape[2] == 0
    given, free = onnx_graphs.source_example()
    assert given["source"].shape == (2, 5)
    assert free == {"source": {0: "sources", 1: "source_columns"}, "lengths": {0: "sources"}}


def test_a_comparison_keeps_the_largest_difference_and_counts_equal_choices():
    found = OutputComparison()
    assert (found.largest, found.tokens, found.same) == (0.0, 0, 0)
    one = torch.tensor([[1.0, 2.0], [4.0, 3.0]])
    found.add({"logits": one, "new.seen": torch.tensor([3])}, {"logits": one.numpy() - 0.5, "new.seen": np.array([1])})
    assert (found.largest, found.tokens, found.same) == (2.0, 2, 2)
    found.add({"logits": one}, {"logits": one.numpy()[:, ::-1]})
    found.add({"new.x": torch.zeros(2, 0)}, {"new.x": np.zeros((2, 0))})
    assert (found.largest, found.tokens, found.same) == (2.0, 4, 2)
    with pytest.raises(RegardError, match="The graph returns logits, b, but Regard returns logits"):
        found.add({"logits": one}, {"logits": one.numpy(), "b": one.numpy()})
    with pytest.raises(RegardError, match=r"The graph's logits has shape \(1, 2\), but Regard's has \(2, 2\)"):
        found.add({"logits": one}, {"logits": one.numpy()[:1]})


class Itself:
    """Graphs that are the model itself, and note what they were given."""

    def __init__(self, model):
        self.model, self.calls = model, []

    def __call__(self, name, given):
        self.calls.append((name, {key: torch.as_tensor(value).shape for key, value in given.items()}, given["lengths"]))
        given = {key: torch.as_tensor(value) for key, value in given.items()}
        with torch.no_grad():
            if name == "begin":
                return {key: leaf.numpy() for key, leaf in leaves(self.model.begin(**given)).items()}
            if "source" in given:
                state = self.model.begin(given["source"], given["lengths"])
                return {"logits": self.model(given["source"][:, :1], state)[0][:, 0].numpy()}
            state = onnx_graphs.nested({key: one for key, one in given.items() if key not in ("tokens", "lengths")})
            logits, after = self.model(given["tokens"], state, given["lengths"])
        new = {f"new.{key}": leaf.numpy() for key, leaf in leaves(after).items() if not key.startswith("source.")}
        return {"logits": logits.numpy(), **new}


@pytest.mark.parametrize("system", ["gpt", "transformer", "classifier"])
def test_graphs_are_compared_at_several_sizes_and_then_token_by_token(runs, system, monkeypatch, tmp_path):
    run = runs(system, **({"encoder": "dan", "width": 8} if system == "classifier" else {}))
    graphs = Itself(onnx_graphs.plain(run))
    monkeypatch.setattr(onnx_graphs, "Graphs", lambda folder: graphs)
    found = onnx_graphs.check(run, tmp_path)
    assert found.largest_difference == 0.0
    sizes = [(1, 1), (3, 6), (2, 4)]
    if system == "classifier":
        assert found.compared == "logits"
        assert found.same_text == "6 of 6 most probable tokens"
        assert [shapes["source"] for _, shapes, _ in graphs.calls] == [(rows, columns + 2) for rows, columns in sizes]
        return
    assert found.compared == "logits and states: whole texts, then token by token"
    reads = [(shapes["tokens"], lengths) for name, shapes, lengths in graphs.calls if name == "model"]
    each = 2 if isinstance(run.model, Translator) else 1
    expected = [(each * rows, width) for rows, columns in sizes for width in (columns, 1, 1, 1)]
    assert [tuple(shape) for shape, _ in reads] == expected
    assert all(int(lengths.max()) == shape[1] and int(lengths.min()) >= 1 for shape, lengths in reads)
    assert any(int(lengths.min()) < shape[1] for shape, lengths in reads)  # some rows are padded
    tokens = sum(int(lengths.sum()) for _, lengths in reads)
    assert found.same_text == f"{tokens} of {tokens} most probable tokens"
    if each == 2:
        begun = [tuple(shapes["source"]) for name, shapes, _ in graphs.calls if name == "begin"]
        assert begun == [(rows, columns + 2) for rows, columns in sizes]


def test_a_comparison_stays_within_the_context(runs):
    model = onnx_graphs.plain(runs("gpt", context=8))
    graphs = Itself(model)
    onnx_graphs._compare(model, graphs, 2, 30, np.random.default_rng(0), OutputComparison())
    assert [tuple(shapes["tokens"]) for _, shapes, _ in graphs.calls] == [(2, 5), (2, 1), (2, 1), (2, 1)]


def test_what_an_export_changes_is_as_it_was_afterwards():
    written, noisy = cell.unroll, logging.getLogger("torch.onnx")
    level = noisy.level
    for change, changed in (
        (onnx_graphs.loops_in_graph, lambda: cell.unroll is onnx_graphs.unroll_in_graph),
        (onnx_graphs.quietly, lambda: noisy.level == logging.ERROR),
    ):
        seen = []
        with pytest.raises(ZeroDivisionError), change():
            seen.append(changed()) or 1 / 0
        assert seen == [True]
    assert cell.unroll is written
    assert noisy.level == level


def test_a_state_that_does_not_begin_with_zeros_has_no_graph(runs, monkeypatch, tmp_path):
    monkeypatch.setattr(
        Example, "state", lambda self, model: {"past.0.sum": torch.zeros(1), "past.1.sum": torch.ones(1)}
    )
    with pytest.raises(RegardError, match=r"this model's past\.1\.sum starts differently"):
        onnx_graphs.write(runs("gpt"), tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("system", "joint", "parts"), [
    ("gpt", True, ["sizes.get(size, size)"]),
    ("transformer", True, ["source_tokenizer = tokenizer\n", "A sentence to translate.", "begin.onnx"]),
    ("transformer", False, ['source_tokenizer = Tokenizer.from_file("tokenizer.source.json")']),
    ("classifier", False, ["A sentence to label.", "logits[0].argmax()"]),
])  # fmt: skip
def test_the_program_beside_a_graph_opens_the_tokenizers_that_are_there(runs, system, joint, parts):
    more = {"encoder": "dan", "width": 8} if system == "classifier" else {"joint": joint} if system != "gpt" else {}
    program = example(runs(system, **more))
    compile(program, "example", "exec")
    assert all(part in program for part in parts)
    assert ("source_tokenizer" in program) == (system != "gpt")
    assert ("begin.onnx" in program) == (system == "transformer")


# -- the browser's pipe ----------------------------------------------------------------------------------------------


@contextmanager
def piped(*answers, ended=False):
    """A browser whose answers lie in its pipe already."""
    (read, to), (back, write) = os.pipe(), os.pipe()
    os.write(write, b"".join(one if isinstance(one, bytes) else json.dumps(one).encode() + b"\0" for one in answers))
    if ended:
        os.close(write)
    try:
        yield Chromium(to, back), lambda: [json.loads(one) for one in os.read(read, 1 << 16).split(b"\0")[:-1]]
    finally:
        for one in (read, to, back, *(() if ended else (write,))):
            os.close(one)


def test_an_answer_belongs_to_the_command_with_its_number():
    event = {"method": "Target.attached", "params": {}}
    with piped(event, {"id": 1, "result": {"a": 1}}, event, {"id": 2, "result": {"b": 2}}) as (browser, sent):
        assert browser.call("One", x=5) == {"a": 1}
        assert browser.call("Two", "S1", y=6) == {"b": 2}
        assert sent() == [
            {"id": 1, "method": "One", "params": {"x": 5}},
            {"id": 2, "method": "Two", "params": {"y": 6}, "sessionId": "S1"},
        ]
    with (
        piped({"id": 1, "error": {"message": "no such page"}}) as (browser, _),
        pytest.raises(RegardError, match=r"Chromium refused Page\.x: no such page"),
    ):
        browser.call("Page.x")
    with (
        piped(b'{"id": 1, "resu', ended=True) as (browser, _),
        pytest.raises(RegardError, match="Chromium exited before it responded"),
    ):
        browser.call("Page.x")


@pytest.mark.parametrize("address", ["about:blank", "file:///x.html"])
def test_a_page_is_opened_and_waited_for(address):
    results = [{"targetId": "T"}, {"sessionId": "S"}, {}, {}, {"result": {"value": True}}]
    with piped(*({"id": n, "result": one} for n, one in enumerate(results, 1))) as (browser, sent):
        page = browser.open(address)
        told = sent()
    assert isinstance(page, OpenPage)
    assert [one["method"] for one in told[:2]] == ["Target.createTarget", "Target.attachToTarget"]
    assert told[0]["params"] == {"url": "about:blank"}
    assert told[1]["params"] == {"targetId": "T", "flatten": True}
    if address == "about:blank":
        assert len(told) == 2
    else:
        assert [(one["method"], one["sessionId"]) for one in told[2:]] == [
            ("Page.enable", "S"), ("Page.navigate", "S"), ("Runtime.evaluate", "S"),
        ]  # fmt: skip
        assert told[3]["params"] == {"url": address}
        assert told[4]["params"] == {"expression": LOADED, "awaitPromise": True, "returnByValue": True}


@pytest.mark.parametrize(
    ("details", "said"),
    [
        ({"exception": {"description": "Error: no"}, "text": "Uncaught"}, "Error: no"),
        ({"text": "Uncaught"}, "Uncaught"),
    ],
)
def test_what_a_page_throws_is_an_error_with_its_words(details, said):
    with (
        piped({"id": 1, "result": {"result": {}, "exceptionDetails": details}}) as (browser, _),
        pytest.raises(RegardError, match=f"^the page failed: {said}$"),
    ):
        OpenPage(browser, "S").evaluate("1")
