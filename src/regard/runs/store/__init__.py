"""Run folders: their files, locks, lists and removal."""
