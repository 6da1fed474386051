"""Evaluation: how well a model predicts text it has not seen, and exactly how that was computed."""
