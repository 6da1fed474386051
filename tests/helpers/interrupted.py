"""Waits for the checkpoint of a training in another process, and digests of the tensors of a run."""

import hashlib
import time

from regard.training.checkpoint import load_tensors


def bits(run):
    """A digest of each tensor: where two differ, their names are told, and not all their bytes."""
    files = {}
    for name in ("training.safetensors", "model.safetensors"):
        tensors, note = load_tensors(run / name)
        for clock in ("seconds", "elapsed", "started", "besides"):
            note.get("progress", {}).pop(clock, None)
        files[name] = ({key: digest(tensor) for key, tensor in tensors.items()}, note)
    return files


def digest(tensor):
    return hashlib.sha256(tensor.numpy().tobytes()).hexdigest()


def wait_for_step(run, step, started):
    """Until the checkpoint of at least `step` is on disk."""
    while step_of(run) < step:
        assert started.poll() is None, started.stderr.read()
        time.sleep(0.02)


def step_of(run):
    """The step of the run's checkpoint; 0 before there is one."""
    path = run / "training.safetensors"
    return load_tensors(path)[1]["progress"]["step"] if path.exists() else 0
