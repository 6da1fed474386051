"""A trace for the terminal, a page, the lab and a JSON file; all of them read one table of steps."""
