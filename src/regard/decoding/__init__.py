"""Decoding: turning `prediction, state = model(words, state)` into text, for every system alike."""
