"""The benchmarks: all do the same work and take turns, and what could not run is said. Nothing here looks at time."""

import copy
import socket
import subprocess
import sys
import threading
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import gpt2_parity
from regard.base.errors import RegardError
from regard.bench import counting, cpu_translators, demo_systems, fast_rows, sizes, turns
from regard.bench.all_benchmarks import BENCHES, NAMES, SERVE, USUAL, get_bench
from regard.bench.contenders import BenchPlace, BenchRow, Contender, Cost
from regard.bench.http_load import load
from regard.bench.machine import Machine
from regard.bench.training_step import LEARNING
from regard.bench.turns import take_turns
from regard.fast import rows
from regard.systems.catalogue import find
from regard.systems.transformer import QUIET
from regard.training.objective import to_device

HERE = BenchPlace(torch.device("cpu"), "quick")
MACHINE = Machine(HERE)


def opened(name, place=HERE):
    """The contenders of each row that can run here, ready."""
    return [
        [contender.open() for contender in row.contenders if not turns.absent(contender, place)]
        for row in get_bench(name).rows(place)
    ]


# -- the same work ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bench", [bench for bench in BENCHES if bench.target], ids=lambda bench: bench.name)
def test_all_contenders_have_as_many_parameters_and_do_as_many_tokens_in_a_call(bench):
    for works in opened(bench.name):
        assert len({work() for work in works}) == 1
        assert len({work.parameters for work in works if work.parameters}) <= 1  # a whole command has none


@pytest.mark.parametrize(
    "name", ["gpt-train", "gpt-generate", "translate-train", "translate-beam", "lstm-train", "llama-train"]
)
def test_every_contender_also_runs_in_the_precision_of_a_gpu(name, monkeypatch):
    monkeypatch.setattr(BenchPlace, "dtype", torch.bfloat16)
    for made in get_bench(name).rows(HERE):
        for entry in take_turns(made, MACHINE, repeats=1).entries:
            if entry.contender.name == "torch.nn.LSTM" and (lacking := lstm_lacks_bf16()):
                assert entry.why.startswith(f"It failed with RuntimeError: {lacking}")
            else:
                assert entry.why == turns.absent(entry.contender, HERE)
                assert bool(entry.rates) != bool(entry.why)


def lstm_lacks_bf16():
    """What PyTorch's own LSTM says where this CPU cannot run it in bf16: many without AVX-512 cannot."""
    try:
        with torch.autocast("cpu", torch.bfloat16):
            torch.nn.LSTM(2, 2)(torch.ones(1, 1, 2))
    except RuntimeError as error:
        return str(error)[:40]
    return ""


@pytest.mark.parametrize("name", ["gpt-train", "gpt-shapes", "lstm-train", "rnn-train", "recurrent-translate-train"])
def test_from_the_same_weights_and_batches_all_learn_the_same(name):
    for regard, *peers in opened(name):
        for peer in peers:
            copy_weights(regard.model, peer.model)
        before = {work: copy.deepcopy(dict(work.model.named_parameters())) for work in (regard, *peers)}
        for step in range(4):
            for work in (regard, *peers):
                work()
            losses = [float(work.loss) for work in (regard, *peers)]
            assert losses == pytest.approx(losses[:1] * len(losses), rel=1e-5), step
        for peer in peers:
            assert distance(regard.model, peer.model) < 0.001 * LEARNING["learning_rate"]
        for work in (regard, *peers):  # the steps were not idle
            assert all(not torch.equal(now, before[work][name]) for name, now in work.model.named_parameters())


@pytest.mark.parametrize("name", ["linear-attention-train", "mingru-train"])
def test_the_same_net_in_plain_pytorch_has_the_same_losses(name):
    for regard, peer, *_ in opened(name):  # both begin with the weights of one seed
        for step in range(3):
            assert regard() == peer()
            assert float(regard.loss) == pytest.approx(float(peer.loss), rel=1e-4), step


def test_translations_on_a_cpu_have_the_tokens_that_they_were_forced_to():
    for works in opened("translate-cpu"):
        for work in works:
            assert work() == 3  # sentences
            assert {len(tokens) for tokens in work.written} == {cpu_translators.NEW}
            assert not any(0 in tokens[:-1] for tokens in work.written)


