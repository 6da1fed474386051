"""The tokenizers of a Marian folder such as OPUS-MT's: a SentencePiece model for each side, and one list of ids.

vocab.json numbers the pieces of both sides. In Regard each side has its own tokenizer and its own table of vectors:

    source    </s>, <unk>, the source's pieces, language codes such as >>fra<<     rows of their table, by vocab.json
    target    </s>, <unk>, the target's pieces, all others of vocab.json           the same; the others are not written

As in Marian, a piece that vocab.json does not list is read as <unk> and never generated.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from tokenizers import AddedToken

from regard.base.errors import RegardError
from regard.exchange.foreign_folder import Config, read_json
from regard.exchange.foreign_tokenizers import CONTROL, UNKNOWN
from regard.exchange.sentencepiece_file import UNUSED, USER_DEFINED, SentencePieces, check_cuts, engine_of, read_pieces
from regard.text.tokenizers.imported import HIDDEN, ImportedTokenizer, import_engine

FILES = ("source.spm", "target.spm", "vocab.json")
EOS, UNK = "</s>", "<unk>"
CODE = re.compile(r">>.{1,40}<<")  # a language, before the text of a multilingual model
NO_ROW = -1


@dataclass(frozen=True)
class Side:
    """A tokenizer, and for each of its ids the row in Marian's table; NO_ROW: read as <unk>, never generated."""

    tokenizer: ImportedTokenizer
    rows: list[int]


def has_pair(folder: Path) -> bool:
    return all((folder / name).exists() for name in FILES)


def read_pair(folder: Path, config: Config, vocabulary: int) -> tuple[Side, Side]:
    """The source's and the target's side."""
    ids = _ids(folder / "vocab.json", vocabulary)
    if ids[EOS] != config.values.get("eos_token_id"):
        config.wrong(f"eos_token_id is not {ids[EOS]}, the number of {EOS} in vocab.json")
    codes = [name for name in ids if CODE.fullmatch(name)]
    source, target = (read_pieces(folder / name) for name in FILES[:2])
    return _side(source, ids, codes=codes), _side(target, ids, others=ids)


def _ids(path: Path, vocabulary: int) -> dict[str, int]:
    ids = read_json(path)
    if not all(type(number) is int for number in ids.values()) or sorted(ids.values()) != list(range(vocabulary)):
        raise RegardError(f"{path} does not have exactly one token for each of the model's {vocabulary} rows.")
    if not {EOS, UNK} <= ids.keys():
        raise RegardError(f"{path} lacks {EOS} or {UNK}.")
    return ids


def _side(pieces: SentencePieces, ids: dict[str, int], codes: Iterable[str] = (), others: Iterable[str] = ()) -> Side:
    check_cuts(pieces, engine_of(pieces))
    there = [*zip(pieces.tokens, pieces.scores, pieces.kinds)]
    kept = [(EOS, 0.0, CONTROL), (UNK, 0.0, UNKNOWN)]
    kept += [one for one in there if one[2] not in (CONTROL, UNKNOWN, UNUSED)]
    own = {token for token, _, _ in kept}
    kept += [(code, 0.0, USER_DEFINED) for code in codes if code not in own]
    tokens, scores, kinds = map(list, zip(*kept))
    engine = engine_of(replace(pieces, tokens=tokens, scores=scores, kinds=kinds))
    own = {*tokens}
    rest = [token for token in others if token not in own]
    engine.add_special_tokens([AddedToken(HIDDEN + token, special=True, normalized=False) for token in rest])
    try:
        made = import_engine(engine, begin=0, eos=0, vocabulary=len(tokens) + len(rest))
    except RegardError as error:
        raise RegardError(f"{pieces.path} {error}.") from None
    return Side(made, [ids.get(token, NO_ROW) for token in (*tokens, *rest)])
