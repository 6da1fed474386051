"""What `regard bench` prints: every option reaches its measurement, and every number has its unit."""

import pytest
import torch

from regard.base.errors import RegardError
from regard.bench.all_benchmarks import USUAL, get_bench
from regard.bench.contenders import BenchPlace, BenchRow, Contender, Cost
from regard.bench.http_load import HttpAnswer
from regard.bench.server_load import Load
from regard.bench.turns import BenchResult, TimedContender
from regard.cli import bench as bench_verb
from regard.cli.commands import run

HERE = BenchPlace(torch.device("cpu"), "quick")
FACTS = {"device": "cpu (x)", "precision": "fp32", "threads": 1, "torch": "9.9", "matmul_rate": 2e9, "copy_rate": 4e10}


class Measured:
    matmul_rate, copy_rate = 2e9, 4e10

    def as_json(self):
        return FACTS


MACHINE = Measured()


def result(*peers, unit="tokens/s", ours=(90.0, 100.0, 110.0), memory=3 << 20, why=""):
    entries = [TimedContender(Contender(name, object), rates=list(rates), memory=memory, why=said)
               for name, rates, said in (("Regard", ours, why), *peers)]  # fmt: skip
    row = BenchRow("mine", HERE, "2×3", [each.contender for each in entries], Cost(operations=1e7), 2, 3, unit)
    return BenchResult(row, MACHINE, entries)


def answer(number, first, whole):
    return HttpAnswer(number, 0.0, first, whole, [b'HTTP/1.1 200\r\n\r\n12\r\n"completion_tokens": 4\r\n'])


def loads():
    one = Load("Regard", 1, HERE, 4, [40.0, 50.0], [answer(0, 0.1, 0.2), answer(1, 0.3, 0.4)], 400, 2.0)
    many = Load("Regard", 4, HERE, 4, [80.0, 150.0], [answer(2, 0.1, 0.2)], 800, 2.0, one)
    one.one = one
    return [one, many, Load("other", 1, HERE, 4, why="not here")]


@pytest.mark.parametrize(
    ("words", "place", "repeats", "of_load", "numbers", "seconds"),
    [
        ([], "small", 7, 5, [], None), (["--quick"], "quick", 2, 2, [], None),
        (["--repeats", "1"], "small", 1, 1, [], None), (["--quick", "--repeats", "9"], "quick", 9, 9, [], None),
        (["--clients", "4,1,512", "--seconds", "0.5"], "small", 7, 5, [4, 1, 512], 0.5),
    ],
)  # fmt: skip
def test_every_option_reaches_the_measurement(monkeypatch, capsys, words, place, repeats, of_load, numbers, seconds):
    asked = {}

    def run_benches(*given, **named):
        asked["rows"] = given, named
        return [result(("B", [50.0, 50.0, 50.0], ""))]

    def measure(*given, **named):
        asked["load"] = given, named
        return loads()

    monkeypatch.setattr("regard.bench.measure.run_benches", run_benches)
    monkeypatch.setattr("regard.bench.server_load.measure", measure)
    run(["bench", "serve", "lstm-train", "lstm-train", "--device", "cpu", *words])
    (benches, where, turns), named = asked["rows"]
    assert ([one.name for one in benches], where.size, where.device.type, turns) == (
        ["lstm-train"],
        place,
        "cpu",
        repeats,
    )
    assert named == {"each": bench_verb._tell}
    assert asked["load"] == ((where, of_load, numbers, seconds), {"each": bench_verb._tell_load})
    out = capsys.readouterr().out
    assert ("run without --quick for real numbers" in out) == (place == "quick")
    assert f"Each rate is the median of {repeats} round{'s' * (repeats > 1)} ± half" in out
    run(["bench", "--device", "cpu", "--quick"])
    assert [one.name for one in asked["rows"][0][0]] == list(USUAL)
    assert "serve" not in USUAL
    assert "fast-rows" not in USUAL


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--clients", "0"], "--clients must be at least 1"), (["--clients", "513"], "--clients must be at most 512"),
        (["--clients", "1,x"], "as in 1,16,64, not '1,x'"), (["--repeats", "0"], "--repeats must be at least 1"),
        (["--seconds", "-0.5"], "--seconds must be at least 0"),
    ],
)  # fmt: skip
def test_what_cannot_be_measured_is_refused_before_anything_runs(monkeypatch, words, said):
    monkeypatch.setattr("regard.bench.measure.run_benches", None)
    with pytest.raises(RegardError, match=said):
        run(["bench", "lstm-train", "--device", "cpu", *words])


