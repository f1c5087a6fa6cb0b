"""The text of a config and its schema."""
