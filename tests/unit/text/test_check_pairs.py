"""`regard data check pairs.tsv`: what it must notice in sentence pairs."""

import json
from dataclasses import asdict
from random import Random

import pytest

from regard.base.errors import RegardError
from regard.text.check_pairs import check_pairs

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
    assert found["target in another script than Latin"] == (1, 20)
    assert found["empty target"] == (1, 30)
    assert found["empty source"] == (1, 31)
    assert found["exact duplicates of an earlier pair"] == (1, 40)
    assert found["identical source and target"] == (1, 50)
    (monster,) = [what for what in found if what.startswith("monstrous source")]
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
    with pytest.raises(RegardError, match="say which to translate from"):
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
    assert any(found.what.startswith("monstrous source") and found.first == 31_077 for found in report.findings)


def test_a_random_split_of_tatoeba_leaks_half_of_its_sources(machine_data):
    leak = check_pairs(machine_data / "tatoeba-en-fr" / "fra.txt.gz").files["pairs"].random_leak
    assert 0.4 < leak.sources / leak.pairs < 0.6
