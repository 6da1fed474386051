"""Scores of translations against sacreBLEU's own, alignments against counted examples."""

import logging
from types import SimpleNamespace

import numpy as np
import pytest
import sacrebleu
from sacrebleu.metrics import BLEU, CHRF
from sacrebleu.significance import PairedTest

from regard.base.errors import RegardError
from regard.evaluation import scripts
from regard.evaluation.alignment_error import (
    alignment_error_rate,
    diagonal_links,
    spans_in,
    token_spans,
    translation_table,
    word_links,
    word_spans,
)
from regard.evaluation.bleu import Statistics, accuracy, bleu, by_length, quality, refuse_escaped
from regard.text.tokenizers.tokenizer import Tokenizer

WORDS = ["the", "a", "cat", "dog", "sees", "House", "house,", "water.", "fast!", "to", "Paris", "l'eau", "I", "don't"]


def sentences(count, seed, noise=0.0, like=None):
    random = np.random.default_rng(seed)
    if like is None:
        return [" ".join(random.choice(WORDS, size=random.integers(0, 14))) for _ in range(count)]
    return [
        " ".join(random.choice(WORDS) if random.random() < noise else word for word in line.split()) for line in like
    ]


REFERENCES = sentences(150, 0)
GOOD = sentences(150, 1, noise=0.2, like=REFERENCES)
BAD = sentences(150, 2, noise=0.5, like=REFERENCES)


def test_scores_are_sacrebleus_and_carry_its_signature():
    found = quality(GOOD, REFERENCES)
    assert found["bleu"]["score"] == pytest.approx(sacrebleu.corpus_bleu(GOOD, [REFERENCES]).score)
    assert found["chrf"]["score"] == pytest.approx(sacrebleu.corpus_chrf(GOOD, [REFERENCES]).score)
    assert found["chrf_plus_plus"]["score"] == pytest.approx(CHRF(word_order=2).corpus_score(GOOD, [REFERENCES]).score)
    lower = sacrebleu.corpus_bleu(GOOD, [REFERENCES], lowercase=True).score
    assert found["bleu_tokenised_lowercase"]["score"] == pytest.approx(lower)
    assert f"|tok:13a|smooth:exp|version:{sacrebleu.__version__}" in found["bleu"]["signature"]
    assert "case:mixed" in found["bleu"]["signature"]
    assert "case:lc" in found["bleu_tokenised_lowercase"]["signature"]
    assert "nw:2" in found["chrf_plus_plus"]["signature"]
    assert bleu(GOOD, REFERENCES) == found["bleu"]["score"]
    assert "tok:char" in quality(GOOD, REFERENCES, tokenizer="char")["bleu"]["signature"]


@pytest.mark.parametrize("name", ["bleu", "chrf", "chrf_plus_plus", "bleu_tokenised_lowercase"])
def test_scores_from_sums_are_sacrebleus_also_of_one_bad_sentence(name):
    metrics = {
        "bleu": BLEU(),
        "chrf": CHRF(),
        "chrf_plus_plus": CHRF(word_order=2),
        "bleu_tokenised_lowercase": BLEU(lowercase=True),
    }
    system = Statistics.of(name, BAD, REFERENCES)
    for rows in ([0], [1], [7], list(range(5)), list(range(150))):
        theirs = metrics[name].corpus_score([BAD[n] for n in rows], [[REFERENCES[n] for n in rows]]).score
        assert float(system.score(system.counts[rows].sum(0))) == pytest.approx(theirs, abs=1e-9)
    poor = ("completely different words with one e", "ask us tomorrow, or in a fortnight, where it is")
    short = (("a", "a"), ("a", "ab c"), ("ab c", "a"), ("a b", "a b"), ("a b c d", "a x y z"))
    for hypothesis, reference in (("", ""), ("", "a b c d e"), ("x y z v w", "a b c d e"), *short, poor):
        theirs = metrics[name].corpus_score([hypothesis], [[reference]]).score
        ours = Statistics.of(name, [hypothesis], [reference])
        assert float(ours.score(ours.counts.sum(0))) == pytest.approx(theirs, abs=1e-9)


