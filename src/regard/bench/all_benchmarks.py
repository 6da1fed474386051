"""All benchmarks by name. Nothing here loads torch, so that the list is there at once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

from regard.base.errors import RegardError
from regard.base.settings import did_you_mean

if TYPE_CHECKING:
    from regard.bench.contenders import BenchPlace, BenchRow


@dataclass(frozen=True)
class Bench:
    name: str
    work: str
    peers: str
    target: str  # module:function, which makes the rows
    only_named: bool = False  # not among what `regard bench` runs without names

    def rows(self, place: BenchPlace) -> Iterable[BenchRow]:
        module, _, function = self.target.partition(":")
        made: Iterable[BenchRow] = getattr(import_module(f"regard.bench.{module}"), function)(place)
        return made


SERVE = Bench(  # it has no rows: server_load.measure takes its turns
    "serve",
    "`regard serve` serves 1, 16 or 64 clients at once (on a GPU also 256)",
    "one client alone; transformers' generate behind the same kind of server",
    "",
    only_named=True,
)
BENCHES = (
    Bench(
        "gpt-train",
        "a GPT-2's whole training step",
        "transformers' GPT2LMHeadModel; a plain PyTorch step as nanoGPT takes it",
        "gpt2:training_rows",
    ),
    Bench(
        "gpt-shapes",
        "the same with 350 million parameters, and with a context of 4096",
        "transformers' GPT2LMHeadModel; a plain PyTorch step",
        "gpt2:further_training_rows",
        only_named=True,
    ),
    Bench(
        "sizes",
        "a whole training step of every neural system at every size, by the default command on real text",
        "a plain PyTorch loop of the same model, as it is and in one CUDA graph",
        "sizes:rows",
        only_named=True,
    ),
    Bench("gpt-generate", "a GPT-2 generates greedily", "transformers' generate", "gpt2:generation_rows"),
    Bench(
        "translate-train",
        "an encoder-decoder Transformer's whole training step",
        "transformers' MarianMTModel",
        "translators:training_rows",
    ),
    Bench(
        "recurrent-translate-train",
        "whole training steps of seq2seq and of Bahdanau's translator",
        "the same networks in plain PyTorch, by nn.LSTM and by a loop over nn.GRUCell",
        "recurrent_translators:rows",
    ),
    Bench("translate-beam", "a Transformer translates with beam 5", "transformers' generate", "translators:beam_rows"),
    Bench(
        "translate-cpu",
        "a Transformer translates on a CPU, greedily and with beam 5",
        "CTranslate2 with the same weights, in fp32 and int8",
        "cpu_translators:rows",
    ),
    Bench(
        "lstm-train",
        "an LSTM language model's whole training step",
        "torch.nn.LSTM, as it is and in one CUDA graph",
        "recurrent_training:lstm_rows",
    ),
    Bench(
        "rnn-train",
        "a tanh RNN language model's whole training step",
        "torch.nn.RNN, as it is and in one CUDA graph",
        "recurrent_training:rnn_rows",
    ),
    Bench("llama-train", "a Llama's whole training step", "transformers' LlamaForCausalLM", "after_gpt:llama_rows"),
    Bench(
        "linear-attention-train",
        "a linear-attention model's whole training step, long texts",
        "the same network with flash-linear-attention's kernels; on a CPU with a weight for every pair of words",
        "after_gpt:linear_rows",
    ),
    Bench(
        "mingru-train",
        "a minimal GRU's whole training step",
        "the same network step by step; torch.nn.GRU in its place",
        "after_gpt:mingru_rows",
    ),
    SERVE,
    Bench("ngram-score", "a 5-gram scores text, from ids and from lines, on one CPU thread", "kenlm", "counting:rows"),
    Bench(
        "demo",
        "the training of `regard demo`, each neural system's step, on one CPU thread",
        "a plain PyTorch loop of the same model",
        "demo_systems:rows",
    ),
    Bench(
        "startup",
        "`regard generate`, `translate` and `train` of one step as commands, in a cold and a warm cache",
        "python -c 'import torch'",
        "starting:rows",
    ),
    Bench(
        "fast-rows",
        "the speedup from each row of the table of fast code, in real work",
        "the same work without this row",
        "fast_rows:fast_rows",
        only_named=True,
    ),
)
NAMES = tuple(bench.name for bench in BENCHES)
USUAL = tuple(bench.name for bench in BENCHES if not bench.only_named)


def get_bench(name: str) -> Bench:
    if name not in NAMES:
        raise RegardError(f"There is no benchmark {name!r}{did_you_mean(name, NAMES)}")
    return BENCHES[NAMES.index(name)]
