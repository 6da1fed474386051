"""Export and import of models in the formats of other programs."""
