"""`regard claims`: verdicts with their numbers, one offline report, and nothing measured twice by the same code."""

import json
import os
import re
import signal
import sys
import time
from pathlib import Path

import pytest

from regard.claims import runner
from regard.claims.all_claims import NAMES

PAIR = ("same-answer", "hull")  # two identities: cheap, and run side by side


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("claims") / "two"


@pytest.fixture
def two(regard, folder, monkeypatch):
    """Both claims as JSON; measured by the first test that asks, remembered for the others."""
    if sys.platform == "linux":
        from forked import FORK  # a process of a claim that has imported PyTorch

        monkeypatch.setattr(runner, "get_context", lambda how: FORK)
    code, out, _ = regard("claims", *PAIR, "--quick", "--json", "--run", folder)
    assert code == 0
    return json.loads(out)


def test_the_list_names_every_claim_with_its_statement_and_runs_nothing(regard, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, _ = regard("claims", "--list", "--json")
    listed = json.loads(out)
    assert code == 0
    assert [one["name"] for one in listed] == list(NAMES)
    assert [one["number"] for one in listed] == [f"C{number}" for number in range(1, len(NAMES) + 1)]
    assert all(one["statement"] and one["quote"] and one["where"] and one["control"] for one in listed)
    table = regard("claims", "--list")[1]
    assert all(one["name"] in table and one["statement"] in table for one in listed)
    assert not list(tmp_path.iterdir())


def test_json_holds_what_a_verdict_rests_on(two):
    assert [one["name"] for one in two] == list(PAIR)
    for one in two:
        assert one.keys() >= {"name", "statement", "conditions", "verdict", "control", "numbers", "seconds", "seeds"}
        assert one["verdict"] in ("holds", "fails", "inconclusive")
        assert one["quick"]


def test_the_verdict_of_an_identity_follows_from_its_numbers_alone(two):
    def lies_where_expected(number):
        values, bound = number["values"], number["bound"]
        if number["relation"] == "at most":
            return max(values) <= bound
        if number["relation"] == "at least":
            return min(values) >= bound
        return all(abs(value - bound) <= number["tolerance"] for value in values)

    for one in two:
        controlled = all(map(lies_where_expected, one["numbers"]["control"]))
        expected = all(map(lies_where_expected, one["numbers"]["expected"]))
        assert all(number["over"] == "draws" for role in ("expected", "control") for number in one["numbers"][role])
        assert one["control"]["came_out"] == controlled
        assert one["verdict"] == ("inconclusive" if not controlled else "holds" if expected else "fails")


def test_a_second_run_measures_nothing_and_says_so(regard, two, folder):
    code, out, errors = regard("claims", *PAIR, "--quick", "--run", folder)
    assert code == 0
    assert "2 of 2 results come from the cache" in out
    assert str(folder / "report.html") in out
    assert errors == ""
    repeated = json.loads(regard("claims", *PAIR, "--quick", "--json", "--run", folder)[1])
    assert all(one["cached"] for one in repeated)
    assert [one["seconds"] for one in repeated] == [one["seconds"] for one in two]


def test_again_measures_anew(regard, two, tmp_path):
    anew = regard("claims", "same-answer", "--quick", "--again", "--json", "--run", tmp_path / "anew")[1]
    assert not json.loads(anew)[0]["cached"]


def test_a_claim_is_found_by_its_number_and_asked_once(regard, two, tmp_path):
    out = regard("claims", "C6", "same-answer", "c6", "--quick", "--json", "--run", tmp_path / "numbered")[1]
    assert [one["name"] for one in json.loads(out)] == ["same-answer"]


def test_the_table_has_a_sign_and_the_numbers_of_every_claim(regard, two, folder):
    out = regard("claims", *PAIR, "--quick", "--run", folder)[1]
    signs = {"holds": "✓", "fails": "✗", "inconclusive": "?"}
    lines = iter(out.splitlines())
    for one in two:
        verdict, found = next(lines), next(lines)
        assert verdict.split()[:4] == [signs[one["verdict"]], "quick", one["number"], one["name"]]
        assert one["label"] == f"{signs[one['verdict']]} quick: {one['verdict']} at reduced size"
        assert verdict.endswith(one["statement"])
        assert any(number["quantity"] in found for number in one["numbers"]["expected"])
        assert ("did not give" in found) != one["control"]["came_out"]
    assert "run without --quick for the full ones" in out
    assert "Quick form, at reduced size: ✓ 2 hold" in out


def test_the_report_is_one_offline_page_with_every_claim(two, folder):
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert not re.search(r"""(src|href)\s*=\s*["']?(https?:)?//|@import|url\((?!["']?data:)""", page)
    for one in two:
        assert one["name"] in page
    assert json.loads((folder / "claims.json").read_text(encoding="utf-8"))[0]["name"] == PAIR[0]


def test_one_claim_shows_its_worked_numbers_before_what_was_measured(regard, tmp_path):
    code, out, _ = regard("claims", "hull", "--quick", "--run", tmp_path / "one")
    found = json.loads(regard("claims", "hull", "--quick", "--json", "--run", tmp_path / "one")[1])[0]
    assert code == 0
    assert out.startswith(f"{found['number']} hull: {found['statement']}")
    order = [found["quote"], *(one["what"] for one in found["worked"]), *(one["title"] for one in found["figures"])]
    order += [found["verdict"], found["numbers"]["expected"][0]["quantity"], found["breaks"]]
    places = [out.index(words) for words in order]
    assert places == sorted(places)
    assert found["label"] in out.splitlines()
    assert "✓ holds" not in out
    judged = out.partition(found["label"])[2]
    assert judged.count("✓") == judged.count("✓ quick") > 0  # of each finding, too
    page = (tmp_path / "one" / "report.html").read_text(encoding="utf-8")
    assert "<small>quick: holds at reduced size</small>" in page
    assert ">✓ quick</span> C13" in page
    assert "Quick form, at reduced size" in page


def test_without_run_the_report_goes_to_a_folder_of_its_own(regard, two, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    out = regard("claims", *PAIR, "--quick")[1]
    assert "Report: runs/claims-same-answer-hull-quick/report.html" in out.replace("\\", "/")
    assert regard("claims", *PAIR, "--quick")[0] == 0  # the same question has the same folder
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["claims-same-answer-hull-quick"]


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="children are counted by Linux's /proc")
@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM])
def test_being_asked_to_stop_ends_the_claims_and_every_process_they_started(process, tmp_path, sign):
    started = process("claims", "any-b", "exploding", "--again", "--jobs", 2, "--run", tmp_path / "stopped")
    children = Path(f"/proc/{started.pid}/task/{started.pid}/children")
    workers: list[str] = []
    while started.poll() is None and len(workers) < 2:
        time.sleep(0.1)
        workers = [child for child in children.read_text().split() if measures(child)]
    assert started.poll() is None, started.communicate()
    started.send_signal(sign)
    try:
        started.communicate()  # returns when nobody holds its output any more
    finally:
        for worker in filter(measures, workers):
            os.kill(int(worker), signal.SIGKILL)
    assert started.returncode in (130, -sign)
    assert not (tmp_path / "stopped").exists()


