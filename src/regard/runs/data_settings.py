"""The settings of a recipe's section [data]: running text, or pairs."""

from __future__ import annotations

from dataclasses import dataclass

from regard.base.errors import RegardError
from regard.base.settings import RATE, CheckedSettings, setting
from regard.text.readers.encodings import check_encoding

NORMAL_FORMS, SPLITS = ("auto", "nfc", "nfkc", "none"), ("auto", "lines", "tail")
ENCODING = "encoding of your own files without a byte-order mark: utf-8, or for example cp1252 (Excel on Windows)"
HEADER = "whether the first line of a table names its columns: yes, no, or auto = detect"
NORMALISE = "Unicode normalization: nfc, nfkc or none"
MOST_SYMBOLS = 10_000_000  # more words than the largest corpora have; larger tables would only exhaust the memory
TOKENIZERS = ("auto", "word", "char", "byte", "bpe", "imported")  # the last of runs that were imported with their own
TOKENIZER = "word, char, byte or bpe; auto = depends on the corpus; imported = an imported model's own"
VOCABULARY = "maximum number of symbols; 0 = all words or characters; for bpe, depends on the corpus"


@dataclass(frozen=True)
class DataSettings(CheckedSettings):
    """Running text, for a language model."""

    section = "data"
    missing = "its text: name a text"  # what an imported run lacks
    corpus: str = setting("pyref", "a built-in or known corpus, a .txt file, or a folder with train/valid/test files")
    columns: str = setting("", "column of a table (CSV, TMX, JSON Lines, …) to read, by name or number: en, 2")
    header: str = setting("auto", HEADER, choices=("auto", "yes", "no"))
    encoding: str = setting("utf-8", ENCODING)
    tokenizer: str = setting("auto", TOKENIZER, choices=TOKENIZERS)
    vocabulary: int = setting(0, VOCABULARY, ge=0, le=MOST_SYMBOLS)
    normalise: str = setting("auto", f"{NORMALISE}; auto = none for bpe and byte, else nfc", choices=NORMAL_FORMS)
    split: str = setting(
        "auto", "how a single file is split: lines (by hash, 90/5/5) or tail (the end is held out)", choices=SPLITS
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        check_encoding(self.encoding)


@dataclass(frozen=True)
class PairDataSettings(CheckedSettings):
    """Sentence pairs, for a system that reads a source and writes a target."""

    section = "data"
    missing = "its pairs: name a file of pairs"
    corpus: str = setting("phrasebook", "a built-in or known corpus, a .tsv file (source⇥target), or a folder of files")
    columns: str = setting("", "source and target columns of a table, by name or number: sw,en or 2,3")
    header: str = setting("auto", HEADER, choices=("auto", "yes", "no"))
    encoding: str = setting("utf-8", ENCODING)
    source: str = setting("", "for files such as train.de and train.en: the language to translate from, e.g. de")
    target: str = setting("", "for files such as train.de and train.en: the language to translate into, e.g. en")
    swap: bool = setting(False, "swap source and target")
    also: str = setting("", "files with more training pairs, each with a weight: more.tsv:2,other.tsv:0.5")
    monolingual: str = setting("", "text in the target language, for back-translation (Sennrich et al. 2016)")
    translator: str = setting("", "run that translates data.monolingual into the source language")
    tokenizer: str = setting("auto", TOKENIZER, choices=TOKENIZERS)
    vocabulary: int = setting(0, VOCABULARY, ge=0, le=MOST_SYMBOLS)
    joint: bool = setting(True, "one vocabulary for both sides; false = one for each")
    normalise: str = setting("auto", f"{NORMALISE}; auto = nfc", choices=NORMAL_FORMS)
    bpe_dropout: float = setting(0.0, "share of merges skipped at random (Provilkov et al. 2020)", **RATE)
    longest: int = setting(256, "leave out pairs with more tokens than this on either side", ge=1)
    truncate: bool = setting(False, "truncate sides that are too long, instead of leaving out the pair")
    split: str = setting(
        "auto", "how a single file is split: lines (without leaks, by hash) or tail (the end)", choices=SPLITS
    )
    pairs: int = setting(0, "train on this many pairs; 0 = all", ge=0)
    words: int = setting(0, "phrasebook: maximum number of words per English sentence; 0 = its default", ge=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_encoding(self.encoding)
        if bool(self.monolingual) != bool(self.translator):
            raise RegardError(
                "data.monolingual and data.translator must be given together: a text, and a run that translates it."
            )
