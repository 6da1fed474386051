"""Training: the loop, its optimizers and schedules, and checkpoints that make a resume exact."""
