"""Limits that no ordinary text reaches, the numbers in messages, and what decides whether a cached result is used."""

import datetime
import json
import mmap
import unicodedata
import warnings
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import openpyxl
import pytest
import tokenizers

from regard.base.errors import RegardError
from regard.base.fields import FieldError
from regard.corpora import split as hash_split
from regard.text import cached_text, chat_template, template_process
from regard.text.batches import text_batches
from regard.text.batches.pair_shapes import grid_for
from regard.text.batches.text_batches import Batch, Streams
from regard.text.chat_template import ChatTemplate, read_messages, read_template
from regard.text.dialogue_tokens import dialogue_tokens, prompt_tokens
from regard.text.dialogues import DialogueLines, has_dialogues
from regard.text.pairs import Pairs
from regard.text.readers import workbook
from regard.text.readers.workbook import Workbook
from regard.text.split import PairOverlap
from regard.text.tokenizers import engine as engines
from regard.text.tokenizers import piece_table
from regard.text.tokenizers import tokens as token_files
from regard.text.tokenizers.imported import import_engine
from regard.text.tokenizers.pair_tokens import _dump, _parse, encode_pairs
from regard.text.tokenizers.tokenizer import Tokenizer
from regard.text.tokenizers.word_counts import _bins, _places, count_words


def said(call, *given, **named):
    with pytest.raises(RegardError) as error:
        call(*given, **named)
    return str(error.value)


# -- workbooks -------------------------------------------------------------------------------------------------------


def book(path, rows, title="Pairs", **others):
    made = openpyxl.Workbook()
    made.active.title = title
    for row in rows:
        made.active.append(row)
    for name in others:
        made.create_sheet(name)
    made.save(path)
    return path


def test_rows_of_a_sheet_are_numbered_from_one_and_end_before_empty_cells(tmp_path):
    day = datetime.datetime(2024, 5, 1)
    rows = [["a", None, ""], [1, 2.0, 2.5], [], [day, day.replace(hour=9), datetime.time(8, 30)], [True, None, "x"]]
    found = list(Workbook(book(tmp_path / "a.xlsx", rows)).rows())
    assert found == [
        (1, ["a"]),
        (2, ["1", "2", "2.5"]),
        (3, []),
        (4, ["2024-05-01", "2024-05-01 09:00:00", "08:30:00"]),
        (5, ["True", "", "x"]),
    ]


def test_a_sheet_is_named_and_counted_if_there_are_others(tmp_path):
    assert Workbook(book(tmp_path / "a.xlsx", [["x"]])).sheet == "sheet 'Pairs'"
    assert Workbook(book(tmp_path / "b.xlsx", [["x"]], More=1, Most=2)).sheet == "sheet 'Pairs', the first of 3"
    hidden = openpyxl.load_workbook(tmp_path / "b.xlsx")
    hidden["Pairs"].sheet_state = "veryHidden"
    hidden.active = 1
    hidden.save(tmp_path / "b.xlsx")
    assert Workbook(tmp_path / "b.xlsx").sheet == "sheet 'More', the first of 2"


def test_a_sheet_may_have_as_many_rows_and_columns_as_its_limits_and_no_more(tmp_path, monkeypatch):
    path = book(tmp_path / "a.xlsx", [["a", "b", ""], ["c", "d"]])
    monkeypatch.setattr(workbook, "MAX_ROWS", 3)
    monkeypatch.setattr(workbook, "MAX_FIELDS", 2)
    assert [fields for _, fields in Workbook(path).rows()] == [["a", "b"], ["c", "d"]]
    monkeypatch.setattr(workbook, "MAX_ROWS", 2)  # the end of the sheet was not yet seen
    assert said(list, Workbook(path).rows()) == (
        f"{str(path)!r} has more than 2 rows, more than a sheet can have: check the file."
    )
    monkeypatch.setattr(workbook, "MAX_FIELDS", 1)
    assert said(list, Workbook(path).rows()) == f"{str(path)!r} has more than 1 columns; give a table of texts."


def test_a_workbook_may_unpack_to_as_much_as_is_allowed_and_no_more(tmp_path, monkeypatch):
    import zipfile

    path = book(tmp_path / "a.xlsx", [["a", "b"]])
    with zipfile.ZipFile(path) as archive:
        size = sum(entry.file_size for entry in archive.infolist())
    monkeypatch.setattr(workbook, "max_unpacked_bytes", lambda path: size)
    assert len(list(Workbook(path).rows())) == 1
    monkeypatch.setattr(workbook, "max_unpacked_bytes", lambda path: size - 1)
    assert "unpacks to more than" in said(Workbook, path)