def test_scoring_text_with_spaces_before_its_periods_says_nothing(caplog):
    """sacreBLEU warns at each score; whether text is tokenised is judged once, by its escapes."""
    spaced = ["one word ."] * 150
    quality(spaced, spaced)
    assert not caplog.records


@pytest.mark.parametrize("name,metric", [("bleu", BLEU()), ("chrf", CHRF())])
def test_scores_of_drawn_sentences_are_those_of_sacrebleus_bootstrap(name, metric):
    logging.getLogger("sacrebleu").setLevel(logging.WARNING)
    _, results = PairedTest(
        [("bad", BAD), ("good", GOOD)], {name: metric}, [REFERENCES], test_type="bs", n_samples=300
    )()
    drawn = np.random.default_rng(12345).choice(len(BAD), size=(300, len(BAD)), replace=True)
    times = np.stack([np.bincount(row, minlength=len(BAD)) for row in drawn]).astype(float)
    good = Statistics.of(name, GOOD, REFERENCES)
    scores = good.score(times @ good.counts)
    (theirs,) = (values[1] for key, values in results.items() if key != "System")
    assert scores.mean() == pytest.approx(theirs.mean, abs=1e-4)  # theirs are sums in fp32
    sample = np.sort(scores)
    assert (sample[-8] - sample[7]) / 2 == pytest.approx(theirs.ci, abs=1e-4)


def test_quality_by_length_is_that_of_the_sentences_alone():
    sources = [" ".join("w" * (n % 13)) for n in range(150)]
    classes = by_length(sources, GOOD, REFERENCES, edges=(3, 6, 20))
    assert [(c.shortest, c.longest) for c in classes] == [(0, 3), (4, 6), (7, 20)]  # none is longer
    assert sum(c.sentences for c in classes) == 150
    inside = [n for n in range(150) if 4 <= n % 13 <= 6]
    hypotheses, references = [GOOD[n] for n in inside], [REFERENCES[n] for n in inside]
    assert classes[1].sentences == len(inside)
    assert classes[1].bleu == pytest.approx(bleu(hypotheses, references))
    assert classes[1].chrf == pytest.approx(sacrebleu.corpus_chrf(hypotheses, [references]).score)
    assert classes[1].accuracy == pytest.approx(accuracy(hypotheses, references))
    assert by_length(["w " * 99], ["a"], ["a"], edges=(5,))[0].longest is None
    usual = by_length(["w " * n for n in range(70)], ["a"] * 70, ["a"] * 70)
    assert [(c.shortest, c.longest) for c in usual] == [
        (0, 5), (6, 10), (11, 15), (16, 20), (21, 30), (31, 40), (41, 50), (51, 60), (61, None),
    ]  # fmt: skip


@pytest.mark.parametrize("escaped", ["don &apos;t", "a &quot; b", "R &amp; D", "well @-@ known"])
def test_escaped_text_is_refused(escaped):
    with pytest.raises(RegardError, match="line 2"):
        quality(["fine", "fine"], ["fine", escaped])
    with pytest.raises(RegardError, match="translations"):
        quality(["fine", escaped], ["fine", "fine"])
    many = ["Q&A at me@home, 3 < 4 & so on"] * 1000
    refuse_escaped([escaped, *many[1:]], "They")  # one in 1000 is a slip of the text, not a tool's doing
    with pytest.raises(RegardError, match="2 such lines"):
        refuse_escaped([escaped, escaped, *many[2:]], "They")
    few = ["fine"] * 40
    quality([escaped, escaped, *few[2:]], few)  # one translation in twenty may have learned it
    with pytest.raises(RegardError, match=r"The translations are escaped .*3 such lines"):
        quality([escaped, escaped, escaped, *few[3:]], few)
    with pytest.raises(RegardError, match=r"The references are escaped .*1 such lines"):
        quality(few, [escaped, *few[1:]])


