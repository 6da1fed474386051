"""BLEU, chrF and perplexity of a translator on held-out pairs, and its alignment error rate if there are gold links."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from regard.base.word_spans import find_words
from regard.decoding.beam import Beam
from regard.decoding.translate import explain_hypotheses
from regard.evaluation.alignment_error import alignment_error_rate, spans_in, word_links
from regard.evaluation.bleu import accuracy, by_length, quality, refuse_escaped
from regard.evaluation.perplexity import finite_perplexity
from regard.evaluation.scoring import pair_losses
from regard.evaluation.scripts import bleu_cut
from regard.report.progress import progress
from regard.text.pairs import PairCorpus, Pairs
from regard.text.tokenizers.pair_tokens import TokenPairs, encode_pairs

if TYPE_CHECKING:
    from regard.runs.tasks.translation.run import TranslationRun


def evaluate_pairs(
    run: TranslationRun,
    corpus: PairCorpus,
    split: str,
    how: Beam,
    seen: Callable[[], Mapping[str, Any]],
    bleu_tokenizer: str | None,
    *,
    lengths: bool,
    texts: bool,
) -> dict[str, Any]:
    """The scores of a split; `seen` returns how much of it was trained on."""
    pairs, longest = corpus.splits[split], run.recipe.data.longest
    cut_words = bleu_cut(pairs.targets, bleu_tokenizer)  # refused before anything is translated
    refuse_escaped(pairs.targets, "The references")
    began = time.perf_counter()
    hypotheses = []
    with progress(f"translating {split}", len(pairs.sources), unit=" sentences") as bar:
        for best, *_ in run.translations(pairs.sources, beam=how, truncate=True):
            hypotheses.append(best.text)
            bar.advance(1)
    seconds = time.perf_counter() - began
    cut = encode_pairs(pairs, run.source_tokenizer, run.tokenizer, longest=longest)
    losses = pair_losses(run.model, *both_sides(cut), run.tokenizer.eos)
    nats, tokens = float(sum(loss.sum() for loss in losses)), sum(map(len, losses))
    truncated = sum(len(run.source_tokenizer.encode(line)) > longest for line in pairs.sources)
    facts: dict[str, Any] = {
        "system": run.recipe.system,
        "corpus": corpus.name,
        "split": split,
        "direction": f"{corpus.source or 'source'} → {corpus.target or 'target'}",
        "sentences": len(pairs),
        **seen(),
        **quality(hypotheses, pairs.targets, cut_words.tokenizer),
        "bleu_tokenizer": cut_words.why,
        "exact": accuracy(hypotheses, pairs.targets),
        "perplexity": finite_perplexity(nats / tokens) if tokens else None,
        "tokens": tokens,
        **({"left_out_of_perplexity": len(pairs) - len(cut)} if len(cut) < len(pairs) else {}),
        **({"truncated_sources": truncated} if truncated else {}),
        **(alignment_error(run, pairs.take(cut.kept)) if pairs.alignments is not None else {}),
        "search": f"beam {how.width}, length penalty {how.length_penalty:g}" if how.width > 1 else "greedy",
        "tokenizer": f"{run.tokenizer.kind}, {run.tokenizer.vocabulary} symbols",
        "parameters": run.parameters,
        "seconds": round(seconds, 3),
        "sentences_per_second": round(len(pairs) / max(seconds, 1e-9), 1),
    }
    if lengths:
        classes = by_length(pairs.sources, hypotheses, pairs.targets, tokenizer=cut_words.tokenizer)
        facts["by_length"] = [asdict(found) for found in classes]
    return facts | ({"translations": hypotheses} if texts else {})


def alignment_error(run: TranslationRun, pairs: Pairs) -> dict[str, float]:
    """The alignment error rate of the model's attention while it reads the references; empty if it has no attention."""
    assert pairs.alignments is not None
    sources = [run.source_tokenizer.encode(line) for line in pairs.sources]
    targets = [[*run.tokenizer.encode(line), run.tokenizer.eos] for line in pairs.targets]
    found = []
    for number, seen in enumerate(explain_hypotheses(run.model, sources, targets, eos=run.tokenizer.eos)):
        if seen.alignment is None:
            return {}
        texts = pairs.sources[number], pairs.targets[number]
        found.append(word_alignment(run, texts[0], sources[number], texts[1], targets[number], seen.alignment))
    return {"alignment_error_rate": alignment_error_rate(pairs.alignments, found)}


def word_alignment(
    run: TranslationRun, source: str, source_ids: list[int], target: str, target_ids: list[int], matrix: np.ndarray
) -> list[tuple[int, int]]:
    """The source word with the most weight for each target word, from the weights of tokens [target, source].

    Words are numbered as in the given text, even if some are not in the vocabulary.
    """
    written = [n for n in target_ids if n != run.tokenizer.eos]
    links = word_links(
        matrix,
        spans_in(run.source_tokenizer, source_ids, source),
        spans_in(run.tokenizer, written, target),
        find_words(run.source_tokenizer.normalise(source)),
        find_words(run.tokenizer.normalise(target)),
    )
    return sorted(links)


def both_sides(pairs: TokenPairs) -> tuple[list[list[int]], list[list[int]]]:
    """Encoded pairs as lists of ids, sources and targets."""
    numbers = range(len(pairs))
    return [pairs.source_of(n).tolist() for n in numbers], [pairs.target_of(n).tolist() for n in numbers]
