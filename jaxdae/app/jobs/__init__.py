"""Runs in one or several processes, on one or several hosts."""