def test_unequal_or_empty_lists_are_refused():
    for measure in (quality, bleu, accuracy):
        with pytest.raises(RegardError, match="2 sentences and 1 references"):
            measure(["a", "b"], ["a"])
        with pytest.raises(RegardError, match="no sentence"):
            measure([], [])


def test_an_unknown_tokenizer_is_refused():
    with pytest.raises(RegardError, match="13a"):
        quality(["a"], ["a"], tokenizer="french")


# -- alignment -------------------------------------------------------------------------------------------------------


def test_the_alignment_error_rate_is_och_and_neys():
    sure, possible = [{(0, 0), (1, 1)}], [{(0, 0), (1, 1), (2, 1)}]
    assert alignment_error_rate(sure, sure) == 0
    assert alignment_error_rate(sure, [{(2, 2)}]) == 1
    found = [{(0, 0), (2, 1), (5, 5)}]  # |A∩S| = 1, |A∩P| = 2, |A| = 3, |S| = 2
    assert alignment_error_rate(sure, found, possible) == pytest.approx(1 - 3 / 5)
    # sure links are possible ones, also where the possible do not repeat them: |A∩S| = 1, |A∩P| = 2, |A| = 2, |S| = 1
    assert alignment_error_rate([{(0, 0)}], [{(0, 0), (1, 1)}], [{(1, 1)}]) == 0
    # over sentences the counts are added, not the rates
    assert alignment_error_rate(sure * 2, [sure[0], set()]) == pytest.approx(1 - 4 / 6)
    with pytest.raises(RegardError):
        alignment_error_rate([set()], [set()])


def test_weights_of_tokens_become_links_of_words():
    # "the cats|" → "les chats|": cats and chats are two tokens each, the last row and column are <eos>
    source_tokens, target_tokens = [(0, 3), (3, 7), (7, 8)], [(0, 3), (3, 6), (6, 9)]
    source_words, target_words = [(0, 3), (4, 8)], [(0, 3), (4, 9)]
    weights = np.array([[0.4, 0.35, 0.2, 0.05], [0.5, 0.2, 0.2, 0.1], [0.0, 0.2, 0.5, 0.3], [0, 0, 0, 1.0]])
    spans = (source_tokens, target_tokens, source_words, target_words)
    assert word_links(weights, *spans) == {(1, 0), (1, 1)}  # les: 0.4 for the, 0.35 + 0.2 for cats
    assert word_links(weights, *spans, threshold=0.4) == {(0, 0), (1, 0), (1, 1)}
    assert word_links(weights, [], [], [], []) == set()
    assert word_links(np.zeros((4, 4)), *spans) == set()
    even, one_each = np.array([[0.5, 0.5, 0.0]]), ([(0, 1), (1, 2), (2, 3)], [(0, 1)]) * 2
    assert word_links(even, *one_each, threshold=0.5) == {(0, 0), (1, 0)}  # at least this share
    assert word_links(even, *one_each) == {(0, 0)}


def test_a_token_that_lies_in_two_words_is_divided_by_its_letters():
    source = [(0, 4)], [(0, 1), (1, 4)]  # one token, a letter of the first word and three of the second
    assert word_links(np.array([[1.0]]), source[0], [(0, 2)], source[1], [(0, 2)], threshold=0.3) == {(1, 0)}
    assert word_links(np.array([[1.0]]), source[0], [(0, 2)], source[1], [(0, 2)], threshold=0.25) == {(0, 0), (1, 0)}
    gap = word_links(np.array([[1.0, 0.2]]), [(0, 2), (2, 4)], [(0, 1)], [(2, 3)], [(0, 1)])
    assert gap == {(0, 0)}  # what lies on no word counts for none


