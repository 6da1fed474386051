"""The honest table's own laws: intervals cover, differences are paired, nobody gets more than another."""

import csv
import hashlib
import html
import io
import math
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from itertools import combinations, pairwise
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import regard
from regard.base.errors import RegardError
from regard.base.numbers import grouped
from regard.compare.curves import Curve, averaged, in_order, other_order
from regard.compare.differences import Difference, alike, named
from regard.compare.language_task import LANGUAGE
from regard.compare.question import Question, _label
from regard.compare.width import match_parameters, size_of
from regard.evaluation.documents import FEWEST, MOST, Documents
from regard.evaluation.intervals import Resampling, interval
from regard.report.figures import Heat, Intervals, Line, Lines, Mark
from regard.report.offline_page import script_of
from regard.report.page import command, folded, heading, listing, page, paragraph, sample, side_by_side_texts, table
from regard.report.svg import interval_chart, line_chart, svg
from regard.report.table import csv_text, latex_text, plain_table, seconds, significant
from regard.runs.recipe import compose
from regard.systems.catalogue import SYSTEMS
from regard.text.tokenizer import Tokenizer

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


# -- intervals -------------------------------------------------------------------------------------------------------


def coverage(seeds, documents, seed_spread, document_spread, trials=300, draws=1000):
    """How often the 95 % interval holds the loss that all seeds and documents have in common."""
    random, truth, hits = np.random.default_rng(7), 4.0, 0
    for _ in range(trials):
        tokens = np.round(500 * np.exp(0.3 * random.standard_normal(documents)))
        hard = document_spread * (2 * random.gamma(4, 0.25, documents) - 2)  # skewed, mean 0
        luck = seed_spread * random.standard_normal((seeds, 1))
        nats = (truth + hard + luck + 0.02 * random.standard_normal((seeds, documents))) * tokens
        low, high = interval(Resampling(tokens, draws).losses(nats))
        hits += low <= truth <= high
    return hits / trials


@pytest.mark.parametrize(
    ("seeds", "documents", "seed_spread", "document_spread"),
    [(1, 20, 0.0, 0.2), (1, 100, 0.0, 0.2), (2, 20, 0.05, 0.0), (3, 20, 0.05, 0.0), (5, 20, 0.05, 0.0)],
)
def test_a_95_percent_interval_covers_95_percent(seeds, documents, seed_spread, document_spread):
    assert 0.91 <= coverage(seeds, documents, seed_spread, document_spread) <= 0.985


@pytest.mark.parametrize("seeds", [2, 3])
def test_where_seeds_and_documents_both_vary_it_covers_at_least_that(seeds):
    assert coverage(seeds, 40, 0.03, 0.2) >= 0.93


def test_a_difference_is_paired_and_so_tighter_than_either_interval():
    random = np.random.default_rng(1)
    tokens = np.full(50, 500.0)
    hard = random.normal(4, 0.5, 50)  # what is hard for one is hard for the other
    one, other = hard * tokens, (hard + 0.02 + 0.01 * random.standard_normal(50)) * tokens
    resampling = Resampling(tokens)
    draws = [resampling.losses(nats[None], stream) for stream, nats in enumerate((one, other))]
    (low, high), (low_other, _) = interval(draws[0]), interval(draws[1])
    assert low_other < high  # the intervals overlap …
    below, above = interval(draws[0] - draws[1])
    assert above < 0  # … and yet one is better, on the same documents
    assert above - below < (high - low) / 5


def test_draws_are_the_same_every_time_and_an_infinite_loss_has_no_interval():
    tokens, nats = np.full(30, 100.0), np.random.default_rng(0).random((3, 30)) * 100
    assert (Resampling(tokens).losses(nats, 2) == Resampling(tokens).losses(nats, 2)).all()
    nats[0, 0] = math.inf
    assert interval(Resampling(tokens).losses(nats)) is None


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
        ({"data": ""}, "--data my.txt"),
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
        (("lstm", "lstm"), {}, "named twice"),
        (("lsmt",), {}, "did you mean lstm"),
        (("lstm",), {"model": {"wdith": "3"}}, "did you mean model.width"),
        (("lstm",), {"model": {"heads": "3"}}, "No system of this comparison has a setting model.heads"),
        (("lstm",), {"model": {"order": "3"}}, "leave model.order out"),
        (("lstm",), {"modle": {"width": "3"}}, "No system of this comparison has a setting modle.width"),
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
    assert [curve.points for curve in averaged([one, other])] == [((10, 2.0, 3.0), (20, 3.0, 2.0))]


# -- who differs -----------------------------------------------------------------------------------------------------


