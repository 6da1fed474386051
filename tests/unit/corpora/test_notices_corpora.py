"""What a corpus promises without saying it in a sentence: the same text in every version, limits that nobody reaches,
and what the catalog says of each download."""

import hashlib
import io
import re
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest

from regard.base.errors import RegardError
from regard.corpora import builtin, cached_phrasebook, downloads, fetch
from regard.corpora.builtin import TOYS, phrases, toy_task
from regard.corpora.downloads import CATALOGUE
from regard.corpora.phrasebook import LECTURES, Pair, french, make_pairs, normalised, phrasebook
from regard.corpora.phrasebook.english import regular_gerund, regular_past, takes_an, verb
from regard.corpora.phrasebook.nouns import NOUNS, adjectives_for
from regard.corpora.split import HashSplit, line_hash

# -- the same text in every version ----------------------------------------------------------------------------------


def digest(pairs):
    found = hashlib.blake2b(digest_size=6)
    for pair in pairs:
        found.update(repr((pair.source, pair.target, pair.alignment, pair.agreement)).encode())
    return found.hexdigest()


def test_a_seed_of_the_phrasebook_writes_the_same_pairs_in_every_version():
    """Runs and the documentation name the phrasebook by its size alone. Words, links and order, also of long ones."""
    assert digest(make_pairs(1_000, seed=5, longest=40)) == "4886bf610e50"


def test_the_lectures_pairs_differ_in_their_names_alone():
    jack, jill = LECTURES[1:]
    names = {"Jack": "Jill", "Jill": "Jack"}

    def exchanged(sentence):
        return re.sub("Jack|Jill", lambda name: names[name[0]], sentence)

    assert jill == Pair(exchanged(jack.source), exchanged(jack.target), jack.alignment)


def test_every_noun_has_adjectives():
    assert all(adjectives_for(noun.tags) for noun in NOUNS)


def test_the_default_phrasebook_has_twenty_thousand_pairs_of_at_most_fifteen_words(monkeypatch):
    monkeypatch.setattr(cached_phrasebook, "cached_phrasebook", lambda *asked: asked)
    found = [phrases.__wrapped__(*asked) for asked in ((0, 0), (7, 0), (0, 9))]
    assert found == [(20_000, 15), (7, 15), (20_000, 9)]


