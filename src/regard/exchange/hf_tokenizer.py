"""Tokenizers for Hugging Face's programs, and vice versa.

Regard's tokenizers are already a tokenizer.json of the `tokenizers` library. An export adds `<eos>` as a special token,
which also replaces a line end in a text; its position (before a line, or after a source); and how tokens are joined.

On import, tokenizers that Regard wrote, and GPT-2's byte-level BPE, become Regard's own: the boundary gets id 0, and
the other tokens follow in their order. Any other tokenizer of a language model is used unchanged
(text/tokenizers/imported.py).
"""

from __future__ import annotations

import json
import re
import tempfile
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors
from tokenizers import Tokenizer as Engine

from regard.base.errors import RegardError
from regard.base.reading import read_whole
from regard.exchange.foreign_folder import Config, read_json
from regard.exchange.imported_run import MAX_TEMPLATE, checked_template
from regard.exchange.sentencepiece_file import sentencepiece_model
from regard.text.chat_template import FILE as CHAT_TEMPLATE
from regard.text.tokenizers.engine import EOS, UNK, parse
from regard.text.tokenizers.imported import import_engine
from regard.text.tokenizers.tokenizer import Tokenizer

CLOSING, OPENING = ".,;:!?…)]}”", "([{“"  # as in Tokenizer.decode
TOKENIZERS = ("tokenizer.json", "tokenizer.model")
LEVELS = {True: "bpe", False: "byte"}


def tokenizer_files(tokenizer: Tokenizer, *, source: bool, longest: int) -> dict[str, str]:
    """tokenizer.json and tokenizer_config.json. `source`: the boundary ends the input; else it begins it."""
    if tokenizer.kind == "imported":
        return _imported_files(tokenizer, longest)
    engine = Engine.from_str(tokenizer.json)
    ends = normalizers.Replace("\n", EOS)
    engine.normalizer = ends if engine.normalizer is None else normalizers.Sequence([engine.normalizer, ends])
    engine.add_special_tokens([AddedToken(EOS, special=True, normalized=True)])  # found after a line end became one
    engine.post_processor = processors.TemplateProcessing(
        single=f"$A {EOS}" if source else f"{EOS} $A",
        pair=f"$A {EOS} $B:1 {EOS}:1" if source else f"{EOS} $A {EOS}:1 $B:1",
        special_tokens=[(EOS, tokenizer.eos)],
    )
    if tokenizer.kind == "word":
        engine.decoder = _joined_words(tokenizer.pretokenised)
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": EOS,
        "eos_token": EOS,
        "pad_token": EOS,
        "added_tokens_decoder": {
            str(tokenizer.eos): {
                "content": EOS, "special": True, "normalized": True, "lstrip": False, "rstrip": False,
                "single_word": False,
            }
        },
        "clean_up_tokenization_spaces": False,
        "padding_side": "right",
        "model_max_length": longest,
        "model_input_names": ["input_ids", "attention_mask"],
    }  # fmt: skip
    return {
        "tokenizer.json": engine.to_str(pretty=True) + "\n",
        "tokenizer_config.json": json.dumps(config, indent=2, ensure_ascii=False) + "\n",
    }


def _imported_files(tokenizer: Tokenizer, longest: int) -> dict[str, str]:
    """The imported tokenizer, with `begin` before a text."""
    engine = Engine.from_str(tokenizer.json)
    first, last = (engine.id_to_token(number) for number in (tokenizer.begin, tokenizer.eos))
    engine.post_processor = processors.TemplateProcessing(
        single=f"{first} $A", pair=f"{first} $A {first}:1 $B:1", special_tokens=[(first, tokenizer.begin)]
    )
    named = {"bos_token": first, "eos_token": last, "pad_token": last, "model_max_length": longest}
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False, **named}
    return {
        "tokenizer.json": engine.to_str(pretty=True) + "\n",
        "tokenizer_config.json": json.dumps(config, indent=2, ensure_ascii=False) + "\n",
    }


