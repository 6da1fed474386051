"""Translation quality against references: BLEU (Papineni et al. 2002), chrF (Popović 2015, 2017), exact match.

    BLEU = min(1, e^(1 − r/c)) · (p_1 p_2 p_3 p_4)^¼        p_n: share of the n-grams that are in a reference
    chrF = (1 + β²) P R / (β² P + R),   β = 2                of character n-grams; chrF++: also words and word pairs

All numbers are sacreBLEU's (Post 2018), on plain untokenized text, each with sacreBLEU's signature. The script of the
references decides how BLEU splits words (`scripts.py`), unless a tokenizer is named. BLEU of lower-cased text, which
older papers report, is given as well.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from regard.base.errors import RegardError
from regard.evaluation.scripts import bleu_cut, check_tokenizer, count_words

METRICS = ("bleu", "chrf", "chrf_plus_plus", "bleu_tokenised_lowercase")
ESCAPED = re.compile(r"&(?:apos|quot|amp|lt|gt|#\d+);|(?<!\S)@[-,.]@(?!\S)")
ESCAPED_REFERENCES = 1 / 1000  # fewer escapes may be part of the text; more come from a tool
ESCAPED_TRANSLATIONS = 1 / 20  # … or, in translations, were learned from a few escapes in the training text

Score = dict[str, Any]  # {"score": 0 … 100, "signature": how it was computed}


def quality(hypotheses: Sequence[str], references: Sequence[str], tokenizer: str | None = None) -> dict[str, Score]:
    """Every metric's score and signature, over the whole corpus."""
    _check(hypotheses, references)
    tokenizer = bleu_cut(references, tokenizer).tokenizer
    refuse_escaped(hypotheses, "The translations", ESCAPED_TRANSLATIONS)
    refuse_escaped(references, "The references", ESCAPED_REFERENCES)
    return {name: _score(metric_named(name, tokenizer), hypotheses, references) for name in METRICS}


def bleu(hypotheses: Sequence[str], references: Sequence[str], tokenizer: str | None = None) -> float:
    """Only the corpus's BLEU."""
    _check(hypotheses, references)
    return float(
        metric_named("bleu", bleu_cut(references, tokenizer).tokenizer).corpus_score(hypotheses, [references]).score
    )


def accuracy(hypotheses: Sequence[str], references: Sequence[str]) -> float:
    """The share of hypotheses that equal their reference."""
    _check(hypotheses, references)
    return float(np.mean(_same(hypotheses, references)))


@dataclass(frozen=True)
class LengthClass:
    """Sentences whose source has `shortest` to `longest` words (None: or more), and how well they are translated."""

    shortest: int
    longest: int | None
    sentences: int
    bleu: float
    chrf: float
    accuracy: float


def by_length(
    sources: Sequence[str],
    hypotheses: Sequence[str],
    references: Sequence[str],
    edges: Sequence[int] = (5, 10, 15, 20, 30, 40, 50, 60),
    tokenizer: str | None = None,
) -> list[LengthClass]:
    """Quality by the source's number of words (Bahdanau et al. 2015, fig. 2): 0 … 5, 6 … 10, …, over 60.

    Classes without a sentence are left out. Words are separated by white space; in a script without spaces every
    letter counts as one.
    """
    _check(hypotheses, references)
    _check(sources, references)
    counts = np.array([count_words(source) for source in sources])
    same = _same(hypotheses, references)
    statistics = {name: Statistics.of(name, hypotheses, references, tokenizer) for name in ("bleu", "chrf")}
    classes = []
    for low, high in zip([0, *(edge + 1 for edge in edges)], [*edges, None]):
        inside = (counts >= low) & (counts <= (np.inf if high is None else high))
        if inside.any():
            scores = {name: float(of.score(of.counts[inside].sum(0))) for name, of in statistics.items()}
            classes.append(LengthClass(low, high, int(inside.sum()), accuracy=float(same[inside].mean()), **scores))
    return classes


# -- sums over sentences, from which a corpus's score is computed -----------------------------------------------------