def test_the_span_of_a_word_is_its_own_also_where_it_is_unknown():
    tokenizer = Tokenizer.train(["the cat sat"], "word")
    text = "the dog sat"
    ids = tokenizer.encode(text)
    assert spans_in(tokenizer, ids, text) == [(0, 3), (4, 7), (8, 11)]
    assert spans_in(tokenizer, ids[:2], text) == [(0, 3), (4, 7)]
    characters = Tokenizer.train(["the cat sat"], "char")
    assert spans_in(characters, characters.encode("the"), "the") == [(0, 1), (1, 2), (2, 3)]


TEXTS = ["Don't (really) go, él: 日本 🙂 naïve!", "a  b", "", "l'eau de la mer"]


@pytest.mark.parametrize("kind", ["word", "char", "byte", "bpe"])
def test_a_tokens_span_is_where_it_lies_in_the_text(kind):
    tokenizer = Tokenizer.train(TEXTS * 3, kind)
    for text in TEXTS:
        ids = tokenizer.encode(text)
        whole, spans = tokenizer.decode(ids), token_spans(tokenizer, ids)
        assert len(spans) == len(ids)
        assert [start for start, _ in spans] == sorted(start for start, _ in spans)
        assert all(0 <= start < end <= len(whole) for start, end in spans)
        covered = {place for start, end in spans for place in range(start, end)}
        assert all(place in covered or whole[place] == " " for place in range(len(whole)))
        for symbol, (start, end) in zip(ids, spans):
            if "<0x" not in tokenizer.token(symbol):
                assert whole[start:end] == tokenizer.token(symbol)


def test_bytes_that_are_no_text_have_spans_too():
    tokenizer = Tokenizer.train(["é"], "byte")
    ids = [1 + byte for byte in "é".encode()[:1] + b"a" + "é".encode()]
    assert tokenizer.decode(ids) == "aé"
    assert token_spans(tokenizer, ids) == [(0, 1), (0, 1), (1, 2), (1, 2)]


def test_words_are_found_in_their_order():
    assert word_spans(["the", "the"], "the other, the") == [(0, 3), (5, 8)]
    with pytest.raises(RegardError, match="cat"):
        word_spans(["cat"], "dog")


def test_the_diagonal_links_the_same_places():
    assert diagonal_links(3, 3) == {(0, 0), (1, 1), (2, 2)}
    assert diagonal_links(4, 2) == {(1, 0), (3, 1)}
    assert diagonal_links(0, 2) == set()


def test_ibm_model_1_finds_which_word_means_which():
    """Brown et al.'s idea: das Haus, das Buch, ein Buch are enough to know all four words."""
    sources = [["das", "Haus"], ["das", "Buch"], ["ein", "Buch"], ["Buch", "ein", "Haus"], []]
    targets = [["the", "house"], ["the", "book"], ["a", "book"], ["a", "house", "book"], []]
    table = translation_table(sources, targets, iterations=30)
    meanings = {"das": "the", "Haus": "house", "Buch": "book", "ein": "a"}
    assert all(max(meanings, key=lambda word: table.get((word, made), 0.0)) == word for word, made in meanings.items())


def expected_table(sources, targets, iterations):
    """IBM model 1 as it is written down: P(f | e) from the shares of each target word's place."""
    pairs = {(e, f) for source, target in zip(sources, targets) for e in source for f in target}
    table = dict.fromkeys(pairs, 1.0)
    for _ in range(iterations):
        counts = dict.fromkeys(pairs, 0.0)
        for source, target in zip(sources, targets):
            for f in target:
                whole = sum(table[e, f] for e in source)
                for e in source:
                    counts[e, f] += table[e, f] / whole
        table = {(e, f): n / sum(counts[pair] for pair in pairs if pair[0] == e) for (e, f), n in counts.items()}
    return table


@pytest.mark.parametrize("iterations", [0, 1, 10])
def test_the_table_of_ibm_model_1_is_that_of_its_formula(iterations):
    sources = [["das", "Haus"], ["das", "Buch", "das"], ["ein", "Buch"], ["ja"]]
    targets = [["the", "house"], ["the", "book"], ["a", "book", "book"], []]
    found = translation_table(sources, targets, iterations)
    assert found == pytest.approx(expected_table(sources, targets, iterations))
    assert translation_table([["ja"], []], [[], []]) == {}
    if iterations == 10:
        assert translation_table(sources, targets) == found


