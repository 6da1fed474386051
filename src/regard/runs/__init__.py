"""Runs: recipes, data, training, run folders, and the operations of a trained model."""
