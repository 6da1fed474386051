"""Every registered system obeys every law; a new system is tested by being registered."""

import dataclasses
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from subjects import NEURAL, SUBJECTS, build, title, untrained

from laws import LAWS, Draw, it_memorises_four_sentences, saving_keeps_every_bit, untrained_it_knows_nothing
from regard.systems.model import Model

DRAWS = st.builds(Draw, seed=st.integers(0, 10_000), rows=st.integers(2, 4), columns=st.integers(2, 6))


@pytest.mark.parametrize("subject", SUBJECTS, ids=title)
@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
def test_law(law: Callable[[Model, Draw], None], subject: tuple) -> None:
    model = build(subject)

    @settings(derandomize=True, max_examples=6, deadline=None, database=None)
    @given(DRAWS)
    def holds(draw: Draw) -> None:
        law(model, draw)

    holds()


@pytest.mark.parametrize("subject", SUBJECTS, ids=title)
def test_saving_keeps_every_bit(subject: tuple) -> None:
    torch.manual_seed(7)  # the new model starts from other weights
    saving_keeps_every_bit(build(subject), Draw(seed=1, rows=3, columns=6), lambda: untrained(subject))


@pytest.mark.parametrize("subject", NEURAL, ids=title)
def test_it_memorises_four_sentences(subject: tuple) -> None:
    torch.manual_seed(1)
    names = {field.name for field in dataclasses.fields(untrained(subject).settings)}
    quiet = {name: 0.0 for name in names if name.startswith("dropout")}
    wide = {"width": 32} if "width" in names else {}
    it_memorises_four_sentences(untrained(subject, **quiet, **wide).float())


@pytest.mark.parametrize("subject", NEURAL, ids=title)
def test_untrained_it_knows_nothing(subject: tuple) -> None:
    torch.manual_seed(1)
    untrained_it_knows_nothing(untrained(subject, vocabulary=1000), Draw(seed=1, rows=40, columns=20))
