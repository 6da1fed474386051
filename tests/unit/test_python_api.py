"""The Python API: real signatures, documented parameters, and one sentence for a wrong argument, by its name."""

import contextlib
import inspect
import subprocess
import sys
from typing import get_args, get_overloads

import numpy as np
import pytest
from docstring_parser import DocstringStyle, parse

import regard
from regard.base.arguments import in_python
from regard.runs.train import TrainOptions
from regard.systems.catalogue import SYSTEMS, ClassificationSystem, LanguageSystem, TranslationSystem

LINES = [f"{who} {does} {what}." for who in ("The cat", "A dog") for does in ("sees", "eats") for what in ("it", "you")]
PAIRS = [(line, line.upper()) for line in LINES]
LABELLED = [(line, "cat" if "cat" in line else "dog") for line in LINES]
QUICK = {"training": {"steps": 2, "evaluate_every": 2, "threads": 1, "batch_tokens": 64}}


# -- what is public ----------------------------------------------------------------------------------------------------


def functions_of(kind):
    """(name, function, whether it is an attribute) of everything public that a class of Regard defines."""
    for name, member in inspect.getmembers_static(kind):
        is_attribute = isinstance(member, property) or hasattr(member, "func")
        function = getattr(member, "fget", None) or getattr(member, "func", member)
        is_public = not name.startswith("_") or name == "__call__"
        if is_public and inspect.isfunction(function) and inspect.unwrap(function).__module__.startswith("regard."):
            yield f"{kind.__name__}.{name}", function, is_attribute


def public():
    for name in regard.__all__:
        thing = getattr(regard, name)
        if isinstance(thing, type):
            yield from functions_of(thing)
        else:
            yield name, thing, False


PUBLIC = list(public())
CLASSES = [getattr(regard, name) for name in regard.__all__ if isinstance(getattr(regard, name), type)]


def sections(thing):
    text = parse(inspect.getdoc(thing) or "", DocstringStyle.GOOGLE)
    assert text.short_description
    return {param.arg_name: param.description for param in text.params}, text.returns, text.raises


@pytest.mark.parametrize("function", [pytest.param(f, id=name) for name, f, is_attribute in PUBLIC if not is_attribute])
def test_every_public_function_documents_parameters_result_and_errors(function):
    parameters, returns, raises = sections(function)
    signature = inspect.signature(function)
    assert list(parameters) == [name for name in signature.parameters if name != "self"]
    assert all(parameters.values())
    assert returns is not None
    if parameters and hasattr(function, "__wrapped__") and not inspect.unwrap(function).__module__.startswith("torch"):
        assert raises  # it refuses wrong arguments


@pytest.mark.parametrize("function", [pytest.param(f, id=name) for name, f, is_attribute in PUBLIC if is_attribute])
def test_every_public_attribute_has_a_docstring(function):
    assert inspect.getdoc(function)


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_every_public_class_documents_the_parameters_of_its_constructor(kind):
    parameters, _, _ = sections(kind)
    if inspect.isfunction(kind.__init__) and not kind.__init__.__module__.startswith("torch."):
        assert list(parameters) == list(inspect.signature(kind).parameters)


@pytest.mark.parametrize("function", [f for name, f, _ in PUBLIC if "." not in name], ids=lambda f: f.__name__)
def test_functions_of_the_package_have_real_signatures(function):
    assert inspect.isfunction(function)
    for one in inspect.signature(function).parameters.values():
        assert one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)
        assert one.annotation is not one.empty


