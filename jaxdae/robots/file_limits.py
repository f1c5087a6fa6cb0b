"""Limits of robot files, so that a small file cannot take much time or memory.

All sums are over one robot with every file that it includes.
"""

from __future__ import annotations

LARGEST_XML = 20_000_000
"""The size of the largest XML file, in bytes."""

MOST_BYTES = 500_000_000
"""The total size of all files, in bytes. Meshes of an attached model count once per attachment."""

MOST_FILES = 1000
"""The number of XML files. A file counts once per include."""

MOST_ELEMENTS = 200_000
"""The number of XML elements."""

MOST_LINKS = 10_000
"""The number of links, and the number of joints."""

MOST_LOOPS = 500
"""The number of joints beyond one per link."""

DEEPEST = 400
"""The depth of nested elements."""

DEEPEST_INCLUDE = 20
"""The depth of nested includes."""

MOST_EXPANDED = 30_000
"""The number of MJCF elements after `replicate`, `attach`, `composite` and `flexcomp`.

A point of a flexible body counts as three elements."""

MOST_STATES = 2_000_000
"""The number of keyframes of an MJCF file times the number of its expanded elements."""

MOST_PROBLEMS = 50
"""The number of mistakes after which reading ends."""
