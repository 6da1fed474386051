"""Opening sentence pairs: from every kind of file, with one clear sentence for what is wrong with it."""

import gzip
import hashlib
from dataclasses import replace

import pytest

from regard.base.errors import RegardError
from regard.corpora.builtin import TOYS, phrases
from regard.corpora.downloads import CATALOGUE
from regard.text.corpus import GivenLines
from regard.text.pairs import (
    PairCorpus,
    Pairs,
    _split,
    _times,
    is_pairs,
    not_held_out,
    open_pairs,
    read_pairs,
    weighted,
)
from regard.text.readers.columns import Wanted
from regard.text.readers.pair_files import _is_language, find_pair_files, open_pair_source
from regard.text.split import count_pair_overlap
from regard.text.tokenizers.pair_tokenizers import train_tokenizers

ENOUGH = [(f"source {number}", f"cible {number}") for number in range(60)]


def write(path, lines):
    path.parent.mkdir(parents=True, exist_ok=True)
    content = "".join(f"{line}\n" for line in lines).encode()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def table(path, pairs=ENOUGH, more=""):
    return write(path, [f"{source}\t{target}{more}" for source, target in pairs])


def parallel(folder, split, pairs, languages=("de", "en"), packed=""):
    for side, language in enumerate(languages):
        write(folder / f"{split}.{language}{packed}", [pair[side] for pair in pairs])


def read(corpus):
    return {split: list(zip(pairs.sources, pairs.targets)) for split, pairs in corpus.splits.items()}


def everything(corpus):
    return sorted(pair for pairs in read(corpus).values() for pair in pairs)


def refusal(*arguments, **settings):
    with pytest.raises(RegardError) as caught:
        open_pairs(*arguments, **settings)
    return str(caught.value)


@pytest.mark.parametrize("name", ["pairs.tsv", "pairs.txt", "pairs.tsv.gz", "pairs.txt.gz"])
def test_a_file_with_tabs_is_split_and_where_it_has_more_columns_these_are_asked_for(tmp_path, name):
    path = write(tmp_path / name, [f"{a}\t{b}\t{n % 3}\tCC-BY" for n, (a, b) in enumerate(ENOUGH)])
    assert is_pairs(path)
    assert "4 columns (1 'source 0', 2 'cible 0', 3 '0', 4 'CC-BY')" in refusal(path)
    assert refusal(path).endswith("for example --data.columns 1,2.")
    corpus = open_pairs(path, columns="1,2")
    assert everything(corpus) == sorted(ENOUGH)
    assert list(corpus.splits) == ["train", "valid", "test"]
    assert corpus.notes[0] == f"{name} is TSV (UTF-8, no header): column 1 is the source, column 2 the target."
    assert "Drawn by hash" in corpus.notes[1]
    licensed = table(tmp_path / f"licensed-{name}", more="\tCC-BY\tmore")  # the same in all rows: no translation
    assert everything(open_pairs(licensed)) == sorted(ENOUGH)


def test_blank_lines_are_passed_over_and_counted(tmp_path):
    path = write(tmp_path / "pairs.tsv", ["", *(f"{a}\t{b}" for a, b in ENOUGH), "  ", "\t"])
    corpus = open_pairs(path)
    assert everything(corpus) == sorted(ENOUGH)
    assert "3 blank lines of pairs.tsv were skipped." in corpus.notes


def test_a_line_with_one_field_is_refused_by_its_number(tmp_path):
    path = write(tmp_path / "pairs.tsv", ["a\tb", "", "no tab here", "c\td"])
    assert f"{str(path)!r} has only one field on line 3" in refusal(path)


def test_an_empty_side_is_kept_for_later(tmp_path):
    path = table(tmp_path / "pairs.tsv", [*ENOUGH, ("", "rien"), ("nothing", "")])
    assert {("", "rien"), ("nothing", "")} <= set(everything(open_pairs(path)))


