"""The honest table's own laws: intervals cover, differences are paired, nobody gets more than another."""

import hashlib
import json
import math
import re
import subprocess
import sys
from dataclasses import fields, replace
from itertools import combinations
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import regard
from regard.base.errors import RegardError
from regard.comparison.curves import Curve, averaged, in_order, other_order
from regard.comparison.differences import Difference, alike, named
from regard.comparison.language_task import LANGUAGE
from regard.comparison.question import Question, _label
from regard.comparison.width import _Search, match_parameters, size_of
from regard.evaluation.documents import FEWEST, MOST, Documents
from regard.runs.store.folder import Tokenizers
from regard.systems.catalogue import SYSTEMS
from regard.text.tokenizers.tokenizer import Tokenizer

ALL_PAIRS = [list(combinations("abcdef"[:count], 2)) for count in range(7)]

# -- documents -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 19, 300, 5_000, 60_000, 250_000])
@pytest.mark.parametrize("mean_line", [1, 12, 300])
def test_documents_hold_every_token_once_and_end_with_lines(count, mean_line):
    random = np.random.default_rng(count + mean_line)
    ids = np.where(random.random(count) < 1 / mean_line, 0, 1 + random.integers(0, 5, count))
    ids[-1] = 0
    documents = Documents.cut(ids, eos=0)
    assert documents.tokens.sum() == count
    assert (documents.tokens > 0).all()
    assert len(documents) == min(FEWEST, count) or FEWEST <= len(documents) <= MOST
    if documents.whole_lines:
        assert (ids[documents.bounds[1:] - 1] == 0).all()
    losses = random.random(count)
    for start in range(0, count, 777):  # however the losses arrive
        documents.add(start, losses[start : start + 777])
    assert documents.nats.sum() == pytest.approx(losses.sum())
    first = slice(0, documents.bounds[1])
    assert documents.nats[0] == pytest.approx(losses[first].sum())


def test_documents_are_about_equally_long():
    random = np.random.default_rng(0)
    ids = np.where(random.random(100_000) < 1 / 20, 0, 1)
    documents = Documents.cut(ids, eos=0)
    assert documents.whole_lines
    assert len(documents) == 200
    assert documents.tokens.max() < 1.5 * documents.tokens.mean()


# -- what is asked ---------------------------------------------------------------------------------------------------


def test_the_two_n_grams_always_stand_in_the_table_and_history_orders_it():
    assert [rung.label for rung in Question(("gpt", "lstm"), "pyref").rungs()] == ["2-gram", "5-gram", "lstm", "gpt"]
    assert [rung.label for rung in Question(("ngram",), "pyref").rungs()] == ["2-gram", "5-gram"]
    everyone = [rung.label for rung in Question((), "pyref").rungs()]
    assert everyone[:2] == ["2-gram", "5-gram"]
    assert everyone[2:] == [s.name for s in SYSTEMS if s.name != "ngram" and s.task == "language model"]


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"data": ""}, "Choose the text to compare the systems on with --data"),
        ({"match": "time"}, "--match must be one of"),
        ({"seeds": 0}, "--seeds must be at least 1"),
        ({"size": "huge"}, "--size must be one of"),
        ({"budget": "60s"}, "--match tokens needs a budget in tokens"),
        ({"match": "seconds", "budget": "5M"}, "--match seconds needs a budget in seconds"),
        ({"budget": "soon"}, "neither a time"),
        ({"settings": {"training": {"steps": "9"}}}, "--budget"),
        ({"settings": {"training": {"seed": "9"}}}, "--seeds N"),
        ({"settings": {"data": {"corpus": "x"}}}, "--data"),
        ({"match": "parameters", "settings": {"model": {"width": "9"}}}, "chooses every system's model.width"),
    ],
)
def test_settings_that_conflict_are_refused_in_a_sentence(settings, sentence):
    with pytest.raises(RegardError, match=re.escape(sentence)):
        Question((), **{"data": "pyref", **settings})


