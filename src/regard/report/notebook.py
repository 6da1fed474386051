"""Figures in a notebook: shown, or drawn again while a slider is moved.

show(figure)                                             drawn by svg.py
slider(lambda q: figure_of(q), q=[0, 1, 2, 5, 10])       with ipywidgets; without it, three of the pictures
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from regard.report.figures import Figure
from regard.report.svg import svg

STYLE = """
.regard-figures { display: flex; flex-wrap: wrap; gap: 1em; background: white; color: black }
.regard-figures > div { flex: 1 1 320px; max-width: 720px }
.regard-figures svg { max-width: 100%; height: auto }
.regard-figures svg .dark { display: none }
.regard-figures svg .value { fill: var(--light) }
"""  # a figure holds the shades of light and of dark pages


def show(*figures: Figure) -> None:
    """The figures side by side, or stacked if there is no room."""
    from IPython.display import HTML, display

    cells = "".join(f"<div>{svg(figure)}</div>" for figure in figures)
    display(HTML(f'<style>{STYLE}</style><div class="regard-figures">{cells}</div>'))


def slider(draw: Callable[..., Figure], **values: Sequence[Any]) -> None:
    """The figure that `draw` makes of one named value, under a slider over these values."""
    ((name, choices),) = values.items()
    middle = len(choices) // 2
    try:
        from ipywidgets import SelectionSlider, interact
    except ImportError:
        show(*(draw(**{name: choices[place]}) for place in (0, middle, -1)))
        return
    bar = SelectionSlider(options=list(choices), value=choices[middle], description=name)
    interact(lambda **given: show(draw(**given)), **{name: bar})
