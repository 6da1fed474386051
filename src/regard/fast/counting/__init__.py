"""Rows for n-grams."""
