"""Reports on a corpus before training: `regard data check`."""
