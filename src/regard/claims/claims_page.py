"""report.html of claims: a table of verdicts, then each claim with its sentence, its figures and all single numbers, so
that the verdict can be recomputed by hand."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from html import escape
from pathlib import Path
from string import Template

from regard.base.writing import write_text
from regard.claims.claim import OVERS
from regard.claims.finding_words import words_of_finding
from regard.claims.result import ClaimResult, sign_of, verdict_words
from regard.claims.verdict import FAILS, HOLDS, LEVEL, SIGNS, Finding
from regard.report.colours import LIGHT, variable
from regard.report.figures import Figure, Heat
from regard.report.page import beside, folded, heading, page, paragraph, prose, table
from regard.report.progress import clock
from regard.report.svg import svg
from regard.report.table import text

TITLE = "Textbook claims, tested"
STYLE = Template("""
.claimed { max-width: 72rem; border-top: 1px solid $line; margin-top: 2.6rem }
.claimed h2, .claimed h3 { line-height: 1.3 }
.claimed h2 { margin: 1rem 0 .4rem } .claimed h2 small { font-weight: 400; color: $quiet }
.claimed blockquote, .claimed .statement, .claimed dl.facts { max-width: 52rem }
.claimed ul.findings { max-width: 60rem }
.claimed blockquote { margin: .3rem 0 .6rem; padding-left: .8rem; border-left: 3px solid $line;
  color: $quiet }
.claimed .statement { margin: .3rem 0 .8rem; font-size: 1.06rem }
.sign { display: inline-block; min-width: 1.4em; text-align: center; font-weight: 700; border-radius: .25em;
  color: white; background: $open; padding: 0 .3em }
.sign.holds { background: $holds } .sign.fails { background: $fails }
ul.findings { list-style: none; padding: 0; margin: .2rem 0 1rem }
ul.findings > li { padding: .45rem 0; border-bottom: 1px solid $line }
ul.findings .sign { font-size: .8rem; margin-right: .4rem }
ul.findings .numbers { display: flex; flex-wrap: wrap; gap: .1rem 1rem; align-items: center; margin-left: 1.7rem;
  font-variant-numeric: tabular-nums }