def test_the_demos_systems_learn_in_a_plain_loop_what_they_learn_in_regards():
    for regard, plain in opened("demo"):
        for _ in range(3):
            assert regard() == plain()
            assert float(regard.loss) == pytest.approx(float(plain.loss), rel=1e-5)


def test_from_the_same_weights_all_write_the_same_text():
    for regard, *peers in opened("gpt-generate"):
        for peer in peers:
            copy_weights(regard.model, peer.model)
        for work in (regard, *peers):
            work()
            work()  # what a first call left behind changes nothing
        assert len({str(work.written) for work in (regard, *peers)}) == 1


def test_from_the_same_weights_the_translators_have_the_same_loss():
    pytest.importorskip("transformers", reason="the peer")
    ((regard, peer),) = opened("translate-train")
    copy_marian(regard.model.eval(), peer.model.eval())
    batch = to_device(peer.batches.batch(0), HERE.device)
    with torch.no_grad():
        total, count, _ = regard.trainer.objective(batch, None)
        theirs, _ = peer.mean_loss(batch, None)
    assert float(total / count) == pytest.approx(float(theirs), rel=1e-5)


def test_every_translation_has_exactly_the_tokens_asked_for_and_does_not_end_before():
    for works in opened("translate-beam"):
        for work in works:
            work()
            assert {len(tokens) for tokens in work.written} == {work.new}
            assert not any(0 in tokens[:-1] for tokens in work.written)
            before = [list(tokens) for tokens in work.written]
            work()
            assert [list(tokens) for tokens in work.written] == before  # a search, and no draw


def test_kenlm_scores_every_word_as_regard_does():
    pytest.importorskip("kenlm", reason="the peer")
    (regard, kenlm), (lines, their_lines, _), (sums, their_sums) = opened("ngram-score")
    for work in (regard, kenlm, lines, their_lines, sums, their_sums):
        work()
    for found in (regard.scores, np.concatenate(lines.lines) / np.log(10), np.concatenate(their_lines.lines)):
        assert np.abs(found - np.array(kenlm.scores)).max() < 1e-4
    assert their_sums.sums == pytest.approx([sum(line) for line in their_lines.lines], rel=1e-5)
    assert sums.sums == [sum(line) for line in lines.lines]


def test_a_line_of_counted_words_ends_with_a_sign_of_its_own():
    words = counting.words()
    assert (words.held_out == 0).sum() == len(words.lines)
    assert words.held_out[-1] == words.counted[-1] == 0
    assert (words.counted == 1).sum() == 0  # of the text that is counted every word is known
    assert [*words.numbers.values()] == [*range(len(words.numbers))]


def test_the_demos_rows_are_its_recipes_with_few_calls(monkeypatch):
    training = SimpleNamespace(batch_tokens=512)
    tokenizers = SimpleNamespace(target=SimpleNamespace(vocabulary=99))
    ready = SimpleNamespace(recipe=SimpleNamespace(training=training), data=SimpleNamespace(tokenizers=tokenizers),
                            model=SimpleNamespace(flops_per_token=3.0))  # fmt: skip
    monkeypatch.setattr(demo_systems, "prepare", lambda recipe: ready)
    for size, warm_up, calls in (("full", 10, 30), ("small", 10, 30), ("quick", 1, 1)):
        made = demo_systems.rows(BenchPlace(torch.device("cpu"), size))
        assert {(one.warm_up, one.calls, one.cost.operations) for one in made} == {(warm_up, calls, 3.0)}
        assert made[0].work == "512 tokens a step, 99 words, fp32, one thread"


