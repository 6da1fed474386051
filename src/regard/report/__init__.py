"""Output for people: tables, figures and progress, in a terminal, in a pipe, on a page or as JSON. Without torch."""
