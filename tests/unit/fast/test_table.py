"""Every row of the table against the written method it stands in for: values and gradients, at shapes drawn at random,
and calls that it must leave alone."""

import copy
import random
from importlib import import_module
from pathlib import Path
from types import MethodType

import pytest
import torch
from examples import DEVICE

from regard.fast import Use, install, rows, uninstall
from regard.fast.decoding.beam_step import TransformerRows
from regard.fast.table import as_written, is_swapped
from regard.systems import transformer

EXAMPLES = {}
for path in sorted(Path(__file__).parent.glob("examples_*.py")):
    EXAMPLES |= import_module(path.stem).EXAMPLES
ROWS = {row.name: row for row in rows()}
EXACT = {torch.float64: 1e-9, torch.float32: 1e-4}  # what differs is the order of sums; halves have few digits
MANY, FEW = range(6), range(1)
COSTLY = ("compiled blocks", "training step in CUDA graphs")  # one shape is enough


def test_every_row_has_a_name_and_an_example():
    assert len(ROWS) == len(rows())
    assert ROWS.keys() == EXAMPLES.keys()


def test_a_row_stands_in_for_a_method_that_is_there():
    for row in rows():
        assert callable(getattr(row.owner, row.method))


@pytest.mark.parametrize("name, seed", [(name, seed) for name in ROWS for seed in (FEW if name in COSTLY else MANY)])
def test_a_row_is_the_written_method_values_and_gradients(name, seed):
    row, example = here(name), drawn(name, seed)
    assert type(example.thing) is row.owner
    assert row.allows(example.thing, example.use) is None
    with halves(example):
        assert row.fits(example.thing, *example.arguments)
    wanted = answer(MethodType(getattr(row.owner, row.method), example.thing), example, bf16=False)
    example = drawn(name, seed)
    does = MethodType(row.does, example.thing) if row.makes is None else row.makes(example.thing)
    found = answer(does, example, bf16=example.use.bf16, only=wanted)
    assert wanted.keys() <= found.keys()
    for part, value in wanted.items():
        close(found[part], value, part, example)


@pytest.mark.parametrize("name", ROWS)
def test_a_call_that_does_not_fit_is_left_alone(name):
    row = here(name)
    for seed in range(3):
        example = drawn(name, seed)
        for arguments in example.refused:
            with halves(example):
                assert not row.fits(example.thing, *arguments)


@pytest.mark.parametrize("name", ROWS)
def test_installing_swaps_only_this_very_class_and_can_be_undone(name):
    row, example = here(name), drawn(name, 0)
    thing, device = example.thing, device_of(row)
    assert row in install(thing, example.use, device=device)
    assert is_swapped(getattr(thing, row.method))
    if isinstance(thing, torch.nn.Module):
        twin = copy.deepcopy(thing)
        assert getattr(twin, row.method).__self__ is twin
    with as_written(thing):
        assert not is_swapped(getattr(thing, row.method))
    assert is_swapped(getattr(thing, row.method))
    uninstall(thing)
    assert not is_swapped(getattr(thing, row.method))
    thing.__class__ = type("Own", (type(thing),), {})
    assert row not in install(thing, example.use, device=device)


def test_what_a_row_hands_out_can_be_installed_itself():
    """The beam's engine installs the reader that it was given. It is of this package and exists only on a GPU."""
    model = transformer.Transformer(20, transformer.Settings(width=16, heads=2, layers=1))
    rows = TransformerRows(model, sources=2, longest=4, room=5, width=3)
    assert install(rows) == []
    assert [part.shape for part in (*rows.keys, *rows.values)] == 2 * [(2, 3, 5, 2, 8)]  # two heads of eight
    assert [part.shape for part in rows.memory] == [(3, 4, 2, 2, 8)]


def test_what_no_row_knows_is_left_as_written():
    assert install(torch.nn.Linear(2, 2), Use()) == []


# --------------------------------------------------------------------------------------------------------------------


def device_of(row):
    """The device that the row is for; None where this machine has none."""
    return next((device for device in (torch.device("cpu"), DEVICE) if row.needs(device) is None), None)


def here(name):
    row = ROWS[name]
    if device_of(row) is None:
        pytest.skip(str(row.needs(DEVICE)))
    return row


def drawn(name, seed):
    torch.manual_seed(seed)
    random.seed(seed)
    return EXAMPLES[name]()


def halves(example):
    return torch.autocast("cuda", torch.bfloat16, enabled=example.use.bf16 and torch.cuda.is_available())


def named(part, path=""):
    """All tensors in nested tuples and dicts, by their path."""
    if isinstance(part, torch.Tensor):
        return {path: part}
    if isinstance(part, dict):
        pairs = part.items()
    elif isinstance(part, tuple | list):
        pairs = enumerate(part)
    else:
        return {}
    return {name: leaf for key, value in pairs for name, leaf in named(value, f"{path}/{key}").items()}


def answer(method, example, bf16, only=None):
    """All that the method returns or leaves behind, and the gradients of a sum over it by its inputs and weights.
    `only`: what the written method returned; a row may add leaves of its own to a state."""
    torch.manual_seed(7)  # what is dropped is the same
    with torch.autocast("cuda", torch.bfloat16, enabled=bf16):
        found = named(example.promised(method(*example.arguments)))
    found |= named(example.left(example.thing, example.arguments), "left")
    found = {name: part.clone() for name, part in found.items()}
    leaf = {name: part for name, part in named(example.arguments).items() if part.requires_grad and part.is_leaf}
    weights = dict(example.thing.named_parameters()) if isinstance(example.thing, torch.nn.Module) else {}
    by = {f"gradient by {name}": part for name, part in {**leaf, **weights}.items()}
    outputs = [part for name, part in found.items() if part.requires_grad and (only is None or name in only)]
    if not by or not outputs:
        return found
    cost = sum((part.double() * weigh(part)).sum() for part in outputs)
    gradients = torch.autograd.grad(cost, list(by.values()), allow_unused=True, materialize_grads=True)
    return found | dict(zip(by, gradients, strict=True))


def weigh(part):
    draw = torch.Generator().manual_seed(3)
    return torch.randn(part.shape, generator=draw, dtype=torch.float64).to(part.device)


def close(found, wanted, name, example):
    found, wanted = found.detach(), wanted.detach()
    if not wanted.is_floating_point():
        assert torch.equal(found, wanted), name
        return
    rough = min((found, wanted), key=lambda part: part.element_size()).dtype
    if example.use.bf16 or rough not in EXACT:
        # in bf16 a sum near zero may fall on either side of a ReLU: whole terms of a gradient then differ
        assert float((found.double() - wanted.double()).norm()) < 0.12 * float(wanted.double().norm()) + 1e-3, name
    else:
        scale = max(1.0, float(wanted.double().abs().max())) if wanted.numel() else 1.0
        torch.testing.assert_close(
            found.double(),
            wanted.double(),
            rtol=0.0,
            atol=(example.exact or EXACT[rough]) * scale,
            msg=lambda text: f"{name}: {text}",
        )
