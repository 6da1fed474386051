"""What the engine does besides writing the plain loop's tokens (tests/laws/test_generation.py): when and how."""

from itertools import count

import pytest
import torch

from regard.base.errors import RegardError
from regard.decoding.engine import Engine, Prompt
from regard.decoding.generate import generate, read_prompts
from regard.decoding.sampling import GREEDY, Sampling
from regard.decoding.writer import Writer
from regard.fast.decoding.lean_step import LeanStep, is_known
from regard.layers.state import map_state
from regard.systems import gpt, lstm

EOS, VOCABULARY, CONTEXT = 0, 17, 12


def attention(context=CONTEXT, **more):
    torch.manual_seed(0)
    made = (
        gpt.GPT(VOCABULARY, gpt.Settings(**{"layers": 2, "width": 16, "heads": 2, "context": context} | more))
        .double()
        .eval()
    )
    for weight in made.parameters():
        weight.data += 0.3 * torch.randn_like(weight)
    return made


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return lstm.LSTMModel(VOCABULARY, lstm.Settings(layers=1, width=8)).double().eval()


def alone(model, prompt, number, **options):
    steps = generate(model, [prompt] * (number + 1), eos=EOS, **options)
    return [step[number] for step in steps if step[number] is not None]


PROMPTS = [[EOS, 3, 5], [EOS], [EOS, 7, 7, 2, 9, 1, 4, 4, 2], [EOS, 2]]


def test_where_nothing_limits_a_text_its_row_grows(monkeypatch):
    monkeypatch.setattr("regard.decoding.engine.FIRST_CAPACITY", 4)
    unlimited, options = attention(position="rotary"), {"max_tokens": 50, "seed": 1}
    assert unlimited.context is None
    engine = Engine(unlimited, eos=EOS, sampling=Sampling(), rows=2)
    expected = [alone(unlimited, prompt, n, sampling=Sampling(), **options) for n, prompt in enumerate(PROMPTS)]
    assert list(engine.texts(PROMPTS, **options)) == expected
    assert engine.batch.writer.capacity >= 52


def test_forbidden_tokens_are_never_written_and_unfit_ones_never_first(model):
    prompts = [Prompt(tokens, unfit) for tokens, unfit in zip(PROMPTS, ([], [2, 4, 5], range(3, 17)))]
    options = {"max_tokens": 40, "seed": 2}
    found = list(Engine(model, eos=EOS, sampling=Sampling(1.5), forbidden=[1, 3], rows=2).texts(prompts, **options))
    for number, (prompt, tokens) in enumerate(zip(prompts, found, strict=True)):
        assert not {1, 3} & set(tokens)
        assert tokens[0] not in prompt.unfit
        options |= {"sampling": Sampling(1.5), "forbidden": [1, 3], "forbidden_first": list(prompt.unfit)}
        assert tokens == alone(model, prompt.tokens, number, **options)


def test_tokens_come_as_they_are_written(model):
    """After each step every text of the batch has one token more: nobody waits for the end of a text."""
    seen = {0: 0, 1: 0}
    for number, tokens, done in Engine(model, eos=EOS, rows=2).stream(PROMPTS[:2], max_tokens=20):
        assert 1 <= len(tokens) <= 2  # the first comes with the reading of the prompt
        seen[number] += len(tokens)
        assert abs(seen[0] - seen[1]) <= 2
        assert done == (seen[number] == 20)
    assert seen == {0: 20, 1: 20}


def test_prompts_are_taken_only_as_rows_become_free(model, monkeypatch):
    """Constant memory: of a file without end only so much is read as is being written or waits for an earlier text."""
    monkeypatch.setattr("regard.decoding.engine.AHEAD", 5)
    taken = []
    endless = (taken.append(number) or [EOS, number % VOCABULARY] for number in count())
    texts = Engine(model, eos=EOS, sampling=Sampling(1.5), rows=4).texts(endless, max_tokens=30, lines=1)
    for written, _ in zip(range(60), texts):
        assert len(taken) - written <= 4 + 5 + 4


def test_a_batch_of_finished_texts_shrinks(model):
    """Where nothing is recorded, rows without a text are not computed for long."""
    engine = Engine(model, eos=EOS, sampling=Sampling(), rows=4)
    sizes = [engine.batch.writer.rows for _ in engine.stream(PROMPTS, max_tokens=300, lines=1, seed=2)]
    assert sizes[0] == 4
    assert sizes[-1] == 1


@pytest.mark.parametrize("position", ["learned", "rotary"])
def test_where_steps_are_recorded_few_numbers_of_rows_are_used_and_their_writers_again(monkeypatch, position):
    """As on a GPU: texts that come one by one, in waves, must not record a graph for every number of them."""
    monkeypatch.setattr("regard.decoding.engine.RECORDED", {"cpu"})
    monkeypatch.setattr("regard.decoding.engine.FIRST_CAPACITY", 8)
    model, made, init = attention(context=24, position=position), [], Writer.__init__
    monkeypatch.setattr(
        Writer, "__init__", lambda self, *given, **more: made.append(given[2]) or init(self, *given, **more)
    )
    engine = Engine(model, eos=EOS, sampling=Sampling(), rows=12)
    for wave in range(3):
        texts = []
        for number in range(11):
            texts += [engine.submit(PROMPTS[number % 4], max_tokens=20, seed=wave, number=number)]
            engine.step()
        while not all(text.done for text in texts):
            engine.step()
        expected = [alone(model, PROMPTS[n % 4], n, max_tokens=20, seed=wave, sampling=Sampling()) for n in range(11)]
        assert [text.new for text in texts] == expected
        if wave == 0:
            first = len(made)
    assert set(made) == {1, 2, 4, 8, 12}
    assert len(made) == first
    assert sorted(engine.writers) == [1, 2, 4, 8, 12]


