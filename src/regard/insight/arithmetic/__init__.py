"""The arithmetic of one step: the equations of a model with its numbers in them. One file for each family of layers."""
