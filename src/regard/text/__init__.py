"""Characters to batches: tokenizers, corpora (files, built-in text, downloads), token arrays, batches. NumPy only."""

from importlib import import_module

_HOME = {
    "Batch": "batches",
    "Corpus": "corpus",
    "Streams": "batches",
    "TokenArray": "tokens",
    "Tokenizer": "tokenizer",
    "Windows": "batches",
    "available": "corpus",
    "cached": "tokens",
    "check_text": "check",
    "open_corpus": "corpus",
    "segment_batches": "batches",
}
__all__ = sorted(_HOME)


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
