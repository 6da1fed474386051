"""Text to tokens: word, character, byte and byte-pair tokenizers, and the token arrays kept on disk."""
