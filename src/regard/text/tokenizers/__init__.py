"""Text to tokens: word, character, byte and byte-pair tokenizers, and token arrays on disk."""
