"""Regard started by torchrun."""

import os
import subprocess
import sys


def torchrun(folder, *words, processes=2):
    """-m --: what follows is Regard's, also where torchrun has an option that begins alike (--run, --run-path)."""
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(processes), "-m", "--", "regard"]
    return subprocess.Popen(
        [*command, *map(str, words)],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(started):
    out, errors = started.communicate()
    return started.returncode, out, errors
