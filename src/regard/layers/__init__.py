"""The parts of which every system is made: embeddings, positions, recurrence, attention, blocks."""
