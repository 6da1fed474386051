"""Constrained texts: all match, and tokens are drawn as if those that cannot lead to a match were drawn again."""

import json
import random
import re
from collections import Counter

import numpy as np
import pytest
import regex
import torch

import regard
from regard.base.errors import RegardError
from regard.decoding.constraints import Constraints
from regard.decoding.engine import Engine
from regard.decoding.generate import generate, read_prompts
from regard.decoding.sampling import Sampling, choose, random_stream
from regard.systems import gpt
from regard.text.tokenizers.tokenizer import Tokenizer

pytest.importorskip("llguidance", reason="constraints need llguidance")

LINES = [
    '{"name": "cat", "age": 7}',
    "the cat sees 12 dogs, yes or no; maybe an old one",
    "é ü ß abcdefghijklmnopqrstuvwxyz",
]
SCHEMA = {
    "type": "object", "required": ["name", "age"], "additionalProperties": False,
    "properties": {"name": {"type": "string", "maxLength": 5}, "age": {"type": "integer", "minimum": 0, "maximum": 99}},
}  # fmt: skip


def model_of(tokenizer, seed=0, spread=20):
    torch.manual_seed(seed)
    made = gpt.GPT(tokenizer.vocabulary, gpt.Settings(layers=1, width=16, heads=2, context=64)).eval()
    with torch.no_grad():
        made.embedding.table.weight.mul_(spread)  # far from uniform
    return made


@pytest.fixture(scope="module", params=["byte", "bpe", "char"])
def tokenizer(request):
    return Tokenizer.train(LINES * 3, request.param, normalise="none")


def engine_of(tokenizer, model, sampling, **more):
    begin = Constraints(tokenizer).begin
    return Engine(model, eos=tokenizer.eos, sampling=sampling, guides=lambda: begin(sampling), **more)


def is_valid(text):
    found = json.loads(text)
    return found.keys() == {"name", "age"} and len(found["name"]) <= 5 and 0 <= found["age"] <= 99


@pytest.mark.parametrize(
    ("how", "valid"),
    [
        ({"json_schema": json.dumps(SCHEMA)}, is_valid),
        ({"regex": "(yes|no), [0-9]{1,3} dogs"}, re.compile("(yes|no), [0-9]{1,3} dogs").fullmatch),
        ({"choices": ("yes", "no", 'may"be', "é")}, {"yes", "no", "é", 'may"be'}.__contains__),
    ],
)
def test_every_text_is_valid_and_the_engine_writes_what_the_plain_loop_writes(tokenizer, how, valid):
    model, draw = model_of(tokenizer), random.Random(0)
    prompts = [[tokenizer.eos, *(draw.randrange(2, tokenizer.vocabulary) for _ in range(draw.randrange(5)))]
               for _ in range(1000 if "regex" in how and tokenizer.kind == "char" else 60)]  # fmt: skip
    sampling = Sampling(temperature=1.5, **how)
    texts = list(engine_of(tokenizer, model, sampling, rows=64).texts(prompts, max_tokens=60, seed=1))
    assert all(text[-1] == tokenizer.eos for text in texts)
    written = [tokenizer.decode(text[:-1]) for text in texts]
    assert [text for text in written if not valid(text)] == []
    assert len(set(written)) > 1
    begin = Constraints(tokenizer).begin
    steps = generate(model, prompts[:5], max_tokens=60, eos=tokenizer.eos, sampling=sampling, seed=1,
                     guides=lambda: begin(sampling))  # fmt: skip
    rows = zip(*steps)
    assert [[token for token in row if token is not None] for row in rows] == texts[:5]


def test_tokens_are_drawn_as_if_those_that_cannot_match_were_drawn_again():
    """The oracle redraws a token until `regex` says that the text can still become a match. Chi-square over texts."""
    tokenizer = Tokenizer.train(["abcab bca"] * 3, "char")
    model, pattern = model_of(tokenizer, seed=1, spread=4), regex.compile("[ab]{2}c?|c[ab]")
    count = 2000
    sampling = Sampling(regex=pattern.pattern)
    drawn = engine_of(tokenizer, model, sampling, rows=64).texts([[tokenizer.eos]] * count, max_tokens=9, seed=5)
    ours = Counter(tokenizer.decode(text[:-1]) for text in drawn)
    known: dict[str, torch.Tensor] = {}

    def rejected(stream):
        text = ""
        while True:
            if text not in known:
                known[text] = read_prompts(model, [[tokenizer.eos, *tokenizer.encode(text)]], None)[0].detach()
            token = int(choose(known[text], Sampling(), torch.tensor([stream.random()], dtype=torch.float64)))
            if token == tokenizer.eos and pattern.fullmatch(text):
                return text
            if token > 1 and pattern.fullmatch(text + tokenizer.token(token), partial=True):
                text += tokenizer.token(token)

    theirs = Counter(rejected(random_stream(9, number)) for number in range(count))
    assert ours.keys() | theirs.keys() <= {a + b + c for a in "ab" for b in "ab" for c in ("", "c")} | {"ca", "cb"}
    texts = [text for text in theirs if ours[text] + theirs[text] >= 10]
    statistic = sum((ours[text] - theirs[text]) ** 2 / (ours[text] + theirs[text]) for text in texts)
    degrees = len(texts) - 1
    assert degrees >= 5
    normal = ((statistic / degrees) ** (1 / 3) - 1 + 2 / (9 * degrees)) / np.sqrt(2 / (9 * degrees))  # Wilson, Hilferty
    assert normal < 3.7  # one in ten thousand


