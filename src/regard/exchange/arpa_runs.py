"""An n-gram run as an ARPA file, and vice versa."""

from __future__ import annotations

from importlib.metadata import version
from math import log
from pathlib import Path

from regard.base.errors import RegardError
from regard.base.numbers import group_digits, pluralize
from regard.base.writing import remove_partial_files, write_text
from regard.exchange.arpa import read_arpa, spell, write_straight
from regard.exchange.parity import Parity, texts
from regard.report.progress import say
from regard.runs.recipe import compose
from regard.runs.store.create import write_facts, write_folder
from regard.runs.store.folder import Tokenizers
from regard.runs.store.lock import check_free, new_folder
from regard.runs.tasks.language.run import LanguageRun
from regard.systems.ngram import NGram
from regard.text.tokenizers.tokenizer import Tokenizer
from regard.training.checkpoint import save_tensors

TOKENIZE_FIRST = """\
The words of this ARPA file are the tokens of Regard's tokenizer (␠ is a space): tokenize plain text first, as here.
import kenlm, tokenizers
model, tokenizer = kenlm.Model({arpa!r}), tokenizers.Tokenizer.from_file({tokenizer!r})
words = [line.split("\\t")[1] for line in open({arpa!r}, encoding="utf-8") if "\\t" in line][1:]  # by token id
print(model.score(" ".join(words[number] for number in tokenizer.encode("a line of text").ids)))  # log10 P
"""


def write(run: LanguageRun, out: Path) -> None:
    assert isinstance(run.model, NGram)
    header = TOKENIZE_FIRST.format(arpa="NAME.arpa", tokenizer="NAME.tokenizer.json")
    write_straight(run.model, run.tokenizer.tokens, out, "" if run.tokenizer.pretokenised else header)


def write_beside(run: LanguageRun, out: Path) -> str:
    """Write the tokenizer next to OUT, and return how to use both."""
    path, content = out.with_name(f"{out.name.removesuffix('.arpa')}.tokenizer.json"), run.tokenizer.json
    remove_partial_files(path.parent, of=path.name)  # while OUT is claimed
    if not (path.is_file() and path.read_bytes() == content.encode()):  # an earlier export of the run wrote it
        write_text(path, content, new=True)
    if run.tokenizer.pretokenised:  # kenlm also splits a line at its spaces
        return f"its tokenizer: {path}"
    return TOKENIZE_FIRST.format(arpa=str(out), tokenizer=str(path)).rstrip()


def check(run: LanguageRun, out: Path) -> Parity:
    """Compare kenlm's scores of the run's held-out lines with Regard's."""
    try:
        import kenlm
    except ImportError:
        raise RegardError(f"{out} was written; to check it, install KenLM: pip install kenlm.") from None
    theirs, words, lines = kenlm.Model(str(out)), spell(run.tokenizer.tokens), texts(run, 64)
    scores = [theirs.score(" ".join(words[token] for token in run.tokenizer.encode(line))) for line in lines]
    ours = [score.log_probability / log(10) for score in run.score(lines)]
    return Parity(
        system=run.recipe.system,
        format="arpa",
        program=f"kenlm {version('kenlm')}",
        compared=f"log10 P of {pluralize(len(lines), 'line')}",
        largest_difference=max(abs(one - other) for one, other in zip(scores, ours)),
    )


def read(file: Path, run: Path, tokenizer_file: Path | None = None) -> Path:
    """Make a run from an ARPA file, with the tokenizer of its text, or one made from its words."""
    check_free(run)
    model, tokens = read_arpa(file)
    tokenizer = _tokenizer_of(tokens) if tokenizer_file is None else Tokenizer.load(tokenizer_file)
    if tokenizer.tokens != tokens:
        raise RegardError(f"{tokenizer_file} is not the tokenizer of {file}: their vocabularies differ.")
    settings = {
        "data": {"corpus": "", "tokenizer": tokenizer.kind, "vocabulary": tokenizer.vocabulary},
        "model": {"order": model.order},
    }
    recipe = compose("ngram", "", settings)
    with new_folder(recipe, run) as folder:
        write_folder(folder, recipe, Tokenizers(tokenizer))
        save_tensors(folder / "model.safetensors", model.state_dict())
        write_facts(folder, recipe, model, {"name": file.name})
    say(f"imported {group_digits(model.stored_numbers)} n-grams")
    return folder


def _tokenizer_of(tokens: list[str]) -> Tokenizer:
    """Words between white space, or characters if every word is one."""
    if tokens[:2] != ["<eos>", "<unk>"]:
        raise RegardError(
            "The file has no <unk>, so its words alone do not define how to tokenize text: give --tokenizer (an "
            "export from Regard writes it next to the file, as NAME.tokenizer.json)."
        )
    by_character = all(len(token) == 1 for token in tokens[2:])
    return Tokenizer.of_tokens(tokens, "char" if by_character else "word")
