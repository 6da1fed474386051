"""The ground floor: errors, settings, files, locks, numbers. No torch."""
