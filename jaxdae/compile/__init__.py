"""Compilation: batch axis last, sharding, memory layout, rematerialization, platform, thresholds."""
