"""Opening sentence pairs: from every kind of file, with one clear sentence for what is wrong with it."""

import gzip

import pytest

from regard.base.errors import RegardError
from regard.corpora.builtin import TOYS
from regard.text.pair_split import count_pair_overlap
from regard.text.pairs import Pairs, is_pairs, open_pairs, read_pairs

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
    assert "3 blank lines of pairs.tsv were passed over." in corpus.notes


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
    assert "valid.de' has no valid file in 'en' beside it" in refusal(tmp_path, source="de", target="en")


def test_any_ending_is_a_language_if_the_user_says_so(tmp_path):
    parallel(tmp_path, "train", ENOUGH, ("src-tok", "tgt-tok"))
    assert everything(open_pairs(tmp_path, source="src-tok", target="tgt-tok")) == sorted(ENOUGH)


def test_unequal_line_counts_are_refused_with_both(tmp_path):
    write(tmp_path / "train.de", ["eins", "zwei", "drei"])
    write(tmp_path / "train.en", ["one", "two"])
    message = refusal(tmp_path, source="de", target="en")
    assert "train.de' has 3 lines" in message
    assert "train.en' 2;" in message


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
    assert "one field on line 1" in refusal(text)
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
    assert "Nothing can be held out of the 2 pairs" in refusal(path)
    assert "Nothing can be held out of the 2 pairs" in refusal(path, split="tail")


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
    assert "2 of which a side is held out were left out" in corpus.notes[-1]
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
