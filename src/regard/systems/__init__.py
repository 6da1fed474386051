"""The systems, one short file each, from the n-gram to GPT; the list is catalogue.py, which never imports torch."""