@pytest.mark.parametrize("packed", ["", ".gz"])
def test_a_folder_of_parallel_files(tmp_path, packed):
    parallel(tmp_path, "train", ENOUGH, packed=packed)
    parallel(tmp_path, "val", [("neu", "new")], packed=packed)
    parallel(tmp_path, "test_2016_flickr", [("alt", "old"), ("source 3", "other")], packed=packed)
    corpus = open_pairs(tmp_path, source="de", target="en")
    assert is_pairs(tmp_path)
    assert read(corpus) == {
        "train": ENOUGH,
        "valid": [("neu", "new")],
        "test": [("alt", "old"), ("source 3", "other")],
    }
    assert (corpus.source, corpus.target) == ("de", "en")
    assert "Splits as given: train.de" in corpus.notes[0]
    assert "1 (50.0 %) have a source" in corpus.notes[2]
    other = open_pairs(tmp_path, source="en", target="de")
    assert read(other)["valid"] == [("new", "neu")]
    assert read(open_pairs(tmp_path, source="de", target="en", swap=True)) == read(other)


def test_languages_that_are_not_said_or_not_there_are_asked_for(tmp_path):
    parallel(tmp_path, "train", ENOUGH)
    assert "--data.columns de,en" in refusal(tmp_path)
    assert "--data.columns de,en" in refusal(tmp_path / "train")
    assert "no training file in 'fr'" in refusal(tmp_path, source="de", target="fr")
    assert "--data.columns" in refusal(tmp_path, source="de", target="de")


def test_half_a_split_is_refused(tmp_path):
    parallel(tmp_path, "train", ENOUGH)
    write(tmp_path / "valid.de", ["allein"])
    assert "valid.de' has no valid file in 'en' next to it" in refusal(tmp_path, source="de", target="en")


def test_any_ending_is_a_language_if_the_user_says_so(tmp_path):
    parallel(tmp_path, "train", ENOUGH, ("src-tok", "tgt-tok"))
    assert everything(open_pairs(tmp_path, source="src-tok", target="tgt-tok")) == sorted(ENOUGH)


def test_unequal_line_counts_are_refused_with_both(tmp_path):
    write(tmp_path / "train.de", ["eins", "zwei", "drei"])
    write(tmp_path / "train.en", ["one", "two"])
    message = refusal(tmp_path, source="de", target="en")
    assert "train.de' has 3 lines" in message
    assert "train.en' has 2;" in message


def test_blank_lines_in_both_parallel_files_are_fine(tmp_path):
    parallel(tmp_path, "train", [*ENOUGH, ("", ""), ("", "rien")])
    assert everything(open_pairs(tmp_path / "train", source="de", target="en")) == sorted([*ENOUGH, ("", "rien")])


def test_two_files_by_their_common_name_are_split(tmp_path):
    parallel(tmp_path, "train", ENOUGH)
    corpus = open_pairs(tmp_path / "train", source="de", target="en")
    assert is_pairs(tmp_path / "train")
    assert everything(corpus) == sorted(ENOUGH)
    assert list(corpus.splits) == ["train", "valid", "test"]


def test_one_file_is_read_as_it_stands(tmp_path):
    table(tmp_path / "pairs.tsv")
    parallel(tmp_path, "more", ENOUGH)
    for found in (read_pairs(tmp_path / "pairs.tsv"), read_pairs(tmp_path / "more", source="de", target="en")):
        assert list(zip(found.sources, found.targets)) == ENOUGH


def test_a_folder_of_tables_and_what_it_lacks_is_drawn(tmp_path):
    table(tmp_path / "train.tsv")
    assert everything(open_pairs(tmp_path)) == sorted(ENOUGH)
    table(tmp_path / "test.tsv", [("x", "y")])
    corpus = open_pairs(tmp_path)
    assert read(corpus)["test"] == [("x", "y")]
    assert len(corpus.splits["valid"]) == 3
    table(tmp_path / "dev.tsv.gz", [("v", "w")])
    assert read(open_pairs(tmp_path)) == {"train": ENOUGH, "valid": [("v", "w")], "test": [("x", "y")]}
    assert "own splits" in refusal(tmp_path, split="tail")
    table(tmp_path / "valid.tsv", [("v", "w")])
    assert "several valid files" in refusal(tmp_path)


