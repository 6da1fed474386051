"""Colours that people who see colours differently can tell apart.

Lines take Okabe & Ito's (2008) palette. Shades are computed in OKLab (Ottosson 2020), where equal steps look equal:
lightness falls evenly from pale yellow over green to dark blue, so that a shade is read even without its hue; a scale
with two sides goes from blue over white to orange.
"""

from __future__ import annotations

import math
from functools import cache

OKABE_ITO = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#8C8C8C", "#B8A800")

Colour = tuple[int, int, int]  # red, green, blue: 0 to 255
STEPS = 255  # shades of a scale


@cache
def shades(diverging: bool = False) -> tuple[Colour, ...]:
    """The scale from its low end to its high end."""
    shade = _two_sided if diverging else _one_sided
    return tuple(shade(step / (STEPS - 1)) for step in range(STEPS))


def shade(share: float, diverging: bool = False) -> Colour:
    """The colour at `share` of the scale, 0 to 1."""
    return shades(diverging)[round(share * (STEPS - 1))]


def hexadecimal(colour: Colour) -> str:
    return "#{:02x}{:02x}{:02x}".format(*colour)


def ink_on(colour: Colour) -> str:
    """Black or white, whichever is read more easily on a colour (contrast as in WCAG 2)."""
    return "#000" if luminance(colour) > 0.18 else "#fff"


def luminance(colour: Colour) -> float:
    red, green, blue = (_linear(part / 255) for part in colour)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _one_sided(share: float) -> Colour:
    chroma = 0.02 + 0.085 * math.sin(0.8 * math.pi * share)
    return _from_oklch(0.98 - 0.66 * share, chroma, 105 + 165 * share)


def _two_sided(share: float) -> Colour:
    away = abs(2 * share - 1)
    return _from_oklch(0.97 - 0.47 * away, 0.13 * away, 255 if share < 0.5 else 55)


def _from_oklch(lightness: float, chroma: float, hue: float) -> Colour:
    a, b = chroma * math.cos(math.radians(hue)), chroma * math.sin(math.radians(hue))
    long = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3
    medium = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3
    short = (lightness - 0.0894841775 * a - 1.2914855480 * b) ** 3
    red = 4.0767416621 * long - 3.3077115913 * medium + 0.2309699292 * short
    green = -1.2684380046 * long + 2.6097574011 * medium - 0.3413193965 * short
    blue = -0.0041960863 * long - 0.7034186147 * medium + 1.7076147010 * short
    return tuple(round(255 * _gamma(min(1.0, max(0.0, part)))) for part in (red, green, blue))  # type: ignore[return-value]


def _gamma(part: float) -> float:
    return 12.92 * part if part <= 0.0031308 else 1.055 * part ** (1 / 2.4) - 0.055


def _linear(part: float) -> float:
    return part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4
