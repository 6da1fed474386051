"""The lab: watch models learn, and look inside any of them, in the browser. `application.py` says how it is made."""
