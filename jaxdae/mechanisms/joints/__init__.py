"""Joint types, one class per type."""
