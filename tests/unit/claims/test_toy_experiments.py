"""Every experiment at a size that teaches its models nothing: it measures all that its claim declares, and gives the
numbers, figures and tables that it gave when its verdict was documented, by golden/claim_experiments.json.

A deciding run takes minutes to hours, so nobody would notice before the next one that a training has another rate, that
a share is counted at other places or that a line has another's name. What is kept are the numbers of one small run,
to a hundredth, as another processor rounds otherwise. `python tests/unit/claims/test_toy_experiments.py` writes the
file; do that only if an experiment was changed on purpose, and then measure its claim anew.
"""

import json
import math
import re
import sys
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from regard.claims import forgetting, look_back, recall, remedies
from regard.claims.all_claims import NAMES, get_claim
from regard.report.figures import Lines

GOLDEN = Path(__file__).parents[2] / "golden" / "claim_experiments.json"
TOY = {
    "alignment": {"MADE": 6000, "QUICK_COMMON": 251, "HELD_OUT": 60, "DOUBLED": 8, "PROBED": 5, "QUICK_STEPS": 2},
    "language_models": {"QUICK_STEPS": 2},
    "classification": {"QUICK_STEPS": 2, "DRAWN": 10, "DRAWS": 2},
    "bottleneck": {"QUICK_MOST": 2, "QUICK_LENGTH": 4, "SENTENCES": 400},
    "teacher_forcing": {"QUICK_STEPS": 2, "TESTED": 40},
    "any_b": {"VERY_FAR": 12, "STEPS": 8},
    "heads": {"ROWS": 4},
    "cheating": {"STEPS": 20, "LAST": 10},
    "induction": {"QUICK_STEPS": 4, "EVERY": 2, "TESTED": 20, "ROWS": 4},
    "importance": {"QUICK_STEPS": 2, "QUICK_TEXTS": 3},
    "look_back": {"TESTED": 20, "right": partial(look_back.right, steps=2)},
    "recall": {"TESTED": 20, "QUICK_LENGTHS": (16, 32), "recalled": partial(recall.recalled, steps=2)},
    "remedies": {"train": partial(remedies.train, steps=4)},
    "forget_gate": {"QUICK_STEPS": 2, "TESTED": 20},
    "forgetting": {
        "FAR": 200, "TESTED": 8,
        "TRAINED": {name: (kind, 20) for name, (kind, _) in forgetting.TRAINED.items()},
    },
    "long_sentences": {"PAIRS": 1200, "HELD_OUT": 60, "VOCABULARY": 300, "QUICK_STEPS": 2},
}  # fmt: skip
TIMED = {"waiting", "no-waiting"}  # no two runs measure the same
RUN = [name for name in NAMES if name not in TIMED]


@contextmanager
def toy_sizes():
    """What the experiments draw once for a process is drawn anew before and after, since it depends on the sizes."""
    modules = {name: import_module(f"regard.claims.{name}") for name in TOY}
    drawn_once = [made for module in modules.values() for made in vars(module).values() if hasattr(made, "cache_clear")]
    with pytest.MonkeyPatch.context() as patch:
        for name, constants in TOY.items():
            for constant, value in constants.items():
                patch.setattr(modules[name], constant, value)
        for made in drawn_once:
            made.cache_clear()
        yield
    for made in drawn_once:
        made.cache_clear()


def experiment(name, store):
    claim = get_claim(name)
    return claim, claim.measure(replace(claim.trial(quick=True), seeds=(1,), store=store))


def drawn(figure):
    """What it says, and of each line both ends and the middle."""
    told = figure.as_json()
    if isinstance(figure, Lines):
        for line in told["lines"]:
            points = line["points"]
            line["points"] = [
                len(points),
                *(points[n] for n in sorted({0, len(points) // 2, len(points) - 1}) if points),
            ]
    return told


def told(evidence):
    found = {
        "measured": {name: [float(value) for value in values] for name, values in evidence.measured.items()},
        "figures": [drawn(figure) for figure in evidence.figures],
        "remarks": list(evidence.remarks),
        "table": [dict(row) for row in evidence.table],
    }
    return rounded(json.loads(json.dumps(found, default=float)))


def rounded(tree):
    if isinstance(tree, dict):
        return {key: rounded(one) for key, one in tree.items()}
    if isinstance(tree, list):
        return [rounded(one) for one in tree]
    return float(f"{tree:.4g}") if isinstance(tree, float) else tree


def differences(was, now, place=""):
    """Where two trees differ by more than a hundredth; of a text the numbers in it are left out."""
    if isinstance(was, dict) and isinstance(now, dict):
        for key in was.keys() | now.keys():
            if (key in was) != (key in now):
                yield f"{place}/{key} is {'gone' if key in was else 'new'}"
            else:
                yield from differences(was[key], now[key], f"{place}/{key}")
    elif isinstance(was, list) and isinstance(now, list) and len(was) == len(now):
        for number, (one, other) in enumerate(zip(was, now, strict=True)):
            yield from differences(one, other, f"{place}/{number}")
    elif isinstance(was, str) and isinstance(now, str):
        if plain(was) != plain(now):
            yield f"{place}: {was!r} → {now!r}"
    elif is_number(was) and is_number(now):
        same = math.isnan(was) and math.isnan(now)
        if not same and was != now and not abs(was - now) <= 1e-2 * max(abs(was), abs(now)) + 1e-6:
            yield f"{place}: {was} → {now}"
    elif was != now:
        yield f"{place}: {was} → {now}"


def plain(text):
    """Without numbers, and without the place of the largest number, which may be one of several that are as large."""
    return re.sub(r"\d+(\.\d+)?(e[-+]?\d+)?", "#", text.partition("; the largest is at")[0])


def is_number(value):
    return isinstance(value, int | float) and not isinstance(value, bool)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    with toy_sizes():
        yield tmp_path_factory.mktemp("claims")


@pytest.mark.parametrize("name", RUN)
def test_an_experiment_measures_what_it_declares_and_gives_the_same_as_ever(store, name):
    claim, evidence = experiment(name, store)
    for expect in claim.everything:
        assert len(evidence.measured[expect.quantity]) >= 1
    assert list(differences(json.loads(GOLDEN.read_text(encoding="utf-8"))[name], told(evidence))) == []


if __name__ == "__main__":
    with toy_sizes(), TemporaryDirectory() as place:
        found = {name: told(experiment(name, Path(place))[1]) for name in RUN}
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else GOLDEN
    rows = ",\n".join(f"{json.dumps(name)}: {json.dumps(one, ensure_ascii=False)}" for name, one in found.items())
    out.write_text(f"{{\n{rows}\n}}\n", encoding="utf-8")  # a line for each claim
