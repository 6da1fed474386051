"""Characters to batches: tokenizers, corpora and sentence pairs, token arrays, batches. NumPy only."""
