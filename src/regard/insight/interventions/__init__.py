"""Causes of a prediction: parts of a model are changed while it computes, and the predictions are compared."""
