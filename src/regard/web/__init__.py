"""Shared by every page and API of Regard: access control (`guard.py`) and the listening socket (`listening.py`)."""
