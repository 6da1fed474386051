"""What everything stands on: errors, settings, files, numbers. No torch."""
