"""What every page and API of Regard shares: who may talk to it (`guard.py`) and where it listens (`listening.py`)."""