def measures(child):
    """Is this process one that measures a claim?"""
    try:
        return b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes()
    except OSError:
        return False


# -- wrong input -----------------------------------------------------------------------------------------------------


def test_an_unknown_claim_is_refused_with_what_was_meant(wrong):
    assert "did you mean any-b?" in wrong("claims", "any_b")
    assert "did you mean vanishing?" in wrong("claims", "hull", "vanishng")
    assert "There is no claim 'C99'" in wrong("claims", "C99", "--list")


def test_a_folder_that_holds_something_else_is_left_alone(wrong, tmp_path, text_file):
    (tmp_path / "report.html").write_text("mine")
    assert "contains no claims report: choose another --run" in wrong("claims", "hull", "--quick", "--run", tmp_path)
    assert (tmp_path / "report.html").read_text() == "mine"
    assert "choose another --run" in wrong("claims", "hull", "--quick", "--run", text_file)


def test_slips_in_options_are_one_sentence(wrong, tmp_path):
    assert "--jobs must be at least 1" in wrong("claims", *PAIR, "--jobs", "0", "--run", tmp_path / "none")
    assert "device" in wrong("claims", "hull", "--device", "banana", "--run", tmp_path / "none").lower()
    assert "--quik" in wrong("claims", "hull", "--quik")
    assert not (tmp_path / "none").exists()
