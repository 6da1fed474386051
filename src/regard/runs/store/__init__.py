"""The folder of a run: what is in it, who works in it, listed and removed."""
