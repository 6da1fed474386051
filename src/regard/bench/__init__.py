"""`regard bench`: Regard and its peers on the same work in one run, with the machine's limit."""
