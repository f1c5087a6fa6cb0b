"""Force types, one class per type."""
