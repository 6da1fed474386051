"""Inspection: what a model computes on a text, with numbers, gradients and interventions."""
