"""Beam search with its sums: what each candidate of a step adds up to, and how the finished ones are ranked."""

from __future__ import annotations

from collections.abc import Sequence

from regard.insight.trace import Branch
from regard.insight.words import visible
from regard.insight.work import Section, Sum, Term, add_up

SHOWN = 8  # candidates of a step: all that are kept, and the best that are not


def search_sections(branches: Sequence[Branch], step: int, length_penalty: float) -> list[Section]:
    """The candidates of a step, from 0, and of all hypotheses the sum of their words."""
    here = sorted(
        (branch for branch in branches if branch.step == step + 1), key=lambda branch: -branch.log_probability
    )
    kept = [branch for branch in here if branch.kept]
    shown = [*kept, *[branch for branch in here if not branch.kept][: max(0, SHOWN - len(kept))]]
    sections = []
    if shown:
        about = f"{len(kept)} of the {len(here)} best beginnings are kept."
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


def _step(branches: Sequence[Branch], branch: Branch) -> Term:
    """log P of its last word after those before it."""
    before = branches[branch.parent].log_probability if branch.parent >= 0 else 0.0
    return Term(visible(branch.token), branch.log_probability - before)


def _candidate(branches: Sequence[Branch], branch: Branch) -> Sum:
    *path, last = _path(branches, branch)
    sign = "kept" if branch.kept else "pruned"
    words = " ".join(visible(one.token) for one in (*path, last))
    before = [Term("before", path[-1].log_probability)] if path else []
    return add_up(f"{sign}: {words}", "log P = log P before + log p", [*before, _step(branches, last)],
                  branch.log_probability)  # fmt: skip


def _hypothesis(branches: Sequence[Branch], branch: Branch, length_penalty: float) -> Sum:
    path = _path(branches, branch)
    length = len(path) ** length_penalty
    formula = f"Σ log p / {len(path)}^{length_penalty:g}" + ("" if branch.finished else " (not finished)")
    terms = [_step(branches, one) for one in path]
    return add_up(f"{branch.rank}. {branch.text or '(empty)'}", formula, terms, branch.score, function="/", by=length)
