"""Contacts between the bodies of a mechanism."""
