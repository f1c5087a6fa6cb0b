"""The types of joints, one class each."""
