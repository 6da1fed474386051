"""Several models behind one address, for clients of OpenAI's or LibreTranslate's API."""