@pytest.mark.parametrize(
    ("systems", "settings", "sentence"),
    [
        (("lstm", "lstm"), {}, "listed twice"),
        (("lsmt",), {}, "did you mean lstm"),
        (("lstm",), {"model": {"wdith": "3"}}, "did you mean model.width"),
        (("lstm",), {"model": {"heads": "3"}}, "No system in this comparison has a setting model.heads"),
        (("lstm",), {"model": {"order": "3"}}, "leave model.order out"),
        (("lstm",), {"modle": {"width": "3"}}, "No system in this comparison has a setting modle.width"),
        (("gpt",), {"model": {"width": "30", "heads": "4"}}, "gpt: model.heads"),
    ],
)
def test_names_and_keys_that_nobody_has_are_refused_in_a_sentence(systems, settings, sentence):
    def ask():
        question = Question(systems, "pyref", settings=settings)
        question.check_settings(question.rungs())
        return [question.recipe(rung) for rung in question.rungs()]

    with pytest.raises(RegardError, match=re.escape(sentence)):
        ask()


def test_a_setting_goes_to_every_system_that_has_it():
    question = Question(("lstm", "gpt"), "pyref", settings={"model": {"heads": "2", "layers": "1"}})
    recipes = {rung.label: question.recipe(rung) for rung in question.rungs()}
    assert recipes["lstm"].model.layers == recipes["gpt"].model.layers == 1
    assert recipes["gpt"].model.heads == 2
    assert recipes["5-gram"].model.order == 5
    assert question.check_settings(question.rungs()) == ["model.heads 2 applies to gpt."]


@pytest.mark.parametrize("size", ["tiny", "small"])
def test_matched_systems_have_the_same_parameters_within_two_percent(size):
    tokenizer = Tokenizer.train(["".join(map(chr, range(33, 127)))], "char")
    question = Question((), "pyref", match="parameters", size=size)
    target, chosen = match_parameters(question, question.rungs(), tokenizer)
    for rung in question.rungs():
        if not rung.counted:
            count, _ = size_of(question.recipe(rung, chosen[rung.label]), tokenizer)
            assert count == pytest.approx(target, rel=0.02), (rung.label, chosen[rung.label])
            model = chosen[rung.label]["model"]
            assert count == min(sizes(question, rung, tokenizer, model), key=lambda other: abs(other - target))


def sizes(question, rung, tokenizer, model):
    """Parameters with a little more or less of the setting that was chosen last."""
    if "feedforward" in model:
        name, step = "feedforward", 1
    else:
        recipe = question.recipe(rung).model
        name, step = "width", getattr(recipe, "width_step", getattr(recipe, "heads", 1))
    for change in (0, -step, step):
        yield size_of(question.recipe(rung, {"model": model | {name: model[name] + change}}), tokenizer)[0]


