"""A run: its recipe, its folder, what it learns from, how it is trained and what it can do."""