def test_sizes_are_measured_on_real_text_where_it_is_here_and_quickly_on_little(monkeypatch, tmp_path):
    monkeypatch.setattr(sizes, "prepare", lambda recipe: recipe)
    lstm, transformer = find("lstm"), find("transformer")

    def corpus(system, size):
        return sizes.prepared(system, "tiny", BenchPlace(torch.device("cpu"), size), {"threads": 3})

    assert corpus(lstm, "quick").data.corpus == "copy"
    assert corpus(transformer, "quick").data.corpus == corpus(transformer, "small").data.corpus == "phrasebook"
    for name in ("wikitext-2", "multi30k"):
        (tmp_path / name).mkdir()
    monkeypatch.setattr(sizes, "data_folders", lambda: [tmp_path])
    assert (corpus(lstm, "small").data.corpus, corpus(transformer, "full").data.corpus) == ("wikitext-2", "multi30k")
    assert corpus(lstm, "quick").data.corpus == "copy"
    made = corpus(lstm, "small")
    assert (made.size, made.training.device, made.training.threads) == ("tiny", "cpu", 3)


# -- turns -----------------------------------------------------------------------------------------------------------


class Told:
    """A contender's work that writes down that it was called."""

    parameters = 1

    def __init__(self, name, calls, amount=7, problem=None):
        self.name, self.calls, self.amount, self.problem = name, calls, amount, problem

    def __call__(self):
        self.calls.append(self.name)
        if self.problem is not None:
            raise self.problem
        return self.amount


def row(*contenders, cost=None, warm_up=2, calls=3):
    return BenchRow("mine", HERE, "nothing", contenders, cost, warm_up, calls)


def contender(name, calls, **kind):
    return Contender(name, lambda: Told(name, calls, **kind))


def test_all_warm_up_before_anyone_is_timed_and_then_they_take_turns():
    calls = []
    both = [contender("Regard", calls), contender("B", calls)]
    result = take_turns(row(*both, warm_up=2, calls=3), MACHINE, repeats=2)
    timed = ["Regard"] * 3 + ["B"] * 3
    assert calls[-2 * len(timed) :] == timed * 2
    before = calls[: -2 * len(timed)]
    assert before == sorted(before, reverse=True)  # one after the other
    assert min(before.count(name) for name in ("Regard", "B")) >= 2
    assert [len(entry.rates) for entry in result.entries] == [2, 2]


def test_a_peer_that_is_not_installed_is_named_and_regard_is_measured_all_the_same():
    peer = Contender("B", lambda: pytest.fail("opened"), needs=["no_such_package"])
    ours, theirs = take_turns(row(contender("Regard", []), peer), MACHINE, repeats=1).as_json()["contenders"]
    assert "no_such_package" in theirs["could_not_run"]
    assert theirs["rates"] == []
    assert theirs["ratio_of_regard"] is None
    assert len(ours["rates"]) == 1


def test_what_needs_a_gpu_says_so_on_a_cpu():
    peer = Contender("B", lambda: pytest.fail("opened"), needs_gpu=True)
    result = take_turns(row(contender("Regard", []), peer), MACHINE, repeats=1)
    assert "GPU" in result.entries[1].why


@pytest.mark.parametrize("problem", [MemoryError(), torch.OutOfMemoryError("CUDA out of memory. Tried to")])
@pytest.mark.parametrize("who", ["Regard", "B"])
def test_too_little_memory_ends_only_the_part_of_whom_it_befell(problem, who):
    problems = {who: problem}
    both = [contender(name, [], problem=problems.get(name)) for name in ("Regard", "B")]
    entries = take_turns(row(*both), MACHINE, repeats=2).entries
    for entry in entries:
        assert ("not enough memory" in entry.why) == (entry.contender.name == who)
        assert len(entry.rates) == (0 if entry.contender.name == who else 2)


def test_what_fails_inside_a_peer_is_said_and_what_fails_inside_regard_is_raised():
    broken = {"problem": ValueError("no such shape\nat line 3")}
    result = take_turns(row(contender("Regard", []), contender("B", [], **broken)), MACHINE, repeats=1)
    assert result.entries[1].why == "It failed with ValueError: no such shape"
    with pytest.raises(ValueError, match="no such shape"):
        take_turns(row(contender("Regard", [], **broken), contender("B", [])), MACHINE, repeats=1)