# -- scripts ---------------------------------------------------------------------------------------------------------

IN_SCRIPTS = {  # (references, the same with one word of the second sentence changed)
    "Japanese": (["私は東京へ行きます。", "彼女は毎朝コーヒーを飲みます。"], "彼女は毎晩コーヒーを飲みます。"),
    "Chinese": (["我明天去北京。", "她每天早上喝咖啡。"], "她每天晚上喝咖啡。"),
    "Korean": (["나는 내일 서울에 갑니다.", "그녀는 매일 아침 커피를 마십니다."], "그녀는 매일 저녁 커피를 마십니다."),
    "Thai": (["ฉันไปกรุงเทพพรุ่งนี้", "เธอดื่มกาแฟทุกเช้า"], "เธอดื่มกาแฟทุกเย็น"),
    "Arabic": (
        ["أذهب غدا إلى القاهرة مع أخي الصغير.", "تشرب القهوة كل صباح في الحديقة."],
        "تشرب القهوة كل مساء في الحديقة.",
    ),
    "Russian": (
        ["Я завтра поеду в Москву с младшим братом.", "Она каждое утро пьёт кофе в саду."],
        "Она каждый вечер пьёт кофе в саду.",
    ),
}
WITHOUT_EXTRAS = {
    "Japanese": "char",
    "Chinese": "zh",
    "Korean": "char",
    "Thai": "char",
    "Arabic": "13a",
    "Russian": "13a",
}


@pytest.fixture
def no_mecab(monkeypatch):
    """sacreBLEU as it is without the extras."""
    from sacrebleu.tokenizers import tokenizer_ja_mecab, tokenizer_ko_mecab

    monkeypatch.setattr(tokenizer_ja_mecab, "MeCab", None)
    monkeypatch.setattr(tokenizer_ko_mecab, "MeCab", None)
    scripts.is_installed.cache_clear()
    yield
    scripts.is_installed.cache_clear()


@pytest.mark.parametrize("script", IN_SCRIPTS)
def test_near_perfect_translations_score_high_in_every_script_and_the_signature_says_how(no_mecab, script):
    references, changed = IN_SCRIPTS[script]
    hypotheses, tokenizer = [references[0], changed], WITHOUT_EXTRAS[script]
    found = quality(hypotheses, references)
    assert found["bleu"]["score"] > 50
    assert f"|tok:{tokenizer}|" in found["bleu"]["signature"]
    assert f"|tok:{tokenizer}|" in found["bleu_tokenised_lowercase"]["signature"]
    theirs = BLEU(tokenize=tokenizer).corpus_score(hypotheses, [references]).score
    assert found["bleu"]["score"] == pytest.approx(theirs)
    assert bleu(hypotheses, references) == pytest.approx(theirs)
    sums = Statistics.of("bleu", hypotheses, references)
    assert float(sums.score(sums.counts.sum(0))) == pytest.approx(theirs)
    (only,) = by_length(["one", "two"], hypotheses, references)
    assert only.bleu == pytest.approx(theirs)


@pytest.mark.parametrize("script, extra", [("Japanese", "ja"), ("Korean", "ko")])
def test_a_missing_extra_is_named_with_how_to_install_it_and_asking_for_it_is_refused(no_mecab, script, extra):
    cut = scripts.bleu_cut(IN_SCRIPTS[script][0])
    assert cut.tokenizer == "char"
    assert script in cut.why
    assert f'pip install "regard[{extra}]"' in cut.why
    with pytest.raises(RegardError, match=rf"regard\[{extra}\]"):
        scripts.bleu_cut(IN_SCRIPTS[script][0], f"{extra}-mecab")


