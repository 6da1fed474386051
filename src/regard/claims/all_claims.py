"""All claims by name, in the order of the specification; each lives in the file of its name."""

from __future__ import annotations

from importlib import import_module

from regard.base.errors import RegardError
from regard.base.settings import did_you_mean
from regard.claims.claim import Claim

NAMES = (
    "vanishing", "exploding", "remedies", "bottleneck", "waiting", "same-answer", "cheating", "set-to-set", "symmetry",
    "any-b", "forgetting", "parameters", "hull", "gaussian-dot", "scaling", "kernels", "heads", "alignment",
    "embeddings", "teacher-forcing", "criteria", "softmax-gradient", "classification",
    "recall", "no-waiting", "look-back",  # of the systems after GPT
    "importance", "induction", "forget-gate",  # decided by interventions
    "long-sentences",
)  # fmt: skip


def name_of(name: str) -> str:
    """A claim's name, of its name or its number: `any-b` or `C10`."""
    numbered = {f"c{number}": known for number, known in enumerate(NAMES, start=1)}
    name = numbered.get(name.lower(), name)
    if name not in NAMES:
        raise RegardError(f"There is no claim {name!r}{did_you_mean(name, NAMES)}")
    return name


def get_claim(name: str) -> Claim:
    """By its name, or its number. Loads torch."""
    claim: Claim = import_module(f"regard.claims.{module_of(name_of(name))}").CLAIM
    return claim


def module_of(name: str) -> str:
    return name.replace("-", "_")


def all_claims() -> list[Claim]:
    return [get_claim(name) for name in NAMES]
