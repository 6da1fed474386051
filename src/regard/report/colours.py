"""Colors that color-blind readers can distinguish.

Lines take Okabe & Ito's (2008) palette. Shades are computed in OKLab (Ottosson 2020), where equal steps look equal:
lightness falls evenly from pale yellow over green to dark blue, so a shade is readable without its hue; a diverging
scale goes from blue over white to orange. On a dark page the low end is dark and the high end light, so high values
stand out on both. This is the only file that names colors; pages take theirs from `lab_variables()`.
"""

from __future__ import annotations

import json
import math
from functools import cache

OKABE_ITO = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#8C8C8C", "#B8A800")

GRID, EDGE = "#8886", "#888"  # unobtrusive lines, on light and dark pages

LIGHT = {
    "ink": "#1b1b1f", "quiet": "#5b5b66", "paper": "#fdfdfb", "line": "#d9d9de", "tint": "#f1f2f4", "shade": "#0004",
    "accent": "#0072B2", "mark": "#D55E00", "bar": "#56B4E9", "good": "#009E73", "holds": "#0072B2", "fails": "#B34700",
    "open": "#6b6b6b",
}  # fmt: skip
DARK = {
    "ink": "#e8e8ec", "quiet": "#a4a4b0", "paper": "#17181b", "line": "#3a3b42", "tint": "#212329", "shade": "#fff4",
    "accent": "#56B4E9", "mark": "#FF8A3D", "bar": "#2C7FB0", "good": "#2BC49B", "holds": "#0072B2", "fails": "#B34700",
    "open": "#6b6b6b",
}  # fmt: skip


def variable(name: str) -> str:
    """One variable in CSS, with its light color as a fallback, as in a notebook."""
    return f"var(--{name}, {LIGHT[name]})"


Colour = tuple[int, int, int]  # red, green, blue: 0 to 255
STEPS = 255  # shades of a scale


@cache
def shades(diverging: bool = False, dark: bool = False) -> tuple[Colour, ...]:
    """The scale from its low end to its high end; `dark`: for a dark page."""
    shade = _two_sided if diverging else _one_sided
    return tuple(shade(step / (STEPS - 1), dark) for step in range(STEPS))


def shade(share: float, diverging: bool = False, dark: bool = False) -> Colour:
    """The color at `share` of the scale, 0 to 1."""
    return shades(diverging, dark)[round(share * (STEPS - 1))]


def hexadecimal(colour: Colour) -> str:
    return "#{:02x}{:02x}{:02x}".format(*colour)


def ink_on(colour: Colour) -> str:
    """Black or white, whichever is read more easily on a color (contrast as in WCAG 2)."""
    return "black" if luminance(colour) > 0.18 else "white"


def luminance(colour: Colour) -> float:
    red, green, blue = (_linear(part / 255) for part in colour)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _one_sided(share: float, dark: bool) -> Colour:
    if dark:
        return _from_oklch(0.25 + 0.67 * share, 0.03 + 0.09 * math.sin(0.8 * math.pi * share), 270 - 165 * share)
    return _from_oklch(0.98 - 0.66 * share, 0.02 + 0.085 * math.sin(0.8 * math.pi * share), 105 + 165 * share)


def _two_sided(share: float, dark: bool) -> Colour:
    away = abs(2 * share - 1)
    return _from_oklch(0.25 + 0.55 * away if dark else 0.97 - 0.47 * away, 0.13 * away, 255 if share < 0.5 else 55)


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


def lab_variables() -> str:
    """The colors of a page as CSS variables, --ink, --paper, --mark, …: by the reader's setting, unless
    <html data-theme> says light or dark."""
    light, dark = (" ".join(f"--{name}: {code};" for name, code in one.items()) for one in (LIGHT, DARK))
    dark = f"color-scheme: dark; {dark}"
    lines = " ".join(f"--line-{number}: {code};" for number, code in enumerate(OKABE_ITO))
    return (
        f":root {{ color-scheme: light; {light} {lines} }}\n"
        f"@media screen and (prefers-color-scheme: dark) {{ :root:not([data-theme=light]) {{ {dark} }} }}\n"
        f":root[data-theme=dark] {{ {dark} }}\n"
    )


def lab_module() -> str:
    """The same as a module for a canvas: the lines, and four scales of 255 shades as [red, green, blue, …]."""
    return f"export const lines = {json.dumps(OKABE_ITO)};\n{SCALES}"


SCALES = """\
const gamma = (part) => (part <= 0.0031308 ? 12.92 * part : 1.055 * part ** (1 / 2.4) - 0.055);
const matrix = [[4.0767416621, -3.3077115913, 0.2309699292], [-1.2684380046, 2.6097574011, -0.3413193965],
  [-0.0041960863, -0.7034186147, 1.707614701]];
function oklch(lightness, chroma, hue) {
  const turn = (Math.PI * hue) / 180, a = chroma * Math.cos(turn), b = chroma * Math.sin(turn);
  const cones = [[0.3963377774, 0.2158037573], [-0.1055613458, -0.0638541728], [-0.0894841775, -1.291485548]]
    .map(([x, y]) => (lightness + x * a + y * b) ** 3);
  const parts = matrix.map((row) => row.reduce((sum, x, at) => sum + x * cones[at], 0));
  return parts.map((part) => Math.round(255 * gamma(Math.min(1, Math.max(0, part)))));
}
const scale = (of) => Uint8Array.from(Array.from({ length: 255 }, (_, step) => oklch(...of(step / 254))).flat());
const one = (l, m, n, c, h, g) => (x) => [l + m * x, n + c * Math.sin(0.8 * Math.PI * x), h + g * x];
const two = (l, m) => (x) => [l + m * Math.abs(2 * x - 1), 0.13 * Math.abs(2 * x - 1), x < 0.5 ? 255 : 55];
export const sequentialLight = scale(one(0.98, -0.66, 0.02, 0.085, 105, 165));
export const sequentialDark = scale(one(0.25, 0.67, 0.03, 0.09, 270, -165));
export const divergingLight = scale(two(0.97, -0.47));
export const divergingDark = scale(two(0.25, 0.55));
"""  # the equations of `_one_sided`, `_two_sided` and `_from_oklch`
