"""Built-in corpora, and the catalogue of those that can be downloaded."""
