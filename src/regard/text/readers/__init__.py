"""Files to lines and pairs: text, tables, translation memories, subtitles and spreadsheets, in their encodings."""
