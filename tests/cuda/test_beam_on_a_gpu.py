"""Beam search, recorded, finds what the plain one finds."""

import copy
from importlib import import_module

import pytest
import torch
from cuda_systems import systems

from regard.decoding.beam import Beam, beam_search
from regard.decoding.beam_engine import BeamEngine
from regard.decoding.beam_slots import BeamConfig, Slots
from regard.decoding.generate import read_prompts
from regard.decoding.translate import translate
from regard.fast.table import install, is_swapped
from regard.systems.catalogue import load_class

# -- beam search, recorded -------------------------------------------------------------------------------------------


def translators(dtype=torch.float32):
    """The Transformer in the ways its own kernels know, and others; of so few words that one of them, <eos>, comes."""
    kinds = [
        ("transformer", {"width": 96}),
        ("transformer", {"width": 64, "norm": "post", "activation": "gelu", "position": "learned"}),
        ("transformer", {"width": 48, "heads": 3, "position": "rotary", "shared": False, "tied": False}),
        ("bahdanau", {"width": 32}),
        ("seq2seq", {"width": 32}),
    ]
    for name, settings in kinds:
        torch.manual_seed(0)
        yield load_class(name)(13, import_module(load_class(name).__module__).Settings(**settings)).to(dtype).eval()


SENTENCES = [[1 + (n * k) % 12 for k in range(1, n % 19)] for n in range(70)]


@pytest.mark.usefixtures("_exact")
@pytest.mark.parametrize("number", range(5))
@pytest.mark.parametrize(
    "how, bounds",
    [
        (Beam(1), {}),
        (Beam(5, 1.0), {"min_tokens": 5, "max_tokens": 12}),
        (Beam(4, 0.6, 4), {"forbidden": (3,), "min_tokens": 2}),
        (Beam(3, -0.5, 2), {}),
    ],
    ids=str,
)
def test_a_recorded_beam_search_finds_what_the_plain_one_finds(number, how, bounds):
    model = [*translators()][number]
    expected = [*translate(model, SENTENCES, eos=0, beam=how, **bounds)]  # on the CPU
    model.cuda()
    engine = BeamEngine(model, batch_tokens=16 * how.width * 24, install=install)  # few places: sources come and go
    for _ in range(2):
        found = [*translate(model, SENTENCES, eos=0, beam=how, engine=engine, **bounds)]
        assert [[h.tokens for h in best] for best in found] == [[h.tokens for h in best] for best in expected]
        for best, reference in zip(found, expected, strict=True):
            assert [h.score for h in best] == pytest.approx([h.score for h in reference], abs=1e-4)
    assert all(is_swapped(batch.run) for batch in engine.batches.values())


@pytest.mark.parametrize("number", range(5))
def test_a_recorded_search_in_bf16_finds_as_good_ones(number):
    model = [*translators()][number].to("cuda", torch.bfloat16)
    bounds = {"beam": Beam(5, 1.0), "min_tokens": 8, "max_tokens": 8}
    found = [*translate(model, SENTENCES, eos=0, engine=BeamEngine(model, install=install), **bounds)]
    expected = [*translate(model, SENTENCES, eos=0, **bounds)]
    exact = copy.deepcopy(model).double()
    for source, (best,) in zip(SENTENCES, found, strict=True):  # it says of what it found what the model says
        begun = exact.begin(torch.tensor([[*source, 0]]).cuda(), torch.tensor([len(source) + 1]))
        logits, _ = exact(torch.tensor([[0, *best.tokens[:-1]]]).cuda(), begun)
        chosen = logits.log_softmax(-1)[0, range(len(best.tokens)), best.tokens]
        assert best.log_probability == pytest.approx(chosen.sum().item(), abs=0.1)
    # a near-tie may lead either search astray, and at times to something better
    means = [sum(best.score for (best,) in side) / len(side) for side in (found, expected)]
    assert means[0] == pytest.approx(means[1], abs=0.02)


@pytest.mark.parametrize("number", [2, 6, 7])
def test_a_search_in_a_fixed_state_finds_what_the_plain_one_finds(number):
    model = systems()[number].double().cuda().eval()
    prompts = [[0, 4, 5], [0], [0, 9, 9, 2, 1]]
    options = {"width": 3, "max_tokens": torch.tensor([7, 3, 9]), "eos": 0, "forbidden": [2], "length_penalty": 0.7}
    with torch.no_grad():
        plain, recorded = (
            beam_search(model, *read_prompts(model, prompts, capacity), **options) for capacity in (None, 20)
        )
    assert [[h.tokens for h in best] for best in plain] == [[h.tokens for h in best] for best in recorded]


