"""`regard bench`: Regard and its peers at the same work, side by side in one run, beside what the machine could do."""