def test_other_work_is_not_compared():
    result = take_turns(row(contender("Regard", []), contender("B", [], amount=8)), MACHINE, repeats=1)
    assert "not comparable" in result.entries[1].why
    assert result.ratio(result.entries[1]) is None


# -- the limit and the memory ----------------------------------------------------------------------------------------


def test_the_limit_is_whatever_takes_longer():
    assert Cost(operations=100, bytes=1).bound(1000.0, 1000.0) == (10.0, "operations")
    assert Cost(operations=1, bytes=100).bound(1000.0, 1000.0) == (10.0, "bytes")


@pytest.mark.parametrize("bench", [bench for bench in BENCHES if bench is not SERVE], ids=lambda bench: bench.name)
def test_a_limit_can_be_computed_for_every_neural_row(bench):
    for made in bench.rows(HERE):
        assert (made.cost is None) == (bench.name in ("ngram-score", "startup", "fast-rows"))
        assert made.cost is None or made.cost.operations > 0


def test_a_gpt_2_costs_what_its_shape_says():
    """6 operations per weight and token, 12 · layers · width · context for attention; generation reads all weights."""
    place = BenchPlace(torch.device("cpu"), "full")
    (training,) = get_bench("gpt-train").rows(place)
    weights = 12 * (12 * 768**2 + 13 * 768) + 2 * 768 + 50_304 * 768
    assert training.cost.operations == pytest.approx(6 * weights + 12 * 12 * 768 * 1024)


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's count of a process's memory")
def test_memory_is_what_was_held_at_the_peak_and_no_ones_before():
    """In a process of its own: nothing else is freed meanwhile. Both sizes are above what malloc keeps for later."""
    program = """
import torch
from regard.bench.machine import PeakMemory

memory = PeakMemory(torch.device("cpu"))
for size in (256, 64):  # the second must not see the first
    memory.start()
    held = torch.ones(size * 2**18)
    del held
    print(memory.peak() / 2**20)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    first, second = map(float, done.stdout.split())
    assert 224 <= first <= 320
    assert 48 <= second <= 128


def test_the_yardstick_takes_its_turn_with_the_others_and_its_best_counts():
    machine = Machine(HERE)
    assert machine.matmul_rate > 0
    assert machine.copy_rate > 0
    machine.matmul_rate, machine.copy_rate = 1.0, 1e30  # slower and faster than any
    take_turns(row(contender("Regard", [])), machine, repeats=1)
    assert machine.matmul_rate > 1.0
    assert machine.copy_rate == 1e30


def test_what_takes_long_is_only_run_by_its_name():
    assert set(NAMES) - set(USUAL) == {"gpt-shapes", "sizes", "serve", "fast-rows"}


def test_an_unknown_name_is_answered_with_the_nearest():
    with pytest.raises(RegardError, match="did you mean gpt-train"):
        get_bench("gpt-trian")


# -- the same weights ------------------------------------------------------------------------------------------------


@torch.no_grad()
def distance(model, peer):
    """The median over all weights: Adam blows up the rounding of the few whose gradient is zero but for it."""
    same = copy.deepcopy(peer)
    copy_weights(model, same)
    pairs = zip(same.parameters(), peer.parameters(), strict=True)
    return float(torch.cat([(ours - theirs).abs().flatten() for ours, theirs in pairs]).median())


@torch.no_grad()
def copy_weights(model, peer):
    kind = type(peer).__name__
    if kind == "GPT2LMHeadModel":
        gpt2_parity.copy_weights(model, peer)
    elif kind == "PlainGPT":
        peer.load_state_dict({plain_name(name): weight for name, weight in model.state_dict().items()})
    elif kind in ("PlainSeq2Seq", "PlainBahdanau"):
        peer.load_state_dict({translators_name(name, kind): weight for name, weight in model.state_dict().items()})
    else:
        peer.load_state_dict({recurrent_name(name): weight for name, weight in model.state_dict().items()})


def plain_name(name):
    name = name.replace("embedding.table", "words").replace("embedding.position.table", "places")
    name = name.replace("attention.project", "project").replace("attention.output", "attend")
    name = name.replace("feedforward.expand", "expand").replace("feedforward.output", "contract")
    return name.replace("layers.", "blocks.")


def recurrent_name(name):
    if name.startswith("layers."):
        _, layer, _, weight = name.split(".")
        return f"recurrent.{weight.replace('_l0', f'_l{layer}')}"
    return {"embedding.table.weight": "words.weight", "output.bias": "bias"}[name]


def translators_name(name, kind):
    if name.startswith("layers.") and kind == "PlainBahdanau":
        return f"cell.{name.split('.')[-1].removesuffix('_l0')}"
    name = name.replace("bridge.0.hidden", "bridge").replace("attend.score.", "").replace("encoder.fused", "encoder")
    name = name.replace("embedding.table", "words").replace("output.bias", "bias")
    return recurrent_name(name).replace("recurrent.", "decoder.") if name.startswith("layers.") else name


@torch.no_grad()
def copy_marian(model, peer):
    """Marian's word vectors are those of the paper, four times ours; its last layer norm then has to be as much quieter
    for the prediction, which uses the same vectors, to be the same. Its waves are in another order."""
    marian = peer.model
    marian.shared.weight.copy_(QUIET * model.embedding.table.weight)
    positions = torch.arange(marian.encoder.embed_positions.weight.size(0))[None]
    for side in (marian.encoder, marian.decoder):
        side.embed_positions.weight.copy_(model.embedding.position(positions, torch.float32)[0])
    for ours, theirs in zip(model.encoder.blocks, marian.encoder.layers, strict=True):
        copy_block(ours, theirs)
    for ours, theirs in zip(model.layers, marian.decoder.layers, strict=True):
        copy_block(ours, theirs)
        copy_linear(ours.cross.query, theirs.encoder_attn.q_proj)
        copy_linear(ours.cross.project, theirs.encoder_attn.k_proj, theirs.encoder_attn.v_proj)
        copy_linear(ours.cross.output, theirs.encoder_attn.out_proj)
        copy_linear(ours.cross_norm, theirs.encoder_attn_layer_norm)
    for part in marian.decoder.layers[-1].final_layer_norm.parameters():
        part /= QUIET


def copy_block(ours, theirs):
    attention = theirs.self_attn
    copy_linear(ours.attention.project, attention.q_proj, attention.k_proj, attention.v_proj)
    copy_linear(ours.attention.output, attention.out_proj)
    copy_linear(ours.attention_norm, theirs.self_attn_layer_norm)
    copy_linear(ours.feedforward.expand, theirs.fc1)
    copy_linear(ours.feedforward.output, theirs.fc2)
    copy_linear(ours.feedforward_norm, theirs.final_layer_norm)


def copy_linear(ours, *theirs):
    for part in ("weight", "bias"):
        for piece, target in zip(getattr(ours, part).chunk(len(theirs)), theirs, strict=True):
            getattr(target, part).copy_(piece)


def test_every_row_of_the_table_of_fast_code_has_a_benchmark():
    assert list(fast_rows.TRIALS.keys() ^ {row.name for row in rows()}) == []


# -- the load of a server --------------------------------------------------------------------------------------------


def test_clients_read_streams_in_any_pieces_and_let_a_server_close_what_is_idle():
    event = b'data: {"choices": [{"index": 0, "text": "a b"}], "usage": {"completion_tokens": 2}}\n\n'
    answer = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + b"%x\r\n%s\r\n0\r\n\r\n" % (len(event), event)
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve():
            one, other = (listening.accept()[0] for _ in range(2))
            with other:
                with one:
                    one.recv(2**16)
                    one.sendall(answer)
                other.recv(2**16)
                for byte in answer:
                    other.sendall(bytes([byte]))

        serving = threading.Thread(target=serve)
        serving.start()
        questions = iter([(0, {"prompt": "a"}), (1, {"prompt": "b"})])
        found = load(f"http://127.0.0.1:{listening.getsockname()[1]}/", questions, 2)
        serving.join()
    assert sorted((one.question, one.tokens, one.text()) for one in found) == [(0, 2, "a b"), (1, 2, "a b")]
    assert all(0 < one.first <= one.whole for one in found)