ul.findings details { margin-left: 1.7rem; font-size: .85rem; color: $quiet }
ul.findings span.wanted { color: $quiet }
ul.findings svg { width: 150px; height: 18px; flex: none }
ul.findings svg .wanted { fill: $good; opacity: .22 } ul.findings svg .found { fill: $bar }
ul.findings svg circle { fill: $accent }
dl.facts { display: grid; grid-template-columns: max-content 1fr; gap: .3rem 1rem; margin: .8rem 0 }
dl.facts dt { color: $quiet } dl.facts dd { margin: 0 }
table.verdicts td, table.verdicts th { white-space: normal; vertical-align: top }
table.verdicts tbody th { font-weight: 400; white-space: nowrap } table.verdicts tbody th a { font-weight: 600 }
table.verdicts a { color: inherit }
.tally { font-size: 1.1rem }
@media (max-width: 40rem) {
  table.verdicts .spare { display: none }
  dl.facts { grid-template-columns: 1fr } dl.facts dd { margin-bottom: .4rem }
}
.claimed .verdict { font-weight: 600 }
""").substitute({name: variable(name) for name in LIGHT})


def write_page(path: Path, results: Sequence[ClaimResult]) -> None:
    """Writes one self-contained file."""
    write_text(path, claims_page(results))


def claims_page(results: Sequence[ClaimResult], title: str = TITLE) -> str:
    return page(
        title,
        heading(title, 1),
        _tally(results),
        _verdicts(results),
        folded("How verdicts are reached, and what the references mean", *map(paragraph, _rule(results))),
        *map(_claim, results),
        style=STYLE,
    )


def section(result: ClaimResult) -> str:
    """One claim for a notebook, with its own style."""
    return f"<style>{STYLE}</style>{_claim(result)}"


# -- all of them -----------------------------------------------------------------------------------------------------


def _tally(results: Sequence[ClaimResult]) -> str:
    """The finding: 20 of 23 statements hold, 3 fail."""
    counts = Counter(result.verdict for result in results)
    verbs = {HOLDS: ("holds", "hold"), FAILS: ("fails", "fail")}
    tallies = []
    for verdict in SIGNS:
        one, more = verbs.get(verdict, ("is inconclusive", "are inconclusive"))
        if counts[verdict]:
            tallies.append(f"{_sign(verdict)} {counts[verdict]} {one if counts[verdict] == 1 else more}")
    of = f"Of {len(results)} textbook claims: " if len(results) > 1 else ""
    of = f"Quick form, at reduced size. {of}" if any(result.quick for result in results) else of
    return f'<p class="finding">{of}{", &nbsp;".join(tallies)}.</p>'


def _verdicts(results: Sequence[ClaimResult]) -> str:
    rows = []
    for result in results:
        control = "came out the other way" if result.controlled else "did not come out the other way"
        rows.append(
            f"<tr><th scope=row>{_sign(result.verdict, result.quick)} {escape(result.number)} "
            f'<a href="#{escape(result.name)}">{escape(result.name)}</a></th>'
            f"<td>{prose(result.statement)}</td><td class=spare>"
            f"{_told(result.decisive)}</td><td class=spare>{control}</td><td class='spare right'>"
            f"{prose(clock(result.seconds))}</td></tr>"
        )
    head = (
        "<th scope=col>claim</th><th scope=col>statement</th><th scope=col class=spare>measured</th>"
        "<th scope=col class=spare>control</th><th scope=col class='spare right'>time</th>"
    )
    return (
        '<div class="scroll" tabindex="0" role="region" aria-label="verdicts"><table class="verdicts">'
        f"<thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )


def _told(finding: Finding) -> str:
    return f"{prose(finding.expect.quantity)}: <b>{prose(_minus(words_of_finding(finding).measured))}</b>"


def _rule(results: Sequence[ClaimResult]) -> list[str]:
    per_cent = f"{100 * LEVEL:g} %"
    sentences = [
        "The expectations were fixed before these numbers were measured: their bounds come from theory or from small "
        "trials with other seeds than the deciding ones (a quick run reuses the seeds of the trials). A finding over "
        "seeds is judged by the "
        f"{per_cent} interval of its mean, mean ± t·s/√n (Student's t with n − 1 degrees of freedom, s the standard "
        f"deviation of the n numbers); a share by Wilson's {per_cent} interval; an identity by every single draw. "
        "If the whole interval is where it was expected, the finding holds (✓). If the whole interval is elsewhere, or "
        "a single draw of an identity is, it fails (✗). Otherwise it is inconclusive (?). In the small charts, "
        "the tint shows where the number was expected, and the bar is its interval.",
        "Each claim has a control, an experiment of the same kind that must come out the other way. If it does "
        "not, the "
        "claim is inconclusive, whatever else was measured, because an experiment that cannot fail shows nothing.",
        "The quotes are from the notes of the lectures, which Regard does not contain. They are five files, numbered "
        "000 to 004; “notes 003, line 148” is line 148 of the file whose name begins with 003.",
    ]
    if any(result.quick for result in results):
        sentences.append(
            "These are quick forms of the experiments, with fewer seeds; each claim lists the differences."
        )
    return sentences


# -- one of them -----------------------------------------------------------------------------------------------------


def _claim(result: ClaimResult) -> str:
    drawn = [svg(figure) for figure in result.figures]
    columns = {key: key for row in result.table for key in row}
    rows = [{key: _minus(text(value)) for key, value in row.items()} for row in result.table]
    return "".join(
        [
            f'<section class="claimed" id="{escape(result.name)}"><h2>{_sign(result.verdict, result.quick)} '
            f"{escape(result.number)} {escape(result.name)} "
            f"<small>{verdict_words(result.verdict, result.quick)}</small></h2>",
            f'<p class="statement">{prose(result.statement)}</p>',
            f"<blockquote>The lecture says: “{prose(result.quote)}” <cite>({prose(reference(result.where))})</cite>"
            "</blockquote>",
            f'<p class="verdict">{_verdict(result)}</p>',
            _parts(result),
            _worked(result),
            beside(*drawn) if len(drawn) > 1 and not _wide(result.figures) else "".join(drawn),
            _findings("What the statement expects", result.expected, result.quick),
            _findings(f"Control: {result.control_words}", result.control, result.quick),
            _findings("Additional checks (not part of the verdict)", result.besides, result.quick),
            *(paragraph(_minus(remark)) for remark in result.remarks),
            table(rows, columns) if rows else "",
            _facts(result),
            "</section>",
        ]
    )


def _verdict(result: ClaimResult) -> str:
    """The verdict as a sentence."""
    finding = result.decisive
    what = {HOLDS: "The statement holds", FAILS: "The statement fails"}.get(result.verdict, "The test is inconclusive")
    if any(math.isnan(one.value) for one in (*result.expected, *result.control)):
        what += ", because parts of it were not measured"
    elif not result.controlled:
        what += ", because its control did not come out the other way"
    if result.quick:
        what = f"Quick form, at reduced size ({result.quick}): {what[0].lower()}{what[1:]}"
    unit = f" {finding.expect.unit}" if finding.expect.unit else ""
    measured, expected = words_of_finding(finding)
    sentence = f"{what}: {finding.expect.quantity} is {measured}{unit}; expected: {expected}."
    return prose(_minus(sentence))


def _parts(result: ClaimResult) -> str:
    parts = ", &nbsp;".join(f"{_sign(verdict, result.quick)} {prose(part)}" for part, verdict in result.parts.items())
    return f"<p>Parts of the statement: {parts}.</p>" if parts else ""


def reference(where: str) -> str:
    """003:148, 205; 002:15 → notes 003, lines 148, 205; notes 002, line 15."""
    by_note: dict[str, list[str]] = {}
    note = ""
    for part in re.split(r"[;,]\s*", where):
        before, colon, lines = part.rpartition(":")
        note = before if colon else note
        by_note.setdefault(note, []).append(lines)
    return "; ".join(
        f"notes {note}, line{'s' * (len(lines) > 1 or '–' in lines[0])} {', '.join(lines)}" if note else where
        for note, lines in by_note.items()
    )


def _wide(figures: Sequence[Figure]) -> bool:
    return any(isinstance(figure, Heat) and len(figure.columns) > 12 for figure in figures)


def _worked(result: ClaimResult) -> str:
    rows = [
        {
            "what": one.what,
            "noted": one.noted,
            "found": one.found,
            "where": reference(one.where),
            "agrees": "✓" if one.agrees else "✗",
        }
        for one in result.worked
    ]
    columns = {
        "what": "worked example",
        "noted": "in the notes",
        "found": "computed here",
        "agrees": "do they agree?",
        "where": "where",
    }
    return heading("Worked examples", 3) + table(rows, columns) if rows else ""


def _findings(words: str, findings: Sequence[Finding], quick: str) -> str:
    items = "".join(_finding(finding, quick) for finding in findings)
    return f'{heading(words, 3)}<ul class="findings">{items}</ul>' if findings else ""


def _finding(finding: Finding, quick: str) -> str:
    unit = f" {finding.expect.unit}" if finding.expect.unit else ""
    measured, expected = words_of_finding(finding)
    numbers = ", ".join(f"{value:.6g}" for value in finding.values)
    what = OVERS[finding.expect.over] + "s" * (len(finding.values) != 1)
    return (
        f"<li>{_sign(finding.verdict, quick)} {prose(finding.expect.quantity)}"
        f'<div class="numbers">{_bar(finding)}<b>{prose(_minus(measured))}{prose(unit)}</b>'
        f'<span class="wanted">expected {prose(_minus(expected))}</span></div>'
        f"<details><summary>{len(finding.values)} {what}</summary>{prose(_minus(numbers))}</details></li>"
    )


def _bar(finding: Finding) -> str:
    """The interval as a bar with its value; the expected range is tinted."""
    least, most = finding.expect.range
    shown = [v for v in (finding.low, finding.value, finding.high, least, most) if math.isfinite(v)]
    low, high = min(shown), max(shown)
    span = (high - low) or abs(high) or 1.0

    def place(value: float) -> float:
        return min(150.0, max(0.0, 15 + 120 * ((value - low) / span)))

    left, right = place(least), place(most)
    parts = [f'<rect class="wanted" x="{left:.1f}" y="1" width="{max(1.5, right - left):.1f}" height="16"/>']
    if not math.isnan(finding.value):
        begin, end = place(finding.low), place(finding.high)
        parts.append(f'<rect class="found" x="{begin:.1f}" y="7" width="{max(0.1, end - begin):.1f}" height="4"/>')
        parts.append(f'<circle cx="{place(finding.value):.1f}" cy="9" r="4"/>')
    return f'<svg viewBox="0 0 150 18" aria-hidden="true">{"".join(parts)}</svg>'


def _facts(result: ClaimResult) -> str:
    seeds, over = len(result.seeds), {finding.expect.over for finding in result.expected}
    facts = {
        "Conditions": result.conditions,
        "When it breaks": result.breaks,
        "Kind": ", ".join(result.kinds),
        "Settings": ", ".join(f"{name} = {value:g}" for name, value in result.knobs.items()),
        "Seeds" if over != {"draws"} else "Draws": f"{seeds} ({result.seeds[0]} to {result.seeds[-1]})"
        if seeds
        else "",
        "Quick form": result.quick,
        "Measured": f"in {clock(result.seconds)} on {result.device}, with code {result.code}"
        + (" (an earlier run by the same code with the same settings)" if result.cached else ""),
    }
    items = "".join(f"<dt>{name}</dt><dd>{prose(_minus(words))}</dd>" for name, words in facts.items() if words)
    return f'<dl class="facts">{items}</dl>'


def _sign(verdict: str, quick: str = "") -> str:
    return f'<span class="sign {verdict}" title="{verdict_words(verdict, quick)}">{sign_of(verdict, quick)}</span>'


def _minus(words: str) -> str:
    """A true minus before a number; exponents without their zeros."""
    words = re.sub(r"(?<=\d)e\+?(-?)0*(?=\d)", r"e\1", words)
    return re.sub(r"(?<![^\s(\[,±])-(?=[\d.])|(?<=\de)-(?=\d)", "−", words)
