"""gpt trains as GPT-2 does: a hundred steps from the same weights and batches, against Hugging Face's model."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("transformers", reason="the oracle")
SCRIPT = [sys.executable, Path(__file__).parents[3] / "studies" / "gpt2_parity.py"]


@pytest.mark.slow
def test_a_hundred_steps_have_the_losses_of_an_independent_gpt2():
    done = subprocess.run([*SCRIPT, "--steps", "100"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["last_loss"] < result["first_loss"] - 1  # it did learn, so the steps were not idle
    assert result["largest_relative_gap"] < 1e-5