@dataclass(frozen=True)
class Statistics:
    """Each sentence's counts; a corpus's score is a function of their sums."""

    metric: str
    counts: np.ndarray  # [sentences, sums]
    tokenizer: str  # of BLEU

    @classmethod
    def of(
        cls, name: str, hypotheses: Sequence[str], references: Sequence[str], tokenizer: str | None = None
    ) -> Statistics:
        _check(hypotheses, references)
        tokenizer = bleu_cut(references, tokenizer).tokenizer
        # sacreBLEU has no public name for these sums; its own significance test uses this one
        counts = metric_named(name, tokenizer)._extract_corpus_statistics(list(hypotheses), [list(references)])
        return cls(name, np.array(counts, dtype=np.float64), tokenizer)

    def score(self, sums: np.ndarray) -> np.ndarray:
        """The score [...] of corpora whose sums are [..., sums]."""
        return (bleu_of if "bleu" in _known(self.metric) else chrf_of)(sums)


def bleu_of(sums: np.ndarray) -> np.ndarray:
    """BLEU of (hypothesis length, reference length, matching n-grams 1 … 4, n-grams 1 … 4), in the last dimension.

    An order without a match counts as ½, ¼, … of one (NIST's smoothing).
    """
    hypothesis, reference, matches, totals = sums[..., 0], sums[..., 1], sums[..., 2:6], sums[..., 6:10]
    halvings = np.cumsum(matches == 0, axis=-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        precisions = np.where(matches > 0, matches, 0.5**halvings) / totals
        brevity = np.minimum(1.0, np.exp(1 - reference / hypothesis))
        score = 100 * brevity * np.exp(np.log(precisions).mean(-1))
    defined = (matches.sum(-1) > 0) & (totals > 0).all(-1)
    return np.where(defined, score, 0.0)


def chrf_of(sums: np.ndarray, beta: float = 2.0) -> np.ndarray:
    """chrF of (n-grams of the hypothesis, of the reference, matches) for each order, in the last dimension."""
    hypothesis, reference, matches = (sums[..., part::3] for part in range(3))
    counted = (hypothesis > 0) & (reference > 0)
    orders = np.maximum(counted.sum(-1), 1)
    precision = np.where(counted, matches / np.maximum(hypothesis, 1), 0).sum(-1) / orders
    recall = np.where(counted, matches / np.maximum(reference, 1), 0).sum(-1) / orders
    return 100 * (1 + beta**2) * precision * recall / np.maximum(beta**2 * precision + recall, 1e-300)


# --------------------------------------------------------------------------------------------------------------------


def metric_named(name: str, tokenizer: str = "13a") -> Any:
    """sacreBLEU's metric of this name."""
    from sacrebleu.metrics import BLEU, CHRF  # takes a tenth of a second to import

    check_tokenizer(tokenizer)
    match _known(name):
        case "bleu":
            return BLEU(tokenize=tokenizer, force=True)
        case "bleu_tokenised_lowercase":
            return BLEU(tokenize=tokenizer, lowercase=True, force=True)
        case "chrf":
            return CHRF()
        case _:
            return CHRF(word_order=2)


def _known(name: str) -> str:
    if name not in METRICS:
        raise RegardError(f"There is no metric {name!r}; choose one of {', '.join(METRICS)}.")
    return name


def refuse_escaped(texts: Sequence[str], whose: str, share: float = ESCAPED_REFERENCES) -> None:
    """Refuses escaped text, whose escapes raise BLEU: the same translations got 38.5 with them and 35.4 without."""
    found = [(n, match[0]) for n, text in enumerate(texts, 1) if (match := ESCAPED.search(text))]
    if len(found) > share * len(texts):
        line, escape = found[0]
        raise RegardError(
            f"{whose} are escaped or tokenized ({escape} on line {line}, {len(found)} such lines), so their BLEU "
            "would be wrong: give plain, untokenized text."
        )


def _score(metric: Any, hypotheses: Sequence[str], references: Sequence[str]) -> Score:
    score = float(metric.corpus_score(hypotheses, [references]).score)
    return {"score": score, "signature": str(metric.get_signature())}


def _same(hypotheses: Sequence[str], references: Sequence[str]) -> np.ndarray:
    return np.array([one.split() == other.split() for one, other in zip(hypotheses, references)])


def _check(hypotheses: Sequence[str], references: Sequence[str]) -> None:
    if len(hypotheses) != len(references):
        raise RegardError(
            f"There are {len(hypotheses)} sentences and {len(references)} references; give one reference for each "
            "sentence."
        )
    if not len(references):
        raise RegardError("There are no sentences to score; give at least one.")
