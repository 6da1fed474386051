"""Training: the loop, its optimisers and schedules, and checkpoints that make a resume exact."""
