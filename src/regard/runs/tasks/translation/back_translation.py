"""Back-translation: a run of the opposite direction translates text in the target language into synthetic sources.

A synthetic source may be clumsy, but its target is a real sentence, and targets are what the decoder learns to generate
(Sennrich, Haddow & Birch 2016).

    regard train transformer --data pairs.tsv --data.swap true --run runs/fren
    regard train transformer --data pairs.tsv --data.monolingual french.txt --data.translator runs/fren
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from regard.base.cache import cache_folder
from regard.base.device import pick_device
from regard.base.errors import RegardError
from regard.base.numbers import group_digits, pluralize
from regard.base.writing import write_text
from regard.report.progress import progress, say
from regard.runs.load import load_translator
from regard.runs.recipe import Recipe
from regard.text.pairs import PairCorpus, Pairs, not_held_out
from regard.text.readers.sources import content_digest, decoded_digest, open_text


def back_translated(recipe: Recipe, corpus: PairCorpus) -> Pairs:
    """A pair for each line of data.monolingual that is not held out, with a synthetic source by data.translator.

    The pairs are cached. Lines with an empty translation are left out and counted.
    """
    text, folder = Path(recipe.data.monolingual), Path(recipe.data.translator)
    if not text.is_file():
        raise RegardError(f"There is no file {recipe.data.monolingual!r} to translate back; check data.monolingual.")
    translator = load_translator(folder, device=str(pick_device(recipe.training.device)))
    made = _place(text, folder, recipe.data.encoding)
    lines = _kept(made)
    if lines is None:
        targets = [line for line in open_text((text,), encoding=recipe.data.encoding) if line.strip()]
        sources = []
        with progress(f"translating {text.name} back", len(targets), unit=" lines") as bar:
            for best, *_ in translator.translations(targets, beam=1, truncate=True, min_tokens=2):
                sources.append(best.text)
                bar.advance(1)
        lines = [(_plain(source), _plain(target)) for source, target in zip(sources, targets)]
        content = "".join(f"{source}\t{target}\n" for source, target in lines)
        write_text(made, f"{_digest(content)}\n{content}")
    said = Pairs([source for source, _ in lines if source], [target for source, target in lines if source])
    found = said.take(not_held_out(corpus, said))
    empty, held = len(lines) - len(said), len(said) - len(found)
    left_out = f" ({pluralize(empty, 'line')} without a translation and {group_digits(held)} held-out ones left out)"
    made_by = f"their sources made up by {folder}{left_out if empty + held else ''}"
    say(f"{pluralize(len(found), 'pair')} from {text.name}, {made_by}")
    if not len(found):
        raise RegardError(
            f"No line of {text} is left to learn from: {folder} translated none of them, or all are held out."
        )
    return found


def _place(text: Path, folder: Path, encoding: str) -> Path:
    """The cache file for the pairs of this text and translator; other weights or another text give another file."""
    name = f"{decoded_digest((text,), encoding)} {content_digest(folder / 'model.safetensors')}"
    return cache_folder() / "back-translation" / f"{hashlib.blake2b(name.encode(), digest_size=16).hexdigest()}.tsv"


def _kept(made: Path) -> list[tuple[str, str]] | None:
    """The cached pairs; None if there are none, or the file is damaged."""
    try:
        digest, _, content = made.read_text(encoding="utf-8").partition("\n")
    except (OSError, UnicodeDecodeError):
        return None
    if digest != _digest(content):
        return None
    return [(source, target) for source, _, target in (line.partition("\t") for line in content.split("\n")[:-1])]


def _digest(content: str) -> str:
    return hashlib.blake2b(content.encode(), digest_size=16).hexdigest()


def _plain(line: str) -> str:
    return " ".join(line.split())
