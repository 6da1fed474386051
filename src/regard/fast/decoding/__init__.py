"""Rows for generation and beam search."""
