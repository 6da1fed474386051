"""A model writes whole characters that its text has, whatever the script, trained or not."""

import json
import shutil

import pytest

import regard
from regard.base.digests import with_digest, without_digest

JAPANESE = [
    f"{a}は{b}を{c}。" for a in ("猫", "犬", "彼女", "先生") for b in ("水", "本", "魚") for c in ("飲む", "食べる")
]
HEBREW = [f"{a} {b} את {c}" for a in ("הילד", "הַכֶּלֶב", "המורה") for b in ("ראה", "אהב") for c in ("הבית", "הספר")]
EMOJI = [f"{a} likes {b}{c}!" for a in ("Ana 👩‍🔬", "Ben 🧑🏽‍🚀") for b in ("🍕", "🎸", "⚽️") for c in ("", "é", "❤️")]
ASCII = [f"Ted {a} the {b} at {c}." for a in ("saw", "sees") for b in ("dog", "cat", "hen") for c in ("night", "noon")]
TEXTS = {"Japanese": JAPANESE * 8, "Hebrew": HEBREW * 16, "emoji": EMOJI * 16, "ASCII": ASCII * 25}
ONE_STEP = {"training": {"steps": 1, "evaluate_every": 1, "device": "cpu"}}


@pytest.fixture(scope="module", params=[*TEXTS])
def text(request):
    return TEXTS[request.param]


@pytest.fixture(scope="module")
def run(text, tmp_path_factory):
    return regard.train("gpt", data=text, run=tmp_path_factory.mktemp("gpt") / "run", size="tiny", settings=ONE_STEP)


def test_every_character_of_a_small_text_is_a_symbol(run, text):
    characters = set("".join(text))
    assert {character for character in characters if not character.isascii()} <= {*run.tokenizer.tokens}
    for line in text[:12]:
        assert all("<0x" not in run.tokenizer.token(n) for n in run.tokenizer.encode(line))
        assert run.tokenizer.decode(run.tokenizer.encode(line)) == line
    other = "Ω≈ç√ 漢字 שלום 👾\x00"
    assert run.tokenizer.decode(run.tokenizer.encode(other)) == other


def test_what_an_untrained_model_writes_has_only_characters_of_its_text(run, text):
    characters = {*"".join(text), "\n"}
    assert {*run.generate(max_tokens=500, temperature=2.0, seed=1)} <= characters  # longer than its context
    assert {*"".join(run.completions([""] * 45, max_tokens=100, temperature=2.0))} <= characters
    assert all({*found} <= characters for found, _ in run.beam(width=3, max_tokens=20))
    assert all({*choice.text} <= characters for choice in run.choices(top=10_000, writable=True))


def test_streamed_pieces_are_the_whole_text(run, text):
    options = {"max_tokens": 500, "temperature": 2.0, "seed": 5}
    prompt = text[0][:3]
    assert run.as_read(prompt) + "".join(run.stream(prompt, **options)) == run.generate(prompt, **options)


def test_a_prompt_may_end_in_a_space_that_the_text_never_has(run):
    assert "\ufffd" not in run.generate("Ted ", max_tokens=20)


def test_a_byte_model_never_writes_part_of_a_character(tmp_path):
    run = regard.train(
        "gpt",
        data=JAPANESE * 8,
        run=tmp_path / "run",
        size="tiny",
        settings={"data": {"tokenizer": "byte"}, **ONE_STEP},
    )
    options = {"max_tokens": 1000, "temperature": 2.0}
    written = run.generate(**options)
    assert "\ufffd" not in written
    assert "".join(run.stream(**options)) == written


def test_an_n_gram_and_a_translator_write_whole_characters(tmp_path):
    ngram = regard.train("ngram", data=JAPANESE * 8, run=tmp_path / "ngram")
    assert {*ngram.generate(max_tokens=2000, temperature=3.0)} <= {*"".join(JAPANESE), "\n"}
    pairs = list(zip(ASCII * 4, [*JAPANESE, *JAPANESE] * 2))
    translator = regard.train("transformer", data=pairs, run=tmp_path / "pairs", size="tiny", settings=ONE_STEP)
    for how in ({"beam": 3}, {"temperature": 3.0, "seed": 2}):
        for line in ASCII[:4]:
            assert {*translator.translate(line, **how)} <= {*"".join([*JAPANESE, *ASCII])}


def test_bytes_that_the_first_text_of_a_fine_tuned_run_has_stay_writable(run, text, tmp_path):
    tuned = regard.train(data=ASCII * 25, start=run.folder, run=tmp_path / "tuned", settings=ONE_STEP)
    assert {*tuned.unseen} <= {*run.unseen}


def test_a_run_of_an_earlier_version_scores_as_before_and_writes_no_part_of_a_character(run, tmp_path):
    earlier = shutil.copytree(run.folder, tmp_path / "earlier")
    facts = without_digest(json.loads((earlier / "run.json").read_text(encoding="utf-8")), earlier)
    assert facts["corpus"].pop("unseen_bytes") == [*run.unseen]
    (earlier / "run.json").write_text(json.dumps(with_digest(facts)), encoding="utf-8")
    loaded = regard.load(earlier)
    assert loaded.unseen == ()
    assert loaded.evaluate()["nats_per_token"] == run.evaluate()["nats_per_token"]
    assert "\ufffd" not in loaded.generate(max_tokens=500, temperature=2.0)
