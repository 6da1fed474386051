"""Comparing systems on the same text, tokens, evaluation and budget, with confidence intervals."""
