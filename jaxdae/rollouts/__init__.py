"""Rollouts: many steps in one compiled program, for one world or for thousands."""