def test_a_row_has_a_line_for_each_peer_with_its_numbers():
    found = result(("B", [45.0, 50.0, 44.0], ""), ("C", [], "It is not here."))
    first, second = bench_verb._lines(found)
    assert first == {
        "name": "mine", "work": "2×3", "calls": "2, then 3 per round", "regard": "100 tokens/s ± 10 %", "peer": "B",
        "rate": "45 tokens/s ± 7 %", "ratio": "2.00 ×", "share": "50.0 % / 22.5 %", "memory": "3 MiB / 3 MiB",
        "note": "",
    }  # fmt: skip
    assert (second["rate"], second["ratio"], second["share"]) == (None, None, "50.0 % / –")
    assert second["note"] == "It is not here."
    (both,) = bench_verb._lines(result(("B", [], "No."), ours=(), memory=None, why="Never."))
    assert (both["note"], both["memory"], both["share"]) == ("Regard: Never. No.", "", "")
    (start,) = bench_verb._lines(result(("B", [0.5, 0.5], ""), ours=(0.25, 0.25), unit="starts/s"))
    assert (start["regard"], start["rate"], start["ratio"]) == ("4.00 s ± 0 %", "2.00 s ± 0 %", "0.50 ×")


def test_a_row_is_said_as_soon_as_it_is_measured(capsys):
    bench_verb._tell(result(("B", [45.0, 50.0, 44.0], ""), ("C", [], "It is not here.")))
    assert capsys.readouterr().err == "mine: 100 tokens/s ± 10 % · B 45 tokens/s ± 7 % · C It is not here.\n"


def test_the_machine_is_told_once_with_its_peak_rates(capsys):
    one = result(("B", [50.0], ""))
    bench_verb._print_results([one, one], 3)
    out = capsys.readouterr().out
    assert (
        out.count("cpu (x), torch 9.9, 1 thread. Peak rates in this run: 2 GFLOP/s in fp32 matrix products and 40 GB/s")
        == 1
    )
    assert "Each rate is the median of 3 rounds ± half" in out


@pytest.mark.parametrize(
    ("rate", "short"),
    [(5.0, "5 "), (999.0, "999 "), (1000.0, "1 k"), (4.13e10, "41.3 G"), (7.88e14, "788 T"), (5e16, "5e+04 T")],
)
def test_a_rate_has_three_digits_and_its_prefix(rate, short):
    assert bench_verb._short(rate) == short


def test_a_load_is_told_with_its_clients_rates_and_times(capsys):
    one, many, absent = loads()
    line = bench_verb._load_line(many)
    assert line == {
        "server": "Regard", "clients": 4, "note": "", "rate": "115 tokens/s ± 30 %", "times": "2.50 ×",
        "requests": "28.8", "first": "100 / 100", "whole": "200 / 200", "own": "400 (2.00 ×)",
    }  # fmt: skip
    assert bench_verb._load_line(one)["first"] == "200 / 298"
    assert bench_verb._load_line(absent) == {"server": "other", "clients": 1, "note": "not here"}
    for each, said in (
        (one, "Regard, 1 client, round 2: 45 tokens/s ± 11 %, 200 (1.00 ×) per CPU second, first token 200 / 298 ms, "
              "full text 300 / 398 ms (p50 / p99)\n"),
        (many, "Regard, 4 clients, round 2: 115 tokens/s ± 30 % (2.50 × one client), 400 (2.00 ×) per CPU second, "
               "first token 100 / 100 ms, full text 200 / 200 ms (p50 / p99)\n"),
    ):  # fmt: skip
        bench_verb._tell_load(each)
        assert capsys.readouterr().err == said
    bench_verb._print_loads([one, many, absent], HERE)
    out = capsys.readouterr().out
    assert f"cores: {one.work}. Medians over rounds (2 of Regard and 0 of other) ± half the range" in out
    assert "× one client" in out


def test_the_list_has_the_work_and_the_peers_of_each(capsys):
    run(["bench", "startup", "--list"])
    out = capsys.readouterr().out
    assert get_bench("startup").peers in out
    assert "lstm-train" not in out
