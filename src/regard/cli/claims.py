"""`claims`: the lectures' statements, tested.

A verdict is a result and not an error, so ✗ and ? leave with exit code 0 like ✓.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Group, Parameter

from regard.base.errors import RegardError
from regard.base.settings import check_range
from regard.cli.options import Corpus, Device, Json, Listing, OutputFolder
from regard.cli.printing import print_prose

if TYPE_CHECKING:
    from regard.claims.claim import Claim, Worked
    from regard.claims.result import ClaimResult

ONE_CLAIM = Group("One claim", sort_key=2)
RECORD = "claims.json"  # beside report.html: the same results, for a program


def claims(
    *names: Annotated[str, Parameter(name="claim")],
    quick: bool = False,
    again: bool = False,
    jobs: int | None = None,
    device: Device = "cpu",
    run: OutputFolder = None,
    data: Annotated[Corpus, Parameter(group=ONE_CLAIM)] = "",
    first_seed: Annotated[int | None, Parameter(group=ONE_CLAIM)] = None,
    knob: Annotated[tuple[str, ...], Parameter(group=ONE_CLAIM, metavar="NAME=VALUE")] = (),
    listing: Listing = False,
    json: Json = False,
) -> None:
    """Test the course's claims (✓ holds, ✗ fails, ? inconclusive) and write report.html.

    With one claim, also print its worked examples, findings and figures. Results are cached, and reused as long as the
    code and the settings stay the same.

        regard claims --list
        regard claims any-b
        regard claims --quick

    Parameters
    ----------
    names
        claims to test (`regard claims --list`), by name or number: any-b or C10 [default: all]
    quick
        run smaller experiments with fewer seeds (a few minutes for all claims); the report is marked as quick
    again
        repeat experiments whose results are cached
    jobs
        number of claims to test at once, each in a separate process; claims that measure time run alone [default: one
        per core]. With one claim: number of seeds to run at once, if its experiment allows it [default: 1]
    run
        output folder of the report [default: runs/claims, with the names of the chosen claims]
    data
        text for a claim that needs one (embeddings): a file, a folder or the name of a corpus
    first_seed
        explore: use seeds starting from this one; the official verdict uses other seeds
    knob
        explore: set one of the claim's parameters, as in --knob q=12
    listing
        list names and statements and exit
    """
    from regard.claims.all_claims import NAMES, get_claim, name_of

    wanted = list(dict.fromkeys(map(name_of, names or NAMES)))
    if listing:
        _print_list(wanted, json)
        return
    chosen = [get_claim(name) for name in wanted]

    explores: dict[str, Any] = dict(map(_knob, knob))
    explores |= {} if first_seed is None else {"first_seed": first_seed}
    explores |= {"data": data} if data else {}
    if explores and len(chosen) != 1:
        raise RegardError(
            "--data, --first-seed and --knob work with one claim only, as in `regard claims any-b --knob q=12`."
        )

    from regard.base.device import pick_device
    from regard.claims.runner import run_claim, run_claims
    from regard.report.table import print_json

    check_range("--jobs", 1 if jobs is None else jobs, 1)
    device = str(pick_device(device))
    folder = run or _folder(chosen if names else [], quick, explores)
    _check(folder)
    how: dict[str, Any] = {"quick": quick, "device": device, "again": again}
    if len(chosen) == 1:
        claim = chosen[0]
        if not json:
            _print_claim(claim)  # before anything is trained
        results = [run_claim(claim.name, **how, jobs=jobs or 1, **explores)]
    else:
        results = run_claims([claim.name for claim in chosen], **how, jobs=jobs, each=_tell)
    report = _write(folder, results)
    if json:
        print_json([result.as_json() for result in results])
    elif len(results) == 1:
        _print_result(results[0])
    else:
        _print_verdicts(results)
    if not json:
        _print_origin(results, quick, report)


def _knob(words: str) -> tuple[str, float]:
    name, _, value = words.partition("=")
    try:
        return name.strip(), float(value)
    except ValueError:
        raise RegardError(f"--knob {words!r} is not NAME=NUMBER, as in --knob q=12.") from None


def _folder(chosen: Sequence[Claim], quick: bool, explores: Mapping[str, float | str]) -> Path:
    """The same question has the same folder: its report is written again from the cached results."""
    names = [claim.name for claim in chosen]
    if len(names) > 3:  # a folder's name has its limits
        names = [names[0], "and", str(len(names) - 1), "more"]
    names += [
        f"{name.replace('_', '-')}-{Path(value).stem if isinstance(value, str) else f'{value:g}'}"
        for name, value in explores.items()
    ]
    return Path("runs") / "-".join(["claims", *names, *(["quick"] if quick else [])])


def _check(folder: Path) -> None:
    """Checks before the experiments that the report may be written here."""
    if folder.exists() and (not folder.is_dir() or (any(folder.iterdir()) and not (folder / RECORD).is_file())):
        raise RegardError(f"{folder} already exists and contains no claims report: choose another --run.")


def _write(folder: Path, results: Sequence[ClaimResult]) -> Path:
    import json

    from regard.base.writing import write_text
    from regard.claims.claims_page import write_page

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RegardError(f"Cannot create the folder {folder} ({error.strerror}): choose another --run.") from None
    write_text(folder / RECORD, json.dumps([one.as_json() for one in results], ensure_ascii=False, indent=1) + "\n")
    write_page(folder / "report.html", results)
    return folder / "report.html"


# -- what it prints --------------------------------------------------------------------------------------------------


def _print_list(names: Sequence[str], as_json: bool) -> None:
    from regard.claims.declarations import words_of
    from regard.report.table import print_json, print_table

    rows = []
    for name in names:
        words = words_of(name)
        rows.append(words | {"kinds": list(words["kinds"]), "control": words.pop("control_words")})
    if as_json:
        print_json(rows)
        return
    shown = [row | {"kinds": ", ".join(row["kinds"])} for row in rows]
    headings = {"number": "#", "name": "claim", "kinds": "kind", "where": "notes", "statement": "statement"}
    print_table(shown, headings)


def _tell(result: ClaimResult) -> None:
    """A log line for each claim when its result is known."""
    from regard.report.progress import clock, say

    if not result.cached:
        say(f"{result.name}: {result.label}; {clock(result.seconds)}")


def _print_claim(claim: Claim) -> None:
    print_prose(f"{claim.number} {claim.name}: {claim.statement}")
    print()
    print_prose(f"The notes ({claim.where}): “{claim.quote}”")
    print_prose(f"Conditions: {claim.conditions}")
    if claim.worked:
        _print_worked(claim.worked())
    print(flush=True)


def _print_worked(worked: Sequence[Worked]) -> None:
    from regard.report.table import print_table

    rows = [{**vars(one), "agrees": "✓" if one.agrees else "✗"} for one in worked]
    headings = {"agrees": "", "what": "worked example", "noted": "the notes", "found": "here", "where": "notes"}
    print()
    print_table(rows, headings)


def _print_result(result: ClaimResult) -> None:
    """Everything that the verdict rests on, and what it looks like."""
    from regard.claims.finding_words import sentence_of
    from regard.claims.result import sign_of
    from regard.report.terminal import terminal

    for figure in result.figures:
        print(terminal(figure) + "\n")
    print(result.label)
    for part, verdict in result.parts.items():
        print(f"  {sign_of(verdict, result.quick)} {part}: {verdict}")
    for heading, findings in {
        "Expected": result.expected,
        f"Control: {result.control_words}": result.control,
        "Additional checks": result.besides,
    }.items():
        if findings:
            print()
            print_prose(heading)
        for finding in findings:
            sign = sign_of(finding.verdict, result.quick)
            print_prose(f"  {sign} {finding.expect.quantity}: {sentence_of(finding)}", indent="    ")
    print()
    print_prose(f"When it breaks: {result.breaks}")
    for remark in result.remarks:
        print_prose(remark)
    if result.table:
        from regard.report.table import print_table

        print()
        print_table(result.table, {key: key for row in result.table for key in row})


def _print_verdicts(results: Sequence[ClaimResult]) -> None:
    """Under each statement what decided, how the control came out, and how long it took."""
    from regard.claims.finding_words import sentence_of
    from regard.claims.result import sign_of
    from regard.report.progress import clock

    room = max(len(result.name) for result in results)
    for result in results:
        claim = f"{result.sign} {result.number:<3} {result.name:<{room}}  "
        control = f"the control {'gave' if result.controlled else 'did not give'} the opposite result"
        print_prose(claim + result.statement, indent=" " * len(claim))
        decisive = f"{result.decisive.expect.quantity}: {sentence_of(result.decisive)}"
        parts = "".join(f"{sign_of(verdict, result.quick)} {part}; " for part, verdict in result.parts.items())
        found = f"{parts}{decisive}; {control}; {clock(result.seconds)}"
        print_prose(" " * len(claim) + found, indent=" " * len(claim))


def _print_origin(results: Sequence[ClaimResult], quick: bool, report: Path) -> None:
    """How many of each verdict; by which experiments; and what was not run now."""
    from regard.claims.documented_verdicts import documented_verdicts
    from regard.claims.verdict import SIGNS, tally

    print()
    if len(results) > 1:
        verdicts = [result.verdict for result in results]
        counts = [f"{sign} {tally(verdicts.count(verdict), verdict)}" for verdict, sign in SIGNS.items()]
        print(f"{'Quick form, at reduced size: ' if quick else ''}{', '.join(counts)}.")
    if quick:
        print("These were smaller experiments with fewer seeds; run without --quick for the full ones.")
        full = documented_verdicts()[results[0].name].verdict
        one = f"The documented verdict of the full experiment is: {full} (docs/claims.md)."
        print(one if len(results) == 1 else "The verdicts of the full experiments are in docs/claims.md.")
    if before := sum(result.cached for result in results):
        print(f"{before} of {len(results)} results come from the cache (same code and settings); --again repeats them.")
    print(f"Report: {report}")
