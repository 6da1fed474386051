"""Built-in corpora, and the catalog of those that can be downloaded."""
