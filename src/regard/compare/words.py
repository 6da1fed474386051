"""What a comparison says in words: the notes under its table, and the paragraph a paper could quote."""

from __future__ import annotations

from typing import Any

from regard.compare.comparison import Comparison
from regard.compare.curves import other_order
from regard.compare.plan import VALIDATIONS
from regard.evaluation.intervals import DRAWS
from regard.evaluation.perplexity import Method
from regard.report.progress import grouped
from regard.training.settings import Training


def notes(comparison: Comparison) -> list[str]:
    """What the table cannot say about itself, one sentence each."""
    facts = comparison.plan.facts
    found = [_conditions(comparison)]
    row = next((row for row in comparison.rows if row["perplexity"] is not None), None)
    if row is not None:
        unknown = f"{100 * row['unknown_rate']:.2g} % of the test tokens are <unk>"
        if refused := row["bits_per_character_refused"]:
            found.append(f"No bits per character: {refused}; {unknown}.")
        else:
            found.append(f"Bits per character count every character, line ends included; {unknown}.")
    if comparison.seeds == 1:
        found.append("One seed: the intervals cover other test text, not other seeds; --seeds 3 would cover both.")
    if any(not entrant.counted for entrant in comparison.plan.entrants):
        found.append(_effort_note(comparison))
    before = [r["memory_before_bytes"] for r in comparison.results.values() if r.get("memory_of") == "process"]
    if before:
        found.append(
            "Memory is the most that the training's own process held; Python and PyTorch alone are "
            f"{max(before) / 2**20:.0f} MiB of it."
        )
    if any(r.get("memory_of") == "GPU" for r in comparison.results.values()):
        found.append("For systems on the GPU, memory is the most that tensors held there while training.")
    if facts["split"] == "valid":
        found.append("There is no test split: the numbers are of the validation split, which also chose the weights.")
    if sentence := _other_order(comparison):
        found.append(sentence)
    for label, seed in comparison.results:
        for note in comparison.results[label, seed].get("notes", []):
            found.append(f"{label}: {note}.")
    found += [f"{name} failed: {why}" for name, why in comparison.failed.items()]
    return found


def _conditions(comparison: Comparison) -> str:
    facts = comparison.plan.facts
    return (
        f"All were tested on the same {grouped(facts['tokens'][facts['split']])} tokens in {_segments(comparison)}; "
        f"intervals are over {comparison.documents} documents{_of_lines(comparison)}"
        + (" and the seeds." if comparison.seeds > 1 else ".")
    )


def _segments(comparison: Comparison) -> str:
    segment = comparison.plan.facts["segment"]
    return Method(segment - segment // 2, segment // 2).sentence


def _of_lines(comparison: Comparison) -> str:
    done = [r["evaluation"]["documents"] for r in comparison.results.values() if "evaluation" in r]
    if not done:
        return ""
    size = round(sum(done[0]["tokens"]) / len(done[0]["tokens"]))
    what = "whole lines" if done[0]["whole_lines"] else "cut within lines, of which there are too few"
    return f" ({what}, about {grouped(size)} tokens each)"


def _effort_note(comparison: Comparison) -> str:
    plan = comparison.plan
    largest = max(e.recipe.training.batch_tokens for e in plan.entrants if isinstance(e.recipe.training, Training))
    counted = "n-grams read the training text once, whatever the budget."
    if plan.match == "seconds":
        return f"Equal seconds reward the faster kernel: compare the tokens seen. {counted}"
    return f"Tokens seen exceed the budget by less than one optimiser step (at most {grouped(largest)}). {counted}"


def _other_order(comparison: Comparison) -> str:
    """Where equal tokens and equal seconds would not give the same order."""
    found = other_order(comparison.curves, comparison.plan.match)
    if found is None or found.final == found.there:
        return ""
    end = "seconds" if comparison.plan.match == "seconds" else "tokens"
    at = f"{found.at:.3g} s" if found.axis == "seconds" else f"{grouped(found.at)} tokens"
    who = "the fastest was done" if found.axis == "seconds" else "the slowest had read no more"
    return (
        f"On the validation text the order at equal {end} is {', '.join(found.final)}; at equal {found.axis} "
        f"({at}, when {who}) the curves were ordered {', '.join(found.there)}. The two differ because "
        f"systems read at different speeds; schedules that end there could change the second order."
    )


def methods(comparison: Comparison) -> str:
    """The paragraph a paper could quote."""
    plan, facts = comparison.plan, comparison.plan.facts
    corpus, tokens, tokenizer = facts["corpus"], facts["tokens"], facts["tokenizer"]
    neural = [entrant for entrant in plan.entrants if not entrant.counted]
    done = [result for result in comparison.results.values() if "evaluation" in result]
    devices = sorted({result["device"] for result in done})
    threads = sorted({result["threads"] for result in done})
    sizes = ", ".join(f"{grouped(count)} {split}" for split, count in tokens.items())
    sentences = [
        f"Data: {corpus['name']} (checksum {corpus['checksum']}): {sizes} tokens. {' '.join(corpus['notes'])}",
        f"One {tokenizer['kind']} tokenizer of {grouped(tokenizer['vocabulary'])} symbols, built from the training "
        "split, served all systems.",
    ]
    if neural:
        seeds = len(neural[0].seeds)
        budget = f"{plan.budget:g} s" if plan.unit == "seconds" else f"{grouped(plan.budget)} tokens"
        equal = f"Each neural system was trained for {budget}"
        if plan.match == "parameters":
            equal += f" with its width chosen to have about {grouped(facts['target_parameters'])} parameters"
        sentences.append(
            f"{equal}, at size {facts['size']} with its own optimiser settings ({_optimisers(comparison)}), "
            f"with {'seed 1' if seeds == 1 else f'seeds 1 to {seeds}'}; the weights of the lowest validation loss "
            f"among about {VALIDATIONS} equally spaced validations were tested."
        )
    sentences += [
        "The n-grams are interpolated modified Kneser-Ney models of the whole training split.",
        "Perplexity is exp of the mean negative log-probability per token, over every token of the "
        f"{facts['split']} split and the <eos> of each line, averaged over seeds where there are "
        f"several; the text was read in "
        f"{_segments(comparison)}, the same for every system.",
        f"Intervals are 95 % intervals of {grouped(DRAWS)} draws of a hierarchical bootstrap over "
        f"{comparison.documents} documents of the test text{_of_lines(comparison)}, resampled with replacement"
        + (", and over seeds, drawn from Student's t around their mean" if comparison.seeds > 1 else "")
        + "; differences are paired over documents.",
        "Generation speed is of one text at a time, greedily.",
        f"Regard {facts['regard']}, {_versions(done)}, on "
        f"{' and '.join(devices)} (CPU threads: {', '.join(map(str, threads))}); {facts['created'][:10]}.",
    ]
    return " ".join(sentences)


def _versions(done: list[dict[str, Any]]) -> str:
    return " and ".join(sorted({f"PyTorch {result['torch']}, Python {result['python']}" for result in done}))


def _optimisers(comparison: Comparison) -> str:
    """Systems with the same settings are named together."""
    groups: dict[str, list[str]] = {}
    for entrant in comparison.plan.entrants:
        settings = entrant.recipe.training
        if isinstance(settings, Training):
            words = f"{settings.optimizer}, learning rate {settings.learning_rate:g}, {settings.schedule}"
            groups.setdefault(f"{words}, {grouped(settings.batch_tokens)} tokens a step", []).append(entrant.label)
    return "; ".join(f"{', '.join(labels)}: {words}" for words, labels in groups.items())
