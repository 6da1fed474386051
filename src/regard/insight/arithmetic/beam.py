"""The arithmetic of beam search: the sum of each candidate of a step, and the ranking of finished hypotheses."""

from __future__ import annotations

from collections.abc import Sequence

from regard.insight.arithmetic.equation import Equation, Section, Term, add_up
from regard.insight.trace import Branch
from regard.insight.words import labels

SHOWN = 8  # candidates of a step: all that are kept, and the best that are not


def search_sections(branches: Sequence[Branch], step: int, length_penalty: float) -> list[Section]:
    """A step's candidates, counted from 0, and the sum of each hypothesis's words."""
    here = sorted(
        (branch for branch in branches if branch.step == step + 1), key=lambda branch: -branch.log_probability
    )
    kept = [branch for branch in here if branch.kept]
    shown = [*kept, *[branch for branch in here if not branch.kept][: max(0, SHOWN - len(kept))]]
    sections = []
    if shown:
        about = f"{len(kept)} of the {len(here)} best prefixes are kept."
        sections.append(Section("beam search: candidates", tuple(_candidate(branches, one) for one in shown), about))
    ended = sorted((branch for branch in branches if branch.rank), key=lambda branch: branch.rank)
    if ended:
        about = "log P of each hypothesis, divided by its length to the power of the length penalty, best first."
        ranked = tuple(_hypothesis(branches, one, length_penalty) for one in ended)
        sections.append(Section("beam search: hypotheses", ranked, about))
    return sections


def _path(branches: Sequence[Branch], branch: Branch) -> list[Branch]:
    path = [branch]
    while path[0].parent >= 0:
        path.insert(0, branches[path[0].parent])
    return path


def _steps(branches: Sequence[Branch], path: Sequence[Branch]) -> list[Term]:
    """log P of each word of a path after those before it."""
    before = (branches[one.parent].log_probability if one.parent >= 0 else 0.0 for one in path)
    words = labels([one.token for one in path])
    return [Term(word, one.log_probability - log) for word, one, log in zip(words, path, before)]


def _candidate(branches: Sequence[Branch], branch: Branch) -> Equation:
    path = _path(branches, branch)
    *_, last = steps = _steps(branches, path)
    sign = "kept" if branch.kept else "pruned"
    words = " ".join(step.name for step in steps)
    before = [Term("before", path[-2].log_probability)] if len(path) > 1 else []
    return add_up(f"{sign}: {words}", "log P = log P before + log p", [*before, last], branch.log_probability)


def _hypothesis(branches: Sequence[Branch], branch: Branch, length_penalty: float) -> Equation:
    path = _path(branches, branch)
    length = len(path) ** length_penalty
    formula = f"Σ log p / {len(path)}^{length_penalty:g}" + ("" if branch.finished else " (not finished)")
    terms = _steps(branches, path)
    return add_up(f"{branch.rank}. {branch.text or '(empty)'}", formula, terms, branch.score, function="/", by=length)
