"""A checkpoint file: what was written is read, anything else is refused, and equal runs leave equal files."""

import hashlib
import json
import os
import stat
import sys

import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import save_file

from regard.base.errors import RegardError
from regard.training import checkpoint
from regard.training.checkpoint import flatten, load_tensors, restore_optimizer, save_tensors, unflatten


@pytest.fixture
def path(tmp_path):
    return tmp_path / "weights.safetensors"


def digest(content):
    return hashlib.blake2b(content, digest_size=16)


def test_the_header_is_the_note_and_a_digest_of_everything(path):
    """Computed here once more: files that are written today must be read by every later version."""
    tensors = {"b": torch.tensor(2.5), "a": torch.arange(6, dtype=torch.int16).view(2, 3).mT}
    note = {"step": 3, "best": [1, 2]}
    save_tensors(path, tensors, note)
    content = b'{"best": [1, 2], "step": 3}'
    content += b"\n'a' torch.int16 [3, 2]\n" + digest(bytes([0, 0, 3, 0, 1, 0, 4, 0, 2, 0, 5, 0])).digest()
    content += b"\n'b' torch.float32 []\n" + digest(bytes([0, 0, 0x20, 0x40])).digest()
    size = int.from_bytes(path.read_bytes()[:8], "little")
    header = json.loads(path.read_bytes()[8 : 8 + size])["__metadata__"]
    assert header == {"regard": f'{{"best": [1, 2], "blake2b_pieces": "{digest(content).hexdigest()}", "step": 3}}'}
    read, again = load_tensors(path)
    assert again == note
    assert all(torch.equal(read[name], tensor) for name, tensor in tensors.items())


def test_a_digest_is_made_of_those_of_pieces_of_four_mebibytes(path):
    tensor = torch.arange((1 << 21) + 3, dtype=torch.int32)  # two pieces and a little
    save_tensors(path, {"a": tensor, "b": torch.ones(0)})
    data, piece = tensor.numpy().tobytes(), 1 << 22
    pieces = b"".join(digest(data[at : at + piece]).digest() for at in (0, piece, 2 * piece))
    content = b"{}\n'a' torch.int32 [2097155]\n" + pieces + b"\n'b' torch.float32 [0]\n"
    assert f'blake2b_pieces\\": \\"{digest(content).hexdigest()}\\"'.encode() in path.read_bytes()[:1000]
    assert torch.equal(load_tensors(path)[0]["a"], tensor)


def test_the_order_of_what_is_saved_does_not_matter(path, tmp_path):
    one, other = torch.ones(3), torch.zeros(2)
    save_tensors(path, {"one": one, "other": other}, {"a": 1, "b": {"c": 2, "d": 3}})
    again = tmp_path / "again.safetensors"
    save_tensors(again, {"other": other, "one": one}, {"b": {"d": 3, "c": 2}, "a": 1})
    assert again.read_bytes() == path.read_bytes()


@pytest.mark.parametrize("changed", [b'"step": 4', b"\x01\x00\x00\x00"])
def test_a_file_that_was_changed_is_refused(path, changed):
    save_tensors(path, {"w": torch.full((3,), 7, dtype=torch.int32)}, {"step": 3})
    was = {b'"step": 4': b'\\"step\\": 3'}.get(changed, b"\x07\x00\x00\x00")
    content = path.read_bytes()
    assert was in content
    path.write_bytes(content.replace(was, changed.replace(b'"', b'\\"'), 1))
    with pytest.raises(RegardError, match="content has changed"):
        load_tensors(path)


@pytest.mark.parametrize("note", [{}, {"regard": "{}"}, {"regard": '{"step": 3, "blake2b": "00"}'}])
def test_a_file_without_a_digest_is_refused(path, note):
    save_file({"w": torch.ones(2)}, path, metadata=note)
    with pytest.raises(RegardError, match="content has changed"):
        load_tensors(path)


@pytest.mark.parametrize("header", ["[3]", "3", "not JSON"])
def test_a_header_of_another_kind_is_refused(path, header):
    save_file({"w": torch.ones(2)}, path, metadata={"regard": header})
    with pytest.raises(RegardError, match="damaged"):
        load_tensors(path)


def test_a_missing_file_is_named(path):
    with pytest.raises(RegardError, match=r"weights.safetensors is missing"):
        load_tensors(path)


@pytest.mark.parametrize("said, answer", [("No space left on device (os error 28)", "disk is full"), ("?", "not be")])
def test_what_the_system_says_of_a_failed_write_is_passed_on(path, monkeypatch, said, answer):
    def failing(*_, **__):
        raise SafetensorError(f"Error while serializing: I/O error: {said}")

    monkeypatch.setattr(checkpoint, "save_file", failing)
    with pytest.raises(RegardError, match=answer):
        save_tensors(path, {"w": torch.ones(2)})
    assert not list(path.parent.iterdir())


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such permissions")
@pytest.mark.parametrize("mask", [0o027, 0o000, 0o077])
def test_others_may_read_what_the_umask_says(path, mask):
    before = os.umask(mask)
    try:
        save_tensors(path, {"w": torch.ones(2)})
    finally:
        left = os.umask(before)
    assert left == mask
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~mask


def test_a_tree_of_tensors_is_the_same_after_its_names_were_flat():
    tree = {"past": {"0": {"cell": 1, "hidden": 2}, "1": {"cell": 3}}, "seen": 4}
    flat = flatten(tree, "state")
    assert flat == {"state/past/0/cell": 1, "state/past/0/hidden": 2, "state/past/1/cell": 3, "state/seen": 4}
    assert unflatten({"stated": 5, "model/seen": 6, **flat}, "state") == tree
    assert flatten({}, "state") == {}


@pytest.mark.parametrize("extra", [0, 1])
def test_moments_of_more_weights_than_there_are_are_refused(extra):
    weight = torch.nn.Parameter(torch.ones(2))
    optimizer = torch.optim.AdamW([weight])
    names = ("exp_avg", "exp_avg_sq")
    moments = {f"optimizer/{extra}/{name}": torch.full((2,), 3.0) for name in names}
    moments[f"optimizer/{extra}/step"] = torch.tensor(5.0)
    if extra:
        with pytest.raises(RuntimeError):
            restore_optimizer(optimizer, moments)
    else:
        restore_optimizer(optimizer, moments)
        assert optimizer.state[weight]["exp_avg"].tolist() == [3.0, 3.0]


def test_an_optimizer_without_moments_is_restored_from_none():
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(2))], lr=0.5)
    restore_optimizer(optimizer, {})
    assert not optimizer.state
