"""Several models behind one address, for programs that speak OpenAI's or LibreTranslate's language."""
