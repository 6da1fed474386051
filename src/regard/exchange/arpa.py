"""ARPA files: n-gram models as text, the format that kenlm, SRILM and speech recognizers share.

    \\3-grams:
    log₁₀ p(w₃ | w₁ w₂) ⇥ w₁ w₂ w₃ ⇥ log₁₀ β(w₁ w₂ w₃)

`<s>` starts a line and `</s>` ends it; for Regard both are id 0, `<eos>`. A probability of 0 is written −99 (SRILM's).
Words are separated by blanks, so a token's own blanks and control characters are written as their Unicode pictures
(space ␠, newline ␊: U+2400 + code); ␡ before a character means the character itself (a token that really is `<s>`
becomes ␡<s>), and a lone ␡ is the empty token. So every token can be written and read back.
"""

from __future__ import annotations

import re
from array import array
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from math import inf, log
from pathlib import Path
from typing import NoReturn, TextIO

import numpy as np

from regard.base.errors import RegardError
from regard.base.reading import reading
from regard.base.writing import atomic_write
from regard.systems.kneser_ney import Estimate
from regard.systems.ngram import ORDERS, NGram, Settings
from regard.text.readers.lines import bounded_lines

START, END, UNKNOWN = "<s>", "</s>", "<unk>"
ZERO = -99.0  # log₁₀ of probability 0
LITERAL = "␡"
PREAMBLE = 1000  # lines before \\data\\, at most
_START, _END = -1, -2  # while reading: both are id 0, but each has its own entry


# -- tokens ----------------------------------------------------------------------------------------------------------


def escape(token: str) -> str:
    """A token as one ARPA word."""
    if token in ("", START, END, UNKNOWN):
        return LITERAL + token
    pictured = re.sub("[␀-␡]", rf"{LITERAL}\g<0>", token)
    return re.sub("[\0-\x20]", lambda match: chr(0x2400 + ord(match[0])), pictured)


def unescape(word: str) -> str:
    """The token of an ARPA word."""
    return re.sub("␡(.?)|([␀-␠])", lambda match: chr(ord(match[2]) - 0x2400) if match[2] else match[1], word)


def spell(tokens: list[str]) -> list[str]:
    """A vocabulary by id as ARPA words; the boundary is </s>."""
    words = [UNKNOWN if (number, token) == (1, UNKNOWN) else escape(token) for number, token in enumerate(tokens)]
    words[0] = END
    twice, times = Counter(words).most_common(1)[0]
    if times > 1:
        raise RegardError(
            f"Two tokens of the vocabulary are both {twice!r}, which ARPA cannot tell apart; train with "
            "data.tokenizer word or char."
        )
    return words


# -- writing ---------------------------------------------------------------------------------------------------------


def write_arpa(model: NGram, tokens: list[str], path: str | Path) -> None:
    """Write the model with `tokens`, its vocabulary by id, as an ARPA file. An error leaves no partial file."""
    with atomic_write(Path(path)) as temporary:
        write_straight(model, tokens, temporary)


def write_straight(model: NGram, tokens: list[str], path: Path, header: str = "") -> None:
    """Write directly into the file. Nine digits preserve every bit of fp32. The lines of `header` become comments,
    which begin with `#`: kenlm reads no others.
    """
    if len(tokens) != model.vocabulary:
        raise RegardError(
            f"The model has {model.vocabulary} tokens, not {len(tokens)}; give the tokens of its own tokenizer."
        )
    words = spell(tokens)
    with open(path, "w", encoding="utf-8", newline="\n") as file:
        file.writelines(f"# {line}\n" for line in header.splitlines())
        _write(model, words, file)


