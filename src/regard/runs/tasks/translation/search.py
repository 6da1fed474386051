"""Decoding of translations: by beam search or by sampling."""

from __future__ import annotations

from typing import TypedDict

from regard.base.errors import RegardError
from regard.base.settings import check_range
from regard.decoding.beam import BEAM, WIDEST, Beam
from regard.decoding.sampling import Sampling, one_sampling


class Decoding(TypedDict, total=False):
    """The keyword parameters of `translate`, for its overloads."""

    beam: int | Beam | None
    length_penalty: float | None
    sampling: Sampling | None
    temperature: float | None
    top_k: int | None
    top_p: float | None
    seed: int


def one_beam(beam: int | Beam | None, length_penalty: float | None) -> Beam:
    """A Beam, given as such or by its fields; None is the default of a field."""
    if isinstance(beam, Beam) and length_penalty is not None:
        raise RegardError("Beam(…) already sets the length penalty: leave length_penalty out.")
    if isinstance(beam, Beam):
        return beam
    if beam is not None:
        check_range("--beam", beam, 1, WIDEST)
    return Beam(BEAM.width if beam is None else beam, BEAM.length_penalty if length_penalty is None else length_penalty)


def search_or_draw(
    beam: int | Beam | None,
    length_penalty: float | None,
    sampling: Sampling | None,
    temperature: float | None,
    top_k: int | None,
    top_p: float | None,
) -> Beam | Sampling:
    """Beam search, unless sampling or one of its fields is given."""
    if sampling is None and temperature is None and top_k is None and top_p is None:
        return one_beam(beam, length_penalty)
    if beam is not None or length_penalty is not None:
        raise RegardError("beam searches, but sampling and temperature sample: give only one of them.")
    drawn = one_sampling(sampling, temperature, top_k, top_p)
    if drawn.adjusts:
        raise RegardError("Penalties, biases and constraints are for language models: leave them out.")
    return drawn
