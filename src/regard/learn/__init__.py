"""Learning with Regard: the lectures' pages, and exercises with their graders."""