@pytest.mark.parametrize("dtype, exact", [(torch.float32, 1e-5), (torch.bfloat16, 2e-2)])
@pytest.mark.parametrize("sources, width, heads, size, room, length", [(5, 5, 4, 128, 40, 33), (3, 1, 2, 24, 9, 70)])
def test_a_beams_kernels_compute_what_is_written(dtype, exact, sources, width, heads, size, room, length):
    from regard.fast.kernels import add_norm, beam_attention

    torch.manual_seed(0)

    def numbers(*shape):
        return torch.randn(*shape, device="cuda", dtype=dtype)

    keys, values = numbers(sources, width, room, heads, size), numbers(sources, width, room, heads, size)
    ancestors = torch.randint(width, (2, sources, width, room), device="cuda", dtype=torch.uint8)
    seen = torch.randint(room, (sources,), device="cuda")
    asked = numbers(sources * width, 3 * heads * size)
    query, key, value = asked.view(sources, width, 3, heads, size).unbind(2)
    common = (seen * torch.rand(sources, device="cuda")).long()  # positions whose ancestors are everyone's
    first = torch.arange(room, device="cuda") < common[:, None, None]
    ancestors = torch.where(first, ancestors[:, :, :1], ancestors)
    found = beam_attention.attend_to_own_words(asked, keys, values, ancestors, common, seen).view_as(query)
    rows = torch.arange(sources, device="cuda")
    assert torch.equal(keys[rows, :, seen], key)
    assert torch.equal(values[rows, :, seen], value)
    expected = beam_attention.own_words(query, keys, values, ancestors[seen % 2, rows], seen)
    torch.testing.assert_close(found, expected, rtol=exact, atol=exact)

    memory = numbers(sources, length, 2, heads, size)
    lengths = torch.randint(1, length + 1, (sources,), device="cuda")
    found = beam_attention.attend_to_source(query.flatten(0, 1).flatten(1), memory, lengths, width).view_as(query)
    expected = beam_attention.source(query, *memory.unbind(2), lengths)
    torch.testing.assert_close(found, expected, rtol=exact, atol=exact)

    norm = torch.nn.LayerNorm(heads * size).to("cuda", dtype)
    x, y = numbers(7, heads * size), numbers(7, heads * size)
    with torch.no_grad():
        pairs = zip(add_norm.add_norm(x, y, norm), (x + y, norm(x + y)), strict=True)
        for one, other in pairs:
            torch.testing.assert_close(one, other, rtol=exact, atol=exact)


@pytest.mark.parametrize("vocabulary", [3, 97, 10_000])
@pytest.mark.parametrize(
    "terms",
    [BeamConfig(5, 0, 1, 1.0, 4), BeamConfig(4, 2, 3, 0.0, 0, (1,)), BeamConfig(1, 0, 1), BeamConfig(7, 0, 7, -0.5)],
    ids=str,
)
def test_a_beams_choice_by_kernels_is_the_written_one(vocabulary, terms):
    from regard.fast.kernels.beam_choice import choose

    torch.manual_seed(0)
    one, other = (Slots(6, 9, vocabulary, terms, torch.device("cuda")) for _ in range(2))
    places = torch.arange(6, device="cuda")
    for slots in (one, other):
        slots.fill(places, torch.tensor([5, 9, 9, 1, 2, 9], device="cuda"))
    for step in range(9):
        logits = 2 * torch.randn(6 * terms.width, vocabulary, device="cuda")
        logits[:, terms.eos] += 2.0
        logits = logits.round() if step % 3 == 1 else logits  # equals
        one.choose(logits)
        choose(other, logits)
        other.total.copy_(one.total.where(one.total.isclose(other.total, rtol=0.0, atol=1e-4), torch.nan))
        for name in ("length", "count", "going", "damaged"):
            assert torch.equal(getattr(one, name), getattr(other, name))
        assert torch.equal(one.total, other.total)
        is_open = one.total > -torch.inf
        for name in ("parent", "token"):
            assert torch.equal(getattr(one, name)[is_open], getattr(other, name)[is_open])
    found, expected = other.best(places)(), one.best(places)()
    assert [[h.tokens for h in best] for best in found] == [[h.tokens for h in best] for best in expected]
