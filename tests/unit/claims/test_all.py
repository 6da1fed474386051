"""All claims: each is declared in full before anything is run, and is found under its name and its number."""

import json
import re
import signal
from multiprocessing import active_children
from pathlib import Path

import pytest

from regard.base.errors import RegardError
from regard.claims import runner
from regard.claims.all_claims import NAMES, get_claim, module_of
from regard.claims.claim import SEEDS
from regard.claims.declarations import WORDS, words_of
from regard.claims.documented_verdicts import documented_verdicts
from regard.claims.verdict import SIGNS

NOT_RUN = "–"  # in a table: no verdict yet
named = pytest.mark.parametrize("name", NAMES)
EVERY_DRAW = {"exploding"}  # measured, and true of every single draw
WORKED = {"remedies": 3, "cheating": 2, "set-to-set": 3, "symmetry": 6, "any-b": 11, "hull": 2, "alignment": 3}


def test_there_are_as_many_as_the_specification_has():
    assert len(NAMES) == len(set(NAMES)) == 30


@named
def test_a_claim_is_declared_in_full(name):
    claim = get_claim(name)
    assert claim.name == name
    assert claim.number == f"C{NAMES.index(name) + 1}"
    assert re.search(r"\b00[0-4]:\d+", claim.where), claim.where
    for words in (claim.statement, claim.conditions, claim.control_words, claim.breaks):
        assert words.rstrip("”»'\"").endswith((".", "?"))
    assert claim.quote
    assert claim.cost > 0


@named
def test_its_words_are_read_without_importing_it(name):
    claim = get_claim(name)
    assert words_of(name) == {key: getattr(claim, key) for key in WORDS}


def test_the_documented_verdicts_are_those_of_the_pages():
    """verdicts.json is their source: a table that differs is to be written from it."""
    docs, verdicts, rows, later = Path(__file__).parents[3] / "docs", documented_verdicts(), [], []
    assert list(verdicts) == list(NAMES)
    for number, (name, one) in enumerate(verdicts.items(), start=1):
        words = [text.replace("|", "\\|") for text in (one.decides, one.measured, one.control)]
        sign, was = SIGNS.get(one.verdict, NOT_RUN), SIGNS.get(one.was)
        if was:
            rows.append(f"| C{number} `{name}` | {was} → {sign} | {' | '.join(words)} |")
        else:
            later.append(f"| {sign} | C{number} `{name}` | {' | '.join(words[1:])} |")
    page = (docs / "claims.md").read_text(encoding="utf-8")
    assert "\n".join(rows) in page
    after_gpt, by_intervention = later[:3], later[3:]
    assert "\n".join(after_gpt) in (docs / "after-gpt.md").read_text(encoding="utf-8")
    assert "\n".join(by_intervention) in page
    count = {verdict: sum(one.verdict == verdict and bool(one.was) for one in verdicts.values()) for verdict in SIGNS}
    fail = "fails" if count["fails"] == 1 else "fail"
    assert f"**{count['holds']} hold, {count['fails']} {fail}, {count['inconclusive']} are inconclusive**" in page
    waiting = [name for name, one in verdicts.items() if one.verdict not in SIGNS]
    assert all(f"`{name}`" in page.partition("**Not yet run")[2] for name in waiting)


@named
def test_an_identity_counts_every_draw_and_a_measurement_its_seeds(name):
    claim = get_claim(name)
    overs = {expect.over for expect in (*claim.expected, *claim.control)}
    assert ("draws" in overs) or "identity" not in claim.kinds
    assert bool(overs & {"seeds", "share"}) == ("measured" in claim.kinds and name not in EVERY_DRAW)
    if claim.kinds == ("identity", "timing"):
        assert (claim.seeds, claim.quick_seeds) == (1, 1)
    else:
        assert claim.seeds >= SEEDS
        assert 2 <= claim.quick_seeds < claim.seeds  # one seed decides nothing


@named
def test_a_claim_has_a_number_for_a_name(name):
    assert get_claim(f"c{NAMES.index(name) + 1}") is get_claim(name)


def test_an_unknown_claim_is_answered_with_what_was_meant():
    with pytest.raises(RegardError, match="did you mean vanishing"):
        get_claim("vanshing")


@named
def test_its_worked_examples_agree_with_the_notes(name):
    claim = get_claim(name)
    examples = claim.worked() if claim.worked else []
    assert len(examples) == WORKED.get(name, 0)
    declared = json.loads((Path(__file__).parents[2] / "golden" / "claim_protocols.json").read_text(encoding="utf-8"))
    assert [[one.what, one.noted, one.where] for one in examples] == declared["worked"][name]
    for example in examples:
        assert example.agrees, f"{example.what}: the notes have {example.noted}, here it is {example.found}"
        assert re.search(r"\d{3}:\d+", example.where)


def test_each_file_of_a_claim_is_registered():
    import regard.claims as package

    home = Path(package.__file__).parent
    declared = {path.stem for path in home.glob("*.py") if "\nCLAIM = Claim(" in path.read_text(encoding="utf-8")}
    assert declared == {module_of(name) for name in NAMES}


def test_being_stopped_while_the_processes_start_waits_for_none_of_them(monkeypatch):
    before, started, submit = active_children(), [], runner.ProcessPoolExecutor.submit

    def second_is_stopped(pool, *work):
        if started:
            raise KeyboardInterrupt
        started.append(submit(pool, *work))
        return started[0]

    monkeypatch.setattr(runner.ProcessPoolExecutor, "submit", second_is_stopped)
    with pytest.raises(KeyboardInterrupt):  # in full, the first alone takes minutes
        runner.run_claims(["exploding", "any-b"], again=True, jobs=2)
    for child in set(active_children()) - set(before):
        while child.exitcode is None:  # unknown while the pool's own thread is just reading it
            child.join(0.1)
        assert child.exitcode == -signal.SIGTERM
    assert started[0].exception() is not None
