"""Evaluation: how well a model predicts unseen text, with the exact method of each number."""
