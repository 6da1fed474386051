"""What a trace costs beside the plain call: a GPT-2 small (12 layers, 12 heads, width 768) reads 128 tokens on the CPU.

    python studies/trace_cost.py [--tokens 128] [--layers 12] [--heads 12] [--width 768]
                                             [--vocabulary 50257] [--repeats 7] [--threads 2] [--gradients]

The plain call, the same by the written equation (`explain`) and the whole trace with its arrays take turns; medians and
the fastest are printed, also in seconds of processor time, which two free cores share and which other work on the
machine lengthens least; a JSON line comes last. The weights are untrained, which changes no time. How often `explain`
was called while nothing was traced (a call, a loss, a generated text) is counted and printed: what is not called costs
nothing. `--gradients` adds one trace with the matrix ‖∂L_t/∂e_s‖, a backward pass for each of its rows.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from statistics import median

os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import torch

from regard.decoding.generate import generate
from regard.decoding.sampling import Sampling
from regard.insight.tracing import trace_language
from regard.systems.gpt import GPT, Settings
from regard.text.tokenizers.tokenizer import Tokenizer


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in {
        "tokens": 128, "layers": 12, "heads": 12, "width": 768, "vocabulary": 50257, "repeats": 7, "threads": 2
    }.items():  # fmt: skip
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--gradients", action="store_true")
    return parser.parse_args()


def seconds(work) -> tuple[float, float]:
    """By the clock, and of the processor in all threads."""
    began, busy = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - began, time.process_time() - busy


def explanations(model: GPT, work) -> int:
    """How often the work calls `explain`, of the model or of any of its layers."""
    calls = 0

    def counted(explain):
        def call(*given, **named):
            nonlocal calls
            calls += 1
            return explain(*given, **named)

        return call

    watched = [module for module in model.modules() if hasattr(module, "explain")]
    for module in watched:
        module.explain = counted(module.explain)
    work()
    for module in watched:
        del module.explain
    return calls


def main() -> None:
    given = arguments()
    torch.set_num_threads(given.threads)
    torch.manual_seed(0)
    settings = Settings(layers=given.layers, heads=given.heads, width=given.width, context=max(given.tokens, 32))
    model = GPT(given.vocabulary, settings).eval()
    tokenizer = Tokenizer.of_tokens(["<eos>", "<unk>", *(f"w{n}" for n in range(2, given.vocabulary))], "word")
    ids = torch.randint(2, given.vocabulary, (given.tokens - 1,)).tolist()
    text, tokens = " ".join(tokenizer.token(n) for n in ids), torch.tensor([[tokenizer.eos, *ids]])

    def write() -> list[list[int | None]]:
        return list(generate(model, [[0, *ids[:8]]], max_tokens=8, eos=0, sampling=Sampling(0.0), seed=0))

    ways = {
        "plain call": lambda: model(tokens),
        "explain": lambda: model.explain(tokens),
        "trace": lambda: trace_language(model, tokenizer, text),
    }
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    with torch.no_grad():
        untraced = explanations(model, lambda: [model(tokens), model.loss(tokens, tokens), *write()])
        traced = explanations(model, ways["trace"])
        for work in ways.values():
            work()  # the first call pays for memory
        for _ in range(given.repeats):
            for name, work in ways.items():
                times[name].append(seconds(work))
    if given.gradients:
        times["with gradients"] = [seconds(lambda: trace_language(model, tokenizer, text, gradients=True))]
    facts: dict[str, object] = {**vars(given), "torch": torch.__version__}
    for name, found in times.items():
        clock, busy = (sorted(column) for column in zip(*found))
        print(f"{name:<14} {median(clock):6.2f} s, at best {clock[0]:.2f}; processor at best {busy[0]:.2f} s")
        facts[name] = {"seconds": median(clock), "best": clock[0], "processor": busy[0]}
    print(f"explain was called {untraced} times without a trace (call, loss, generation), {traced} times for one")
    facts["explain_calls"] = {"untraced": untraced, "traced": traced}
    print(json.dumps(facts))


if __name__ == "__main__":
    main()
