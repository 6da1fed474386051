"""What only a GPU can show."""

import numpy as np
import pytest
import torch

from regard.fast import install
from regard.runs.recipe import compose
from regard.text.batches.text_batches import Streams, Windows
from regard.training.loop import Trainer
from regard.training.validation import TextValidation


@pytest.fixture(autouse=True)
def _needs_cuda():
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")


@pytest.fixture
def _exact(monkeypatch):
    """No TF32: cuDNN and a chain of kernels then compute the same."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)


@pytest.fixture
def trainer(tmp_path):
    def make(name, model, capture, bf16=False, **training):
        """On a text that ends raggedly after seven windows, so that captured and plain steps take turns."""
        settings = {"steps": 17, "batch_tokens": 64, "window": 16, "warmup": 3, "evaluate_every": 4, "clip": 0.5}
        training = {**settings, "learning_rate": 1e-3, "capture": capture, **training}
        kind = compose("lstm", "tiny", {"training": training}).training
        ids = np.random.default_rng(0).integers(50, size=4 * (7 * 16 + 5)).astype(np.uint16)
        batches = Streams(ids, 4, 16, 0) if kind.batches == "stream" else Windows(ids, 4, 16, 0, seed=1)
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        return Trainer(model.cuda(), batches, TextValidation(ids[:100], 0), kind, folder, bf16=bf16, install=install)

    return make