def _joined_words(pretokenised: bool) -> decoders.Decoder:
    """Words with one space between them, and none before closing or after opening punctuation."""
    steps = [decoders.Replace(Regex("^"), " "), decoders.Fuse()]
    if not pretokenised:  # one mark after the other, so the neighbor may already have been moved
        closing, opening = (re.escape(marks) for marks in (CLOSING, OPENING))
        steps += [decoders.Replace(Regex(rf" {re.escape(mark)}(?=[ {closing}]|$)"), mark) for mark in CLOSING]
        steps += [decoders.Replace(Regex(rf"(?<![^\s{opening}]){re.escape(mark)} "), mark) for mark in OPENING]
    return decoders.Sequence([*steps, decoders.Strip(" ", 1, 0)])


# -- the other way ---------------------------------------------------------------------------------------------------


def tokenizer_of(folder: Path, config: Config, given: Path | None, vocabulary: int) -> tuple[Tokenizer, list[int]]:
    """The tokenizer of a folder, and for each of its ids the id in the folder.

    A tokenizer that Regard wrote, or could have written, becomes Regard's own. Any other of a language model is used
    unchanged.
    """
    first, last = config.values.get("bos_token_id"), _end_of(folder, config)
    if given is not None and given.suffix == ".json":
        tokenizer = Tokenizer.load(given)
        if last != tokenizer.eos:
            config.wrong(f"eos_token_id is {last!r:.20}, but {tokenizer.eos} in {given}: this is a different tokenizer")
        return tokenizer, list(range(tokenizer.vocabulary))
    path = given or next((folder / name for name in TOKENIZERS if (folder / name).exists()), folder / TOKENIZERS[0])
    translates = config.values.get("is_encoder_decoder") is True
    if path.suffix == ".json":
        if first in (None, last) or translates:
            try:
                tokenizer, order = read_tokenizer(folder, config)
                if len(order) == vocabulary:
                    return tokenizer, order
            except RegardError:
                if translates or not path.exists() or not isinstance(last, int):
                    raise
        engine = _engine_in(path)
    else:
        engine, *_ = sentencepiece_model(path)
    ends = last if isinstance(last, int) else -1
    try:
        made = import_engine(engine, begin=first if isinstance(first, int) else ends, eos=ends, vocabulary=vocabulary)
    except RegardError as error:
        raise RegardError(f"{path} {error}.") from None
    return made, list(range(vocabulary))


def _end_of(folder: Path, config: Config) -> Any:
    """The token that ends a text; if there are several, the one that the tokenizer names, or the first."""
    ends = config.values.get("eos_token_id")
    if not isinstance(ends, list):
        return ends
    path = folder / "tokenizer_config.json"
    named = read_json(path).get("eos_token") if path.exists() else None
    named = named.get("content") if isinstance(named, dict) else named
    if isinstance(named, str) and (folder / "tokenizer.json").exists():
        number = _engine_in(folder / "tokenizer.json").token_to_id(named)
        if number in ends:
            return number
    return ends[0] if ends else None


def _check_inside(path: Path) -> None:
    """A template is copied into the run as it is, so a stranger's link must not name another file of this machine."""
    target, home = path.resolve(), path.parent.resolve()
    blobs = home.parent.parent / "blobs"  # the files of the Hub's cache, to which its folders link
    if not (target.is_relative_to(home) or target.is_relative_to(blobs)):
        raise RegardError(f"{path} is a link to a file outside the model's folder: replace it with the file itself.")


def template_of(folder: Path) -> str:
    """The folder's chat template: a separate file, or a field of tokenizer_config.json."""
    if (folder / CHAT_TEMPLATE).exists():
        _check_inside(folder / CHAT_TEMPLATE)
        return read_template(folder / CHAT_TEMPLATE)
    path = folder / "tokenizer_config.json"
    return checked_template(read_json(path).get("chat_template"), path) if path.exists() else ""


def read_template(path: Path) -> str:
    content = read_whole(path, 4 * MAX_TEMPLATE, foreign=True)
    return checked_template(content.decode("utf-8", "replace"), path)


def _engine_in(path: Path) -> Engine:
    there = read_json(path)
    try:
        return parse(json.dumps(there))
    except Exception:  # the engine raises nothing more precise
        raise RegardError(f"{path} is damaged or not a tokenizer: copy the folder again.") from None