def test_texts_are_not_pairs(tmp_path):
    text = write(tmp_path / "text.txt", ["one sentence", "another"])
    assert not is_pairs(text)
    assert "most lines have only one field" in refusal(text)
    folder = tmp_path / "folder"
    write(folder / "train.txt", ["one sentence", "another"])
    write(folder / "train.de", ["ein Satz"])
    assert not is_pairs(folder)
    assert "no training pairs" in refusal(folder)
    assert not is_pairs("pyref")
    assert "without translations" in refusal("pyref")
    assert not is_pairs(tmp_path / "nowhere")
    assert "There is no corpus, file or folder" in refusal(tmp_path / "nowhere")
    assert "did you mean" in refusal("multi30")
    with pytest.raises(RegardError, match="is the name of a corpus"):
        read_pairs("phrasebook")


def test_the_tail_can_be_held_out_instead(tmp_path):
    corpus = open_pairs(table(tmp_path / "pairs.tsv"), split="tail")
    assert read(corpus) == {"train": ENOUGH[:54], "valid": ENOUGH[54:57], "test": ENOUGH[57:]}


def test_too_few_pairs_are_refused(tmp_path):
    path = table(tmp_path / "pairs.tsv", [("a", "x"), ("A!", "y")])
    assert "None of the 2 pairs" in refusal(path)
    assert "None of the 2 pairs" in refusal(path, split="tail")


def test_further_pairs_are_trained_on_as_often_as_they_weigh(tmp_path):
    path = table(tmp_path / "pairs.tsv")
    more = [(f"more {number}", f"plus {number}") for number in range(1000)]
    extra, other = table(tmp_path / "more.tsv", more), table(tmp_path / "other.tsv", [("one", "un")])
    plain = read(open_pairs(path))
    corpus = open_pairs(path, also=f"{extra}:2.25, {other}")
    added = read(corpus)["train"][len(plain["train"]) :]
    counts = [added.count(pair) for pair in more]
    assert set(counts) == {2, 3}
    assert 200 < counts.count(3) < 300
    assert added.count(("one", "un")) == 1
    assert read(corpus)["valid"] == plain["valid"]
    assert read(corpus) == read(open_pairs(path, also=f"{extra}:2.25, {other}"))
    assert any("2.25 times per epoch" in note for note in corpus.notes)
    assert read(open_pairs(path, also=str(extra), swap=True))["train"][-1] == ("plus 999", "more 999")
    for wrong in ("0", "-1", "nan", "inf"):
        assert "must be more than 0" in refusal(path, also=f"{extra}:{wrong}")


def test_further_pairs_of_which_a_side_is_held_out_are_left_out_and_counted(tmp_path):
    path = table(tmp_path / "pairs.tsv")
    source, target = read(open_pairs(path))["test"][0]
    extra = table(tmp_path / "more.tsv", [(source.upper(), "x"), ("y", target + "!"), ("fine", "bien")])
    corpus = open_pairs(path, also=str(extra))
    assert read(corpus)["train"][-1] == ("fine", "bien")
    assert "2 with a held-out side were left out" in corpus.notes[-1]
    assert not any(overlap.sources or overlap.targets for overlap in overlaps(corpus))


def overlaps(corpus):
    return count_pair_overlap({split: (pairs.sources, pairs.targets) for split, pairs in corpus.splits.items()})


def test_fewer_training_pairs_are_drawn_and_stay_when_there_are_more(tmp_path):
    path = table(tmp_path / "pairs.tsv")
    whole, ten, twenty = (read(open_pairs(path, pairs=count)) for count in (0, 10, 20))
    assert len(ten["train"]) == 10
    assert set(ten["train"]) < set(twenty["train"]) < set(whole["train"])
    assert ten["test"] == whole["test"]
    assert "leave out data.words" in refusal(path, longest=7)


