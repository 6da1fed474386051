"""Models in other programs' formats, written and read."""
