"""Exercise bleu-score: clipped precision and the brevity penalty (chapter 4 of the course).

BLEU measures how many of a translation's n-grams are in the reference, for n = 1, 2, 3, 4. An n-gram counts at most as
often as it occurs in the reference (its count is clipped); otherwise "the the the the" would be perfect. Precision
alone favors short translations, so a translation that is shorter than the reference is penalized:

    p_n  = Σ_g min(count in translation, count in reference) / number of n-grams of the translation
    BLEU = 100 · min(1, e^(1 − r/c)) · (p_1 p_2 p_3 p_4)^¼          c, r: words of the translation and of the reference

Fill in the blank below, then run: regard exercise check FILE
"""

import math
from collections import Counter

EXERCISE = "bleu-score"


def ngrams(words: list[str], n: int) -> Counter[tuple[str, ...]]:
    """How often each n-gram occurs. Given."""
    return Counter(tuple(words[start : start + n]) for start in range(len(words) - n + 1))


def bleu(translation: list[str], reference: list[str]) -> float:
    """BLEU of one sentence, 0 to 100. Both have at least four words and a 4-gram in common."""
    raise NotImplementedError("return BLEU")
