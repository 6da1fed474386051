"""Open the data that a recipe names, and find the data of a run again if they have not changed since training."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeGuard, TypeVar

from regard.base.errors import RegardError
from regard.report.progress import progress, say
from regard.runs.data_settings import DataSettings, PairDataSettings
from regard.runs.recipe import Recipe
from regard.runs.store.facts import read_facts
from regard.text.chat_template import PLAIN, ChatTemplate, read_template
from regard.text.corpus import Corpus, is_named, open_corpus
from regard.text.dialogue_tokens import dialogue_tokens
from regard.text.pairs import PairCorpus, open_pairs
from regard.text.readers.encodings import check_encoding, is_utf8
from regard.text.readers.sources import TextLines
from regard.text.tokenizers.tokenizer import Tokenizer
from regard.text.tokenizers.tokens import TokenArray, cached

Known = TypeVar("Known", Corpus, PairCorpus)

SHOWN_BYTES = 1 << 20  # bytes of text between two updates of the progress bar
ALL = "all"  # the split that is a whole file


def corpus_of(folder: Path, recipe: Recipe) -> Corpus:
    """The text a run was trained on. It must be unchanged: otherwise held-out lines might have been trained on."""
    recipe = with_data_found(folder, recipe)
    data = recipe.data
    return _unchanged(text_asked_for(data, template_in(folder)), folder, recipe)


def pairs_of(folder: Path, recipe: Recipe) -> PairCorpus:
    """The pairs a run was trained on, which must be unchanged."""
    recipe = with_data_found(folder, recipe)
    return _unchanged(pairs_asked_for(recipe.data), folder, recipe)


def text_asked_for(data: DataSettings, template: ChatTemplate | None = None) -> Corpus:
    how = {"columns": data.columns, "header": data.header, "encoding": data.encoding}
    return open_corpus(data.corpus, data.split, **how, template=template)


def template_in(folder: Path) -> ChatTemplate | None:
    """The chat template of a run; None if it has none of its own."""
    source = read_template(folder)
    return template_of(source, Tokenizer.load(folder / "tokenizer.json")) if source else None


def template_of(source: str, tokenizer: Tokenizer) -> ChatTemplate:
    """A template that names the end of a text as this tokenizer does; "" is the plain one."""
    eos = tokenizer.token(tokenizer.eos) if tokenizer.kind == "imported" else "\n"
    return ChatTemplate(source or PLAIN, eos)


def pairs_asked_for(data: PairDataSettings) -> PairCorpus:
    return open_pairs(
        data.corpus,
        source=data.source,
        target=data.target,
        columns=data.columns,
        header=data.header,
        swap=data.swap,
        pairs=data.pairs,
        longest=data.words,
        also=data.also,
        split=data.split,
        encoding=data.encoding,
    )


def with_data_found(folder: Path, recipe: Recipe) -> Recipe:
    """The recipe with the current path of its data: the recorded path, or a file of the same name in the run's or the
    current folder.

    A checksum verifies that the data are the same.
    """
    if not recipe.data.corpus:
        raise RegardError(f"{folder} was imported without {recipe.data.missing} with --data.")
    if is_named(recipe.data.corpus):
        return recipe
    there = Path(recipe.data.corpus)
    places = list(dict.fromkeys([there, folder.resolve() / there.name, Path.cwd() / there.name]))
    for place in places:
        if place.exists() or any(place.parent.glob(f"{place.name}.*")):  # or parallel files: train.de and train.en
            return recipe.replace(data={"corpus": str(place)})
    looked = ", ".join(map(str, places))
    raise RegardError(
        f"The data that {folder} was trained on is missing; Regard looked for {looked}: restore it there, or "
        "evaluate on other data with --data."
    )


def _unchanged(corpus: Known, folder: Path, recipe: Recipe) -> Known:
    known = read_facts(folder).get("corpus")
    if not isinstance(known, dict):
        raise RegardError(f"{folder / 'run.json'} is damaged: it does not record the corpus of {folder}.")
    if corpus.checksum() != known.get("checksum"):
        raise RegardError(
            f"{recipe.data.corpus} has changed since {folder} was trained on it; restore it, evaluate on other "
            f"data with --data, or train a new run with --from {folder}."
        )
    return corpus


def refuse_reading(columns: str, encoding: str) -> None:
    """Refuses options for reading a file if no other file is read."""
    for name, given in (("columns", columns), ("encoding", not is_utf8(check_encoding(encoding)))):
        if given:
            raise RegardError(f"--data.{name} describes how to read another file: give that file with --data.")


def is_whole_file(data: object, split: str | None) -> TypeGuard[str | Path]:
    """True for a single file, which can be used whole. The split `all` requests this and needs such a file."""
    found = isinstance(data, str | Path) and Path(data).is_file()
    if split == ALL and not found:
        given = f", but {data} is not a file" if isinstance(data, str | Path) else ""
        raise RegardError(f"--split all reads a whole file{given}: give a file with --data, or name a split.")
    return found


def choose_split(corpus: Corpus | PairCorpus, split: str | None) -> str:
    """The requested split. Default: test, or valid if there is no test, or the only split."""
    if split is None and len(corpus.splits) == 1:
        return next(iter(corpus.splits))
    if split is None:
        return "test" if "test" in corpus.splits else "valid"
    if split not in corpus.splits:
        raise RegardError(f"{corpus.name} has no split {split!r}; its splits are {', '.join(corpus.splits)}.")
    return split


@dataclass(frozen=True)
class ShownLines:
    """Lines that show progress as they are read."""

    lines: TextLines
    title: str

    def __iter__(self) -> Iterator[str]:
        with progress(self.title, self.lines.size, unit=" bytes") as bar:
            unshown = 0
            for line in self.lines:
                unshown += len(line.encode()) + 1
                if unshown >= SHOWN_BYTES:
                    bar.advance(unshown)
                    unshown = 0
                yield line


def tokens_of(corpus: Corpus, tokenizer: Tokenizer, split: str) -> TokenArray:
    """A split as one array of tokens, computed once and cached (except for dialogues)."""
    if corpus.template is not None:
        return dialogue_tokens(corpus.splits[split], tokenizer)
    with progress(f"tokenising {split}", corpus.splits[split].size, unit=" bytes") as bar:
        return cached(corpus, tokenizer, split, progress=bar.reach, say=say)
