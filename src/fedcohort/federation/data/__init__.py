"""Data sets: read from files, tables, texts, arrays and the Hugging Face Hub, checked, and kept in the cache."""