@pytest.mark.parametrize("system", ["lstm", "gpt"])
def test_no_other_width_is_nearer_to_any_target(system):
    tokenizers = Tokenizers(Tokenizer.train(["abc"], "char"))
    question = Question((system,), "pyref", match="parameters", size="tiny")
    rung = question.rungs()[-1]
    step = getattr(question.recipe(rung).model, "heads", 1)
    counts = {width: _Search(question, rung, tokenizers, 1).count(width) for width in range(step, 13 * step, step)}
    for width in (1, 2, 3, 5, 8):
        for more in (-1, 0, 1, (counts[step * (width + 1)] - counts[step * width]) // 2 + 1):
            target = counts[step * width] + more
            chosen = _Search(question, rung, tokenizers, target).settings()["model"]
            assert abs(counts[chosen["width"]] - target) == min(abs(count - target) for count in counts.values())
    if system == "gpt":
        assert _Search(question, rung, tokenizers, 1).settings()["model"]["feedforward"] == 1
        fixed = replace(question, settings={"model": {"feedforward": 7}})
        assert "feedforward" not in _Search(fixed, rung, tokenizers, 10**5).settings()["model"]


def test_the_command_to_run_it_again_says_how_many_at_a_time_and_no_folder_of_ours():
    question = Question(("lstm",), "my text.txt", budget="5M", settings={"training": {"batch_tokens": "64"}})
    words = "regard compare lstm --data 'my text.txt' --match tokens --budget 5M --seeds 1 --size small"
    assert question.command() == f"{words} --training.batch-tokens 64"
    assert question.command(jobs=6) == f"{words} --training.batch-tokens 64 --jobs 6"


def test_the_command_and_the_identity_hold_all_that_was_asked(tmp_path):
    text = tmp_path / "my.txt"
    text.write_text("a b\n")
    question = Question(
        ("lstm", "gpt"), str(text), "seconds", seeds=3, size="tiny", prompt="Once upon",
        settings={"model": {"width": 8, "layers": 2}, "training": {"warmup": 9}},
    )  # fmt: skip
    assert question.command() == (
        f"regard compare lstm gpt --data {text} --match seconds --budget 60s --seeds 3 --size tiny "
        "--prompt 'Once upon' --model.width 8 --model.layers 2 --training.warmup 9"
    )
    assert question.tree() == {
        "systems": ["lstm", "gpt"], "data": str(text.resolve()), "match": "seconds", "budget": "", "seeds": 3,
        "size": "tiny", "settings": {"model": {"width": "8", "layers": "2"}, "training": {"warmup": "9"}},
        "prompt": "Once upon", "code": {},
    }  # fmt: skip
    assert Question(("lstm",), "pyref").tree()["data"] == "pyref"


OTHERWISE = {
    "systems": ("gpt",), "data": "copy", "match": "seconds", "budget": "1M", "seeds": 2, "size": "tiny",
    "settings": {"model": {"width": 8}}, "prompt": "x", "placebo": True, "tune": 3,
}  # fmt: skip


def test_every_part_of_a_question_is_in_its_identity():
    """Else a comparison would be continued with runs that answer another question."""
    assert set(OTHERWISE) == {one.name for one in fields(Question)}
    trees = [Question(("lstm",), "pyref").tree()]
    trees += [
        Question(**{"systems": ("lstm",), "data": "pyref", name: value}).tree() for name, value in OTHERWISE.items()
    ]
    assert len({json.dumps(tree, sort_keys=True) for tree in trees}) == len(trees)
    widths = [Question(("lstm",), "pyref", settings={"model": {"width": width}}).tree() for width in (8, "8", 9)]
    assert widths[0] == widths[1] != widths[2]  # from Python or from a command


def test_a_recipe_has_the_budget_the_size_and_the_settings_of_its_row():
    question = Question(("lstm",), "pyref", "seconds", "90s", size="tiny", settings={"model": {"order": 9}})
    ngram, _, lstm = question.rungs()
    assert question.recipe(ngram).model.order == 2  # what the row fixes wins
    assert question.recipe(lstm).training.budget == "90s of steps"
    assert question.recipe(lstm, {"model": {"width": 12}}).model.width == 12
    assert question.recipe(lstm).size == "tiny"
    assert Question(("lstm",), "pyref", budget="1.5M").recipe(lstm).training.budget == "1500000"


def test_systems_of_ones_own_stand_last_and_those_of_one_name_are_numbered(tmp_path):
    names = []
    for name in ("one", "two", "three"):
        path = tmp_path / f"{name}.py"
        path.write_text("import regard\n\n\nclass Mine(regard.Model):\n    pass\n")
        names.append(f"{path}:Mine")
    assert [_label(name, taken) for name, taken in zip(names, ([], ["Mine"], ["Mine", "Mine-2"]))] == [
        "Mine", "Mine-2", "Mine-3",
    ]  # fmt: skip
    tree = Question((names[0], "lstm"), "pyref").tree()
    assert tree["systems"] == [names[0], "lstm"]
    assert tree["code"] == {names[0]: hashlib.sha256((tmp_path / "one.py").read_bytes()).hexdigest()}


# -- equal tokens and equal seconds ----------------------------------------------------------------------------------


def test_the_order_at_equal_seconds_is_read_off_the_curves_of_equal_tokens():
    slow = Curve("slow", 1, ((100, 10.0, 3.0), (200, 20.0, 1.0)))  # better in the end, after twice the time
    fast = Curve("fast", 1, ((100, 5.0, 2.5), (200, 10.0, 2.0)))
    found = other_order([slow, fast], "tokens")
    assert (found.axis, found.at) == ("seconds", 10.0)
    assert (in_order(found.final), in_order(found.there)) == ("slow, fast", "fast, slow")
    assert found.swapped
    assert other_order([slow], "tokens") is None
    assert not found.waited


def test_where_someone_was_validated_only_after_the_fastest_was_done_that_moment_is_taken():
    fast = Curve("fast", 1, ((100, 5.0, 2.5), (200, 10.0, 2.0)))
    late = Curve("late", 1, ((100, 11.0, 3.0), (200, 30.0, 1.0)))
    found = other_order([fast, late], "tokens")
    assert (found.at, found.waited) == (11.0, True)
    assert (in_order(found.final), in_order(found.there)) == ("late, fast", "fast, late")  # fast stands with its last


def test_the_order_at_equal_tokens_is_read_off_the_curves_of_equal_seconds():
    slow = Curve("slow", 1, ((50, 10.0, 3.0), (100, 20.0, 2.0)))
    fast = Curve("fast", 1, ((100, 10.0, 2.5), (200, 20.0, 1.0)))  # ahead at the end, having read twice as much
    found = other_order([slow, fast], "seconds")
    assert (found.axis, found.at, found.waited) == ("tokens", 100, False)
    assert (in_order(found.final), in_order(found.there)) == ("fast, slow", "slow, fast")
    assert found.swapped
    assert not found.level


@pytest.mark.parametrize("apart", [-0.009, 0.009])
def test_a_near_tie_is_no_other_order(apart):
    slow = Curve("slow", 1, ((50, 10.0, 3.0), (100, 20.0, 2.0)))
    fast = Curve("fast", 1, ((100, 10.0, 2.0 + apart), (200, 20.0, 1.0)))
    found = other_order([slow, fast], "seconds")
    assert not found.swapped
    assert found.level == [("fast", "slow")]
    assert "≈" in in_order(found.there)
    close = Curve("fast", 1, ((100, 10.0, 2.5), (200, 20.0, 1.995)))  # and so at the end
    assert not other_order([slow, close], "seconds").swapped


def test_a_mean_curve_is_the_mean_of_first_validations_then_of_second_ones():
    one, other = Curve("a", 1, ((10, 1.0, 4.0), (20, 2.0, 3.0))), Curve("a", 2, ((10, 3.0, 2.0), (20, 4.0, 1.0)))
    assert averaged([one, other]) == [Curve("a", 0, ((10, 2.0, 3.0), (20, 3.0, 2.0)))]


# -- who differs -----------------------------------------------------------------------------------------------------


@given(st.integers(0, 6).flatmap(lambda n: st.tuples(st.just(n), st.sets(st.sampled_from(ALL_PAIRS[n] or [None])))))
@settings(derandomize=True, deadline=None)
def test_sets_not_told_apart_are_all_the_largest_in_which_no_two_differ(drawn):
    count, same = drawn
    order = "abcdef"[:count]
    pairs = [Difference(*pair, -1.0, -2.0, 1.0, 0.5 if pair in same else 0.01) for pair in combinations(order, 2)]
    inner = [set(s) for n in range(2, 7) for s in combinations(order, n) if set(combinations(s, 2)) <= same]
    largest = [s for s in inner if not any(s < other for other in inner)]
    assert sorted(map(sorted, largest)) == sorted(map(list, alike(order, pairs)))


def test_rows_differ_by_their_corrected_p_value_and_are_named_in_groups():
    corrected = [0.001, 0.05, 0.0501, 1.0]
    assert [Difference("a", "b", 0.5, 0.1, 0.9, p).beyond for p in corrected] == [True, True, False, False]
    assert named([("a", "b"), ("c", "d", "e")]) == "a and b; c, d and e"
    assert named([]) == ""


# -- language models -------------------------------------------------------------------------------------------------


def test_bits_per_character_are_counted_by_characters_and_not_by_tokens():
    """Two seeds, two documents of 10 tokens that are 40 characters each; 3 bits a token."""
    nats = 30 * math.log(2)
    facts = {
        "documents": {"tokens": [10, 10], "nats": [nats, nats]}, "tokens": 20, "characters": 80, "perplexity": 8.0,
        "bits_per_character": 0.75, "unknown_rate": 0.0,
    }  # fmt: skip
    done = [{"evaluation": facts, "generation_tokens_per_second": 9.0, "sample": ""}] * 2
    plan = SimpleNamespace(entrants=[SimpleNamespace(label="a", seeds=(1, 2))])
    row = LANGUAGE.scores(plan, {("a", 1): done[0], ("a", 2): done[1]}).row("a", done)
    assert row["perplexity"] == pytest.approx(8.0)
    assert row["bits_per_character"] == pytest.approx(0.75)


def test_the_verb_stays_callable_whatever_was_imported_first():
    code = """
import sys
import torch  # once: only the package is imported anew
for first in ("import regard.comparison.question", "import regard.cli", "pass"):
    for name in [name for name in sys.modules if name.partition(".")[0] == "regard"]:
        del sys.modules[name]
    import regard
    exec(first)
    assert callable(regard.compare), (first, regard.compare)
"""
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
    with pytest.raises(regard.RegardError, match="Choose the text to compare the systems on with data"):
        regard.compare(["lstm"])
