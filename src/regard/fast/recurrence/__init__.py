"""Rows for recurrent layers."""