@given(st.integers(0, 6).flatmap(lambda n: st.tuples(st.just(n), st.sets(st.sampled_from(ALL_PAIRS[n] or [None])))))
@settings(derandomize=True, deadline=None)
def test_sets_not_told_apart_are_all_the_largest_in_which_no_two_differ(drawn):
    count, same = drawn
    order = "abcdef"[:count]
    pairs = [Difference(*pair, -1.0, -2.0, 1.0 if pair in same else -0.5) for pair in combinations(order, 2)]
    inner = [set(s) for n in range(2, 7) for s in combinations(order, n) if set(combinations(s, 2)) <= same]
    largest = [s for s in inner if not any(s < other for other in inner)]
    assert sorted(map(sorted, largest)) == sorted(map(list, alike(order, pairs)))


def test_rows_differ_where_zero_lies_outside_the_interval_and_are_named_in_groups():
    intervals = [(0.1, 1.0), (0.0, 1.0), (-1.0, 1.0), (-1.0, 0.0), (-1.0, -0.1)]
    assert [Difference("a", "b", 0.0, *each).beyond for each in intervals] == [True, False, False, False, True]
    assert named([("a", "b"), ("c", "d", "e")]) == "a and b; c, d and e"
    assert named([]) == ""


# -- language models -------------------------------------------------------------------------------------------------


@pytest.fixture
def my_text(tmp_path):
    path = tmp_path / "my.txt"
    path.write_text("".join(f"line {n} of the text, number {n * n}\n" for n in range(400)), encoding="utf-8")
    return path


@pytest.mark.parametrize("system", ["lstm", "gpt"])
def test_as_many_steps_are_foreseen_as_it_takes_to_read_the_tokens(my_text, system):
    def foreseen(batch_tokens, amount):
        data = {"corpus": str(my_text), "tokenizer": "char"}
        training = {"batch_tokens": batch_tokens, "window": 32}
        recipe = compose(system, "tiny", {"data": data, "training": training})
        ground = LANGUAGE.ground(recipe, "")
        return ground.steps(recipe, amount * ground.facts["tokens"]["train"] if amount < 100 else amount)

    assert [foreseen(320, amount) for amount in (3200, 3201, 6400)] == [10, 11, 20]
    assert foreseen(640, 6400) == 10  # a step that reads twice as much
    assert foreseen(10**6, 10) in (10, 11)  # ten times the text, when a batch would hold more than all of it


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


# -- tables, figures, page -------------------------------------------------------------------------------------------

ROWS = [
    {"label": "a_b & <c>", "value": 12345, "share": 0.5, "interval": "0.41 – 0.58", "nothing": None},
    {"label": 'd, "e"', "value": 7, "share": math.inf, "interval": None, "nothing": None},
]
HEADINGS = {"label": "system", "value": "numbers", "share": "50 % share", "interval": "interval"}


def test_csv_is_read_back_as_it_was():
    read = list(csv.DictReader(io.StringIO(csv_text(ROWS, ["label", "value", "share", "nothing"]))))
    assert [row["label"] for row in read] == [row["label"] for row in ROWS]
    assert float(read[0]["share"]) == 0.5
    assert read[1]["share"] == read[0]["nothing"] == ""


def test_latex_has_a_cell_for_every_column_and_escapes_what_it_must():
    text = latex_text(ROWS, HEADINGS, "100 % of 5_grams")
    lines = [line.strip() for line in text.splitlines() if line.rstrip().endswith(r"\\")]
    assert len(lines) == 3
    assert all(len(re.findall(r"(?<!\\)&", line)) == len(HEADINGS) - 1 for line in lines)
    assert len(re.findall(r"(?<!\\)\{", text)) == len(re.findall(r"(?<!\\)\}", text))
    assert not re.search(r"(?<!\\)[%_#]", text)
    assert r"12\,345" in text
    assert [rule for rule in ("toprule", "midrule", "bottomrule") if rf"\{rule}" in text] != []


def test_text_that_stands_for_numbers_stands_right():
    lines = plain_table([{"a": "0.41 – 0.58"}, {"a": "10.41 – 10.58"}], {"a": "interval"}).splitlines()
    assert lines[1] == "  0.41 – 0.58"
    lines = plain_table([{"a": "−0.41 to 0.58"}, {"a": "0.5 to 1.0"}], {"a": "interval"}).splitlines()
    assert lines[2] == "   0.5 to 1.0"


@pytest.mark.parametrize("number", [0, 7, 999, 1000, 9999, 10_000, 15_218, 2_088_628, -9999, -10_000])
def test_large_numbers_are_grouped_the_same_way_everywhere(number):
    expected = f"{number:,}".replace(",", " ") if abs(number) > 9999 else str(number)
    assert grouped(number) == expected
    assert plain_table([{"a": number}], {"a": "n"}).splitlines()[1].strip() == expected


