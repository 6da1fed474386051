"""Sentences of a small grammar whose probabilities are known exactly, word by word.

    these old cooks behind a tree that sees some dogs sing often

    sentence   noun phrase, verb that agrees with its noun, perhaps an object, perhaps an adverb
    between    up to two "behind a tree" or one "that sees some dogs" may part the noun from its verb

It is a finite automaton in which a word says which state comes next. So −log P of a sentence is a sum over its words,
its mean is the entropy that no model can beat, and whether a sentence is grammatical is whether the automaton reads it.
The verb's number depends on a noun 1 to 10 words before it, whatever the number of the nouns between.
"""

from __future__ import annotations

import math
from bisect import bisect
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import accumulate
from random import Random
from typing import NamedTuple

NOUNS, VERBS, ADJECTIVES, ADVERBS, PREPOSITIONS = map(
    str.split,
    (
        "dog cook tree boy girl doctor farmer singer king bird horse teacher river garden stone house friend pilot "
        "nurse cat writer painter table window tower",
        "see like sing know help follow hear want find call need watch visit draw paint",
        "old young small tall happy quiet clever red poor famous",
        "often today here again slowly",
        "behind near with under",
    ),
)
DETERMINERS = {"": ("this", "every"), "s": ("these", "some")}  # singular, plural
END = "<eos>"
MOST = 2  # prepositions in a row


class State(NamedTuple):
    place: str
    number: str = ""  # of the subject: "" singular, "s" plural
    inner: str = ""  # of the noun phrase that is being read
    part: str = "subject"  # which noun phrase that is
    nested: int = 0  # prepositions so far


Choices = dict[str, tuple[float, State]]  # by word: its probability, and the next state


@cache
def choices(state: State) -> Choices:
    """The possible next words. Probabilities sum to 1."""
    match state.place:
        case "determiner":
            options = {
                word: (1 / 4, state._replace(place="noun", inner=number, number=_subject(state, number)))
                for number, words in DETERMINERS.items()
                for word in words
            }
        case "noun":
            options = _some(ADJECTIVES, 0.3, state._replace(place="bare noun"))
            options |= _nouns(0.7, state)
        case "bare noun":
            options = _nouns(1.0, state)
        case "after noun":
            options = _after_noun(state)
        case "after verb":
            options = _some(ADVERBS, 0.2, State("end"))
            options |= {END: (0.2, State("over"))}
            options |= _opened(0.6, state._replace(part="object"))
        case "end":
            options = {END: (1.0, State("over"))}
    return options


def _subject(state: State, number: str) -> str:
    return number if state.part == "subject" else state.number


def _after_noun(state: State) -> Choices:
    if state.part == "object":
        return _some(ADVERBS, 0.3, State("end")) | {END: (0.7, State("over"))}
    options: Choices = {}
    verb = 1.0
    if state.part != "clause" and state.nested < MOST:
        inside = state._replace(place="determiner", part="behind", nested=state.nested + 1)
        options |= _some(PREPOSITIONS, 0.35, inside)
        verb -= 0.35
    if state.part == "subject":
        options |= {"that": (0.25, state._replace(place="clause verb"))}
        verb -= 0.25
    return options | _verbs(verb, state, state._replace(place="after verb"))


def _verbs(share: float, state: State, then: State) -> Choices:
    """Verbs that agree with the subject: he sings, they sing."""
    ending = "" if state.number else "s"
    return _some([verb + ending for verb in VERBS], share, then)


def _nouns(share: float, state: State) -> Choices:
    return _some([noun + state.inner for noun in NOUNS], share, state._replace(place="after noun"))


def _opened(share: float, state: State) -> Choices:
    options = choices(state._replace(place="determiner"))
    return {word: (share * chance, then) for word, (chance, then) in options.items()}


def _some(words: Sequence[str], share: float, then: State) -> Choices:
    """Words with probabilities as 1, 1/2, 1/3, …, that sum to the share."""
    total = sum(1 / (rank + 1) for rank in range(len(words)))
    return {word: (share / (rank + 1) / total, then) for rank, word in enumerate(words)}


def next_words(state: State) -> Choices:
    if state.place == "clause verb":
        return _verbs(1.0, state, state._replace(place="determiner", part="clause"))
    return choices(state)


START = State("determiner")


def sentence(random: Random) -> str:
    state, words = START, list[str]()
    while True:
        options = next_words(state)
        marks = accumulate(chance for chance, _ in options.values())
        word = list(options)[min(bisect(list(marks), random.random()), len(options) - 1)]
        if word == END:
            return " ".join(words)
        words.append(word)
        state = options[word][1]


def log_probability(words: Sequence[str]) -> float:
    """log P of the words and of the end after them, in nats; −∞ if the grammar cannot make them."""
    state, total = START, 0.0
    for word in (*words, END):
        options = next_words(state)
        if word not in options:
            return -math.inf
        chance, state = options[word]
        total += math.log(chance)
    return total


@cache
def sentences(count: int = 8000) -> Mapping[str, list[str]]:
    """Train, valid and test; a sentence may occur twice, as the grammar makes it."""
    random = Random("known grammar")
    made = [sentence(random) for _ in range(count)]
    held = count // 20
    return {"train": made[2 * held :], "valid": made[:held], "test": made[held : 2 * held]}


@cache
def agreement(count: int = 8000) -> Mapping[str, list[str]]:
    """text⇥label: whether the verb agrees with its noun, which other words separate from it. In half of the lines the
    verb's number was changed; the words between do not reveal it."""
    random = Random("agreement")
    rows: list[str] = []
    while len(rows) < count:
        words = sentence(random).split()
        place = verb_of(words)
        if place is not None:
            wrong = random.random() < 0.5
            if wrong:
                words[place] = words[place].removesuffix("s") if words[place].endswith("s") else words[place] + "s"
            rows.append(f"{' '.join(words)}\t{'wrong' if wrong else 'right'}")
    held = count // 20
    return {"train": rows[2 * held :], "valid": rows[:held], "test": rows[held : 2 * held]}


def verb_of(words: Sequence[str]) -> int | None:
    """The place of the main verb, where other words part it from its noun."""
    state, parted = START, False
    for place, word in enumerate(words):
        then = next_words(state)[word][1]
        if then.place == "after verb":
            return place if parted else None
        parted = parted or word == "that" or word in PREPOSITIONS
        state = then
    return None