def test_the_checksum_follows_the_text_and_the_settings(tmp_path):
    path = table(tmp_path / "pairs.tsv")
    copy = table(tmp_path / "copy.tsv", more="\tanother attribution")
    checksum = open_pairs(path).checksum()
    assert open_pairs(copy, columns="1,2").checksum() == checksum
    assert open_pairs(path, source="en", target="fr").checksum() == checksum
    table(copy, [*ENOUGH[:-1], ("source 59", "cible  59")])
    others = [open_pairs(copy), open_pairs(path, swap=True), open_pairs(path, pairs=20), open_pairs(path, split="tail")]
    assert len({checksum, *(corpus.checksum() for corpus in others)}) == 5


@pytest.mark.parametrize("name", TOYS)
def test_toy_tasks_are_pairs_too(name):
    corpus = open_pairs(name)
    assert is_pairs(name)
    assert corpus.suggested_tokenizer == "word"
    for source, target in read(corpus)["train"][:200]:
        if name == "any-b":
            assert target == ("B" if "B" in source.split() else "A")
        elif name == "recall":
            *pairs, question, key = source.split()
            assert question == "?"
            assert target == pairs[pairs.index(key) + 1]
        else:
            assert target.split() == (source.split() if name == "copy" else source.split()[::-1])
    held = {source for split in ("valid", "test") for source in corpus.splits[split].sources}
    assert not held & set(corpus.splits["train"].sources)


def test_swapping_turns_the_alignment_around():
    pairs = Pairs(["a b"], ["c d"], [[(0, 1), (1, 0), (1, 1)]]).swapped()
    assert pairs.alignments == [[(1, 0), (0, 1), (1, 1)]]
    assert Pairs(["a", "b"], ["c", "d"], [[(0, 0)], []]).take([1]) == Pairs(["b"], ["d"], [[]])


def test_the_phrasebook_opens_with_its_alignments():
    corpus = open_pairs("phrasebook", pairs=500, longest=8)
    assert (corpus.source, corpus.target) == ("en", "fr")
    assert sum(map(len, corpus.splits.values())) == 500
    assert all(pairs.alignments is not None and len(pairs.alignments) == len(pairs) for pairs in corpus.splits.values())
    assert corpus.checksum() == open_pairs("phrasebook", pairs=500, longest=8).checksum()


def test_a_download_has_its_usual_direction_and_the_other(own_cache):
    assert "regard data fetch tatoeba-fra" in refusal("tatoeba-fra")
    table(own_cache / "data" / "tatoeba-fra" / "fra.txt")
    assert everything(open_pairs("tatoeba-fra")) == sorted(ENOUGH)
    other = open_pairs("tatoeba-fra", source="fr", target="en")
    assert (other.source, other.target) == ("fr", "en")
    assert everything(other) == sorted((target, source) for source, target in ENOUGH)
    assert "not de and fr" in refusal("tatoeba-fra", source="de")


def test_a_download_of_parallel_files_has_its_usual_languages_and_others(own_cache, tmp_path, monkeypatch):
    folder = own_cache / "data" / "multi30k"
    for language in ("de", "en", "fr"):
        for split, count in {"train": 50, "val": 4, "test_2016_flickr": 6}.items():
            write(folder / f"{split}.{language}.gz", [f"{language} {split} {number}" for number in range(count)])
    usual, other = open_pairs("multi30k"), open_pairs("multi30k", target="fr")
    for corpus, languages in ((usual, ("de", "en")), (other, ("de", "fr"))):
        assert (corpus.name, corpus.source, corpus.target, corpus.columns) == ("multi30k", *languages, "")
        assert read(corpus)["test"][5] == tuple(f"{language} test_2016_flickr 5" for language in languages)
        assert {split: len(pairs) for split, pairs in corpus.splits.items()} == {"train": 50, "valid": 4, "test": 6}
    parallel(tmp_path / "multi30k", "train", ENOUGH)
    monkeypatch.setenv("REGARD_DATA", str(tmp_path))  # the user's own data come first
    known = CATALOGUE["multi30k"]
    monkeypatch.setitem(CATALOGUE, "multi30k", replace(known, files=known.files[:2]))
    assert everything(open_pairs("multi30k")) == sorted(ENOUGH)