def _write(model: NGram, words: list[str], file: TextIO) -> None:
    file.write("\\data\\\n")
    for k, level in enumerate(model.levels, start=1):
        file.write(f"ngram {k}={len(level) + (k == 1)}\n")  # <s> and </s> share one entry
    contexts = [START, *words[1:]]
    for k, level in enumerate(model.levels, start=1):
        context, word = np.divmod(level.keys[:-1].cpu().numpy(), model.vocabulary)
        probability = _log10(level.log_probability[:-1].double().clamp(max=0).cpu().numpy())  # 1 may be rounded up
        backoff = _log10(level.log_backoff[:-1].double().cpu().numpy())
        if k == 1:
            grams = words
        else:
            grams = [f"{contexts[c]} {words[w]}" for c, w in zip(context.tolist(), word.tolist())]
            contexts = grams
        file.write(f"\n\\{k}-grams:\n")
        if k == 1:
            file.write(f"{ZERO:g}\t{START}" + (f"\t{backoff[0]:.9g}\n" if model.order > 1 else "\n"))
            backoff[0] = 0.0  # </s> is never a context
        if k < model.order:
            file.writelines(f"{p:.9g}\t{gram}\t{b:.9g}\n" for p, gram, b in zip(probability, grams, backoff))
        else:
            file.writelines(f"{p:.9g}\t{gram}\n" for p, gram in zip(probability, grams))
    file.write("\n\\end\\\n")


def _log10(natural: np.ndarray) -> list[float]:
    return (np.maximum(natural / log(10), ZERO) + 0.0).tolist()  # + 0.0: no "-0"


# -- reading ---------------------------------------------------------------------------------------------------------


@dataclass
class _Lines:
    """The lines of a file, with the number of the one read last."""

    path: Path
    lines: Iterator[bytes]
    number: int = 0

    def next(self, expected: str) -> str:
        self.number += 1
        try:
            return next(self.lines).decode("utf-8").rstrip("\r\n")
        except StopIteration:
            self.wrong(f"the file ends where {expected} should be")
        except UnicodeDecodeError:
            self.wrong("this is not UTF-8")

    def filled(self, expected: str) -> str:
        while not (line := self.next(expected).strip()):
            pass
        return line

    def wrong(self, what: str, number: int | None = None) -> NoReturn:
        raise RegardError(f"{self.path}, line {number or self.number}: {what}; export the ARPA file again.")


def read_arpa(path: str | Path) -> tuple[NGram, list[str]]:
    """The model of an ARPA file, and its tokens by id: `<eos>`, `<unk>` if the file has it, the rest as in the file."""
    with reading(Path(path)) as stream:
        lines = _Lines(Path(path), bounded_lines(stream, repr(str(path))))
        sizes = _read_sizes(lines)
        words, estimate = _read_unigrams(lines, sizes)
        numbers = {word: number for number, word in enumerate(words)} | {START: _START, END: _END}
        estimates = [estimate]
        for k in range(2, len(sizes) + 1):
            estimates.append(_read_grams(lines, k, sizes, numbers, estimates))
        if (line := lines.filled("\\end\\")) != "\\end\\":
            lines.wrong(f"expected \\end\\ after {sizes[-1]} {len(sizes)}-grams, not {line[:40]!r}")
    model = NGram(len(words), Settings(order=len(sizes)))
    model.fill(estimates)
    return model, ["<eos>", *(word if word == UNKNOWN else unescape(word) for word in words[1:])]


def _read_sizes(lines: _Lines) -> list[int]:
    """The number of n-grams of each order: `ngram 1=…`, `ngram 2=…`."""
    while lines.next("\\data\\").strip() != "\\data\\":
        if lines.number == PREAMBLE:
            lines.wrong(f"there is no \\data\\ on the first {PREAMBLE} lines")
    sizes: list[int] = []
    while line := lines.next("a blank line").strip():
        match = re.fullmatch(r"ngram\s+(\d{1,99})\s*=\s*(\d{1,99})", line)  # int() refuses more than 4,300 digits
        if not match or int(match[1]) != len(sizes) + 1:
            lines.wrong(f"expected `ngram {len(sizes) + 1}=…`, not {line[:40]!r}")
        sizes.append(int(match[2]))
    if len(sizes) not in ORDERS:
        lines.wrong(f"Regard supports orders {ORDERS[0]} to {ORDERS[-1]}, but this file has {len(sizes)}")
    return sizes