@pytest.mark.parametrize(
    ("value", "shown"), [(264.0, "264.0"), (5.3, "5.300"), (1349.2, "1349"), (9999.7, "10 000"), (15218.3, "15 218")]
)
def test_as_many_digits_are_shown_also_where_they_are_zeros(value, shown):
    assert significant(value) == shown


def test_short_times_have_hundredths_and_long_ones_tenths():
    assert [seconds(value) for value in (0.02, 9.99, 9.996, 192.93)] == ["0.02", "9.99", "10.0", "192.9"]


def test_a_page_breaks_no_line_within_a_number_or_the_name_of_an_option():
    assert "2\xa0088\xa0628 tokens, 95\xa0% of 12 in 4 splits" in paragraph("2 088 628 tokens, 95 % of 12 in 4 splits")
    assert "2\xa0088\xa0628" in table([{"a": "x", "b": 2_088_628}], {"a": "a", "b": "b"})
    line = command("regard compare --data 'a -- b.txt' --training.batch-tokens 9")
    assert re.findall(r"<span>(.*?)</span>", line) == ["--data", "--training.batch-tokens"]
    assert "2 088" in sample("", "2 088")  # what a model wrote stays as it was


def test_a_prompt_is_greyed_also_where_its_last_space_became_a_line():
    assert sample("= Robert ", "= Robert Brown") == '<pre dir="auto"><b>= Robert </b>Brown</pre>'
    assert sample("= Robert ", "= Robert\nGeneral") == '<pre dir="auto"><b>= Robert</b>\nGeneral</pre>'
    assert sample("= Robert ", "Something else") == '<pre dir="auto">Something else</pre>'
    assert sample("", "written") == '<pre dir="auto">written</pre>'


def figures():
    lines = [Line(f"system {n}", [(100.0 * k, 90.0 / (k + n + 1)) for k in range(5)]) for n in range(9)]
    yield line_chart([*lines, Line("<5-gram>", [(0, 5.0)], level=True)], title="T & t", x="x", y="y", description="D")
    yield svg(Lines("one point", "x", "y", [Line("one", [(3.0, 2.0)])], description="D"))
    yield line_chart(lines, title="cut", x="x", y="y", description="D", log_x=False, top=30.0)
    yield line_chart(
        [Line("a", [(1, 9.0), (90, 2.0)], faint=True)], title="T", x="x", y="y", description="D", log_x=True
    )
    yield interval_chart([Mark("a", 3.0, 2.9, 3.2), Mark("b", 300.0, 250.0, 400.0)], title="T", x="x", description="D")
    yield interval_chart([Mark("a", 3.0, 3.0, 3.0)], title="T", x="x", description="D")


@pytest.mark.parametrize("figure", [*figures()])
def test_a_figure_is_well_formed_and_says_what_it_shows(figure):
    root = ET.fromstring(figure)
    drawing = root.find("svg")
    assert drawing.find("title").text
    assert drawing.find("desc").text == "D"
    assert root.find("figcaption").text == drawing.find("title").text
    left, _, width, height = map(float, drawing.get("viewBox").split())
    for points in (line.get("points") for line in drawing.iter("polyline")):
        for pair in points.split():
            x, y = map(float, pair.split(","))
            assert left <= x <= width
            assert 0 <= y <= height
    assert len([text for text in drawing.iter("text") if text.text]) >= 3  # ticks and labels


def test_what_lies_above_the_top_is_cut_where_the_line_crosses_it():
    line = Line("a", [(0, 8.0), (10, 4.0), (20, 2.0)])
    drawing = ET.fromstring(line_chart([line], title="T", x="x", y="y", description="D", top=4.0)).find("svg")
    (start, *rest) = drawing.find("polyline").get("points").split()
    uncut = ET.fromstring(line_chart([line], title="T", x="x", y="y", description="D")).find("svg")
    assert len(rest) == 2
    assert float(start.split(",")[0]) > float(uncut.find("polyline").get("points").split()[0].split(",")[0])
    assert len(list(drawing.iter("circle"))) == 2  # marks are of what was measured


def test_a_figure_that_would_be_empty_is_left_out():
    axes = {"title": "T", "x": "x", "y": "y", "description": "D"}
    level, point = Line("5-gram", [(0, 5.0)], level=True), Line("one", [(3.0, 2.0)])
    assert line_chart([], **axes) == line_chart([level, point], **axes) == ""
    assert interval_chart([], title="T", x="x", description="D") == ""


