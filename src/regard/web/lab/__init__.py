"""The lab: watch models learn, and look inside any of them, in the browser. `application.py` shows how it is built."""
