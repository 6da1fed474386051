"""The verdicts of the full experiments as documented: docs/claims.md and docs/after-gpt.md show the same table.

They were measured with the deciding seeds, on the machine that these pages name. The file is in a separate folder,
because `source_digest.py` counts data files next to the code as a part of the experiment.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path

FILE = Path(__file__).parent / "documented" / "verdicts.json"


@dataclass(frozen=True)
class Documented:
    verdict: str  # or "not yet run": the experiment was changed, and a verdict of the former one would not be its own
    measured: str = ""  # the deciding quantity's value, and the expected one
    control: str = ""
    decides: str = ""  # the deciding quantity; empty where `measured` names several
    was: str = ""  # the verdict before nine experiments were repaired


@cache
def documented_verdicts() -> dict[str, Documented]:
    """By the claim's name."""
    return {name: Documented(**words) for name, words in json.loads(FILE.read_text(encoding="utf-8")).items()}