def test_multi30k_is_as_published(machine_data):
    corpus = open_pairs("multi30k")
    assert {split: len(pairs) for split, pairs in corpus.splits.items()} == {
        "train": 29_000,
        "valid": 1014,
        "test": 1000,
    }
    assert corpus.splits["test"].targets[0] == "A man in an orange hat starring at something."
    assert open_pairs("multi30k", source="en", target="fr").splits["test"].targets[0].startswith("Un homme")


def test_tatoeba_is_split_without_leaks(machine_data):
    corpus = open_pairs(machine_data / "tatoeba-en-fr" / "fra.txt.gz")
    assert sum(map(len, corpus.splits.values())) == 178_009
    assert all(2000 <= len(corpus.splits[split]) < 2010 for split in ("valid", "test"))
    assert all(overlap.sources == overlap.targets == 0 for overlap in overlaps(corpus))


# -- details ---------------------------------------------------------------------------------------------------------


def test_where_there_are_pairs(tmp_path):
    assert not is_pairs(tmp_path)
    parallel(tmp_path, "train", ENOUGH)
    assert is_pairs(tmp_path)
    assert is_pairs(tmp_path / "train")
    (tmp_path / "train.en").unlink()
    assert not is_pairs(tmp_path)
    assert not is_pairs(tmp_path / "train")
    write(tmp_path / "train.txt", ["no language"])
    assert not is_pairs(tmp_path / "train")
    write(tmp_path / "valid.tsv", ["a\tb"])
    assert not is_pairs(tmp_path)
    write(tmp_path / "train.csv", ["a,b"])
    assert is_pairs(tmp_path)
    for name, content, found in (
        ("a.md", "a\tb", False), ("a.TXT", "a\tb", True), ("a", "a\tb", True), ("a.jsonl", '{"text": "x"}', False),
        ("b.jsonl", '{"sw": "x", "en": "y"}', True), ("b.csv", "alone", True),
    ):  # fmt: skip
        assert is_pairs(write(tmp_path / "some" / name, [content])) is found, name


def test_languages_are_codes_and_no_other_endings():
    for code in ("en", "swh", "pt_BR", "en-US", "zh-Hans"):
        assert _is_language(code)
    for code in ("", "e", "engl", "EN", "txt", "tsv", "gz", "json", "en."):
        assert not _is_language(code)


def test_plain_parallel_files_come_before_packed_ones_and_hidden_ones_are_none(tmp_path):
    parallel(tmp_path, "train", ENOUGH)
    write(tmp_path / "train.en.gz", ["packed"])
    write(tmp_path / ".train.fr", ["hidden"])
    assert [path.name for path in find_pair_files(tmp_path, "de", "en")["train"]] == ["train.de", "train.en"]
    assert [path.name for path in find_pair_files(tmp_path / "train", "en", "de")["pairs"]] == ["train.en", "train.de"]
    assert "its languages are de, en." in refusal(tmp_path, source="de", target="fr")
    assert "--data.columns de,en" in refusal(tmp_path / "train", source="de")
    write(tmp_path / "train.fr", ["x"])
    assert "contains de, en, fr: choose which" in refusal(tmp_path)
    write(tmp_path / "my-train.de", ["two"])
    assert "several de train files (my-train.de, train.de)" in refusal(tmp_path, source="de", target="en")


def test_parallel_files_are_taken_before_a_table_only_if_languages_are_said(tmp_path):
    parallel(tmp_path, "train", ENOUGH)
    table(tmp_path / "train.tsv", [("x", "y")] * 3)
    assert list(find_pair_files(tmp_path)) == ["train"]
    assert find_pair_files(tmp_path)["train"][0].name == "train.tsv"
    assert len(find_pair_files(tmp_path, "de", "en")["train"]) == 2
    assert "choose which" in refusal(tmp_path, source="de")


