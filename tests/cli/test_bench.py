"""`regard bench`: one line for each peer, every repeat for a program, and a sentence for what could not run."""

import json
import subprocess
import sys

import pytest

from regard.bench import server_load, turns
from regard.bench.all_benchmarks import NAMES


@pytest.fixture
def no_peers(monkeypatch):
    """As where neither transformers nor kenlm is installed."""
    for module in (turns, server_load):
        monkeypatch.setattr(module, "find_spec", lambda package: None)


def test_the_list_names_every_benchmark_with_its_peers_and_runs_nothing(regard, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, _ = regard("bench", "--list", "--json")
    assert code == 0
    listed = json.loads(out)
    assert [one["name"] for one in listed] == list(NAMES)
    assert all(one["work"] and one["peers"] for one in listed)
    table = regard("bench", "lstm-train", "--list")[1]
    assert "torch.nn.LSTM" in table
    assert "kenlm" not in table


def test_json_holds_every_repeat_of_every_contender_and_the_limit(regard):
    code, out, _ = regard("bench", "lstm-train", "gpt-generate", "--quick", "--device", "cpu", "--repeats", 3, "--json")
    assert code == 0
    rows = json.loads(out)
    assert {row["name"].split()[0] for row in rows} == {"lstm-train", "gpt-generate"}
    for row in rows:
        assert row.keys() >= {"work", "unit", "warm_up_calls", "calls_per_repeat", "machine", "limit", "contenders"}
        rates = row["machine"]["matmul_rate"], row["machine"]["copy_rate"]
        costs = row["limit"]["operations"] / rates[0], row["limit"]["bytes"] / rates[1]
        assert row["limit"]["rate"] == pytest.approx(1 / max(costs))
        assert row["contenders"][0]["name"] == "Regard"
        for one in row["contenders"]:
            ran = one["could_not_run"] is None
            assert len(one["rates"]) == (3 if ran else 0)
            if ran:
                assert one["median"] == sorted(one["rates"])[1]
                assert one["share_of_limit"] == pytest.approx(one["median"] / row["limit"]["rate"])
                assert one["tokens_per_call"] == row["contenders"][0]["tokens_per_call"]


def test_the_table_has_a_line_for_each_peer_with_units_and_says_how_it_was_measured(regard):
    code, out, _ = regard("bench", "rnn-train", "--quick", "--device", "cpu")
    assert code == 0
    lines = [line for line in out.splitlines() if line.startswith("rnn-train")]
    assert len(lines) == 2
    assert all("tokens/s ±" in line for line in lines)
    assert "torch.nn.RNN" in lines[0]
    assert "×" in lines[0]
    assert "It needs an NVIDIA GPU" in lines[1]
    assert "FLOP/s" in out
    assert "the median of 2 rounds" in out
    assert "without --quick" in out


def test_missing_peers_are_named_and_regard_is_measured_without_them(regard, no_peers):
    code, out, _ = regard("bench", "ngram-score", "translate-beam", "--quick", "--device", "cpu")
    assert code == 0
    for name, package in {"ngram-score": "kenlm", "translate-beam": "transformers"}.items():
        (line,) = [line for line in out.splitlines() if line.startswith(name)]
        assert f"The package {package} is not installed here: pip install {package}." in line
        assert "/s ±" in line


def test_naming_a_benchmark_twice_runs_it_once(regard, no_peers):
    rows = json.loads(regard("bench", "rnn-train", "rnn-train", "--quick", "--device", "cpu", "--json")[1])
    assert len(rows) == 1


@pytest.mark.parametrize(
    "words, sentence",
    [
        (["lstm-trian"], "There is no benchmark 'lstm-trian': did you mean lstm-train?"),
        (["xyz"], "There is no benchmark 'xyz'; choose one of gpt-train"),
        (["rnn-train", "--repeats", "0"], "--repeats must be at least 1, not 0."),
        (["serve", "--clients", "1;2"], "--clients takes numbers separated by commas, as in 1,16,64, not '1;2'."),
        (["serve", "--clients", "1,0"], "--clients must be at least 1, not 0."),
        (["serve", "--seconds", "-1"], "--seconds must be at least 0, not -1"),
        (
            ["rnn-train", "--device", "abacus"],
            "The device 'abacus' is not available on this machine; use cpu, cuda or auto.",
        ),
    ],
)
def test_a_mistake_is_one_sentence_and_runs_nothing(wrong, words, sentence):
    assert sentence in wrong("bench", "--quick", *words)


def test_help_and_the_list_load_neither_torch_nor_a_peer():
    for words in (["bench", "--help"], ["bench", "--list"]):
        code = (
            "import sys\nfrom regard.cli import main\n"
            f"try:\n    main({words!r})\nexcept SystemExit as stop:\n    assert not stop.code\n"
            "assert not {'torch', 'transformers', 'kenlm'} & sys.modules.keys()\n"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_a_server_is_measured_with_clients_at_once_and_with_one(regard, no_peers):
    words = ["bench", "serve", "--quick", "--device", "cpu", "--clients", "3,1", "--seconds", 0, "--repeats", 2]
    code, out, log = regard(*words, "--json")
    assert code == 0
    alone, together, peer, _ = json.loads(out)
    assert [row["clients"] for row in (alone, together)] == [1, 3]
    assert [row["requests"] for row in (alone, together)] == [2, 6]  # each client once in each turn
    assert together["texts_as_alone"] == "2 of 2"  # the prompts 0 and 1
    expected = [ours / one for ours, one in zip(together["rates"], alone["rates"])]
    assert together["times_one_client"] == pytest.approx(sum(expected) / 2)
    assert 0 < together["first_token_seconds"]["p50"] <= together["whole_seconds"]["p99"]
    assert "transformers" in peer["could_not_run"]
    assert log.count("Regard, 3 clients, round") == 2  # said as they come