def read_tokenizer(folder: Path, config: Config) -> tuple[Tokenizer, list[int]]:
    """The folder's tokenizer as Regard's own, and for each of its ids the id in the folder."""
    path = folder / "tokenizer.json"
    if not path.exists():
        raise RegardError(f"{folder} has no tokenizer.json: provide its tokenizer with --tokenizer.")
    engine = _engine_in(path)
    model = json.loads(engine.to_str())["model"]  # in today's form, whatever the file's
    boundary = _boundary(engine, config)
    if model.get("type") == "WordLevel":
        made = _as_words(engine, model, boundary)
    elif model.get("type") == "BPE":
        made = _as_byte_pairs(engine, model, boundary)
    else:
        made = None
    if made is None:
        raise RegardError(
            f"{path} is a {model.get('type', 'nameless')!s:.20} tokenizer that splits text in a way that "
            "Regard does not support: "
            "Regard reads only byte-level BPE as in GPT-2 and its own tokenizers."
        )
    tokenizer = _checked(made, path)
    theirs = {**model["vocab"], boundary: engine.token_to_id(boundary)}
    ours = sorted(engine_vocabulary := made.get_vocab(), key=engine_vocabulary.__getitem__)
    return tokenizer, [theirs[boundary if token == EOS else token] for token in ours]


def _boundary(engine: Engine, config: Config) -> str:
    """The token that begins and ends a text."""
    eos = config.values.get("eos_token_id")
    token = engine.id_to_token(eos) if isinstance(eos, int) and 0 <= eos < 2**31 else None
    if token is None:
        config.wrong(f"eos_token_id is {eos!r:.40}, which is not a token of tokenizer.json")
    return str(token)


def _as_words(engine: Engine, model: dict[str, Any], boundary: str) -> Engine | None:
    """A tokenizer that Regard wrote: words or characters, without the parts added for Hugging Face."""
    if boundary != EOS or model.get("unk_token") != UNK or EOS not in model["vocab"]:
        return None
    made = Engine(models.WordLevel(model["vocab"], unk_token=UNK))
    made.pre_tokenizer = engine.pre_tokenizer
    return _normalised(made, engine)


def _as_byte_pairs(engine: Engine, model: dict[str, Any], boundary: str) -> Engine | None:
    cut = repr(engine.pre_tokenizer)
    levels = {repr(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=into)): into for into in LEVELS}
    # `trim_offsets` moves no token
    into_words = levels.get(cut.replace("trim_offsets=False", "trim_offsets=True"))
    odd = [name for name in ("byte_fallback", "ignore_merges") if model.get(name)]
    odd += [n for n in ("dropout", "continuing_subword_prefix", "end_of_word_suffix") if model.get(n)]
    if into_words is None or odd:
        return None
    others = [token for token in sorted(model["vocab"], key=model["vocab"].__getitem__) if token != boundary]
    vocabulary = {EOS: 0, **{token: number for number, token in enumerate(others, 1)}}
    merges = [tuple(pair.split(" ") if isinstance(pair, str) else pair) for pair in model.get("merges", [])]
    made = Engine(models.BPE(vocabulary, merges))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=into_words)
    made.decoder = decoders.ByteLevel()
    return _normalised(made, engine)


def _normalised(made: Engine, engine: Engine) -> Engine | None:
    """The tokenizer with its Unicode normalization, if it does nothing else (except turning a line end into a
    boundary).
    """
    written = json.loads(engine.to_str())["normalizer"]
    steps = [written] if written and written["type"] != "Sequence" else written["normalizers"] if written else []
    line_end = json.loads(normalizers.Replace("\n", EOS).__getstate__())
    steps = [step for step in steps if step != line_end]
    known = {"NFC": normalizers.NFC, "NFKC": normalizers.NFKC}
    if len(steps) > 1 or any(step["type"] not in known for step in steps):
        return None
    for step in steps:
        made.normalizer = known[step["type"]]()
    return made


def _checked(made: Engine, path: Path) -> Tokenizer:
    """The tokenizer, saved and opened as in a run."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "tokenizer.json"
        file.write_text(made.to_str(), encoding="utf-8")
        try:
            return Tokenizer.load(file)
        except RegardError as error:
            reason = str(error).partition("was not written by Regard")[2].partition(";")[0].strip()
            raise RegardError(
                f"{path} cannot be used as a tokenizer in Regard {reason}: give a different one with --tokenizer."
            ) from None
