"""What people read: tables and progress, in a terminal, in a pipe or as JSON. No torch here."""