def test_each_curve_has_its_name_at_its_end_and_the_best_stands_out():
    lines = [Line(f"system {n}", [(0, 90.0), (100, 10.0 + n / 100)]) for n in range(6)]  # all end at one place
    drawing = ET.fromstring(line_chart(lines, title="T", x="x", y="y", description="D", best="system 3"))
    assert drawing.find("ul") is None  # no legend besides
    names = {text.text: text for text in drawing.iter("text") if (text.text or "").startswith("system")}
    assert set(names) == {line.name for line in lines}
    heights = sorted(float(text.get("y")) for text in names.values())
    assert all(after - before >= 24 for before, after in pairwise(heights))  # none over another
    assert [name for name, text in names.items() if text.get("font-weight")] == ["system 3"]
    ends = max(float(line.get("points").split()[-1].split(",")[0]) for line in drawing.iter("polyline"))
    assert all(float(text.get("x")) > ends for text in names.values())


HOSTILE = """<script>alert("1")</script><img src=x onerror='alert(1)'>&"'"""


def test_no_word_of_a_corpus_a_label_or_a_file_name_becomes_markup():
    figure = Lines(HOSTILE, HOSTILE, HOSTILE, [Line(HOSTILE, [(0, 1.0), (1, 2.0)])], description=HOSTILE)
    short = Lines("T", "x", "y", [Line("<b>&'\"", [(0, 1.0), (1, 2.0)])])
    heat = Heat(HOSTILE, [HOSTILE], [HOSTILE], [[0.5]], HOSTILE, HOSTILE, HOSTILE)
    marks = Intervals(HOSTILE, HOSTILE, [Mark(HOSTILE, 1, 0, 2)], threshold=1.0, threshold_name=HOSTILE)
    parts = [
        heading(HOSTILE), paragraph(HOSTILE), listing([HOSTILE]), sample(HOSTILE, HOSTILE * 2), command(HOSTILE),
        table([{"a": HOSTILE}], {"a": HOSTILE}, [0], HOSTILE), folded(HOSTILE, paragraph(HOSTILE)),
        side_by_side_texts({HOSTILE: HOSTILE}), side_by_side_texts({HOSTILE: HOSTILE}, quiet=[HOSTILE]),
        *map(svg, (figure, short, heat, marks)),
    ]  # fmt: skip
    for part in [*parts, page(HOSTILE, style="")]:
        seen = Tags(part)
        assert not {"script", "img", "b>&'\""} & seen.tags, part
        assert "onerror" not in seen.attributes
        assert HOSTILE in seen.words or "<b>&'\"" in seen.words
    assert html.escape(HOSTILE) in page(HOSTILE)


class Tags(HTMLParser):
    """Which tags and attributes there are, and all words between them."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.words = set(), set(), ""
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attributes}

    def handle_data(self, data):
        self.words += data


def test_nine_lines_are_told_apart_by_more_than_colour():
    drawing = ET.fromstring(next(iter(figures()))).find("svg")
    styles = {(line.get("stroke"), line.get("stroke-dasharray")) for line in drawing.iter("polyline")}
    assert len(styles) == 10


def test_a_page_asks_for_nothing_and_escapes_what_models_write():
    whole = page("T", table(ROWS, HEADINGS, best=[0]), sample("<b>", "<b><script>alert(1)</script>"), *figures())
    whole = whole.replace(f"<script>{script_of('report')}</script>", "", 1)
    assert not re.search(r"(?:src|href|action)\s*=|url\(|@import|https?://", whole)
    assert "<script" not in whole
    assert "&lt;c&gt;" in whole


def test_titles_and_translations_are_escaped():
    evil = "<script>alert('&')</script>"
    safe = "&lt;script&gt;alert(&#x27;&amp;&#x27;)&lt;/script&gt;"
    assert f"<title>{safe}</title>" in page(evil)
    assert side_by_side_texts({evil: "", "quiet": evil}, quiet=["quiet"]) == (
        f'<dl class="facts texts"><dt>{safe}</dt><dd dir="auto">–</dd>'
        f'<dt>quiet</dt><dd dir="auto" class=quiet>{safe}</dd></dl>'
    )
    for made in (heading(evil), paragraph(evil, "lead"), listing([evil]), sample(evil, evil), command(evil)):
        assert safe in made
        assert evil not in made


def test_the_verb_stays_callable_whatever_was_imported_first():
    for first in ("import regard.compare.question", "import regard.cli", "pass"):
        code = f"import regard\n{first}\nassert callable(regard.compare), regard.compare"
        assert subprocess.run([sys.executable, "-c", code]).returncode == 0
    with pytest.raises(regard.RegardError, match="--data"):
        regard.compare(["lstm"])
