"""Who watches the parts of an equation: what is seen, where, at which step, and that nothing is left watching."""

import pytest
import torch

from regard.layers.attention import CausalSelfAttention
from regard.layers.cell import unroll
from regard.layers.encoder import RecurrentEncoder
from regard.layers.parts import at_step, inside, note, watched_by
from regard.layers.recurrent import GRU
from regard.layers.scan import MinGRU
from regard.layers.state import Span


class Sees:
    """Notes the name of each part with its step and direction, and doubles those that are asked for."""

    def __init__(self, doubled=()):
        self.place, self.step, self.backwards = (), None, False
        self.seen, self.doubled = [], doubled

    def see(self, name, value):
        path = "/".join((*self.place, name))
        self.seen.append((path, self.step, self.backwards))
        return 2 * value if path in self.doubled else value


ONE = torch.ones(1)


def test_a_part_is_seen_where_it_is_and_afterwards_nobody_watches():
    watcher = Sees(doubled=["layer/0/one"])
    with watched_by(watcher):
        assert note("one", ONE) == 1
        with inside("layer/0"):
            assert note("one", ONE) == 2
            with inside("back", backwards=True):
                at_step(3)
                note("two", ONE)
                with inside("forth", backwards=True):
                    note("three", ONE)
                at_step(None)
            note("four", ONE)
        note("five", ONE)
    note("six", ONE)
    at_step(5)
    with inside("nowhere"):
        assert note("layer/0/one", ONE) is ONE
    assert watcher.seen == [
        ("one", None, False), ("layer/0/one", None, False), ("layer/0/back/two", 3, True),
        ("layer/0/back/forth/three", 3, False), ("layer/0/four", None, False), ("five", None, False),
    ]  # fmt: skip
    assert (watcher.place, watcher.step, watcher.backwards) == ((), None, False)


def test_an_error_leaves_no_place_and_no_watcher_behind():
    outer, inner = Sees(), Sees()
    with watched_by(outer):
        with pytest.raises(ValueError, match="stop"), inside("layer/0", backwards=True), watched_by(inner):
            raise ValueError("stop")
        note("one", ONE)
    assert (outer.seen, inner.seen) == ([("one", None, False)], [])


def test_each_step_of_a_cell_is_seen_with_its_number_and_a_changed_part_goes_on():
    layer, x = GRU(3, 4), torch.rand(2, 3, 3)
    state, span = layer.begin(2, device="cpu", dtype=torch.float32), Span(torch.zeros(2, dtype=torch.int64))
    watcher = Sees()
    with watched_by(watcher):
        layer.explain(x, state, span)
    assert watcher.step is None
    names = ["reset", "update", "candidate", "hidden", "hidden"]  # the cell's own, and what is carried
    assert watcher.seen == [(name, step, False) for step in range(3) for name in names]

    def count(word, before):
        return {"hidden": before["hidden"] + 1}

    zeros = {"hidden": torch.zeros(2, 1)}
    with watched_by(Sees(doubled=["hidden"])):
        hidden, end, _ = unroll(count, torch.zeros(2, 3, 1), zeros, span)
    assert hidden[0, :, 0].tolist() == [2, 6, 14]  # 2 (h + 1)
    assert end["hidden"][:, 0].tolist() == [14, 14]


def test_a_scan_is_explained_step_by_step():
    layer, x = MinGRU(3, 4), torch.rand(1, 3, 3)
    watcher, start = Sees(), layer.begin(1, device="cpu", dtype=torch.float32)
    with watched_by(watcher):
        layer.explain(x, start, Span(torch.zeros(1, dtype=torch.int64)))
    steps = [("hidden", step, False) for step in range(3)]
    assert watcher.seen == [("update", None, False), ("candidate", None, False), *steps]
    assert watcher.step is None


def test_an_encoders_directions_are_seen_apart():
    encoder, watcher = RecurrentEncoder(3, 2, cell="rnn", layers=2, bidirectional=True), Sees()
    with watched_by(watcher):
        encoder.explain(torch.rand(1, 2, 3), None)
    seen = {(path, backwards) for path, _, backwards in watcher.seen}
    for layer in "01":
        assert (f"{layer}/forward/hidden", False) in seen
        assert {path for path, backwards in seen if backwards and path.startswith(f"{layer}/backward")}
        assert (layer, False) in seen  # both together
    assert all(backwards == ("backward" in path) for path, backwards in seen)


def test_of_attention_the_weights_and_the_heads_are_seen():
    layer, watcher = CausalSelfAttention(4, 2).eval(), Sees(doubled=["heads"])
    x, span = torch.rand(1, 3, 4), Span(torch.zeros(1, dtype=torch.int64))
    start = layer.begin(1, device="cpu", dtype=torch.float32)
    usual, _, _ = layer.explain(x, start, span)
    with watched_by(watcher), torch.no_grad():
        doubled, _, _ = layer.explain(x, start, span)
    assert [path for path, *_ in watcher.seen] == ["weights", "heads"]
    bias = layer.output.bias
    torch.testing.assert_close(doubled - bias, 2 * (usual - bias))