def test_the_toy_tasks_reach_every_length_that_they_may_have():
    random = Random(0)
    lines = {name: [make(random) for _ in range(4000)] for name, make in TOYS.items()}
    lengths = {name: {len(line) for line in found} for name, found in lines.items()}
    assert lengths["any-b"] == set(range(5, 34))
    assert {line[:-1].count("B") for line in lines["any-b"]} == {0, 1, 2, 3}
    for name in ("copy", "reverse"):
        assert lengths[name] == set(range(3, 26, 2))
        assert {symbol for line in lines[name] for symbol in line} == {*"abcdefghijklmnop", "|"}
    assert lengths["recall"] <= set(range(5, 20, 2))
    assert {19, 7} <= lengths["recall"]
    assert {line[-1] for line in lines["recall"]} == set("0123456789")
    assert {line.index(line[-2]) // 2 for line in lines["recall"]} == set(range(8))


# -- splits ----------------------------------------------------------------------------------------------------------


def test_of_twenty_lines_one_is_for_validation_and_one_for_the_test():
    lines = [str(number) for number in range(4000)]
    for line in lines:
        wanted = {0: "valid", 1: "test"}.get(line_hash(line) % 20, "train")
        assert HashSplit()(line) == wanted
        assert HashSplit(("test",))(line) == ("test" if line_hash(line) % 20 == 0 else "train")
    assert line_hash("a") == int.from_bytes(hashlib.blake2b(b"a", digest_size=8).digest(), "big")
    assert HashSplit().splits == ("train", "valid", "test")
    few = HashSplit(ranked={line_hash("a"): "test"})
    assert (few("a"), few("b"), few.splits) == ("test", "train", ("train", "test"))


def test_the_phrasebook_holds_out_one_pair_in_twenty_and_at_most_five_hundred(monkeypatch):
    def numbered(count, *, seed, longest):
        assert (seed, longest) == (3, 15)
        return (Pair(f"say {n}.", f"dites {n // 2}.", ()) for n in range(count))

    monkeypatch.setattr("regard.corpora.phrasebook.make_pairs", numbered)
    for count, share in ((19, 0), (20, 1), (400, 20), (20_000, 500)):
        splits = phrasebook(count, seed=3)
        assert splits["train"][: len(LECTURES)] == list(LECTURES)
        for name in ("valid", "test"):
            assert share <= len(splits[name]) <= share + 1  # two pairs have one target, and share a split
        targets = [{normalised(pair.target) for pair in splits[name]} for name in splits]
        assert not targets[0] & targets[1]
        assert not targets[1] & targets[2]
        assert sum(map(len, splits.values())) == count


def test_an_exhausted_phrasebook_says_how_many_sentences_it_has(monkeypatch):
    monkeypatch.setattr("regard.corpora.phrasebook.PATIENCE", 40)
    found, pairs = [], make_pairs(9_999, longest=1)
    with pytest.raises(RegardError) as error:
        found.extend(pairs)
    said = f"only about {len(found)} sentences of 1 to 1 words; ask for fewer pairs or allow longer sentences."
    assert str(error.value) == f"The phrasebook has {said}"
    for count, shortest, longest in ((-1, 1, 5), (1, 0, 5), (1, 6, 5)):
        with pytest.raises(RegardError, match=f"cannot make {count} pairs of {shortest} to {longest} words; "):
            next(make_pairs(count, shortest=shortest, longest=longest))
    assert list(make_pairs(0)) == []
    assert len(next(make_pairs(1, shortest=5, longest=5)).source.split()) == 5


def test_the_first_pairs_are_the_lectures_of_which_short_phrasebooks_have_only_the_short():
    assert [pair.source for pair in phrasebook(1)["train"]] == ["They are watching."]
    assert [pair.source for pair in phrasebook(30, longest=3)["train"]][:2] != [pair.source for pair in LECTURES[:2]]
    everything = [pair.source for part in phrasebook(60, longest=5).values() for pair in part]
    assert "They are watching." in everything
    assert "Jack gave water to Jill." in everything
    assert "Jack gave water to Jill." not in [p.source for part in phrasebook(60, longest=4).values() for p in part]


# -- the phrasebook's cache ------------------------------------------------------------------------------------------


def test_the_cached_phrasebook_is_of_this_grammar_alone(monkeypatch):
    """Each file that decides the pairs is part of the name under which they are cached."""
    read, plain = [], Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", lambda path: read.append(path) or plain(path))
    usual = cached_phrasebook._code_digest()
    package = Path(builtin.__file__).parent
    wanted = {*(package / "phrasebook").glob("*.py"), package / "split.py", package.parent / "base" / "word_spans.py"}
    assert set(read) == wanted
    assert len(wanted) > 10
    for changed in wanted:
        monkeypatch.setattr(Path, "read_bytes", lambda path: plain(path) + b"#" * (path == changed))  # noqa: B023
        assert cached_phrasebook._code_digest() != usual
    monkeypatch.undo()
    asked = []
    monkeypatch.setattr(cached_phrasebook, "cached", lambda *given: asked.append(given))
    cached_phrasebook.cached_phrasebook(40, 9)
    assert asked[0][:2] == ("phrasebook", f"40-9-{usual}.json")


def test_pairs_come_out_of_the_cache_as_they_went_in():
    made = {"train": list(LECTURES), "valid": [Pair("No.", "Non.", ((0, 0),))], "test": []}
    assert cached_phrasebook._parse(cached_phrasebook._dump(made)) == made
    assert "donné".encode() in cached_phrasebook._dump(made)


# -- Python's reference ----------------------------------------------------------------------------------------------


def test_a_paragraph_is_one_line_again():
    w = "w" * 30
    assert builtin._unwrapped("one two\nthree") == ["one two", "three"]  # there was room for the next word
    assert builtin._unwrapped(f"{w} {w} abcdefg\nhi there\n  short") == [f"{w} {w} abcdefg hi there", "short"]
    assert builtin._unwrapped(f"{w} {w} ab\n{'x' * 5}\nb") == [f"{w} {w} ab", "xxxxx", "b"]  # 64 + 1 + 5 is 70: it fits
    assert builtin._unwrapped(f"{w} {w} abc\n{'x' * 5}\nb") == [f"{w} {w} abc xxxxx", "b"]  # 65 + 1 + 5 does not
    assert builtin._unwrapped(f"{w} {w} {w}\n\nnext") == [f"{w} {w} {w}", "next"]
    assert builtin._unwrapped(f"{w} {w} {w}\nrule ::= next") == [f"{w} {w} {w}", "rule ::= next"]
    assert builtin._unwrapped(f"Heading\n*******\n{w} {w} {w}\n=====\nnext") == ["Heading", f"{w} {w} {w}", "next"]
    assert builtin._unwrapped("**\n*a*\n") == ["*a*"]


def paragraph(name, count):
    return "\n\n".join(f"{name} {number} says something that is longer than forty letters" for number in range(count))


def test_the_reference_is_split_by_topic_and_has_none_twice(monkeypatch):
    texts = {f"topic{number}": paragraph(f"of {number}", 4) for number in range(60)}
    texts |= {"whole": paragraph("part", 10), "inside": paragraph("part", 4)}
    texts |= {"half": "\n\n".join([paragraph("part", 4), paragraph("own", 5)])}
    texts |= {"short": "ok\n\n" + paragraph("brief", 3), "other": "ok\n\n" + paragraph("long", 9)}
    monkeypatch.setattr("pydoc_data.topics.topics", texts)
    topics = builtin._distinct_topics()
    assert set(texts) - set(topics) == {"inside"}
    assert topics["half"] == builtin._unwrapped(paragraph("own", 5))  # less than half of it was in the longer one
    assert topics["other"][0] == topics["short"][0] == "ok"  # short lines may come again
    made = builtin._pyref()
    characters = {name: sum(map(len, lines)) for name, lines in topics.items()}
    share = sum(characters.values()) // 20
    left = sorted(topics, key=line_hash)
    for name in ("valid", "test"):
        room, wanted = share, []
        for topic in list(left):
            if characters[topic] <= room:
                wanted.append(topic)
                left.remove(topic)
                room -= characters[topic]
        assert len(wanted) > 1
        assert list(made.splits[name]) == [line for topic in sorted(wanted) for line in topics[topic]]
    assert list(made.splits["train"]) == [line for topic in sorted(left) for line in topics[topic]]
    assert list(made.splits) == ["train", "valid", "test"]
    text = "\n".join(line for lines in made.splits.values() for line in lines)
    checksum = hashlib.sha256(text.encode()).hexdigest()[:12]
    said = f", {len(text.split())} words, checksum {checksum}, split by topic, 5 % each for valid and test."
    assert made.origin.endswith(said)
    assert (made.pretokenised, made.disjoint) == (False, False)


def test_a_topic_of_which_exactly_half_was_read_before_is_left_out(monkeypatch):
    half = {"a": paragraph("x", 4), "b": paragraph("x", 2) + "\n\n" + paragraph("y", 2)}
    monkeypatch.setattr("pydoc_data.topics.topics", half)
    assert [*builtin._distinct_topics()] == ["a"]
    exactly = "e" * 40
    monkeypatch.setattr("pydoc_data.topics.topics", {"a": f"{exactly}\n\n{paragraph('x', 9)}", "b": f"{exactly}\n\n"
                                                     + paragraph("y", 2), "c": exactly[1:] + "\n\n" + paragraph("z", 1),
                                                     "d": exactly[1:] + "\n\n" + paragraph("v", 1)})  # fmt: skip
    topics = builtin._distinct_topics()
    assert exactly in topics["a"]
    assert exactly not in topics["b"]  # forty letters are a long line
    assert topics["c"][0] == topics["d"][0] == exactly[1:]


# -- downloads -------------------------------------------------------------------------------------------------------


def test_the_catalog_says_of_each_corpus_how_it_is_usually_read():
    """docs/guides/data.md lists them; papers' numbers depend on the tokenizer and on where a text is cut."""
    plain = {"tokenizer": "bpe", "pretokenised": False, "cuts": (), "pairs": False, "languages": ("", "")}
    known = {
        "shakespeare": {"tokenizer": "char", "cuts": (0.9,)},
        "ptb": {"tokenizer": "word", "pretokenised": True},
        "wikitext-2": {"tokenizer": "word", "pretokenised": True},
        "enwik8": {"tokenizer": "byte", "cuts": (0.9, 0.95)},
        "multi30k": {"pairs": True, "languages": ("de", "en")},
        "tatoeba-fra": {"pairs": True, "languages": ("en", "fr")},
        "tatoeba-spa": {"pairs": True, "languages": ("en", "es")},
        "tatoeba-deu": {"pairs": True, "languages": ("en", "de")},
    }
    assert [*CATALOGUE] == [*known]
    for name, more in known.items():
        assert {key: getattr(CATALOGUE[name], key) for key in plain} == plain | more
    assert CATALOGUE["tatoeba-fra"].title == "short sentence pairs, English–French"
    assert CATALOGUE["tatoeba-fra"].files == (downloads.File("www.manythings.org/anki/fra-eng.zip", None, "fra.txt"),)
    assert CATALOGUE["enwik8"].files[0].name == "enwik8"
    assert downloads.File("a.org/b/c.txt.gz").name == "c.txt.gz"


class Response(io.BytesIO):
    """A server's answer, in pieces of the sizes given."""

    def __init__(self, pieces, length):
        super().__init__()
        self.pieces, self.headers = iter(pieces), {} if length is None else {"Content-Length": str(length)}

    def read1(self, most):
        size = next(self.pieces, 0)
        assert size <= most
        return bytes(size)


def streamed(monkeypatch, pieces, *, length=None, seconds=None):
    """What is written, and what of the progress is told; the clock is read once before and once after each piece."""
    clock, opened, told, out = iter([0.0, *(seconds or [0.0] * len(pieces))]), [], [], io.BytesIO()
    answer = Response(pieces, length)
    monkeypatch.setattr(fetch, "monotonic", lambda: next(clock))
    monkeypatch.setattr("urllib.request.urlopen", lambda url, **how: opened.append((url, how)) or answer)
    fetch._stream("http://a.org/b", out, lambda *call: told.append(call))
    assert opened == [("http://a.org/b", {"timeout": 30})]
    assert answer.closed
    return len(out.getvalue()), told


SLOW = 1 << 17


@pytest.mark.parametrize(
    ("pieces", "seconds", "given_up"),
    [
        ([SLOW - 1], [60], False),  # a minute has not passed
        ([SLOW - 1], [60.1], True),
        ([SLOW], [60.1], False),
        ([SLOW, SLOW - 1], [60.1, 120.1], False),  # of the second minute nothing is missing yet
        ([SLOW, SLOW - 1], [60.1, 120.3], True),  # however much came in the first one
        ([9 * SLOW // 2] * 2 + [1], [1, 2, 60], False),
        ([SLOW // 2, SLOW // 2, SLOW, 1], [30, 60.1, 120.2, 180.3], True),
    ],
)
def test_a_server_is_given_up_that_sends_less_than_131072_bytes_in_a_minute(monkeypatch, pieces, seconds, given_up):
    if not given_up:
        assert streamed(monkeypatch, pieces, seconds=seconds)[0] == sum(pieces)
        return
    with pytest.raises(RegardError) as error:
        streamed(monkeypatch, pieces, seconds=seconds)
    assert str(error.value) == (
        "http://a.org/b sent less than 131,072 bytes in 60 seconds; try again later or use a mirror (REGARD_MIRROR)."
    )


def test_a_download_tells_how_far_it_is_and_what_is_missing(monkeypatch):
    assert streamed(monkeypatch, [3, 4], length=7) == (7, [(3, 7), (7, 7)])
    assert streamed(monkeypatch, [3, 4], length=6) == (7, [(3, 6), (7, 6)])  # more than was announced
    for unknown in (None, "", "7x", "٧", "9" * 16):
        assert streamed(monkeypatch, [3, 4], length=unknown) == (7, [(3, None), (7, None)])
    with pytest.raises(RegardError) as error:
        streamed(monkeypatch, [12_000], length=12_345)
    assert str(error.value) == (
        "The download of http://a.org/b stopped after 12,000 of 12,345 bytes; run the command again."
    )


def test_a_download_is_as_large_as_half_a_gibibyte_and_no_larger(monkeypatch):
    assert fetch.MAX_BYTES == 512 << 20
    fetch._require_size("http://a.org/b", 512 << 20)
    said = "http://a.org/b is larger than 512 MiB, more than any corpus in the catalog, so it was discarded; "
    with pytest.raises(RegardError) as error:
        fetch._require_size("http://a.org/b", (512 << 20) + 1)
    assert str(error.value).startswith(said)
    with pytest.raises(RegardError) as error:  # what is announced counts before it has come
        streamed(monkeypatch, [1], length=(512 << 20) + 1)
    assert str(error.value).startswith(said)
    with pytest.raises(RegardError, match="larger than 512 MiB"):
        streamed(monkeypatch, [1], length="9" * 15)


def test_a_record_is_a_whole_sha256_at_the_beginning_of_its_line(tmp_path):
    path, record = tmp_path / "a.txt", tmp_path / "a.txt.sha256"
    assert fetch._recorded(path) is None
    for text, found in (("0f" * 32 + "  a.txt\n", "0f" * 32), ("0f" * 32, "0f" * 32), ("0f" * 31, None),
                        ("0f" * 33, None), (" " + "0f" * 32, None), ("é" * 64, None), ("", None)):  # fmt: skip
        record.write_text(text, encoding="utf-8")
        assert fetch._recorded(path) == found


def test_a_file_is_there_if_it_is_the_right_one_or_none_is_known(tmp_path):
    path = tmp_path / "a.txt"
    assert not fetch._is_there(path, None)
    assert not fetch._is_there(path, "00")
    path.write_bytes(b"x" * ((1 << 20) + 1))  # longer than what is read at once
    assert fetch._is_there(path, None)
    assert fetch._is_there(path, hashlib.sha256(path.read_bytes()).hexdigest())
    assert not fetch._is_there(path, hashlib.sha256(b"x").hexdigest())


def test_an_archive_is_unpacked_no_further_than_a_download_may_be_large(monkeypatch):
    import zipfile

    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as files:
        files.writestr("inside", bytes(5000))
    monkeypatch.setattr(fetch, "BLOCK", 1000)
    for most, fits in ((5000, True), (4999, False)):
        monkeypatch.setattr(fetch, "MAX_BYTES", most)
        out = io.BytesIO()
        if fits:
            fetch._unpack(archive, "inside", "u", out)
            assert out.getvalue() == bytes(5000)
        else:
            with pytest.raises(RegardError, match="u is larger than 0 MiB"):
                fetch._unpack(archive, "inside", "u", out)
            assert len(out.getvalue()) == 4000


def test_another_process_that_fetches_the_same_corpus_is_waited_for_or_said(monkeypatch, tmp_path):
    """The lock is beside the corpus's folder and has its name; what was left behind is removed, and nothing else."""
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path))
    folder = tmp_path / "data" / "plain"
    folder.mkdir(parents=True)
    for name in (".a.part", "b.part", ".c", "d.txt"):
        (folder / name).touch()
    locked = []
    plain = fetch.lock
    monkeypatch.setattr(fetch, "lock", lambda path: locked.append(path) or plain(path))
    with fetch._alone(folder):
        assert sorted(path.name for path in folder.iterdir()) == [".c", "b.part", "d.txt"]
    assert locked == [tmp_path / "data" / ".plain.lock"]


def test_an_error_about_a_false_file_has_both_sums(monkeypatch, tmp_path):
    monkeypatch.setattr(fetch, "_stream", lambda url, stream, progress: stream.write(b"false"))
    false, right = hashlib.sha256(b"false").hexdigest()[:12], "ab" * 32
    file = downloads.File("a.org/b/c.txt", right)
    with pytest.raises(RegardError) as error:
        fetch._download(file, "http://a.org/b/c.txt", tmp_path / "c.txt", None)
    said = f"http://a.org/b/c.txt is not the genuine c.txt (SHA-256 {false}…, not {right[:12]}…), so it was discarded; "
    assert str(error.value).startswith(said)
    (tmp_path / "c.txt.sha256").write_text(right)
    with pytest.raises(RegardError) as error:
        fetch._download(downloads.File("a.org/b/c.txt"), "http://a.org/b/c.txt", tmp_path / "c.txt", None)
    assert f"downloaded the first time (SHA-256 {false}…, not {right[:12]}…), so it was discarded" in str(error.value)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["c.txt.sha256"]


def test_no_file_has_its_name_before_its_sum_is_recorded(monkeypatch, tmp_path):
    """Else a kill between both would leave a file that no later download is compared with."""
    named, plain, path = [], fetch.writing, tmp_path / "c.txt"

    @contextmanager
    def writing(place):
        with plain(place) as stream:
            yield stream
        named.append((place.name, path.exists()))

    monkeypatch.setattr(fetch, "writing", writing)
    monkeypatch.setattr(fetch, "_stream", lambda url, stream, progress: stream.write(b"text"))
    fetch._download(downloads.File("a.org/c.txt"), "http://a.org/c.txt", path, None)
    assert named == [("c.txt.sha256", False), ("c.txt", True)]
    assert (tmp_path / "c.txt.sha256").read_text() == f"{hashlib.sha256(b'text').hexdigest()}  c.txt\n"
    named.clear()
    right = downloads.File("a.org/c.txt", hashlib.sha256(b"text").hexdigest())
    fetch._download(right, "http://a.org/c.txt", tmp_path / "d.txt", None)
    assert named == [("d.txt", True)]  # the catalog's sum needs no record
    assert not (tmp_path / "d.txt.sha256").exists()


def test_a_name_that_is_near_none_is_answered_with_all(monkeypatch):
    with pytest.raises(RegardError) as error:
        fetch.fetch("qqqqqqqqq")
    assert str(error.value) == f"There is no download 'qqqqqqqqq'; choose one of {', '.join(CATALOGUE)}."
    with pytest.raises(RegardError, match="There is no download 'ptbb'; did you mean 'ptb'"):
        fetch.fetch("ptbb")


# -- words -----------------------------------------------------------------------------------------------------------


def test_english_words_are_inflected_as_in_the_grammar_books():
    assert [regular_past(word) for word in ("carry", "play", "bake", "walk")] == [
        "carried",
        "played",
        "baked",
        "walked",
    ]
    gerunds = {"stop": "stopped", "bake": "baked", "see": "saw", "play": "played", "be": "was"}
    assert [regular_gerund(*pair) for pair in gerunds.items()] == ["stopping", "baking", "seeing", "playing", "bing"]
    assert [takes_an(word) for word in ("apple", "University", "one", "hour", "house", "honest", "umbrella")] == [
        True, False, False, True, False, True, True,
    ]  # fmt: skip
    said = [verb("give gave given"), verb("look+at"), verb("have had"), verb("go went gone"), verb("stop stopped"),
            verb("put put put putting"), verb("be was been being")]  # fmt: skip
    assert [(one.third, one.past, one.participle, one.gerund, one.particle) for one in said] == [
        ("gives", "gave", "given", "giving", ""), ("looks", "looked", "looked", "looking", "at"),
        ("has", "had", "had", "having", ""), ("goes", "went", "gone", "going", ""),
        ("stops", "stopped", "stopped", "stopping", ""), ("puts", "put", "put", "putting", ""),
        ("is", "was", "been", "being", ""),
    ]  # fmt: skip


def test_french_words_are_inflected_as_in_the_grammar_books():
    forms = {"heureux": "heureuse", "premier": "première", "neuf": "neuve", "ancien": "ancienne",
             "bon": "bonne", "cruel": "cruelle", "rouge": "rouge", "petit": "petite"}  # fmt: skip
    assert [french.feminine(word) for word in forms] == [*forms.values()]
    plurals = {"fils": "fils", "nez": "nez", "eau": "eaux", "feu": "feux", "bleu": "bleus", "cheval": "chevaux",
               "chat": "chats", "voix": "voix"}  # fmt: skip
    assert [french.plural(word) for word in plurals] == [*plurals.values()]
    assert [french.agree("dû", *how) for how in ((False, False), (True, False), (False, True), (True, True))] == [
        "dû", "due", "dûs", "dues",
    ]  # fmt: skip
    assert french.agree("mis", False, True) == "mis"
    whole = french.conjugate("manger")
    assert whole.present == ("mange", "manges", "mange", "mangeons", "mangez", "mangent")
    assert whole.imperfect == ("mangeais", "mangeais", "mangeait", "mangions", "mangiez", "mangeaient")
    assert whole.future == ("mangerai", "mangeras", "mangera", "mangerons", "mangerez", "mangeront")
    assert whole.conditional == ("mangerais", "mangerais", "mangerait", "mangerions", "mangeriez", "mangeraient")
    assert french.conjugate("finir").present == ("finis", "finis", "finit", "finissons", "finissez", "finissent")
    assert french.conjugate("vendre").present == ("vends", "vends", "vend", "vendons", "vendez", "vendent")
    elided = {("je", "ai"): "j'", ("si", "elle"): "si", ("si", "ils"): "s'", ("puisque", "on"): "puisque",
              ("lorsque", "une"): "lorsqu'", ("le", "haricot"): "le", ("le", "homme"): "l'", ("tu", "as"): "tu",
              ("je", "y"): "j'"}  # fmt: skip
    assert [french.elide(*words) for words in elided] == [*elided.values()]


def test_a_toy_task_asked_for_by_its_name_is_of_ten_thousand_lines_and_made_once():
    assert sum(map(len, toy_task("copy").values())) == 10_000
    assert toy_task("copy") is toy_task("copy")
    assert toy_task("copy", lines=100) == toy_task("copy", seed=0, lines=100)
