"""`regard data check pairs.tsv`: what it must notice in sentence pairs."""

import json
from collections import Counter
from dataclasses import asdict
from math import log
from random import Random

import pytest

from regard.base.errors import RegardError
from regard.cli.data import data_check
from regard.text.check.check_pairs import _Letters, _random_leak, check_pairs, swapped

ENGLISH, FRENCH = map(
    str.split,
    (
        "the a this dog cat house man woman child sees has likes wants with and under big small old new",
        "le un ce chien chat maison homme femme enfant voit aime veut avec et sous grand petit vieux nouveau",
    ),
)
LINES = 400


def sentences(count=LINES):
    """Pairs in two made-up languages; not translations, but of alike length."""
    random = Random(0)
    for _ in range(count):
        length = random.randint(4, 9)
        yield [" ".join(random.choices(words, k=length)) for words in (ENGLISH, FRENCH)]


def write(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"\n".join("\t".join(row).encode() if isinstance(row, list) else row for row in rows) + b"\n")
    return path


def findings(path, **settings):
    (report,) = check_pairs(path, **settings).files.values()
    return {found.what: (found.lines, found.first) for found in report.findings}


def test_good_pairs_have_no_findings(tmp_path):
    path = write(tmp_path / "pairs.tsv", list(sentences()))
    report = check_pairs(path).files["pairs"]
    assert report.findings == ()
    assert (report.pairs, report.encoding, report.blank_lines) == (LINES, "ASCII", 0)
    assert (report.source.script, report.target.script) == ("Latin", "Latin")
    assert json.dumps(asdict(check_pairs(path)))


def test_odd_lines_are_counted_and_found(tmp_path):
    rows = list(sentences())
    rows[9] = list(reversed(rows[9]))  # line 10
    rows[10] = list(reversed(rows[10]))
    rows[19][1] = "собака видит большой дом и кошку"
    rows[29] = ["dog", ""]
    rows[30] = ["", "chien"]
    rows[31] = ["", ""]
    rows[39] = rows[0]
    rows[49] = ["the cat with the dog", "the cat with the dog"]
    rows[59][0] = "the dog and the cat " * 100
    rows[69] = ["dog", "le chien voit un enfant avec un chat"]
    rows[79][1] += " &quot; \ufffd"
    odd = [*rows, b"no tab", "une \xe9t\xe9\tx".encode("latin1")]
    found = findings(write(tmp_path / "pairs.tsv", odd))
    assert found["probably swapped columns"] == (2, 10)
    assert found["target in a script other than Latin"] == (1, 20)
    assert found["empty target"] == (1, 30)
    assert found["empty source"] == (1, 31)
    assert found["exact duplicates of an earlier pair"] == (1, 40)
    assert found["identical source and target"] == (1, 50)
    (monster,) = [what for what in found if what.startswith("overlong source")]
    assert found[monster] == (1, 60)
    assert found["unusual length ratio"] == (2, 60)
    assert found["HTML escapes"] == found["replacement characters (U+FFFD)"] == (1, 80)
    assert found["only one field"] == (1, LINES + 1)
    assert found["not UTF-8 (byte 0xE9)"] == (1, LINES + 2)
    report = check_pairs(tmp_path / "pairs.tsv").files["pairs"]
    assert (report.encoding, report.blank_lines, report.duplicate_pairs) == ("not UTF-8", 1, 1)
    assert (report.source.word_lengths["longest"], report.source.longest_line) == (500, 60)


def test_a_script_that_a_column_often_uses_is_at_home_there(tmp_path):
    rows = [["the dog", "犬がいる"], ["the cat", "ネコがいる"]] * 50
    assert not any("script" in what for what in findings(write(tmp_path / "pairs.tsv", rows)))


def test_what_a_random_split_would_leak_is_told(tmp_path):
    rows = [[f"sentence {number // 4}", f"phrase {number}"] for number in range(4000)]
    report = check_pairs(write(tmp_path / "pairs.tsv", rows)).files["pairs"]
    assert 0.95 < report.random_leak.sources / report.random_leak.pairs <= 1
    assert report.random_leak.targets == report.random_leak.both == 0
    assert (report.source.distinct, report.source.with_several) == (1000, 1000)
    assert (report.target.distinct, report.target.with_several) == (4000, 0)