def test_a_single_table_in_a_folder_is_named(tmp_path):
    table(tmp_path / "my.tsv")
    assert f"or give the file {str(tmp_path / 'my.tsv')!r} itself" in refusal(tmp_path)
    table(tmp_path / "your.tsv")
    assert "or give a single tab-separated file" in refusal(tmp_path)


def test_a_source_of_pairs_says_what_it_is(tmp_path):
    parallel(tmp_path, "train", [("eins", "one")])
    both = open_pair_source(find_pair_files(tmp_path / "train", "de", "en")["pairs"], Wanted())
    assert (both.columns, both.header, both.languages, both.encoding) == ("de,en", "auto", ("de", "en"), "UTF-8")
    assert both.sentence == "train.de and train.en are parallel files, line by line."
    assert list(both.rows()) == [(1, "eins", "one")]
    path = write(tmp_path / "t.tsv", ["id\tsw\ten", "1\tmoja\tone", "\t\t", "3\ttatu", "4\tnne\tfour"])
    found = open_pair_source([path], Wanted(columns="en,sw"))
    assert (found.columns, found.header, found.languages) == ("en,sw", "yes", ("en", "sw"))
    notes = []
    assert list(found.rows(lambda what, line: notes.append((what, line)))) == [
        (2, "one", "moja"), (3, "", ""), (5, "four", "nne")
    ]  # fmt: skip
    assert notes == [("fewer than 3 fields", 4)]
    with pytest.raises(
        RegardError, match="has fewer than 3 fields on line 4; each line must have a source, a tab and a target"
    ):
        read_pairs(path, columns="en,sw")
    named = open_pair_source([write(tmp_path / "n.tsv", ["source\ttarget", "a\tb"])], Wanted())
    assert (named.languages, named.header) == (("", ""), "yes")
    plain = open_pair_source([write(tmp_path / "p.tsv", ["a\tb"])], Wanted())
    assert (plain.languages, plain.header, plain.columns) == (("", ""), "no", "1,2")


def test_what_a_folder_lacks_is_drawn_and_said(tmp_path):
    table(tmp_path / "train.tsv")
    corpus = open_pairs(tmp_path)
    assert corpus.disjoint
    assert (corpus.name, corpus.columns, corpus.header) == (tmp_path.name, "1,2", "no")
    assert corpus.origin[1] == "Given: train.tsv."
    table(tmp_path / "test.tsv", [("source 1", "y")])
    corpus = open_pairs(tmp_path)
    assert not corpus.disjoint
    assert list(corpus.splits) == ["train", "test", "valid"]
    assert any("1 (100.0 %) have a source" in note for note in corpus.notes)
    write(tmp_path / "valid.tsv", ["en\tsw", "one\tmoja"])
    assert open_pairs(tmp_path).origin[1] == "Splits as given: train.tsv, valid.tsv, test.tsv."


def test_columns_of_the_training_file_are_those_of_the_others(tmp_path):
    write(tmp_path / "train.tsv", ["id\tsw\ten", *(f"x{n}\tneno {n}\tword {n}" for n in range(30))])
    write(tmp_path / "valid.tsv", ["en\tsw\tnote", "one\tmoja\tq"])
    assert read(open_pairs(tmp_path, columns="sw,en"))["valid"] == [("moja", "one")]
    assert read(open_pairs(tmp_path, usual="sw,en"))["valid"] == [("moja", "one")]