def test_a_formula_is_read_as_the_result_that_was_stored(tmp_path):
    """One that no program has computed yet has none."""
    path = book(tmp_path / "a.xlsx", [["=1+1", "text"]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert list(Workbook(path).rows()) == [(1, ["", "text"])]


# -- dialogues -------------------------------------------------------------------------------------------------------

USER, ANSWER = {"role": "user", "content": "Who watches?"}, {"role": "assistant", "content": "They do."}


class Told:
    """A template without a process of its own: each message is its role's first letter and its text."""

    source = "told"

    def turns(self, messages):
        return [(f"{one['role'][0]}:{one['content']}\n", one["role"] == "assistant") for one in messages]

    def prompt(self, messages):
        return "".join(text for text, _ in self.turns(messages)) + "a:"


def dialogues(path, *lines):
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return DialogueLines(path, Told())


def test_a_wrong_dialogue_is_named_by_its_line_in_the_file(tmp_path):
    right = json.dumps({"messages": [USER, ANSWER]})
    path = tmp_path / "a.jsonl"
    assert list(dialogues(path, right, "", right)) == ["u:Who watches?\na:They do."] * 2
    wrong = json.dumps({"messages": [{"role": "nobody", "content": ""}]})
    assert said(list, dialogues(path, right, "", " ", wrong)).startswith(
        f"{str(path)!r}, line 4: messages[0].role must be one of system, developer, user, assistant, not "
    )
    assert f"{str(path)!r}, line 2: messages must be a list of 1 to 1000 messages, not " in said(
        list, dialogues(path, right, "[1]")
    )
    assert dialogues(path, right).about == "a.jsonl contains dialogues: only the assistant's turns are learned."


def test_dialogues_are_known_by_their_first_object_within_a_hundred_lines(tmp_path):
    right, path = json.dumps({"messages": [USER, ANSWER]}), tmp_path / "a.jsonl"
    for blank, found in ((0, True), (99, True), (100, False)):
        dialogues(path, *[""] * blank, right)
        assert has_dialogues(path, "utf-8") == found
    for other in ("[]", "1", '{"messages": "x"}', '{"text": []}', "{", "[" * 9999, '"messages"'):
        dialogues(path, other, right)
        assert not has_dialogues(path, "utf-8")


def test_another_template_is_another_text(tmp_path):
    right, path = json.dumps({"messages": [USER, ANSWER]}), tmp_path / "a.jsonl"
    found = dialogues(path, right)
    other = DialogueLines(path, type("Other", (Told,), {"source": "other"})())
    assert found.content() != other.content()
    assert found.checksum() != found.content()
    assert found.checksum() != other.checksum()
    assert found == other  # which is of the same file
    before = found.checksum()
    dialogues(path, right, right)
    assert found.checksum() != before


def test_an_error_about_a_message_names_its_place():
    assert len(read_messages([USER] * 1000)) == 1000
    for wrong, sentence in (
        ([USER] * 1001, "messages must be a list of 1 to 1000 messages, not of 1001."),
        ([], "messages must be a list of 1 to 1000 messages, not of 0."),
        ([USER, "hi"], 'messages[1] must be an object such as {"role": "user", "content": "Hello"}.'),
        ([{**USER, "role": ["user"]}], "messages[0].role must be one of system, developer, user, assistant, not "),
        ([{"role": "user"}], "messages[0].content must be a string, not "),
        ([{**USER, "content": [{"type": "image"}]}],
         "messages[0].content has a part that is not text: these models read only text."),
        ([{**USER, "content": [{"type": "text", "text": 3}]}], "messages[0].content has a part that is not text"),
        ([{**USER, "content": ["text"]}], "messages[0].content has a part that is not text"),
        *(([USER, {**USER, key: [1]}], "messages[1] calls a tool, but these models cannot use tools: remove the call.")
          for key in ("tool_calls", "function_call", "tool_call_id")),
    ):  # fmt: skip
        with pytest.raises(FieldError) as error:
            read_messages(wrong)
        assert str(error.value).startswith(sentence)
        with pytest.raises(FieldError, match=r"^input"):
            read_messages(wrong, "input")
    assert read_messages([{**USER, "tool_calls": [], "name": "x"}]) == [USER]
    roles = ["system", "developer", "user", "assistant"]
    found = read_messages([{"role": role, "content": ""} for role in roles])
    assert [one["role"] for one in found] == ["system", "system", "user", "assistant"]


def test_the_template_of_a_folder_is_a_file_of_at_most_a_mebibyte_in_utf8(tmp_path):
    assert read_template(tmp_path) == ""
    path = tmp_path / "chat_template.jinja"
    path.write_bytes(b"x" * (1 << 20))
    assert len(read_template(tmp_path)) == 1 << 20
    path.write_bytes(b"x" * ((1 << 20) + 1))
    assert "chat_template.jinja" in said(read_template, tmp_path)
    path.write_bytes(b"\xff")
    assert said(read_template, tmp_path) == f"{str(path)!r} is not UTF-8: restore it."


def rendered(source, messages, **how):
    return template_process.render(template_process.compiled(source), messages, how.pop("more", {}), **how)


def test_a_template_renders_as_those_of_hugging_face(monkeypatch):
    assert rendered("{{ messages | tojson }}", [{"é": "<&>"}], answering=False) == '[{"é": "<&>"}]'
    assert rendered("{{ messages | tojson(indent=1) }}", [1], answering=False) == "[\n 1\n]"
    blocks = "  {% for one in messages %}\n{{ one }}\n    {% endfor %}\n{% break %}"
    assert rendered(blocks.replace("{% break %}", ""), ["a", "b"], answering=True) == "a\nb\n"
    assert rendered("{% for one in messages %}{{ one }}{% break %}{% endfor %}", ["a", "b"], answering=True) == "a"
    assert rendered("{{ add_generation_prompt }} {{ eos_token }}", [], more={"eos_token": "</s>"}, answering=True) == (
        "True </s>"
    )
    assert len(rendered("{{ strftime_now('%Y') }}", [], answering=True)) == 4
    monkeypatch.setattr(template_process, "LONGEST", 6)
    assert rendered("{% for one in messages %}{{ one }}{% endfor %}", ["abc", "def"], answering=True) == "abcdef"
    with pytest.raises(ValueError, match="its output is longer than 6 characters"):
        rendered("{% for one in messages %}{{ one }}{% endfor %}", ["abc", "def", "g"], answering=True)


def asked(template, messages=(), turns=False, **more):
    return template_process.answer({"template": template, "messages": list(messages), "turns": turns, "more": more})


def test_a_template_answers_with_text_turns_or_an_error_of_at_most_two_hundred_characters():
    plain = chat_template.PLAIN
    assert asked(plain, [USER]) == {"text": "User: Who watches?\nAssistant:"}
    assert asked(plain, [USER, ANSWER, USER], turns=True) == {
        "turns": [("User: Who watches?\nAssistant:", False), (" They do.\n", True), ("User: Who watches?\n", False)]
    }
    assert asked(plain, [ANSWER], turns=True) == {"turns": [("Assistant:", False), (" They do.\n", True)]}
    assert asked("{{ raise_exception('no.\n  system.') }}") == {"error": "no. system"}
    assert asked("{{ raise_exception('x' * 201) }}") == {"error": "x" * 200}
    assert asked("{{ raise_exception('') }}") == {"error": "TemplateError"}
    assert "cannot be told apart" in asked("{{ messages | length }}", [USER, ANSWER], turns=True)["error"]
    assert template_process.MEMORY == 512 << 20
    assert template_process.LONGEST == 4 << 20


def test_a_template_is_asked_in_one_process_which_ends_with_it(monkeypatch):
    template = ChatTemplate("{{ messages[0].content }}{{ bos_token }}{{ eos_token }}", eos="</s>")
    assert template.prompt([USER]) == "Who watches?</s>"
    first = template._process
    assert template.prompt([ANSWER]) == "They do.</s>"
    assert template._process is first
    template.close()
    assert first.poll() is not None
    assert template._process is None
    template.close()
    monkeypatch.setattr(template, "_ask", lambda messages, turns: [["a ", False], ["\ue000 <end> \n", True]])
    assert template.closing == "<end>"


def test_a_template_that_takes_too_long_says_after_how_many_seconds(monkeypatch):
    monkeypatch.setattr(chat_template, "SECONDS", 0.05)
    loop = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
    template = ChatTemplate(loop)
    sentence = "The chat template cannot render this dialogue: it needs more than 0.05 seconds or too much memory."
    assert said(template.prompt, [USER]) == sentence
    assert template._process is None


@pytest.fixture(scope="module")
def words():
    return Tokenizer.train(["u : Who watches ? a : They do ."] * 3, "byte", normalise="none")


def test_only_the_answers_of_a_dialogue_are_counted(words, tmp_path):
    lines = dialogues(tmp_path / "a.jsonl", json.dumps({"messages": [USER, ANSWER]}),
                      json.dumps({"messages": [USER, ANSWER, USER]}))  # fmt: skip
    found = dialogue_tokens(lines, words)
    answer = "a:They do.\n"
    assert (found.lines, found.characters, found.unknown) == (2, 2 * len(answer), 0)
    assert int(found.counted.sum()) == 2 * len(words.encode_template(answer))
    assert found.ids.dtype == words.id_type
    assert not found.counted[0]
    assert words.decode(found.ids[found.counted]) == answer * 2
    whole = "u:Who watches?\n" + answer
    assert words.decode(found.ids) == whole + whole + "u:Who watches?\n"  # a line end closes each, and only once
    only = dialogues(tmp_path / "b.jsonl", json.dumps({"messages": [USER]}))
    assert said(dialogue_tokens, only, words) == (
        "These dialogues have no assistant turn, so there is nothing to learn."
    )


def test_a_prompt_begins_with_the_boundary_exactly_once(words):
    assert prompt_tokens([USER], Told(), words) == [words.begin, *words.encode_template("u:Who watches?\na:")]
    begins = type("Begins", (Told,), {"prompt": lambda self, messages: "\n" + Told.prompt(self, messages)})()
    assert prompt_tokens([USER], begins, words) == prompt_tokens([USER], Told(), words)


# -- what is cached --------------------------------------------------------------------------------------------------


def test_what_is_computed_quickly_is_not_cached(monkeypatch):
    asked = []
    monkeypatch.setattr(cached_text, "cached", lambda *given: asked.append(given[:2]) or "cached")
    for size, found in ((0, "made"), ((1 << 16) - 1, "made"), (1 << 16, "cached"), (None, "cached")):
        assert cached_text.cached_for_text("what", size, ("key",), lambda: "made", bytes, str) == found
    assert [folder for folder, _ in asked] == ["tokens"] * 2
    assert all(name.endswith(".what") for _, name in asked)


def test_whatever_decides_a_cached_result_is_part_of_its_name(monkeypatch):
    names = []
    monkeypatch.setattr(cached_text, "cached", lambda folder, name, *more: names.append(name))

    def named(**other):
        given = {"checksum": "c", "kind": "bpe", "vocabulary": 300, "normalise": "nfc", "pretokenised": False} | other
        cached_text.cached_tokenizer(
            [], given.pop("checksum"), None, given.pop("kind"), given.pop("vocabulary"), **given
        )

    named()
    others = {"checksum": "d", "kind": "word", "vocabulary": 301, "normalise": "none", "pretokenised": True}
    for key, value in others.items():
        named(**{key: value})
    named(vocabulary=None)
    assert len(set(names)) == len(names) == 7
    named()
    assert names[-1] == names[0]


def test_other_code_another_library_or_other_unicode_tables_are_another_result(monkeypatch):
    digest, read, plain = cached_text._code_digest.__wrapped__, [], Path.read_text
    usual = digest()
    monkeypatch.setattr(Path, "read_text", lambda path, **how: read.append(path) or plain(path, **how))
    assert digest() == usual
    package = Path(cached_text.__file__).parent
    assert {*read} == {Path(hash_split.__file__), *package.rglob("*.py")}
    for changed in (package / "split.py", package / "tokenizers" / "engine.py", Path(hash_split.__file__)):
        with monkeypatch.context() as patch:
            patch.setattr(Path, "read_text", lambda path, **how: plain(path, **how) + "#" * (path == changed))  # noqa: B023
            assert digest() != usual
    for module, name in ((tokenizers, "__version__"), (unicodedata, "unidata_version")):
        with monkeypatch.context() as patch:
            patch.setattr(module, name, "0")
            assert digest() != usual


def test_encoded_pairs_come_out_of_the_cache_as_they_went_in(words):
    pairs = Pairs(["a", " ", "b c", "x" * 9, "d", "e"], ["f", "g", "", "h", "y" * 9, "i j"])
    made = encode_pairs(pairs, words, words, longest=8)
    assert dict(made.dropped) == {"empty source": 1, "empty target": 1, "long source": 1, "long target": 1}
    assert made.sentences == [
        "4 of 6 pairs dropped: 1 with an empty source, 1 with an empty target, 1 whose source has more than 8 tokens, "
        "1 whose target has more than 8 tokens."
    ]
    again = _parse(_dump(made))
    assert (again.dropped, again.truncated, again.longest, again.characters, again.unknown) == (
        made.dropped, 0, 8, len("f\ni j\n"), 0,
    )  # fmt: skip
    for name in ("source", "source_offsets", "target", "target_offsets", "kept"):
        assert np.array_equal(getattr(again, name), getattr(made, name))
    cut = encode_pairs(pairs, words, words, longest=8, truncate=True)
    assert cut.sentences[-1] == "2 of 6 pairs cut off at 8 tokens."
    assert cut.source_of(1).tolist() == [*words.encode("x" * 8), words.eos]
    assert cut.target_of(2).tolist() == [*words.encode("y" * 8), words.eos]
    exact = encode_pairs(Pairs(["x" * 8], ["y" * 8]), words, words, longest=8, truncate=True)
    assert (len(exact), exact.truncated, exact.sentences) == (1, 0, [])


# -- tokens of a text ------------------------------------------------------------------------------------------------


def test_progress_that_fits_its_array_is_taken_up_and_no_other(tmp_path):
    part, note = tmp_path / "a.part", tmp_path / "a.part.json"
    saved = {"tokens": 5, "characters": 9, "lines": 2, "unknown": 0, "bytes": 9}
    nothing = dict.fromkeys(saved, 0)
    for size, counts, found in (
        (10, saved, saved),
        (9, saved, nothing),  # five tokens of two bytes do not fit
        (10, {**saved, "lines": 2.0}, nothing),
        (10, {**saved, "more": 1}, nothing),
        (10, [5], nothing),
    ):
        part.write_bytes(bytes(size))
        note.write_text(json.dumps(counts))
        assert token_files._done(part, note, 2) == found
        assert note.exists() == (found is saved)
    part.unlink()
    note.write_text(json.dumps(saved))
    assert token_files._done(part, note, 2) == nothing
    assert not note.exists()


@pytest.mark.parametrize(("size", "processes"), [((16 << 20) - 1, 1), (16 << 20, 7), (None, 1)])
def test_only_a_text_of_sixteen_mebibytes_is_tokenized_by_several_processes(
    tmp_path, monkeypatch, words, size, processes
):
    used, plain = [], token_files._cut
    monkeypatch.setattr(token_files, "cores", lambda: 7)
    monkeypatch.setattr(token_files, "_cut", lambda texts, one, count: used.append(count) or plain(texts, one, 1))
    lines = type("Lines", (list,), {"size": size})(["abc"])
    made = token_files.tokenise(lines, words, tmp_path / "a.npy")
    assert used == [processes]
    assert (made.lines, made.characters, len(made.ids)) == (1, 4, 4)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.json", "a.npy"]


def test_progress_is_saved_whenever_that_many_bytes_are_done(tmp_path, monkeypatch, words):
    monkeypatch.setattr(token_files, "SAVE_EVERY", 12)
    monkeypatch.setattr(token_files, "blocks", lambda lines: ((line, 1) for line in lines))
    saved, told, plain = [], [], token_files._keep
    monkeypatch.setattr(token_files, "_keep", lambda stream, note, counted: saved.append(counted["lines"])
                        or plain(stream, note, counted))  # fmt: skip
    token_files.tokenise(["abc"] * 8, words, tmp_path / "a.npy", lambda *call: told.append(call))
    assert saved == [3, 6]  # four bytes each, with the line end
    assert told == [(4 * n, None) for n in range(1, 9)]


def test_an_array_of_tokens_has_its_name_only_when_all_about_it_is_written(tmp_path, monkeypatch, words):
    seen, plain = [], token_files.os.replace

    def replace(source, target):
        if Path(target).suffix == ".npy":
            seen.append({path.name for path in tmp_path.iterdir()})
            described = json.loads((tmp_path / "a.json").read_text())
            assert described.keys() == {"tokens", "characters", "lines", "unknown", "blake2b"}
            assert len(np.load(source)) == described["tokens"] == 4
        plain(source, target)

    monkeypatch.setattr(token_files.os, "replace", replace)
    monkeypatch.setattr(token_files, "SAVE_EVERY", 1)
    token_files.tokenise(["abc"], words, tmp_path / "a.npy")
    assert seen == [{"a.part", "a.part.json", "a.json"}]
    assert {path.name for path in tmp_path.iterdir()} == {"a.npy", "a.json"}


def test_pages_of_a_mapped_file_are_given_back_after_enough_places(tmp_path):
    """A quarter of a gibibyte of 64 KiB around each place."""
    advised = []
    file = np.memmap(tmp_path / "a", np.uint16, "w+", shape=(100,))
    pages = text_batches._Pages(file)
    if not hasattr(mmap, "MADV_DONTNEED"):
        pytest.skip("pages cannot be given back here")
    pages._map = type("Map", (), {"madvise": lambda self, how: advised.append(how)})()
    for places, count in ((4096, 0), (1, 1), (4095, 1), (1, 2), (4095, 2)):
        pages.read(places)
        assert len(advised) == count
    assert set(advised) == {mmap.MADV_DONTNEED}
    assert text_batches._Pages(np.zeros(3))._map is None


def test_a_batch_counts_what_is_learned_and_never_nothing():
    tokens = np.zeros((2, 3), np.int64)
    assert Batch(tokens, tokens, None, True).count == 6
    assert Batch(tokens, tokens, np.array([3, 1]), True).count == 4
    assert Batch(tokens, tokens, None, True, np.eye(2, 3, dtype=bool)).count == 2
    assert Batch(tokens, tokens, None, True, np.zeros((2, 3), bool)).count == 1
    streams = Streams(np.arange(1, 8), 2, 2, 0, counted=np.arange(7) % 2 == 0)
    found = [streams.batch(step) for step in range(2)]
    assert sum(int(batch.counted.sum()) for batch in found) == 4
    assert [batch.fresh for batch in found] == [True, False]


def test_a_longer_training_has_more_shapes():
    assert [grid_for(seconds) for seconds in (0.0, 39.9, 40.0, 179.9, 180.0)] == [
        (4, 2),
        (4, 2),
        (4, 4),
        (4, 4),
        (8, 4),
    ]
    assert grid_for() == (8, 4)


# -- counts and sentences --------------------------------------------------------------------------------------------


def test_lines_are_counted_by_their_words_and_the_longest_hundredth_is_one_bin():
    assert _bins([]) == []
    assert _bins([0, 1, 1, 3]) == [(0, 0, 1), (1, 1, 2), (2, 2, 0), (3, 3, 1)]
    bins = _bins([*range(100)] * 2 + [500])
    assert len(bins) == 34
    assert bins[0] == (0, 2, 6)
    assert bins[-1] == (99, 500, 3)
    assert sum(lines for *_, lines in bins) == 201
    assert len(_bins([*range(40)])) == 40
    assert len(_bins([*range(41)])) == 21


def test_ranks_are_the_first_the_last_and_a_hundred_between():
    assert (_places(0), _places(1), _places(3)) == ([], [1], [1, 2, 3])
    places = _places(1_000_000)
    assert places[:5] == [1, 2, 3, 4, 5]
    assert places[-1] == 1_000_000
    assert 90 < len(places) < 120
    steps = np.diff(np.log(places[-50:]))
    assert steps.max() < 1.01 * steps.min()


def test_words_are_counted_until_enough_characters_are_read(monkeypatch):
    monkeypatch.setattr("regard.text.tokenizers.word_counts.MAX_CHARACTERS", 10)
    found = count_words({"train": ["one two", "", "one", "three"], "valid": ["one six <unk>"], "test": []})
    train, valid, test = found.splits.values()
    assert (train.lines, train.characters, train.words, train.vocabulary, train.once, train.whole) == (
        3,
        15,
        4,
        3,
        2,
        False,
    )
    assert train.lengths == [(0, 0, 0), (1, 1, 2), (2, 2, 1)]
    assert (valid.whole, valid.words, test.whole, test.lines) == (False, 3, True, 0)
    assert (found.words, found.counts, found.ranks) == (["one", "three", "two"], [2, 1, 1], [1, 2, 3])
    assert found.coverage["train"] == [0.5, 0.75, 1.0]
    assert found.coverage["valid"] == [1 / 3] * 3
    assert found.coverage["test"] == [0.0] * 3


def test_the_sentence_on_an_overlap_has_its_shares():
    assert PairOverlap("test", 2000, 1500, 1, 0).sentence == (
        "Of the 2000 pairs of test, 1500 (75.0 %) have a source that also occurs in train, 1 (0.1 %) have such a "
        "target, and 0 (0.0 %) occur there as a pair, ignoring case and punctuation."
    )
    assert PairOverlap("valid", 5, 0, 0, 0).sentence == "No source or target of valid also occurs in train."
    assert PairOverlap("valid", 5, 0, 1, 0).sentence.startswith("Of the 5 pairs of valid, 0 (0.0 %) have a source")


# -- tokenizers of strangers -----------------------------------------------------------------------------------------


def described(**parts):
    """A tokenizer.json of a few words."""
    model = {"type": "WordLevel", "vocab": {"a": 0, "b": 1}, "unk_token": "a"} | parts.pop("model", {})
    plain = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
             "pre_tokenizer": None, "post_processor": None, "decoder": None}  # fmt: skip
    return json.dumps(plain | {"model": model} | parts)


def replaced(content, found):
    return {"type": "Replace", "pattern": found, "content": content}


@pytest.mark.parametrize(
    ("parts", "is_read"),
    [
        ({}, True),
        ({"model": {"vocab": {"a": 0, "b": 1 << 24}}}, True),
        ({"model": {"vocab": {"a": 0, "b": (1 << 24) + 1}}}, False),
        ({"normalizer": {"type": "Prepend", "prepend": "x" * 4095}}, True),
        ({"normalizer": {"type": "Prepend", "prepend": "x" * 4096}}, False),
        ({"normalizer": replaced("x" * 8192, {"String": "ab"})}, True),  # of two characters 8,192
        ({"normalizer": replaced("x" * 8193, {"String": "ab"})}, False),
        ({"normalizer": replaced("x" * 4095, {"String": ""})}, True),  # between all characters
        ({"normalizer": replaced("x" * 4096, {"String": ""})}, False),
        ({"normalizer": replaced("x" * 4095, {"Regex": "a"})}, True),
        ({"normalizer": replaced("x" * 4096, {"Regex": "a"})}, False),
        ({"normalizer": {"type": "Sequence", "normalizers": [replaced("xx", {"String": "a"})] * 12}}, True),
        ({"normalizer": {"type": "Sequence", "normalizers": [replaced("xx", {"String": "a"})] * 13}}, False),
        ({"normalizer": {"type": "Sequence", "normalizers": [replaced("xx", {"String": "a"})] * 12},
          "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}},
         False),
    ],
)  # fmt: skip
def test_a_tokenizer_that_would_fill_the_memory_is_not_made(monkeypatch, parts, is_read):
    monkeypatch.setattr(engines.Engine, "from_str", lambda content: json.loads(content))
    if is_read:
        assert engines.parse(described(**parts))["model"]["type"] == "WordLevel"
    else:
        with pytest.raises(ValueError, match=r"^$"):
            engines.parse(described(**parts))


def test_what_is_put_around_tokens_is_at_most_a_hundred_characters(monkeypatch):
    monkeypatch.setattr(engines.Engine, "from_str", lambda content: json.loads(content))
    for name in ("continuing_subword_prefix", "end_of_word_suffix"):
        engines.parse(described(model={name: "#" * 100}))
        with pytest.raises(ValueError, match=r"^$"):
            engines.parse(described(model={name: "#" * 101}))
    assert engines.parse(described(model={"vocab": [["a", 0.0]]}))  # a list of pieces has no ids
    assert engines.charsmap_growth((2).to_bytes(4, "little") + b"tr" + b"abc\0de") == 3
    assert engines.charsmap_growth((3).to_bytes(4, "little") + b"tri") == 1
    with pytest.raises(ValueError, match=r"^$"):
        engines.charsmap_growth((4).to_bytes(4, "little") + b"tri")


def byte_engine(**more):
    """Bytes alone, and a few tokens more."""
    vocabulary = {symbol: number for number, symbol in enumerate([*engines.BYTE_SYMBOLS, "<s>", "</s>"])}
    return engines.byte_pairs(vocabulary | more, [], False)


def imported(engine=None, *, begin=256, eos=257, vocabulary=258):
    return import_engine(engine or byte_engine(), begin=begin, eos=eos, vocabulary=vocabulary)


def test_an_imported_tokenizer_has_as_many_tokens_as_the_table_of_its_model_has_rows():
    plain = imported()
    assert (plain.vocabulary, plain.begin, plain.eos, plain.specials) == (258, 256, 257, (256, 257))
    assert plain.id_type == np.uint16
    padded = imported(vocabulary=258 + 4096)
    assert padded.vocabulary == 258 + 4096
    assert padded.tokens[258] == "<unused 258>"
    assert padded.specials == (*range(256, 258 + 4096),)
    assert padded.decode([*plain.encode("a"), 300]) == "a"
    assert imported(vocabulary=1 << 12).id_type == np.uint16
    for rows in (257, 258 + 4097):
        assert said(imported, vocabulary=rows) == (
            f"has 258 tokens, but the model has {rows}: they do not belong together"
        )
    for begin, eos in ((-1, 0), (258, 0), (0, -1), (0, 258)):
        assert said(imported, begin=begin, eos=eos) == (
            f"has 258 tokens, but the boundaries {begin} and {eos} are not among them"
        )
    assert imported(begin=0, eos=0).specials == (0,)


def test_an_imported_tokenizer_has_tokens_of_at_most_4096_characters_and_names_that_a_template_can_hold():
    assert imported(byte_engine(**{"x" * 4096: 258}), vocabulary=259).vocabulary == 259
    assert said(imported, byte_engine(**{"x" * 4097: 258}), vocabulary=259) == (
        "has a token of more than 4096 characters"
    )
    assert said(imported, byte_engine(b=500), vocabulary=258) == "has gaps in its token ids"
    for name in ("$s", "a:b"):
        engine = byte_engine(**{name: 258})
        assert said(imported, engine, begin=258, vocabulary=259) == (
            f"has the boundary token {name!r}, whose name the tokenizers library cannot use"
        )


def test_every_special_token_is_one_and_is_not_part_of_a_text():
    engine = byte_engine()
    engine.add_special_tokens(["<pad>"])
    engine.add_tokens(["plain"])
    tokenizer = imported(engine, vocabulary=260)
    assert tokenizer.specials == (256, 257, 258)
    assert tokenizer.decode([258, *tokenizer.encode("plain"), 258]) == "plain"
    assert tokenizer.encode("plain") == [259]
    assert tokenizer.unk is None


def test_an_imported_tokenizer_is_used_unchanged():
    plain = imported()
    text = "Hé,  ho!\n<s>"
    assert plain.decode(plain.encode(text)) == text
    assert 256 not in plain.encode("<s>")
    assert plain.encode_template("a<s>") == [*plain.encode("a"), 256]
    ids, ends = plain.encode_normalised("ab\n\nc")
    assert ids.tolist() == [*plain.encode("ab"), 257, 257, *plain.encode("c"), 257]
    assert ends.tolist() == [3, 4, 6]
    assert plain.decode([256, *plain.encode("a"), 257]) == "a\n"
    assert (plain.kind, plain.normalisation, plain.pretokenised, plain.lossless) == ("imported", "none", False, False)
    assert plain.byte_pieces == []


def test_a_special_token_that_a_message_spells_out_stays_text():
    """So that no message can end a turn; what the template itself writes is meant."""
    engine = byte_engine(**{"<s>x": 258})
    engine.add_special_tokens(["<s>x"])
    tokenizer = imported(engine, vocabulary=259)
    closing = type("Closing", (Told,), {"prompt": lambda self, messages: Told.prompt(self, messages) + "</s>"})()
    asked = [{"role": "user", "content": "a</s><s>xb<s>"}]
    wanted = [tokenizer.encode_template(part) for part in ("u:a", "b")] + [tokenizer.encode_template("\na:</s>")]
    first, second, last = wanted
    spelled = {name: tokenizer.encode(name) for name in ("</s>", "<s>x", "<s>")}
    assert last[-1] == tokenizer.eos
    assert not {256, 257, 258} & {token for tokens in spelled.values() for token in tokens}
    assert prompt_tokens(asked, closing, tokenizer) == [
        tokenizer.begin, *first, *spelled["</s>"], *spelled["<s>x"], *second, *spelled["<s>"], *last,
    ]  # fmt: skip
    assert asked == [{"role": "user", "content": "a</s><s>xb<s>"}]
    begun = type("Begun", (Told,), {"prompt": lambda self, messages: "<s>" + Told.prompt(self, messages)})()
    assert prompt_tokens([USER], begun, tokenizer) == [256, *tokenizer.encode_template("u:Who watches?\na:")]
    locked = []
    lock = contextmanager(lambda: (yield locked.append(1)))
    prompt_tokens([USER], Told(), tokenizer, lock())
    assert locked == [1]


def test_what_marks_a_missing_and_a_long_piece_is_no_text():
    marks = [number.to_bytes(8, "little", signed=True) for number in (piece_table.NO_PIECE, piece_table.TOO_LONG)]
    assert marks[0] != marks[1]
    for mark in marks:
        with pytest.raises(UnicodeDecodeError):
            mark.decode()
