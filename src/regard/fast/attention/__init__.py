"""Rows for attention and the blocks around it."""
