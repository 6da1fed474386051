"""The layers that systems are built from: embeddings, positions, recurrence, attention, blocks."""
