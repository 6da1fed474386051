"""The quality of predicted labels: accuracy, precision, recall, F1, and the confusion table.

    precision = right / predicted,   recall = right / gold,   F1 = 2 right / (predicted + gold)      for each label
    accuracy  = all that is right / lines,                    macro F1 = the mean of F1 over all labels

Accuracy comes with Wilson's interval (1927), which stays within 0 … 1 and has a width even at 100 %.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import numpy as np
import torch

from regard.base.errors import RegardError
from regard.decoding.generate import pad
from regard.decoding.translate import AHEAD, BATCH_TOKENS, batches, closed
from regard.evaluation.intervals import share_interval
from regard.systems.model import Model

Confusion = dict[str, dict[str, int]]  # gold label → predicted label → lines


@torch.no_grad()
def label_log_probabilities(
    model: Model, sources: Iterable[Sequence[int]], *, eos: int, forbidden: Sequence[int] = (), ahead: int = AHEAD
) -> Iterator[np.ndarray]:
    """log P(label | source) of every symbol [V] for each source, in nats; forbidden symbols have probability 0.

    Sources may come with or without `<eos>`, and may be an endless stream: `ahead` of them are sorted by length and
    read in batches, which affects only the speed.
    """
    model.eval()
    remaining = iter(sources)
    while chunk := [closed(source, eos) for source in islice(remaining, max(ahead, 1))]:
        found: list[np.ndarray] = [np.empty(0)] * len(chunk)
        for batch in batches([len(source) for source in chunk], BATCH_TOKENS.get(model.device.type, 8192)):
            source, _ = pad([chunk[n] for n in batch], model.device)
            # On the CPU: reading them from a GPU would synchronize.
            lengths = torch.tensor([len(chunk[n]) for n in batch])
            logits, _ = model(torch.full_like(source[:, :1], eos), model.begin(source, lengths))
            logits = logits[:, 0].double()
            logits[:, list(forbidden)] = -math.inf
            for n, row in zip(batch, logits.log_softmax(dim=-1).cpu().numpy()):
                found[n] = row
        yield from found


def label_quality(gold: Sequence[str], predicted: Sequence[str]) -> dict[str, Any]:
    """Accuracy with its interval, macro F1, each label's numbers, and the confusion table.

    Labels are all that occur on either side. Precision is None for a label that was never predicted, recall for one
    that is never the gold label.
    """
    table = confusion(gold, predicted)
    right = sum(row.get(label, 0) for label, row in table.items())
    labels = {label: _of_label(label, table) for label in sorted({*gold, *predicted})}
    return {
        "accuracy": right / len(gold),
        "accuracy_interval": list(share_interval(right, len(gold))),
        "macro_f1": sum(numbers["f1"] for numbers in labels.values()) / len(labels),
        "labels": labels,
        "confusion": table,
    }


def confusion(gold: Sequence[str], predicted: Sequence[str]) -> Confusion:
    """Number of lines by gold label and predicted label; zeros are left out."""
    if len(gold) != len(predicted):
        raise RegardError(
            f"There are {len(predicted)} predictions for {len(gold)} labels; give one prediction for each label."
        )
    if not len(gold):
        raise RegardError("There are no lines to label; give at least one.")
    table: Confusion = {}
    for (truth, guess), count in sorted(Counter(zip(gold, predicted)).items()):
        table.setdefault(truth, {})[guess] = count
    return table


def _of_label(label: str, table: Confusion) -> dict[str, Any]:
    right = table.get(label, {}).get(label, 0)
    count = sum(table.get(label, {}).values())
    predicted = sum(row.get(label, 0) for row in table.values())
    return {
        "lines": count,
        "predicted": predicted,
        "precision": right / predicted if predicted else None,
        "recall": right / count if count else None,
        "f1": 2 * right / (count + predicted),
    }