def test_a_prompt_does_not_wait_for_others_beside_a_free_row(model):
    engine = Engine(model, eos=EOS, rows=16)
    for number in range(16):
        engine.submit([EOS], max_tokens=5 if number == 0 else 1000, number=number)
    for _ in range(6):
        engine.step()
    late = engine.submit([EOS], max_tokens=5)  # one row of sixteen is free, which is less than an eighth
    for _ in range(12):
        engine.step()
    assert late.written


def test_a_full_context_is_said_for_each_text():
    told = []
    list(Engine(attention(), eos=EOS).texts([[EOS], [EOS, 3]], max_tokens=CONTEXT + 2, on_reread=told.append))
    assert told == [CONTEXT // 2] * 2


@pytest.mark.parametrize("context", [1, 2, 3])
def test_the_smallest_contexts_are_reread_again_and_again(context):
    small, options = attention(context), {"max_tokens": 9, "seed": 1}
    for steps in (1, 4):
        found = list(Engine(small, eos=EOS, sampling=Sampling(), rows=3, steps=steps).texts(PROMPTS, **options))
        assert found == [alone(small, prompt, n, sampling=Sampling(), **options) for n, prompt in enumerate(PROMPTS)]


@pytest.mark.parametrize("name", ["max_tokens", "lines"])
def test_a_limit_below_zero_is_refused_and_zero_writes_nothing(model, name):
    engine = Engine(model, eos=EOS)
    with pytest.raises(RegardError, match=f"{name} must be at least 0, not -1"):
        list(engine.texts([[EOS]], **{"max_tokens": 3, name: -1}))
    assert list(engine.texts([[EOS, 3]], max_tokens=0)) == [[]]


def test_what_cannot_be_is_refused(model):
    with pytest.raises(RegardError, match="--seed"):
        list(Engine(model, eos=EOS).texts(PROMPTS, max_tokens=3, seed=-1))
    assert list(Engine(model, eos=EOS).texts([], max_tokens=3)) == []
    broken = attention()
    torch.nn.init.constant_(broken.embedding.table.weight, torch.nan)
    for sampling in (Sampling(), GREEDY, Sampling(top_p=0.5)):
        with pytest.raises(RegardError, match="damaged"):
            list(Engine(broken, eos=EOS, sampling=sampling).texts(PROMPTS, max_tokens=3))


# -- the step by a shorter way ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"position": "none", "bias": False},
        {"tied": False, "activation": "relu", "feedforward": 12},
        {"layers": 1, "heads": 1},
    ],
    ids=str,
)
@pytest.mark.parametrize("rows", [1, 3])
def test_the_lean_step_is_the_models_own_call(settings, rows):
    """For rows of different lengths, up to the last slot and beyond, where both write what nobody reads."""
    model = attention(**settings)
    assert is_known(model)
    step = LeanStep(model)
    lengths = [5, 1, 9][:rows]
    state = read_prompts(model, [[EOS] * length for length in lengths], 12)[1]
    other = map_state(torch.Tensor.clone, state)
    random = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for number in range(5):
            tokens = torch.randint(VOCABULARY, (rows,), generator=random)
            expected, state = model(tokens[:, None], state)
            real = torch.tensor([length + number < 12 for length in lengths])
            torch.testing.assert_close(step(tokens, other)[real], expected[real, 0], rtol=0.0, atol=1e-12)
            assert torch.equal(other["seen"], state["seen"])
            for name, past in state["past"].items():
                for leaf, buffer in past.items():
                    torch.testing.assert_close(
                        other["past"][name][leaf][real, :, :12], buffer[real, :, :12], rtol=0.0, atol=1e-12
                    )


def test_a_model_of_another_build_has_no_lean_step(model):
    assert not is_known(model)
    for settings in (
        {"norm": "post"},
        {"position": "rotary"},
        {"position": "sine"},
        {"combine": "concatenate", "tied": False},
    ):
        assert not is_known(attention(**settings))

    class Own(gpt.GPT):
        def predict(self, hidden):
            return -super().predict(hidden)

    assert not is_known(Own(VOCABULARY, gpt.Settings(layers=1, width=16, heads=2)))


def test_what_stands_around_the_layers_of_a_model_of_ones_own_is_not_left_out():
    model = attention()
    model.entry = torch.nn.Tanh()
    options = {"max_tokens": 9, "sampling": GREEDY}
    assert list(Engine(model, eos=EOS).texts([[0, 3]], max_tokens=9)) == [alone(model, [0, 3], 0, **options)]
