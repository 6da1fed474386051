"""The memory-mapped array holds exactly what the tokenizer says, and survives mishaps."""

import errno
import json
import os
import re
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from hashlib import blake2b

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.base import known_digests
from regard.base.digests import file_digest
from regard.base.errors import RegardError
from regard.runs.store.folder import unseen_bytes
from regard.text.corpus import Corpus, GivenLines, open_corpus
from regard.text.readers import sources
from regard.text.tokenizers import tokens as tokens_module
from regard.text.tokenizers.pair_tokens import encode_side
from regard.text.tokenizers.tokenizer import Tokenizer
from regard.text.tokenizers.tokens import WRITTEN_EOS, cached, load_tokens, tokenise
from regard.text.tokenizers.vocabulary import blocks

law = settings(derandomize=True, deadline=None, max_examples=40)
some_line = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n"))
LINES = ("the cat sat", "", "the dog did not sit", "le café e\u0301te\u0301")


@pytest.mark.parametrize("kind", ["word", "char", "byte", "bpe"])
@law
@given(lines=st.lists(some_line, min_size=1), block=st.integers(1, 50))
def test_the_array_on_disk_equals_encoding_in_memory(tmp_path_factory, kind, lines, block):
    tokenizer = Tokenizer.train(LINES, kind)
    expected = [symbol for line in lines for symbol in (*tokenizer.encode(line), tokenizer.eos)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tokens_module, "blocks", partial(blocks, characters=block))
        array = tokenise(lines, tokenizer, tmp_path_factory.mktemp("array") / "train.npy")
    assert array.ids.tolist() == expected
    assert isinstance(array.ids, np.memmap)
    assert array.ids.dtype == np.uint16
    assert array.lines == len(lines)
    assert array.characters == sum(len(tokenizer.normalise(line)) + 1 for line in lines)
    assert array.unknown == (expected.count(tokenizer.unk) if tokenizer.unk is not None else 0)


def test_many_types_take_four_bytes(tmp_path):
    tokenizer = Tokenizer.train([" ".join(f"w{number}" for number in range(70_000))], "word")
    array = tokenise(["w69999 w0 w12345"], tokenizer, tmp_path / "new" / "folder" / "x.npy")
    assert array.ids.dtype == np.uint32
    assert tokenizer.decode(array.ids.tolist()) == "w69999 w0 w12345\n"


def test_the_digest_beside_an_array_stays_the_same(tmp_path):
    """By it an array of before is believed: 16 bytes of blake2b, of the array and of what was counted, sorted."""
    tokenise(LINES, Tokenizer.train(LINES, "char"), tmp_path / "x.npy")
    described = json.loads((tmp_path / "x.json").read_text())
    digest = described.pop("blake2b")
    content = f"{file_digest(tmp_path / 'x.npy')} {json.dumps(described, sort_keys=True)}"
    assert digest == blake2b(content.encode(), digest_size=16).hexdigest()


def test_progress_ends_where_it_promised(tmp_path):
    corpus_file = tmp_path / "text.txt"
    corpus_file.write_text("".join(f"ligne numéro {number}\n" for number in range(1000)), encoding="utf-8")
    calls: list[tuple[int, int | None]] = []
    corpus = open_corpus(corpus_file, split="tail")
    tokenizer = Tokenizer.train(LINES, "char")
    tokenise(corpus.splits["train"], tokenizer, tmp_path / "x.npy", lambda *call: calls.append(call))
    assert calls[-1][0] == calls[-1][1]


def test_the_same_text_is_tokenised_only_once(monkeypatch, own_cache):
    corpus = Corpus("small", {"train": GivenLines(LINES), "valid": GivenLines(LINES[:1])})
    tokenizer = Tokenizer.train(LINES, "char")
    first = cached(corpus, tokenizer, "train")
    with monkeypatch.context() as patch:
        patch.setattr(tokens_module, "tokenise", None)  # would fail if called
        again = cached(Corpus("renamed", corpus.splits), tokenizer, "train")
    assert (again.ids == first.ids).all()
    assert (again.characters, again.lines, again.unknown) == (first.characters, first.lines, first.unknown)
    shorter, longer = cached(corpus, tokenizer, "valid"), cached(corpus, Tokenizer.train(LINES, "byte"), "train")
    assert len(shorter.ids) < len(first.ids) < len(longer.ids)
    assert len(list((own_cache / "tokens").glob("*.npy"))) == 3
    made_of = f"2 {corpus.splits['train'].checksum()} {tokenizer.digest}"  # the layout, the text and how it was cut
    assert (own_cache / "tokens" / f"{blake2b(made_of.encode(), digest_size=16).hexdigest()}.npy").is_file()


