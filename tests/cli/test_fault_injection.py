"""A disk that is full or broken, or a kill, at any write of a save: nothing is lost. All places are tried by
`make faults` and `make kills`; here some of a few works are."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

DRIVER = Path(__file__).parents[2] / "tools" / "fault_injection.py"
WORKS = ("train", "train on pairs, saving beside it", "count", "resume", "translate")
WORKS += ("export to an archive", "remove", "compare")

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="commands are forked")]


def drive(*words: str) -> None:
    path = {"PYTHONPATH": str(DRIVER.parent)}  # a command that ran in this process before may have made it a safe one
    done = subprocess.run([sys.executable, DRIVER, *words], capture_output=True, text=True, env=os.environ | path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_after_any_fault_the_same_work_ends_with_the_same_bits():
    drive("--every", "50", *WORKS)


def test_kills_at_random_moments_lose_nothing():
    """By the clock instead of by the write: wherever it strikes, the next command goes on or begins anew."""
    drive("--kills", "3", "train, saving beside it", "translate")
