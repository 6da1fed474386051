"""Tokens to batches: windows and streams of text, and sentence pairs of similar length."""