@pytest.mark.parametrize("script, module, extra", [("Japanese", "MeCab", "ja"), ("Korean", "mecab_ko", "ko")])
def test_with_the_extra_words_are_those_of_its_dictionary(script, module, extra):
    pytest.importorskip(module)
    references, changed = IN_SCRIPTS[script]
    found = quality([references[0], changed], references)
    assert f"|tok:{extra}-mecab" in found["bleu"]["signature"]
    assert 30 < found["bleu"]["score"] < 100


def test_a_tokenizer_that_finds_no_words_is_used_only_when_asked_for_and_says_so():
    references = IN_SCRIPTS["Japanese"][0]
    assert "Japanese has no spaces" in scripts.bleu_cut(references, "13a").why
    assert "no spaces" not in scripts.bleu_cut(IN_SCRIPTS["Korean"][0], "13a").why
    assert scripts.bleu_cut(["the cat"], "13a").why == "13a, as requested"


def test_the_script_of_most_letters_decides():
    assert scripts.bleu_cut(["我明天去北京。", "OK, 3.14 ..."]).tokenizer == "zh"
    assert scripts.bleu_cut(["The city of 北京 is large.", "It rains."]).tokenizer == "13a"
    assert (
        scripts.bleu_cut(["他喜欢の这个字和北京的天气以及很多别的东西" * 2]).tokenizer == "zh"
    )  # one kana makes no Japanese
    assert scripts.bleu_cut(["123 ...", ""]).tokenizer == "13a"
    for kana, script in ((1, "Chinese"), (2, "Japanese")):  # of 19 and one or two
        assert scripts._script(["北" * 19 + "の" * kana])[0] == script
    assert scripts._script(["の"]) == ("Japanese", "ja-mecab")
    assert scripts._script(["の北北 abcd"])[0] == "spaced"  # three of seven letters
    assert scripts._script(["の北北 ab"])[0] == "Japanese"
    assert "Thai" in scripts.bleu_cut(IN_SCRIPTS["Thai"][0]).why
    assert scripts.bleu_cut(["ខ្ញុំទៅផ្សារ", "မြန်မာစာ"]).tokenizer == "char"


def test_words_are_counted_between_spaces_and_in_scripts_without_them_by_letter():
    assert scripts.count_words("The cat – sees it.") == 5
    assert scripts.count_words("나는 내일 서울에 갑니다.") == 4
    assert scripts.count_words("Я завтра поеду.") == 3
    assert scripts.count_words("我去北京。") == 4
    assert scripts.count_words("私はPython 3を使う。") == 7  # 私 は Python 3 を 使 う
    assert scripts.count_words("ที่") == 1  # a letter and its two marks
    classes = by_length(["我" * 7, "a b"], ["x", "y"], ["x", "y"])
    assert [(one.shortest, one.sentences) for one in classes] == [(0, 1), (6, 1)]


def test_a_metric_that_is_unknown_is_refused_and_never_scored_as_another():
    sums = Statistics.of("bleu", GOOD, REFERENCES)
    with pytest.raises(RegardError, match="no metric 'ter'"):
        Statistics("ter", sums.counts, "13a").score(sums.counts.sum(0))


def test_the_space_that_sentencepiece_puts_before_a_text_belongs_to_no_token():
    pieces = {0: b" ab", 1: b" ", 2: b"c", 3: b" "}
    for symbols, text, spans in (([0, 1, 2], "ab c", [(0, 2), (2, 3), (3, 4)]), ([3, 2], "c", [(0, 0), (0, 1)])):
        tokenizer = SimpleNamespace(kind="imported", _bytes=pieces, decode=lambda ids, text=text: text)
        assert token_spans(tokenizer, symbols) == spans


@pytest.mark.parametrize("score", [accuracy, lambda texts, references: Statistics.of("chrf", texts, references)])
def test_who_has_too_few_references_is_told_how_many(score):
    with pytest.raises(RegardError, match="There are 2 sentences and 1 references"):
        score(["a", "b"], ["a"])
