"""See inside: what happened in this model on this sentence."""