def test_a_damaged_cache_is_made_anew(own_cache):
    corpus, tokenizer = Corpus("small", {"train": GivenLines(LINES)}), Tokenizer.train(LINES, "char")
    good = cached(corpus, tokenizer, "train").ids.tolist()
    path = next((own_cache / "tokens").glob("*.npy"))
    for damage in (
        lambda: path.write_bytes(path.read_bytes()[:-4]),
        lambda: path.with_suffix(".json").write_text("{"),
        lambda: path.with_suffix(".json").unlink(),
    ):
        damage()
        assert cached(corpus, tokenizer, "train").ids.tolist() == good


def test_damaged_files_are_named(tmp_path):
    tokenise(LINES, Tokenizer.train(LINES, "char"), tmp_path / "x.npy")
    content = json.loads((tmp_path / "x.json").read_text())
    (tmp_path / "x.json").write_text(json.dumps(content | {"tokens": 3}))
    with pytest.raises(RegardError, match="damaged"):
        load_tokens(tmp_path / "x.npy")
    with pytest.raises(RegardError, match="no file"):
        load_tokens(tmp_path / "absent.npy")


def test_a_full_disk_leaves_nothing_behind(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(RegardError, match="disk is full"):
        tokenise(LINES, Tokenizer.train(LINES, "char"), tmp_path / "x.npy")
    assert list(tmp_path.iterdir()) == []


def test_nothing_to_tokenise_and_missing_splits_are_refused(tmp_path):
    with pytest.raises(RegardError, match="no lines"):
        tokenise([], Tokenizer.train(LINES, "char"), tmp_path / "x.npy")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(RegardError, match="has no test split; choose one of train"):
        cached(Corpus("small", {"train": GivenLines(LINES)}), Tokenizer.train(LINES, "char"), "test")


def test_real_corpora_have_their_published_numbers(machine_data):
    wikitext = open_corpus("wikitext-2")
    words = Tokenizer.train(wikitext.splits["train"], "word", pretokenised=wikitext.pretokenised)
    assert words.vocabulary == 33_278
    assert {split: len(cached(wikitext, words, split).ids) for split in wikitext.splits} == {
        "train": 2_088_628,
        "valid": 217_646,
        "test": 245_569,
    }
    shakespeare = open_corpus("shakespeare")
    characters = Tokenizer.train(shakespeare.splits["train"], "char")
    arrays = [cached(shakespeare, characters, split) for split in shakespeare.splits]
    assert sum(len(array.ids) for array in arrays) == sum(array.characters for array in arrays) == 1_115_394


def test_an_eos_spelt_out_at_a_lines_end_is_that_end(tmp_path):
    tokenizer = Tokenizer.train(["a b <unk>"], "word", pretokenised=True)
    plain = tokenise(["a b", "b <unk>"], tokenizer, tmp_path / "plain.npy")
    spelt = tokenise(["a b <eos>", "b <unk> <eos> "], tokenizer, tmp_path / "spelt.npy")
    assert spelt.ids.tolist() == plain.ids.tolist()


class Killed(BaseException):
    """Not an error that anything could handle."""


def dying(lines, after):
    for number, line in enumerate(lines):
        if number == after:
            raise Killed
        yield line


@pytest.mark.parametrize("kind", ["word", "bpe", "char"])
def test_what_was_cut_before_a_kill_is_not_cut_again(tmp_path, monkeypatch, kind):
    lines = [f"line {n} of the text, number {n * n}" for n in range(400)]
    tokenizer = Tokenizer.train(lines, kind)
    whole = tokenise(lines, tokenizer, tmp_path / "whole.npy")
    monkeypatch.setattr(tokens_module, "SAVE_EVERY", 500)
    monkeypatch.setattr(tokens_module, "blocks", lambda lines: blocks(lines, 300))
    path, read = tmp_path / "cut.npy", []
    for after in (150, 260):
        with pytest.raises(Killed):
            tokenise(dying(lines, after), tokenizer, path)
        with open(path.with_suffix(".part"), "ab") as part:
            part.write(b"written after the last note")
    cut = tokenise(lines, tokenizer, path, lambda done, total: read.append(done))
    assert read[0] > 150 * 20  # it went on, and did not begin again
    assert (cut.ids == whole.ids).all()
    assert (cut.characters, cut.lines, cut.unknown) == (whole.characters, whole.lines, whole.unknown)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["cut.json", "cut.npy", "whole.json", "whole.npy"]


def test_several_processes_cut_as_one_does(tmp_path, monkeypatch):
    lines = [f"line {n} of the text, number {n * n}" for n in range(2000)]
    tokenizer = Tokenizer.train(lines, "bpe", 300)
    monkeypatch.setattr(tokens_module, "blocks", lambda lines: blocks(lines, 2000))
    one = tokenise(lines, tokenizer, tmp_path / "one.npy", processes=1)
    two = tokenise(lines, tokenizer, tmp_path / "two.npy", processes=2)
    assert (one.ids == two.ids).all()
    assert (one.characters, one.lines, one.unknown) == (two.characters, two.lines, two.unknown)


def test_a_broken_note_is_not_believed(tmp_path):
    lines = ["a b c"] * 5
    (tmp_path / "x.part").write_bytes(b"junk")
    (tmp_path / "x.part.json").write_text('{"tokens": 3}', encoding="utf-8")
    assert tokenise(lines, Tokenizer.train(lines, "word"), tmp_path / "x.npy").lines == 5


def test_an_end_that_is_written_out_is_found_in_any_number_of_blanks():
    for text in ("a <eos>", "a  \t<eos> \t", "a<eos>", "<eos>", " <eos>", "a <eos> b", "a <eos> <eos>", "a\n <eos>\nb"):
        assert WRITTEN_EOS.sub("", text) == re.sub(r"[ \t]*<eos>[ \t]*$", "", text, flags=re.M)
    assert WRITTEN_EOS.sub("", " " * 1_000_000) == " " * 1_000_000  # at once: it took minutes


@pytest.mark.parametrize("size, number", [(1 << 16, np.uint16), ((1 << 16) + 1, np.uint32)])
def test_two_bytes_hold_65536_types(tmp_path, size, number):
    tokenizer = Tokenizer.of_tokens(["<eos>", "<unk>", *(f"w{n}" for n in range(size - 2))], "word")
    last = f"w{size - 3}"
    array = tokenise([last], tokenizer, tmp_path / "x.npy")
    assert (array.ids.dtype, array.ids.tolist()) == (number, [size - 1, 0])
    ids, offsets, characters = encode_side([last, ""], tokenizer)
    assert (ids.dtype, ids.tolist()) == (number, [size - 1, 0, 0])
    assert (offsets.tolist(), characters.tolist()) == ([0, 2, 3], [len(last) + 1, 1])


@pytest.mark.parametrize("size, processes", [(None, 1), (0, 1), (99, 1), (100, 3)])
def test_only_large_texts_are_cut_by_several_processes(tmp_path, monkeypatch, size, processes):
    class Sized(tuple):
        pass

    asked, cut = [], tokens_module._cut
    monkeypatch.setattr(tokens_module, "MIN_PARALLEL_BYTES", 100)
    monkeypatch.setattr("os.sched_getaffinity", lambda process: {0: {0, 1, 2}}[process], raising=False)
    monkeypatch.setattr(
        tokens_module, "_cut", lambda texts, tokenizer, count: asked.append(count) or cut(texts, tokenizer, 1)
    )  # fmt: skip
    lines = Sized(LINES)
    lines.size = size
    tokenise(lines, Tokenizer.train(LINES, "char"), tmp_path / "x.npy")
    tokenise(lines, Tokenizer.train(LINES, "char"), tmp_path / "y.npy", processes=2)
    assert asked == [processes, 2]


class Pool:
    """Instead of processes; from a call on it is broken."""

    breaks_at, submitted = 10**9, 0

    def __init__(self, count, context, initializer, arguments):
        initializer(*arguments)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def submit(self, function, *arguments):
        Pool.submitted += 1
        if Pool.submitted > Pool.breaks_at + 3:
            raise BrokenProcessPool
        future = Future()
        if Pool.submitted > Pool.breaks_at:
            future.set_exception(BrokenProcessPool())
        else:
            future.set_result(function(*arguments))
        return future


@pytest.mark.parametrize("breaks_at", [0, 4, 10**9])
def test_texts_stay_in_order_and_few_wait_also_if_a_process_dies(monkeypatch, breaks_at):
    monkeypatch.setattr(tokens_module, "ProcessPoolExecutor", Pool)
    monkeypatch.setattr(Pool, "breaks_at", breaks_at)
    monkeypatch.setattr(Pool, "submitted", 0)
    tokenizer = Tokenizer.train(["0123456789"], "char")
    taken = []

    def texts():
        for n in range(20):
            taken.append(n)
            yield f"{n}", 1

    waiting, found = [], []
    for ids, counted in tokens_module._cut(texts(), tokenizer, 2):
        found.append(tokenizer.decode(ids[:-1].tolist()))
        waiting.append(len(taken) - len(found))
        size = len(found[-1]) + 1
        assert counted == {"tokens": size, "characters": size, "lines": 1, "unknown": 0, "bytes": size}
    assert found == [str(n) for n in range(20)]
    assert max(waiting) == (3 if breaks_at == 0 else 4)


def test_what_a_killed_process_noted_is_believed_only_if_it_is_whole(tmp_path):
    part, note = tmp_path / "x.part", tmp_path / "x.part.json"
    counted = {"tokens": 3, "characters": 9, "lines": 2, "unknown": 0, "bytes": 9}
    nothing = dict.fromkeys(counted, 0)
    for size, content, believed in (
        (6, counted, True), (5, counted, False), (6, counted | {"tokens": 3.0}, False), (6, counted | {"x": 1}, False),
        (6, [1], False), (99, counted, True),
    ):  # fmt: skip
        part.write_bytes(b"x" * size)
        note.write_text(json.dumps(content))
        assert tokens_module._done(part, note, 2) == (counted if believed else nothing)
        assert note.exists() is believed


@pytest.mark.parametrize("number, said", [(errno.ENOSPC, "disk is full"), (errno.EIO, "could not be saved")])
@pytest.mark.parametrize("noted", [False, True])
def test_after_an_error_only_noted_progress_stays_and_never_on_a_full_disk(tmp_path, number, said, noted):
    part, note = tmp_path / "x.part", tmp_path / "x.part.json"
    if noted:
        note.write_text("{}")

    def write_some():
        with tokens_module._opened(part, note) as stream:
            stream.write(b"some")
            raise OSError(number, "the system's words")

    with pytest.raises(RegardError, match=said):
        write_some()
    stays = noted and number != errno.ENOSPC
    assert (part.exists(), note.exists()) == (stays, stays)


def test_a_file_that_cannot_be_opened_is_said(tmp_path):
    opened = tokens_module._opened(tmp_path / "none" / "x.part", tmp_path / "none" / "x.part.json")
    with pytest.raises(RegardError, match=r"x.part' could not be saved \(No such file"), opened:
        pass


def test_a_cache_that_cannot_be_written_is_said_once(monkeypatch, own_cache):
    corpus, tokenizer, said = Corpus("small", {"train": GivenLines(LINES)}), Tokenizer.train(LINES, "char"), []
    monkeypatch.setattr(tokens_module, "_unwritable", lambda folder: "Read-only file system")
    tokens_module._scratch.cache_clear()
    try:
        first = cached(corpus, tokenizer, "train", say=said.append)
        assert len(said) == 1  # at once
        arrays = [first, cached(corpus, tokenizer, "train", say=said.append)]
    finally:
        tokens_module._scratch.cache_clear()
    assert arrays[0].ids.tolist() == arrays[1].ids.tolist()
    assert len(said) == 1
    assert "cannot be written (Read-only file system)" in said[0]
    assert not list((own_cache / "tokens").glob("*.npy"))


def test_a_folder_that_can_be_written_is_no_reason(tmp_path):
    assert tokens_module._unwritable(tmp_path / "new" / "folder") == ""
    (tmp_path / "file").write_text("x")
    assert tokens_module._unwritable(tmp_path / "file" / "folder") == os.strerror(errno.ENOTDIR)


def test_what_is_noted_as_done_is_on_the_disk_before(tmp_path, monkeypatch):
    order = []
    monkeypatch.setattr("os.fsync", lambda number: order.append(os.fstat(number).st_size))
    monkeypatch.setattr(tokens_module, "write_text", lambda path, text: order.append(path.name))
    with open(tmp_path / "x.part", "w+b") as stream:
        stream.write(b"ids")
        tokens_module._keep(stream, tmp_path / "x.part.json", {"tokens": 3})
    assert order == [3, "x.part.json"]
    with tokens_module._opened(tmp_path / "y.part", tmp_path / "y.part.json") as stream:
        stream.write(b"more")
    assert order[2:] == [4]


def test_the_file_is_the_one_that_numpy_would_write(tmp_path):
    """Also where a killed process had left more than is there in the end."""
    lines = [f"line {n}" for n in range(50)]
    tokenizer = Tokenizer.train(lines, "char")
    (tmp_path / "x.part").write_bytes(b"left" * 10_000)
    array = tokenise(lines, tokenizer, tmp_path / "x.npy")
    np.save(tmp_path / "oracle.npy", np.array(array.ids))
    assert (tmp_path / "x.npy").read_bytes() == (tmp_path / "oracle.npy").read_bytes()


@pytest.mark.parametrize("cores, processes", [(3, 3), (None, 1)])
def test_where_a_system_does_not_say_which_cores_are_free_all_are_taken(tmp_path, monkeypatch, cores, processes):
    asked, cut = [], tokens_module._cut
    monkeypatch.delattr("os.sched_getaffinity", raising=False)
    monkeypatch.setattr("os.cpu_count", lambda: cores)
    monkeypatch.setattr(tokens_module, "MIN_PARALLEL_BYTES", 1)
    monkeypatch.setattr(
        tokens_module, "_cut", lambda texts, tokenizer, count: asked.append(count) or cut(texts, tokenizer, 1)
    )  # fmt: skip
    tokenise(GivenLines(LINES), Tokenizer.train(LINES, "char"), tmp_path / "x.npy")
    assert asked == [processes]


@pytest.mark.parametrize("kind", ["char", "byte", "bpe"])
def test_an_eos_that_is_spelt_out_is_text_if_the_text_was_not_cut_before(tmp_path, kind):
    lines = ["a <eos>", "<eos>"]
    tokenizer = Tokenizer.train(lines, kind)
    assert tokenizer.decode(tokenise(lines, tokenizer, tmp_path / "x.npy").ids.tolist()) == "a <eos>\n<eos>\n"


def test_what_a_killed_process_left_beside_an_array_is_removed(own_cache):
    corpus, tokenizer = Corpus("small", {"train": GivenLines(LINES)}), Tokenizer.train(LINES, "char")
    cached(corpus, tokenizer, "train")
    array = next((own_cache / "tokens").glob("*.npy"))
    array.unlink()
    left = [array.with_name(f".{array.stem}{suffix}.0123abcd.part") for suffix in (".json", ".part.json")]
    other = array.with_name(".another.json.0123abcd.part")  # may be written just now
    for path in (*left, other):
        path.write_text("half")
    cached(corpus, tokenizer, "train")
    assert [path.exists() for path in (*left, other)] == [False, False, True]


def test_a_part_is_cut_back_wherever_its_stream_stands(tmp_path):
    number = np.dtype(np.uint16)
    np.save(tmp_path / "x.npy", np.arange(5, dtype=number))
    with open(tmp_path / "x.npy", "r+b") as stream:
        stream.seek(0, os.SEEK_END)
        tokens_module._cut_back(stream, number, 3)
        assert stream.tell() == os.fstat(stream.fileno()).st_size
    assert np.load(tmp_path / "x.npy").tolist() == [0, 1, 2]


def test_a_large_text_that_did_not_change_is_not_read_again(tmp_path, monkeypatch):
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(known_digests, "MIN_BYTES", 1)
    monkeypatch.setattr(sources, "known_digest", partial(known_digests.known_digest, tick=0.0))
    path = tmp_path / "text.txt"
    path.write_text("\n".join(f"line {n} of a long text" for n in range(2000)))
    state, tokenizer = path.stat(), Tokenizer.train(["line of a long text 0123456789"], "byte")

    def read():
        sources._content_digest.cache_clear()  # as in a new process
        corpus = open_corpus(path)
        array = cached(corpus, tokenizer, "train")
        return corpus.checksum(), array.ids.tolist(), unseen_bytes(tokenizer, array.ids)

    first = read()
    with monkeypatch.context() as patch:
        patch.setattr(sources.hashlib, "file_digest", None)  # would fail if called, for the text or for the tokens
        patch.setattr(np, "zeros", None)  # … or for the bytes that do not occur
        assert read() == first
    while path.stat().st_ctime_ns == state.st_ctime_ns:  # until the file system's clock ticks
        path.write_text(path.read_text().replace("long", "LONG"))
        os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))
    assert path.stat().st_size == state.st_size
    assert read()[0] != first[0]
    assert read()[1] != first[1]