def test_compare_is_a_function_whatever_is_imported_first():
    code = """
import inspect, sys
import torch  # once: only the package is imported anew
for first in ("import regard.comparison.comparison", "from regard.comparison import ladders", "pass"):
    for name in [name for name in sys.modules if name.partition(".")[0] == "regard"]:
        del sys.modules[name]
    exec(first)
    import regard
    assert inspect.isfunction(regard.compare), (first, regard.compare)
    assert list(inspect.signature(regard.compare).parameters)[:3] == ["systems", "data", "match"]
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_importing_the_package_imports_nothing_else():
    code = "import sys; before = set(sys.modules); import regard; print(*sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    loaded = done.stdout.split()
    assert [name for name in loaded if name.partition(".")[0] not in sys.stdlib_module_names] == ["regard"]
    assert len(loaded) < 40  # `typing` and what it needs


# -- what type checkers know -------------------------------------------------------------------------------------------


def test_type_checkers_know_the_systems_of_the_catalogue():
    tasks = {"language model": LanguageSystem, "translation": TranslationSystem, "classification": ClassificationSystem}
    for task, names in tasks.items():
        assert set(get_args(names)) == {system.name for system in SYSTEMS if system.task == task}
    assert {system.task for system in SYSTEMS} == tasks.keys()


def test_the_overloads_of_train_have_the_parameters_of_train():
    written = inspect.unwrap(regard.train)
    assert ["system", *TrainOptions.__annotations__] == list(inspect.signature(written).parameters)
    assert len(get_overloads(written)) == 4


# -- wrong arguments ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    data = {"lstm": LINES, "transformer": PAIRS, "classifier": LABELLED}
    return {
        name: regard.train(name, data=given * 4, run=folder / name, size="tiny", settings=QUICK)
        for name, given in data.items()
    }


@pytest.fixture(scope="module")
def things(runs):
    """An object of each public class whose methods take arguments, and the package."""
    lstm, transformer, classifier = runs.values()
    return {
        "LanguageRun": lstm, "TranslationRun": transformer, "ClassificationRun": classifier, "Run": lstm,
        "Prediction": lstm("The")[0], "Labelling": classifier("The cat"), "History": lstm.history,
        "Trace": transformer.trace(LINES[0]),
    }  # fmt: skip


RIGHT = {  # for parameters without a default
    "text": LINES[0], "source": LINES[0], "words": "The", "lines": LINES, "prompts": LINES, "ids": [3, 4], "token": ".",
    "line": "The cat", "number": 1, "name": "cross/0", "data": None, "split": None, "device": "cpu", "pairs": LABELLED,
    "sampling": regard.Sampling(), "query": [0.5], "keys": [[0.0], [1.0]], "values": [1.0, 2.0], "to": "archive",
    "out": "out", "run": "nowhere", "file": "nowhere", "folder": "nowhere",
    "model": regard.Model(), "place": "self/0", "change": 0.0, "texts": LINES, "prompt": LINES[0],
    "messages": [{"role": "user", "content": "Hello"}],
}  # fmt: skip
EXTENDED = ("Layer.", "Cell.", "Model.")  # for a user's own classes to override: their tensors are not checked
CALLED = [(name, f) for name, f, is_attribute in PUBLIC if not is_attribute and not name.startswith(EXTENDED)]
CALLED += [(name, getattr(regard, name)) for name in ("Beam", "Sampling")]
PARAMETERS = [(name, one) for name, f in CALLED for one in inspect.signature(f).parameters if one != "self"]
NOT_VALUES = (None, 5, -1, 2.5, float("nan"), 10**400, True, "x", b"x", [], ["x"], [5], {}, {"x": 1}, (1, 2), object())


def call(things, name, parameter, value):
    owner, _, method = name.rpartition(".")
    function = getattr(things[owner], method) if owner else getattr(regard, method)
    given = {parameter: value}
    for one in inspect.signature(function).parameters.values():
        if one.default is one.empty and one.name not in given:
            given[one.name] = RIGHT[one.name]
    result = function(**given)
    return next(result, None) if inspect.isgenerator(result) else result


@pytest.mark.parametrize(("name", "parameter"), PARAMETERS)
def test_an_argument_of_the_wrong_type_is_refused_by_its_name(things, name, parameter):
    with pytest.raises(regard.RegardError, match=rf"\b{parameter}\b|is no state") as raised:
        call(things, name, parameter, object())
    assert "--" not in str(raised.value)


@pytest.mark.parametrize(("name", "parameter"), [one for one in PARAMETERS if one[0] not in ("train", "compare")])
def test_no_argument_fails_from_inside(things, name, parameter, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for value in NOT_VALUES:
        with contextlib.suppress(regard.RegardError):
            call(things, name, parameter, value)


DATA = "data must be a string, a path, a list of strings, a list of pairs of strings or None, not 5."
SETTINGS = "settings must be a dict of dicts or None, not {'training': 5}."
CALLS = {  # by the system whose run is called; "": the package
    "": [
        (lambda _: regard.train("lstm", data=5), DATA),
        (lambda _: regard.train("lstm", callbacks=["x"]), "Item 0 of callbacks must be a function, not 'x'."),
        (lambda _: regard.train("lstm", seed="1"), "seed must be a whole number or None, not '1'."),
        (lambda _: regard.train("lstm", settings={"training": 5}), SETTINGS),
        (lambda _: regard.compare(["lstm", 5], data=LINES), "Item 1 of systems must be a string, not 5."),
        (lambda _: regard.compare(["lstm"], data=LINES, seeds=0), "seeds must be at least 1, not 0."),
        (lambda _: regard.load("x", str), "kind must be the class Run or one derived from it or None, not a type."),
        (lambda _: regard.Beam(0), "width must be at least 1, not 0."),
        (lambda _: regard.Beam(2, n_best=3), "n_best must be at least 1 and at most width 2, not 3."),
    ],
    "lstm": [
        (lambda run: run.generate(None), "prompt must be a string, not None."),
        (lambda run: run.generate(["a"]), "prompt must be a string, not ['a']."),
        (lambda run: run.generate("a", top_k=-1), "top_k must be at least 0 (0 = no limit), not -1."),
        (lambda run: next(run.stream("a", seed=-1)), "seed must be at least 0 and below 2^63, not -1."),
        (lambda run: run.beam("a", width=0), "width must be at least 1, not 0."),
    ],
    "transformer": [
        (lambda run: run.translate(None), "text must be a string or a list of strings, not None."),
        (lambda run: run.translate("I", beam="5"), "beam must be a whole number, a Beam or None, not '5'."),
        (lambda run: run.translate("I", beam=0), "beam must be at least 1, not 0."),
        (lambda run: run.trace("I", beam=0), "beam must be at least 1, not 0."),
    ],
}


@pytest.mark.parametrize(
    ("system", "call", "sentence"),
    [pytest.param(system, *one, id=one[1]) for system, calls in CALLS.items() for one in calls],
)
def test_what_went_wrong_is_said_at_once_in_one_sentence(runs, system, call, sentence):
    with pytest.raises(regard.RegardError) as raised:
        call(runs.get(system))
    assert str(raised.value) == sentence


def test_a_run_of_another_kind_is_refused(runs):
    folder = runs["lstm"].folder
    assert type(regard.load(folder, regard.LanguageRun)) is type(regard.load(folder, regard.Run)) is regard.LanguageRun
    with pytest.raises(regard.RegardError, match="is an lstm, so kind must be LanguageRun, not TranslationRun"):
        regard.load(folder, regard.TranslationRun)
    with pytest.raises(regard.RegardError, match=r"already exists: `regard resume .*`.*, or choose another run\."):
        regard.train("lstm", data=LINES, run=folder)


def test_options_in_a_sentence_are_parameters_in_python():
    assert in_python("leave --top-k out, or --data.columns") == "leave top_k out, or data.columns"
    assert in_python("leave --from out", {"start"}) == "leave start out"
    for same in ("`regard train --data x` trains", "runs/a--b exists", "There is no system '--lstm'"):
        assert in_python(same) == same


def test_a_row_of_a_table_or_an_array_is_a_list(runs):
    lstm, transformer = runs["lstm"], runs["transformer"]
    assert lstm.generate("The", max_tokens=np.int64(3), temperature=np.float32(0.5))
    assert transformer.translate(np.array(LINES[:2]), beam=1) == transformer.translate(LINES[:2], beam=1)


# -- export and import -------------------------------------------------------------------------------------------------


def test_a_model_is_exported_checked_and_imported(runs, tmp_path):
    ngram = regard.train("ngram", data=LINES * 4, run=tmp_path / "ngram")
    assert regard.export(ngram, "arpa", tmp_path / "n.arpa") is None
    assert regard.export(runs["lstm"].folder, "archive", tmp_path / "lstm.zip") is None
    back = regard.import_model(tmp_path / "lstm.zip", run=tmp_path / "back")
    assert isinstance(back, regard.LanguageRun)
    assert back.generate("The", max_tokens=5) == runs["lstm"].generate("The", max_tokens=5)
    arpa = regard.import_model(tmp_path / "n.arpa", run=tmp_path / "arpa", tokenizer=ngram.folder / "tokenizer.json")
    scores = [[line.log_probability for line in run.score(LINES)] for run in (ngram, arpa)]
    assert scores[0] == pytest.approx(scores[1], rel=1e-5)


def test_an_export_is_checked_by_the_program_it_is_for(runs, tmp_path):
    pytest.importorskip("onnxruntime")
    parity = regard.export(runs["lstm"], "onnx", tmp_path / "onnx", check=True)
    assert parity.program.startswith("onnxruntime")
    assert parity.largest_difference < 1e-4


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"to": "arpa"}, "to arpa supports only ngram, but .* is an lstm"),
        ({"to": "word"}, "to must be one of huggingface"),
        ({"to": "archive", "options": {"quantization": "int8"}}, "to archive has no option quantization"),
        ({"to": "archive", "check": True}, "to archive does not support check"),
        ({"to": "archive", "run": "nowhere"}, "There is no run nowhere"),
    ],
)
def test_an_export_is_refused_as_on_the_command_line(runs, tmp_path, arguments, sentence):
    with pytest.raises(regard.RegardError, match=sentence):
        regard.export(**{"run": runs["lstm"], "out": tmp_path / "out"} | arguments)
    assert not any(tmp_path.iterdir())