def test_given_splits_and_parallel_files_are_read_too(tmp_path):
    rows = list(sentences(50))
    for side, language in enumerate(("en", "fr")):
        write(tmp_path / f"train.{language}", [[row[side]] for row in rows])
        write(tmp_path / f"valid.{language}", [[row[side].upper()] for row in rows[:5]])
    report = check_pairs(tmp_path, source="en", target="fr")
    assert list(report.files) == ["train", "valid"]
    (overlap,) = report.overlap
    assert (overlap.split, overlap.pairs, overlap.sources, overlap.both) == ("valid", 5, 5, 5)
    assert check_pairs(tmp_path / "train", source="en", target="fr").files["pairs"].pairs == 50
    with pytest.raises(RegardError, match="choose which to translate from"):
        check_pairs(tmp_path)
    write(tmp_path / "valid.fr", [["one line"]])
    with pytest.raises(RegardError, match="5 lines"):
        check_pairs(tmp_path, source="en", target="fr")


def test_what_is_not_there_or_no_pairs_is_refused(tmp_path):
    with pytest.raises(RegardError, match="no corpus, file or folder"):
        check_pairs(tmp_path / "nowhere.tsv")
    with pytest.raises(RegardError, match="has no pairs"):
        check_pairs(write(tmp_path / "text.tsv", [b"one", b"two"]))


def test_the_monstrous_verse_is_found(machine_data):
    report = check_pairs(machine_data / "bible-en-es" / "web-rv1909.tsv.gz").files["pairs"]
    assert (report.source.word_lengths["longest"], report.source.longest_line) == (3041, 31_077)
    assert any(found.what.startswith("overlong source") and found.first == 31_077 for found in report.findings)


def test_a_random_split_of_tatoeba_leaks_half_of_its_sources(machine_data):
    leak = check_pairs(machine_data / "tatoeba-en-fr" / "fra.txt.gz").files["pairs"].random_leak
    assert 0.4 < leak.sources / leak.pairs < 0.6


def pairs_of(tmp_path, *rows, ordinary=60):
    """What is found besides pairs of five letters each."""
    names = [f"{chr(97 + n % 26)}{chr(97 + n // 26)}" for n in range(ordinary)]
    usual = [[f"{name}cde", f"{name}fgh"] for name in names]
    return findings(write(tmp_path / "pairs.tsv", [*usual, *map(list, rows)]))


@pytest.mark.parametrize(
    "row, found",
    [
        (("x" * 20, "y" * 60), False), (("x" * 20, "y" * 61), True), (("x" * 61, "y" * 20), True),
        (("x" * 60, "y" * 20), False), (("x" * 5, "y" * 19), False), (("x" * 5, "y" * 20), True),
        (("x" * 30, ""), False), (("", "y" * 30), False), (("x", "y" * 20), True), (("x" * 20, "y"), True),
    ],
)  # fmt: skip
def test_a_length_is_unusual_from_three_times_the_usual_ratio_on(tmp_path, row, found):
    assert ("unusual length ratio" in pairs_of(tmp_path, row)) is found


@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("length, found", [(200, False), (201, True)])
def test_a_line_is_monstrous_from_five_times_forty_characters_on(tmp_path, side, length, found):
    row = ["z" * length] * 2
    row[1 - side] = "z" * 100
    what = f"overlong {('source', 'target')[side]} (more than 200 characters)"
    assert (what in pairs_of(tmp_path, row, ordinary=200)) is found
    long = [["w" * 50, "v" * 50]] * 300
    found_now = findings(write(tmp_path / "long.tsv", [*long, ["z" * 251, "z" * 100]]))
    assert found_now["overlong source (more than 250 characters)"] == (1, 301)


@pytest.mark.parametrize("letters, foreign", [(5, False), (4, True)])
def test_a_script_is_at_home_from_a_twentieth_of_the_letters_on(tmp_path, letters, foreign):
    """Of 100 letters; digits have no script."""
    rows = [["abcde", "a" * (100 - letters)], ["bcdef", "ж" * letters], ["cdefg", "123"]]
    assert ("target in a script other than Latin" in findings(write(tmp_path / "p.tsv", rows))) is foreign


