"""What causes a prediction: parts of a model are changed while it computes, and the prediction is compared."""
