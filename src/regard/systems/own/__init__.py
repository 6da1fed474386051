"""A user's own layer or model: finding, trusting and running its file, and stacking its layer."""