@pytest.mark.parametrize("count, held", [(3, 1), (59, 2), (60, 3), (100_000, 2000)])
def test_a_tail_has_a_twentieth_for_each_held_out_split_and_not_too_much(count, held):
    texts = [str(n) for n in range(count)]
    corpus = _split("x", Pairs(texts, texts), ["More."], "tail")
    assert {split: len(pairs) for split, pairs in corpus.splits.items()} == {
        "train": count - 2 * held, "valid": held, "test": held
    }  # fmt: skip
    assert corpus.splits["test"].sources[-1] == texts[-1]
    words = f"{2 * held:,} pairs are valid and test, {held:,} each." if held < 1000 else "pairs are valid and test"
    assert words in corpus.origin[0]
    assert corpus.origin[1:] == ("More.",)
    assert not corpus.disjoint


def test_weights_are_read_with_or_without_a_colon():
    assert weighted("more.tsv:2, other.tsv,,a:b.tsv, c:/x.tsv:0.5") == [
        ("more.tsv", 2.0), ("other.tsv", 1.0), ("a:b.tsv", 1.0), ("c:/x.tsv", 0.5)
    ]  # fmt: skip
    assert [_times(2.25, number) for number in (0, 2**62 - 2**10, 2**62, 2**64 - 1)] == [3, 3, 2, 2]
    assert [_times(0.5, number) for number in (0, 2**63 - 2**11, 2**63)] == [1, 1, 0]
    assert _times(3.0, 0) == 3


def test_labels_may_be_held_out_and_trained_on():
    texts = [f"text {n}" for n in range(40)]
    corpus = PairCorpus(
        "x", {"train": Pairs(texts[:30], ["good", "bad"] * 15), "test": Pairs(texts[30:], ["good", "bad"] * 5)}
    )
    more = Pairs(["Text 35!", "new", "text 3"], ["good", "bad", "good"])
    assert not_held_out(corpus, more) == [1, 2]
    assert not_held_out(corpus.swapped(), more.swapped()) == [1, 2]
    sentences = PairCorpus("x", {"train": Pairs(["a"], ["b"]), "test": Pairs(["c"], ["d"])})
    assert not_held_out(sentences, Pairs(["c", "q", "q", "a"], ["q", "D.", "q", "b"])) == [2, 3]


def test_settings_that_suit_no_corpus_of_this_name_are_refused(tmp_path):
    assert "choose lines or tail" in refusal("phrasebook", split="half")
    assert "has its own splits" in refusal("phrasebook", split="tail")
    assert "'copy' has no columns" in refusal("copy", columns="1,2")
    assert "is a folder; give one file of pairs" in refusal(table(tmp_path / "p.tsv"), also=str(folder_of(tmp_path)))
    with pytest.raises(ValueError, match="1 sources but 2 targets"):
        Pairs(["a"], ["b", "c"])


def folder_of(path):
    table(path / "folder" / "train.tsv")
    return path / "folder"


def test_enough_pairs_are_all_used(tmp_path):
    path = table(tmp_path / "pairs.tsv")
    whole = open_pairs(path)
    count = len(whole.splits["train"])
    assert open_pairs(path, pairs=count).origin == whole.origin
    assert len(open_pairs(path, pairs=count - 1).splits["train"]) == count - 1
    assert f"{count - 1} of the {count} training pairs are used" in open_pairs(path, pairs=count - 1).origin[-1]


def test_alignments_are_taken_with_their_pairs():
    pairs = Pairs(["a", "b", "c"], ["x", "y", "z"], [[(0, 0)], [(1, 2)], []])
    assert pairs.take([2, 1]) == Pairs(["c", "b"], ["z", "y"], [[], [(1, 2)]])
    assert pairs.swapped().alignments == [[(0, 0)], [(2, 1)], []]
    assert Pairs(["a"], ["b"]).swapped().alignments is None
    assert Pairs(["a"], ["b"]).take([0]).alignments is None


@pytest.mark.parametrize("count", [0, 1, 9_999, 10_000, 20_001])
def test_a_checksum_is_of_every_line_of_both_sides_in_order(count):
    sources, targets = ([f"{side} é {n}" for n in range(count)] for side in ("one", "other"))
    whole = "".join(f"{source}\n{target}\n" for source, target in zip(sources, targets))
    assert Pairs(sources, targets).checksum() == hashlib.blake2b(whole.encode(), digest_size=16).hexdigest()
    lines = "".join(f"{line}\n" for line in sources)
    assert GivenLines(tuple(sources)).checksum() == hashlib.blake2b(lines.encode(), digest_size=16).hexdigest()


