"""Every row of the table against the written method it stands in for: values and gradients, at shapes drawn at random,
and calls that it must leave alone."""

import copy
import random
from importlib import import_module
from pathlib import Path
from types import MethodType

import pytest
import torch

from regard.fast import Use, install, rows, uninstall
from regard.fast.table import is_swapped

EXAMPLES = {}
for path in sorted(Path(__file__).parent.glob("examples_*.py")):
    EXAMPLES |= import_module(path.stem).EXAMPLES
ROWS = {row.name: row for row in rows()}


def test_every_row_has_a_name_and_an_example():
    assert len(ROWS) == len(rows())
    assert ROWS.keys() == EXAMPLES.keys()


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("name", ROWS)
def test_a_row_is_the_written_method_values_and_gradients(name, seed):
    row, example = ROWS[name], drawn(name, seed)
    device = next(leaf.device for leaf in leaves(example.arguments))
    if why := row.needs(device):
        pytest.skip(why)
    assert row.allows(example.thing, example.use) is None
    assert row.fits(example.thing, *example.arguments) or example.use.bf16  # there autocast must be on
    assert type(example.thing) is row.owner
    written = answer(MethodType(getattr(row.owner, row.method), example.thing), example, False)
    fast = answer(MethodType(row.does, example.thing), example, example.use.bf16)
    assert fast.keys() == written.keys()
    for part, value in written.items():
        close(fast[part], value, part, example.use.bf16)


@pytest.mark.parametrize("name", ROWS)
def test_a_call_that_does_not_fit_is_left_alone(name):
    for seed in range(3):
        example = drawn(name, seed)
        for arguments in example.refused:
            with torch.autocast("cuda", torch.bfloat16, enabled=example.use.bf16 and torch.cuda.is_available()):
                assert not ROWS[name].fits(example.thing, *arguments)


@pytest.mark.parametrize("name", ROWS)
def test_installing_swaps_only_this_very_class_and_can_be_undone(name):
    row, example = ROWS[name], drawn(name, 0)
    device = next(leaf.device for leaf in leaves(example.arguments))
    if why := row.needs(device):
        pytest.skip(why)
    thing = example.thing
    assert row in install(thing, example.use, device=device)
    assert is_swapped(getattr(thing, row.method))
    twin = copy.deepcopy(thing)
    assert getattr(twin, row.method).__self__ is twin
    uninstall(thing)
    assert not is_swapped(getattr(thing, row.method))
    thing.__class__ = type("Own", (type(thing),), {})
    assert row not in install(thing, example.use, device=device)


def test_what_no_row_knows_is_left_as_written():
    assert install(torch.nn.Linear(2, 2), Use()) == []


# --------------------------------------------------------------------------------------------------------------------


def drawn(name, seed):
    torch.manual_seed(seed)
    random.seed(seed)
    return EXAMPLES[name]()


def leaves(part):
    """All tensors in nested tuples and dicts."""
    return list(named(part).values())


def named(part, path=""):
    if isinstance(part, torch.Tensor):
        return {path: part}
    if isinstance(part, dict):
        pairs = part.items()
    elif isinstance(part, tuple | list):
        pairs = enumerate(part)
    else:
        return {}
    return {name: leaf for key, value in pairs for name, leaf in named(value, f"{path}/{key}").items()}


def answer(method, example, bf16):
    """All that the method returns, and the gradients of a sum over it by its inputs and the weights, by name."""
    torch.manual_seed(7)  # what is dropped is the same
    with torch.autocast("cuda", torch.bfloat16, enabled=bf16):
        found = named(example.promised(method(*example.arguments)))
    leaf = {name: part for name, part in named(example.arguments).items() if part.requires_grad and part.is_leaf}
    weights = dict(example.thing.named_parameters()) if isinstance(example.thing, torch.nn.Module) else {}
    by = {f"gradient by {name}": part for name, part in {**leaf, **weights}.items()}
    if not by:  # nothing that learns
        return found
    cost = sum((part.double() * wanted(part)).sum() for name, part in found.items() if part.requires_grad)
    gradients = torch.autograd.grad(
        cost, list(by.values()), allow_unused=True, materialize_grads=True, retain_graph=True
    )
    return found | dict(zip(by, gradients, strict=True))


def wanted(part):
    draw = torch.Generator().manual_seed(3)
    return torch.randn(part.shape, generator=draw, dtype=torch.float64).to(part.device)


def close(fast, written, name, bf16):
    if bf16:
        assert float((fast.double() - written.double()).norm()) < 0.03 * float(written.double().norm()) + 1e-3, name
    else:
        torch.testing.assert_close(fast, written, rtol=1e-9, atol=1e-9, msg=lambda text: f"{name}: {text}")