def test_a_word_model_chooses_among_strings_and_refuses_patterns():
    tokenizer = Tokenizer.train(["yes sir , no way ."] * 3, "word")
    sampling = Sampling(choices=("yes sir", "no way."))
    texts = engine_of(tokenizer, model_of(tokenizer), sampling).texts([[0]] * 40, max_tokens=9)
    assert {tokenizer.decode(text[:-1]) for text in texts} == {"yes sir", "no way."}
    for how in ({"regex": "a"}, {"json_schema": "{}"}, {"choices": ("unheard",)}):
        with pytest.raises(RegardError, match="word"):
            Constraints(tokenizer).begin(Sampling(**how))


@pytest.mark.parametrize(
    "how",
    [
        {"regex": "a("}, {"regex": "a" * 5000}, {"json_schema": "[1]"}, {"json_schema": "{"}, {"choices": ("",)},
        {"json_schema": '{"type": "foo"}'}, {"json_schema": '{"$ref": "http://127.0.0.1/x"}'}, {"choices": ("a\nb",)},
        {"json_schema": "[" * 9999}, {"json_schema": '{"a":' * 5000 + "1" + "}" * 5000}, {"choices": ("x" * 70_000,)},
        {"json_schema": '{"$ref": "file:///etc/passwd"}'},
    ],
)  # fmt: skip
def test_a_constraint_that_cannot_be_used_is_refused_in_one_sentence(how):
    tokenizer = Tokenizer.train(LINES, "byte")
    with pytest.raises(RegardError) as error:
        Constraints(tokenizer).begin(Sampling(**how))
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 400


def test_what_no_token_can_write_is_refused():
    tokenizer = Tokenizer.train(["abc"] * 3, "char")
    with pytest.raises(RegardError, match="no token of this model"):
        next(engine_of(tokenizer, model_of(tokenizer), Sampling(regex="[xyz]+")).texts([[0]], max_tokens=4))


def test_choices_that_share_the_first_bytes_of_a_character_are_all_written():
    for kind in ("char", "byte", "bpe"):
        tokenizer = Tokenizer.train(["é ê 日本 日曜"] * 3, kind)
        sampling = Sampling(choices=("é", "ê", "日本", "日曜"))
        texts = engine_of(tokenizer, model_of(tokenizer, spread=1), sampling).texts([[0]] * 60, max_tokens=9)
        assert {tokenizer.decode(text[:-1]) for text in texts} == {"é", "ê", "日本", "日曜"}


def test_a_run_writes_what_its_constraint_allows(tmp_path):
    (tmp_path / "text.txt").write_text("".join(f"the cat sees {n} dogs\n" for n in range(60)))
    run = regard.train(
        "ngram", data=tmp_path / "text.txt", run=tmp_path / "run", settings={"data": {"tokenizer": "bpe"}}
    )
    how = regard.Sampling(regex="[0-9]{2} cats")
    assert re.fullmatch(r"the cat sees [0-9]{2} cats", run.generate("the cat sees ", sampling=how))
    assert re.fullmatch("[0-9]{2} cats", "".join(run.stream("the cat sees ", sampling=how)))
    lines = list(run.completions(["the ", "the cat sees "], sampling=how))
    assert all(re.search("[0-9]{2} cats$", line) for line in lines)
    assert {one.text for one in run.choices("the cat sees ", how) if one.drawn} <= set("0123456789")


def test_a_choice_may_hold_every_character_of_a_line():
    tokenizer = Tokenizer.train(LINES, "byte", normalise="none")
    model = model_of(tokenizer)
    odd = "".join(map(chr, [*range(1, 10), *range(14, 28), *range(31, 128)])) + "\u200b\ufeff\uffff😀"
    engine = engine_of(tokenizer, model, Sampling(choices=(odd,)))
    (ids,) = engine.texts([[tokenizer.eos]], max_tokens=300)
    assert tokenizer.decode(ids).removesuffix("\n") == odd
