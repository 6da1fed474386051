"""The systems, one short file each, from the n-gram to GPT; catalogue.py lists them without importing torch."""
