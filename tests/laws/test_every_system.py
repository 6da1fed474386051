"""Every registered system obeys every law; a new system is tested by being registered."""

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from regard.laws import registry
from regard.laws.closeness import RandomCase
from regard.laws.contract import CALLS, saving_keeps_every_bit
from regard.laws.learning import it_can_memorise, micro_batches_are_one_batch, untrained_it_knows_nothing
from regard.laws.registry import LAWS, builder, run_laws
from regard.laws.searching import beam_one_is_greedy
from regard.systems.catalogue import SYSTEMS
from regard.systems.model import Model
from subjects import CLASSIFIERS, LEARNERS, NEURAL, SUBJECTS, TRANSLATORS, build, draws, title, untrained


@pytest.mark.parametrize("subject", SUBJECTS + TRANSLATORS + CLASSIFIERS, ids=title)
@pytest.mark.parametrize("law", [*CALLS, beam_one_is_greedy, micro_batches_are_one_batch], ids=lambda law: law.__name__)
def test_law(law: Callable[[Model, RandomCase], None], subject: tuple) -> None:
    for draw in draws(law, subject):
        law(build(subject), draw)


@pytest.mark.parametrize("subject", SUBJECTS + TRANSLATORS + CLASSIFIERS, ids=title)
def test_saving_keeps_every_bit(subject: tuple) -> None:
    torch.manual_seed(7)  # the new model starts from other weights
    saving_keeps_every_bit(build(subject), RandomCase(seed=1, rows=3, columns=6), lambda: untrained(subject))


@pytest.mark.parametrize("subject", LEARNERS, ids=title)
def test_it_memorises_four_sentences(subject: tuple) -> None:
    names = {field.name for field in dataclasses.fields(untrained(subject).settings)}
    quiet = {name: 0.0 for name in names if name.startswith("dropout")}
    wide = {"width": 32} if "width" in names else {}
    if subject in TRANSLATORS and "embedding" in names:
        wide["embedding"] = 0  # as wide: sixteen words do not fit into the few components of the small ones
    it_can_memorise(lambda: untrained(subject, **quiet, **wide).float())


@pytest.mark.parametrize("subject", NEURAL, ids=title)
def test_untrained_it_knows_nothing(subject: tuple) -> None:
    torch.manual_seed(1)
    untrained_it_knows_nothing(untrained(subject, vocabulary=1000), RandomCase(seed=1, rows=40, columns=20))


@pytest.mark.parametrize("system", [system.name for system in SYSTEMS])
def test_regard_laws_finds_nothing_to_say_about_it(system: str, monkeypatch: pytest.MonkeyPatch) -> None:
    every = registry.draws
    monkeypatch.setattr(registry, "draws", lambda model: every(model)[::5])  # the smallest and the largest
    results = run_laws(builder(system))
    assert [(result.number, result.sentence) for result in results] == [(number, "") for number in range(1, 15)]


def test_the_laws_are_numbered_as_in_the_contract() -> None:
    page = (Path(__file__).parents[2] / "docs" / "architecture.md").read_text(encoding="utf-8")
    for law in LAWS:
        assert f"| {law.number} | " in page
    assert [law.number for law in LAWS] == list(range(1, 15))
