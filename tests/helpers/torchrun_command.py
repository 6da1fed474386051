"""Regard started by torchrun, or as torchrun starts it."""

import os
import subprocess
import sys
from contextlib import contextmanager

from torch.distributed import TCPStore


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


@contextmanager
def ranks(python, folder, *words, processes=2):
    """The processes that torchrun would start, with the variables it would set; the store of their meeting is here."""
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)  # at a port that was free
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(store.port), "TORCHELASTIC_USE_AGENT_STORE": "True"}
    place |= {"WORLD_SIZE": str(processes), "LOCAL_WORLD_SIZE": str(processes), "OMP_NUM_THREADS": "1"}
    place |= {"TORCHELASTIC_RESTART_COUNT": "0", "TORCHELASTIC_RUN_ID": "test"}
    started = [
        subprocess.Popen(
            [python, "-m", "regard", *map(str, words)],
            cwd=folder,
            env={**os.environ, **place, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(processes)
    ]
    try:
        yield started
    finally:
        for process in started:
            process.kill()
            process.wait()


def ended(*started):
    """The exit code, 0 if all ended well, and what they wrote."""
    said = [process.communicate() for process in started]
    return max((process.returncode for process in started), key=abs), *map("".join, zip(*said))
