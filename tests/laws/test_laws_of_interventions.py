"""The laws of interventions, for every system: none changes nothing, the same value changes nothing, and a later one
changes nothing before it. Every part of the written equation is a place, and a change there changes the prediction."""

import pytest
import torch
from torch import Tensor

from regard.base.errors import RegardError
from regard.insight.interventions.changing import BY_HEAD, Place, changing, intervene, record
from regard.laws.closeness import RandomCase
from regard.systems.model import Model
from regard.systems.translator import Translator
from subjects import CLASSIFIERS, SUBJECTS, TRANSLATORS, build, title

EVERY = SUBJECTS + TRANSLATORS + CLASSIFIERS
ROWS, COLUMNS = 3, 6


def drawn(subject: tuple) -> tuple[Model, Tensor, Tensor | None]:
    model, draw = build(subject).eval(), RandomCase(seed=3, rows=ROWS, columns=COLUMNS)
    source = None
    if isinstance(model, Translator):
        source = torch.randint(1, model.source_vocabulary, (ROWS, COLUMNS), generator=torch.Generator().manual_seed(5))
    return model, draw.tokens(model), source


def read(model: Model, tokens: Tensor, source: Tensor | None) -> Tensor:
    return model(tokens, None if source is None else model.begin(source))[0]


def written(model: Model, tokens: Tensor, source: Tensor | None) -> Tensor:
    if source is None:
        return model.explain(tokens)[0]
    assert isinstance(model, Translator)
    return model.explain(tokens, model.begin_from(model.explain_encode(source, None)[0], source, None))[0]


def flipped(value: Tensor) -> Tensor:
    return ~value if value.dtype == torch.bool else 2 - 3 * value


@pytest.mark.parametrize("subject", EVERY, ids=title)
@torch.no_grad()
def test_no_intervention_is_bit_equal(subject: tuple) -> None:
    model, tokens, source = drawn(subject)
    before, fast = written(model, tokens, source), read(model, tokens, source)
    assert torch.equal(record(model, tokens, source)[0], before)
    with changing(model, []):
        assert torch.equal(read(model, tokens, source), before)
    assert torch.equal(read(model, tokens, source), fast)
    assert "forward" not in vars(model)


@pytest.mark.parametrize("subject", EVERY, ids=title)
@torch.no_grad()
def test_the_same_value_changes_nothing(subject: tuple) -> None:
    model, tokens, source = drawn(subject)
    logits, parts = record(model, tokens, source)
    assert parts or subject[0] == "ngram"  # whose unigrams have no place
    for name, value in parts.items():
        axis = 2 if name.rpartition("/")[2] in BY_HEAD else 1
        columns = range(value.size(axis)) if value.dim() > 2 else [None]
        same = [(Place(name, column=t), value if t is None else value.select(axis, t)) for t in columns]
        with changing(model, same):
            assert torch.equal(read(model, tokens, source), logits), name


@pytest.mark.parametrize("subject", SUBJECTS + TRANSLATORS, ids=title)
@torch.no_grad()
def test_a_later_intervention_changes_nothing_before_it(subject: tuple) -> None:
    model, tokens, source = drawn(subject)
    logits, parts = record(model, tokens, source)
    t = COLUMNS // 2
    for name in parts:
        if not name.startswith("encoder/"):
            with changing(
                model,
                [
                    (
                        Place(name, column=t),
                        flipped,
                    )
                ],
            ):
                changed = read(model, tokens, source)
            assert torch.equal(changed[:, :t], logits[:, :t]), name


@pytest.mark.parametrize("subject", EVERY, ids=title)
@torch.no_grad()
def test_a_change_reaches_the_prediction_of_its_row_alone(subject: tuple) -> None:
    model, tokens, source = drawn(subject)
    logits, parts = record(model, tokens, source)
    for name in parts:
        with changing(model, [(Place(name, row=1), flipped)]):
            changed = read(model, tokens, source)
        assert torch.equal(changed[[0, 2]], logits[[0, 2]]), name
        pool = getattr(model.settings, "pool", "last" if subject[0] == "seq2seq" else "")
        state = pool == "last" and name == f"encoder/{model.settings.layers - 1}"
        unmoved = state and f"{name}/forward/hidden" in parts  # only its last state is read, not its output
        assert unmoved or not torch.equal(changed[1], logits[1]), name


def test_a_wrong_place_is_named_with_the_right_ones() -> None:
    model, tokens, source = drawn(next(one for one in SUBJECTS if one[0] == "gpt"))
    for place, said in (
        ("slef/0", "self/0"), ("self/0[9]", "components"), ("layer/0@60", "columns"), ("layer/0[", "does not name")
    ):  # fmt: skip
        with pytest.raises(RegardError, match=said), intervene(model, place, 0.0):
            read(model, tokens, source)
    assert torch.equal(read(model, tokens, source), read(model, tokens, source))


@pytest.mark.parametrize("subject", EVERY, ids=title)
@torch.no_grad()
def test_a_column_is_counted_from_the_beginning_word_by_word(subject: tuple) -> None:
    model, tokens, source = drawn(subject)
    name = next((name for name in record(model, tokens, source)[1] if not name.startswith("encoder/")), None)
    if name is None or tokens.size(1) < 3 or name.startswith("order/"):
        pytest.skip("its text has one column, or its parts have none")
    with changing(model, [(Place(name, column=2), flipped)]):
        whole, steps = read(model, tokens, source), []
        state = None if source is None else model.begin(source)
        for column in range(tokens.size(1)):
            logits, state = model(tokens[:, column : column + 1], state)
            steps.append(logits)
    torch.testing.assert_close(torch.cat(steps, 1), whole, rtol=1e-9, atol=1e-9)
    assert not torch.equal(whole, read(model, tokens, source))