def _read_entries(lines: _Lines, k: int, sizes: list[int]) -> Iterator[tuple[float, list[str], float]]:
    """Probability, words and weight of each k-gram, in natural logarithms."""
    if (line := lines.filled(f"\\{k}-grams:")) != f"\\{k}-grams:":
        lines.wrong(f"expected \\{k}-grams:, not {line[:40]!r}")
    for done in range(sizes[k - 1]):
        fields = lines.next(f"{k}-gram {done + 1} of {sizes[k - 1]}").replace("\t", " ").split(" ")
        if len(fields) not in (k + 1, k + 2) or not all(fields) or (len(fields) == k + 2 and k == len(sizes)):
            lines.wrong(f"expected a probability, {k} words{' and a weight' if k < len(sizes) else ''}")
        try:
            probability, weight = float(fields[0]), float(fields[k + 1]) if len(fields) == k + 2 else 0.0
        except ValueError:
            lines.wrong("a probability or weight is not a number")
        if not probability <= 0 or not weight < inf:
            lines.wrong("a log-probability must be at most 0, and a weight must be a number")
        yield _natural(probability), fields[1 : k + 1], _natural(weight)


def _natural(log10: float) -> float:
    return log10 * log(10) if log10 > ZERO else -inf


def _read_unigrams(lines: _Lines, sizes: list[int]) -> tuple[list[str], Estimate]:
    """The words by id, </s> first and <unk> second, and their entries; <s> is merged into </s>."""
    entries: dict[str, tuple[float, float]] = {}
    for probability, (word,), weight in _read_entries(lines, 1, sizes):
        if word in entries:
            lines.wrong(f"the word {word!r} is listed twice")
        entries[word] = probability, weight
    if END not in entries:
        lines.wrong(f"the 1-grams lack {END}")
    _, start = entries.pop(START, (0.0, 0.0))
    words = [END, *([UNKNOWN] if UNKNOWN in entries else []), *(word for word in entries if word not in (END, UNKNOWN))]
    probability, weight = np.array([entries[word] for word in words]).T
    weight[0] = start
    return words, Estimate(np.arange(len(words)), probability, weight)


def _read_grams(lines: _Lines, k: int, sizes: list[int], numbers: dict[str, int], below: list[Estimate]) -> Estimate:
    """The k-grams of a section, sorted by key; `below` are the shorter ones."""
    ids, probabilities, weights = array("q"), array("d"), array("d")
    for probability, words, weight in _read_entries(lines, k, sizes):
        try:
            ids.extend([numbers[word] for word in words])
        except KeyError as unknown:
            lines.wrong(f"{unknown.args[0]!r} is not in the list of 1-grams")
        probabilities.append(probability)
        weights.append(weight)
    begin = lines.number - sizes[k - 1] + 1
    grams = np.frombuffer(ids, dtype=np.int64).reshape(-1, k) if ids else np.zeros((0, k), dtype=np.int64)
    for place in np.flatnonzero((grams[:, 1:] == _START).any(axis=1) | (grams[:, :-1] == _END).any(axis=1))[:1]:
        lines.wrong(f"{START} may only be the first word and {END} only the last", begin + int(place))
    keys, vocabulary = np.maximum(grams[:, 0], 0), len(below[0].keys)
    for j in range(1, k):
        keys = keys * vocabulary + np.maximum(grams[:, j], 0)
        if j < k - 1:
            place = np.searchsorted(below[j].keys, keys)
            known = np.append(below[j].keys, -1)[place] == keys
            for missing in np.flatnonzero(~known)[:1]:
                lines.wrong(f"its first {j + 1} words are not among the {j + 1}-grams", begin + int(missing))
            keys = place
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    for twice in np.flatnonzero(keys[1:] == keys[:-1])[:1]:
        lines.wrong(f"these {k} words are listed twice", begin + int(order[twice + 1]))
    return Estimate(keys, np.array(probabilities)[order], np.array(weights)[order])
