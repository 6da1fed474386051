"""Rows for the training step: captured graphs, compiled blocks, the fused loss."""