def test_a_report_by_hand(tmp_path):
    rows = [["A b c.", "x y"], ["a B c!", "z"], ["d", "x y?"], ["d", "x y?"], ["e f", "w"]]
    report = check_pairs(write(tmp_path / "p.tsv", rows)).files["pairs"]
    assert report.found == "p.tsv is TSV (UTF-8, no header): column 1 is the source, column 2 the target."
    source, target = report.source, report.target
    assert (source.characters, source.words, source.distinct, source.with_several) == (17, 10, 3, 1)
    assert (target.characters, target.words, target.distinct, target.with_several) == (13, 8, 3, 1)
    assert source.word_lengths == {"median": 2, "90 %": 3, "99 %": 3, "longest": 3}
    assert (source.longest_line, target.longest_line) == (1, 1)
    assert report.length_ratio == pytest.approx(0.5)
    assert report.duplicate_pairs == 1
    assert report.random_leak.pairs == 1  # something is held out even of a tiny file
    assert report.random_leak.split == "a random 5 % test split"
    accented = check_pairs(write(tmp_path / "q.tsv", [["é", "x"], ["f", "y"]])).files["pairs"]
    assert accented.encoding == "UTF-8"
    wide = tmp_path / "w.tsv"
    wide.write_bytes("a\tb\nc\td\n".encode("utf-16"))
    assert check_pairs(wide).files["pairs"].encoding == "UTF-16"
    assert (
        check_pairs(write(tmp_path / "n.tsv", [["1", "2!"], ["3", "5"]])).files["pairs"].source.script == "no letters"
    )


def log_odds(rows):
    """How much likelier each side is in its own column than in the other one, without hashing and without arrays."""
    sides = [[row[side].casefold() for row in rows] for side in range(2)]
    triples = [[[f"\n{text}\n"[k : k + 3] for k in range(len(text))] for text in side] for side in sides]
    counts = [Counter(triple for text in side for triple in text) for side in triples]
    totals = [max(1, sum(count.values())) for count in counts]
    found = []
    for number in range(len(rows)):
        fits = [0.0, 0.0]
        for own, other in ((0, 1), (1, 0)):
            for triple in triples[own][number]:
                fits[own] += log((max(counts[own][triple] - 1, 0) + 0.5) / totals[own])
                fits[own] -= log((counts[other][triple] + 0.5) / totals[other])
        found.append(fits)
    return found


def test_swapped_columns_are_found_by_the_likelihood_of_letter_triples():
    """Texts that are more and less clearly swapped."""
    rows = list(sentences(200))
    rows += [[other[:length], one[:length]] for (one, other), length in zip(list(sentences(40)), range(1, 41))]
    expected = [one < 0 and other < 0 and one + other < -6 for one, other in log_odds(rows)]
    assert 5 < sum(expected) < 40
    found = swapped(*(_Letters([row[side] for row in rows]) for side in range(2)))
    assert found.tolist() == expected


def test_few_letters_are_judged_by_the_same_sum():
    """Many small files, so that sums come near to each of the limits."""
    random, decided = Random(1), Counter()
    for _ in range(12):
        few = [[random.choices(letters, k=random.randint(0, 4)) for letters in ("aab", "abb")] for _ in range(9)]
        few += [["b" * random.randint(0, 9), "a" * random.randint(0, 9)] for _ in range(3)]
        rows = [["".join(side) for side in row] for row in few]
        found = swapped(*(_Letters([row[side] for row in rows]) for side in range(2)))
        for here, (one, other) in zip(found.tolist(), log_odds(rows)):
            if min(abs(one), abs(other), abs(one + other + 6)) > 1e-9 or not (one and other):
                assert here == (one < 0 and other < 0 and one + other < -6)
                decided[here, one < 0, other < 0, one + other < -6] += 1
    assert len(decided) >= 6


@pytest.mark.parametrize("empty, swaps", [(15, True), (11, False)])
def test_a_column_of_one_letter_is_a_column_too(empty, swaps):
    rows = [["", "a"]] * empty + [["a", "xy"]]
    (*_, (one, other)) = log_odds(rows)
    assert (one < 0, other < 0, one + other < -6) == (True, True, swaps)
    found = swapped(*(_Letters([row[side] for row in rows]) for side in range(2)))
    assert found.tolist() == [False] * empty + [swaps]


