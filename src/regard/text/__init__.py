"""Characters to batches: tokenizers, corpora and sentence pairs, token arrays, batches. NumPy only."""

from importlib import import_module

_HOME = {
    "Batch": "batches.text_batches",
    "Corpus": "corpus",
    "DropoutPairs": "tokenizers.bpe_dropout",
    "PairBatch": "batches.pair_batches",
    "PairBatches": "batches.pair_batches",
    "PairCorpus": "pairs",
    "Pairs": "pairs",
    "Streams": "batches.text_batches",
    "TokenArray": "tokenizers.tokens",
    "TokenPairs": "tokenizers.pair_tokens",
    "Tokenizer": "tokenizers.tokenizer",
    "Windows": "batches.text_batches",
    "available": "corpus",
    "cached": "tokenizers.tokens",
    "check_text": "check.check_text",
    "encode_pairs": "tokenizers.pair_tokens",
    "is_pairs": "pairs",
    "open_corpus": "corpus",
    "open_pairs": "pairs",
    "pair_batches_in_order": "batches.pair_batches",
    "segment_batches": "batches.text_batches",
    "train_tokenizers": "tokenizers.pair_tokenizers",
}
__all__ = sorted(_HOME)


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
