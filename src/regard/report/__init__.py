"""Output for people: tables, figures and progress, in a terminal, a pipe, on a page or as JSON. No torch here."""
