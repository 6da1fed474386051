"""Each row of the table against the written method that it stands in for: values, gradients, and what it refuses."""

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
from examples import Example
from torch import Tensor, nn

from regard.fast.table import Row, install, rows, uninstall

FILES = sorted(Path(__file__).parent.glob("examples_*.py"))
EXAMPLES: dict[str, Callable[[], Example]] = {
    name: make for file in FILES for name, make in import_module(file.stem).EXAMPLES.items()
}
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
EXACT = {torch.float64: 1e-10, torch.float32: 1e-4}  # what differs is the order of sums; halves have few digits


@pytest.fixture(params=rows(), ids=lambda row: row.name)
def row(request) -> Row:
    return request.param


def here(row: Row) -> torch.device:
    """The device that the row is for; the test is skipped where there is none."""
    for device in (torch.device("cpu"), DEVICE):
        if row.needs(device) is None:
            return device
    pytest.skip(str(row.needs(DEVICE)))


def leaves(found: Any) -> list[Tensor]:
    if isinstance(found, Tensor):
        return [found]
    parts = found.values() if isinstance(found, dict) else found if isinstance(found, tuple | list) else ()
    return [leaf for part in parts for leaf in leaves(part)]


def answers(row: Row, example: Example, method: Callable[..., Any]) -> tuple[list[Tensor], list[Tensor]]:
    """What a method returns, and the gradients of what it was given and of the weights it used."""
    torch.manual_seed(0)
    with torch.autocast(DEVICE.type, torch.bfloat16, enabled=example.use.bf16):
        found = leaves(method(*example.arguments))
    given = [leaf for leaf in leaves(example.arguments) if leaf.requires_grad]
    given += list(example.thing.parameters()) if isinstance(example.thing, nn.Module) else []
    outputs = [leaf for leaf in found if leaf.requires_grad]
    if not given or not outputs:
        return found, []
    total = sum(
        (leaf.double() * torch.linspace(-1, 1, leaf.numel(), device=leaf.device).view(leaf.shape)).sum()
        for leaf in outputs
    )
    gradients = torch.autograd.grad(total, given, allow_unused=True)
    return found, [torch.zeros_like(one) if gradient is None else gradient for one, gradient in zip(given, gradients)]


def assert_alike(one: list[Tensor], other: list[Tensor]) -> None:
    assert len(one) == len(other)
    for written, faster in ((a.detach(), b.detach()) for a, b in zip(one, other, strict=True)):
        rough = min((written, faster), key=lambda part: part.element_size()).dtype
        size = float(written.double().abs().max()) if written.numel() else 0.0
        torch.testing.assert_close(
            faster.double(), written.double(), rtol=0.0, atol=EXACT.get(rough, 3e-2) * max(1.0, size)
        )


def test_every_row_has_an_example_and_every_example_a_row():
    assert {row.name for row in rows()} == EXAMPLES.keys()


def test_names_are_told_apart():
    names = [row.name for row in rows()]
    assert len(names) == len(set(names))


def test_a_row_stands_in_for_a_method_that_is_there(row):
    assert callable(getattr(row.owner, row.method))


def test_a_row_computes_what_is_written(row):
    device = here(row)
    torch.manual_seed(0)
    example = EXAMPLES[row.name]()
    assert row in install(example.thing, example.use, device=device)
    uninstall(example.thing)
    with torch.autocast(DEVICE.type, torch.bfloat16, enabled=example.use.bf16):
        assert row.fits(example.thing, *example.arguments)
    written = answers(row, example, getattr(example.thing, row.method))
    faster = answers(row, example, lambda *arguments: row.does(example.thing, *arguments))
    common = min(len(written[0]), len(faster[0]))  # a row may add leaves of its own to a state
    assert_alike(written[0], faster[0][-common:])
    if len(written[0]) == len(faster[0]):
        assert_alike(written[1], faster[1])


def test_a_row_refuses_what_it_does_not_know(row):
    here(row)
    torch.manual_seed(0)
    example = EXAMPLES[row.name]()
    for arguments in example.refused:
        with torch.autocast(DEVICE.type, torch.bfloat16, enabled=example.use.bf16):
            assert not row.fits(example.thing, *arguments)
