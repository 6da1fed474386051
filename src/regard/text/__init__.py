"""Characters to batches: tokenizers, corpora and sentence pairs, token arrays, batches. NumPy only."""

from importlib import import_module

_HOME = {
    "Batch": "batches",
    "Corpus": "corpus",
    "DropoutPairs": "bpe_dropout",
    "PairBatch": "pair_batches",
    "PairBatches": "pair_batches",
    "PairCorpus": "pairs",
    "Pairs": "pairs",
    "Streams": "batches",
    "TokenArray": "tokens",
    "TokenPairs": "pair_tokens",
    "Tokenizer": "tokenizer",
    "Windows": "batches",
    "available": "corpus",
    "cached": "tokens",
    "check_text": "check",
    "encode_pairs": "pair_tokens",
    "is_pairs": "pairs",
    "open_corpus": "corpus",
    "open_pairs": "pairs",
    "pair_batches_in_order": "pair_batches",
    "segment_batches": "batches",
    "train_tokenizers": "pair_tokenizers",
}
__all__ = sorted(_HOME)


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