def test_what_a_random_split_of_known_pairs_shares(tmp_path):
    leak = _random_leak(["a", "b"] * 200, [f"t{n // 4}" for n in range(400)])
    assert leak.pairs == leak.sources  # both are certainly trained on, too
    assert 10 < leak.pairs < 35
    assert leak.both <= leak.targets <= leak.pairs
    assert leak.targets > leak.pairs // 2
    assert leak.both < leak.pairs


def test_what_is_usual_of_lengths_is_what_most_pairs_have(tmp_path):
    """Targets are twice as long as sources here; then three times less and more than twice are unusual."""
    usual = [[f"{chr(97 + n)}bcd{chr(97 + n)}", f"{chr(97 + n)}fghijkl{chr(97 + n)}m"] for n in range(20)]
    for length, found in {40: False, 20: False, 120: False, 121: True, 14: False, 13: True}.items():
        path = write(tmp_path / "pairs.tsv", [*usual, ["x" * 20, "y" * length]])
        assert ("unusual length ratio" in findings(path)) is found
        assert check_pairs(path).files["pairs"].length_ratio == 2


def test_a_file_of_halves_alone_is_reported(tmp_path):
    report = check_pairs(write(tmp_path / "p.tsv", [["one", ""], ["", "deux"], ["three", ""]])).files["pairs"]
    assert {found.what: (found.lines, found.first) for found in report.findings} == {
        "empty target": (2, 1),
        "empty source": (1, 2),
    }
    assert report.length_ratio == 1


@pytest.mark.parametrize("count", [1, 2, 3])
def test_of_the_fewest_pairs_one_is_held_out(tmp_path, count):
    rows = [[f"one {n}", f"un {n}"] for n in range(count)]
    leak = check_pairs(write(tmp_path / "p.tsv", rows)).files["pairs"].random_leak
    assert (leak.pairs, leak.sources, leak.targets, leak.both) == (1, 0, 0, 0)


def test_a_line_is_in_another_script_from_its_first_letter_on_and_without_letters_in_none(tmp_path):
    rows = [[f"dog {n}", "собака видит дом"] for n in range(20)]
    rows += [["dog x", "x"], ["dog 123", "123"]]
    found = findings(write(tmp_path / "p.tsv", rows))
    assert found["target in a script other than Cyrillic"] == (1, 21)


def test_a_pair_with_an_empty_side_is_not_swapped(tmp_path):
    rows = list(sentences(100))
    rows += [["", rows[0][0]], [rows[1][1], ""]]
    found = findings(write(tmp_path / "p.tsv", rows))
    assert found["empty source"] == (1, 101)
    assert found["empty target"] == (1, 102)
    assert "probably swapped columns" not in found


def test_labels_are_counted_and_not_taken_for_translations(tmp_path):
    lines = [[source, "pos" if number % 4 else "neg"] for number, (source, _) in enumerate(sentences(40))]
    lines[7][0] = "dog " * 60  # long beside its label, as every text is
    report = check_pairs(write(tmp_path / "reviews.tsv", lines)).files["pairs"]
    assert list(report.labels.items()) == [("pos", 30), ("neg", 10)]
    assert "unusual length ratio" not in {found.what for found in report.findings}
    assert not check_pairs(write(tmp_path / "pairs.tsv", list(sentences()))).files["pairs"].labels


def test_the_check_of_labels_says_what_a_classifier_must_beat(tmp_path, capsys):
    lines = [[source, f"label {number % 12}"] for number, (source, _) in enumerate(sentences(80))]
    write(tmp_path / "train.tsv", [*lines, *[["more of it", "label 3"]] * 20])
    write(tmp_path / "test.tsv", lines[:12])
    data_check(tmp_path)
    shown = capsys.readouterr().out
    assert "translations" not in shown
    assert "label 3 27," in shown
    assert ", and 2 other labels. Always predicting the most common label is right 27.0 % of the time." in shown
    assert "test: too few lines per label to count them." in shown


def test_a_stray_tab_is_a_finding(tmp_path):
    lines = list(sentences(40))
    lines[6] = [*lines[6], "and what follows the tab"]
    assert findings(write(tmp_path / "pairs.tsv", lines))["more than 2 fields"] == (1, 7)
    three = [[*line, "by whom"] for line in sentences(40)]  # a third column everywhere is none
    assert "more than 3 fields" not in findings(write(tmp_path / "three.tsv", three), columns="1,2")