def test_pairs_are_shown_without_their_texts():
    """In an error or a notebook a million sentences would bury everything else."""
    pairs = Pairs(["a secret"], ["un secret"], [[(0, 0)]])
    assert repr(pairs) == "Pairs()"
    assert repr(GivenLines(("a secret",))) == "GivenLines()"


@pytest.mark.parametrize("name", TOYS)
def test_toy_tasks_are_cut_at_their_spaces_and_share_no_pair(name):
    corpus = open_pairs(name)
    assert corpus.notes == corpus.origin  # disjoint by construction: no overlap is counted
    tokenizer, _ = train_tokenizers(corpus)
    for source, target in read(corpus)["valid"][:20]:
        assert [tokenizer.decode(tokenizer.encode(side)) for side in (source, target)] == [source, target]
    assert tokenizer.encode("x.y") == [tokenizer.unk]


def test_words_of_a_file_are_cut_from_their_punctuation(tmp_path):
    corpus = open_pairs(table(tmp_path / "pairs.tsv", [(f"the cat, {n}", f"le chat, {n}") for n in range(60)]))
    assert {"cat", "chat", ","} <= set(train_tokenizers(corpus, "word")[0].tokens)
    assert PairCorpus("x", corpus.splits).pretokenised is False


def test_of_a_download_the_first_table_is_read_and_nothing_beside_it(own_cache):
    folder = own_cache / "data" / "tatoeba-fra"
    write(folder / "_about.txt", ["Where the sentences come from."])
    write(folder / "a.tsv" / "old.tsv", ["an old\tfile"])  # a folder that is named like a table
    table(folder / "fra.txt")
    table(folder / "more.tsv", [("other", "autre")])
    assert everything(open_pairs("tatoeba-fra")) == sorted(ENOUGH)


def test_the_size_of_lines_is_that_of_their_file():
    assert GivenLines(("ab", "", "c")).size == len("ab\n\nc\n")


def test_the_phrasebook_is_english_first():
    corpus = open_pairs("phrasebook", pairs=500, longest=8)
    for split, made in phrases(500, 8).items():
        found = corpus.splits[split]
        assert list(zip(found.sources, found.targets, found.alignments)) == [
            (pair.source, pair.target, pair.alignment) for pair in made
        ]


def test_a_held_out_file_with_its_columns_the_other_way_round_is_read_as_the_training_file(tmp_path):
    write(tmp_path / "train.tsv", ["en\tsw", *(f"word {n}\tneno {n}" for n in range(30))])
    write(tmp_path / "valid.tsv", ["sw\ten", "moja\tone"])
    corpus = open_pairs(tmp_path)
    assert read(corpus)["train"][0] == ("word 0", "neno 0")
    assert read(corpus)["valid"] == [("one", "moja")]


def test_text_after_the_last_column_is_not_read_and_said(tmp_path):
    rows = [f"I see {n}\tje vois {n}" for n in range(30)]
    rows[7] += "\tstray"
    rows[9] += "\t"  # nothing is lost
    path, said = write(tmp_path / "t.tsv", rows), []
    assert read_pairs(path, say=said.append).targets[7] == "je vois 7"
    sentence = "1 line of t.tsv has more than 2 fields (the first is line 8): the extra fields were not read."
    assert said == [sentence]
    assert sentence in open_pairs(path).notes
    headed = write(tmp_path / "h.tsv", ["en\tfr", *(f"{row}\tmore" for row in rows[:3]), *rows[3:6]])
    assert (
        "3 lines of h.tsv have more than 2 fields (the first is line 2): the extra fields were not read."
        in open_pairs(headed, columns="en,fr", split="tail").notes
    )
