"""Elimination order of loop rows in a tree of velocities; computed on the host, once per structure.

A row of J pushes on a few links. It depends on every velocity on the paths from these links to their lowest
common ancestor, its *closing* node. Above the closing node the pushes cancel, because a joint depends only on
the relative motion of its two bodies. In a traversal from the leaves to the roots, a row is *open* at every
node on its paths. It is eliminated at its closing node, after all velocities on its paths
(`jaxdae.mechanisms.coordinates.loop_factors`). The number of rows that are open or close at a node determines
the cost of elimination. This number is two for a ladder of four-bars, whatever its length.

If several groups of branches close their rows at one node, each group gets an additional node without a
motion, between its branches and that node. The rows of a hundred four-bars on one body, or on the ground,
therefore never share a node. A row that depends on a common motion of its bodies, such as the row of a gear,
closes at the ground.

Every row has one slot at all nodes where it is open. Rows without a common node can share slots. The nodes of
a row form a subtree, and of two subtrees that intersect, one contains the closing node of the other. Greedy
assignment from the roots to the leaves, always of the first free slot, therefore needs only as many slots as
the fullest node has rows. Rows that begin at a node may reuse the slots of rows that close there, because the
closing rows are eliminated first.

The word *place* denotes a slot of the tree layout (`jaxdae.trees.tree_layout`), to distinguish it from the
slots of rows.

References:
    R. Featherstone, "Rigid Body Dynamics Algorithms" (2008), section 8.
    A. S. Sathya, J. Carpentier, "Constrained articulated body dynamics algorithms", IEEE Trans. Robotics 41
    (2025).
    F. Gavril, "Algorithms for minimum coloring ... of a chordal graph", SIAM J. Computing 1 (1972), for the
    slots.
"""

from __future__ import annotations

import dataclasses
import functools

import numpy as np

from jaxdae.compile.thresholds import ELIMINATED_FROM
from jaxdae.trees.tree_layout import Tree

WIDE = 6
"""The number of motion directions of a body, for the estimate of the work."""


@dataclasses.dataclass(frozen=True)
class LoopOrder:
    """The elimination order of velocities and rows; structure, not data.

    Attributes:
        parents: the parent of each velocity, which precedes it; the number of velocities for the ground.
        ends: the nodes on which each row pushes; the number of velocities for the ground.
        own: the velocities in which each row has a direct entry.
        grounded: whether each row depends on a common motion of its bodies.
    """

    parents: tuple[int, ...]
    ends: tuple[tuple[int, ...], ...]
    own: tuple[tuple[int, ...], ...]
    grounded: tuple[bool, ...]

    @functools.cached_property
    def pays(self) -> bool:
        """Return whether elimination takes fewer operations than dense matrices of this size."""
        rows, nv = self.rows, len(self.parents)
        if not rows or nv < ELIMINATED_FROM:
            return False
        matrices = rows * nv * (nv + rows)
        return self.places * (WIDE + self.width) ** 2 * (1 + self.width) <= matrices

    @property
    def rows(self) -> int:
        """Return the number of rows."""
        return len(self.ends)

    @functools.cached_property
    def _ways(self) -> list[tuple[int, list[int]]]:
        """Return the closing node of each row, and all nodes below it on the paths of the row.

        The number of velocities stands for the ground.
        """
        ground = len(self.parents)
        above: list[list[int]] = []  # Path from the root to the node.
        for node, parent in enumerate(self.parents):
            above.append([*(above[parent] if parent < ground else []), node])
        found = []
        for ends, own, grounded in zip(self.ends, self.own, self.grounded, strict=True):
            chains = [above[end] if end < ground else [] for end in ends]
            tops = chains + [above[node][:-1] for node in own]
            shared = 0
            while (
                not grounded
                and all(len(chain) > shared for chain in tops)
                and len({chain[shared] for chain in tops}) == 1
            ):
                shared += 1
            closing = tops[0][shared - 1] if shared else ground
            on_way = {node for chain in (*chains, *(above[node] for node in own)) for node in chain[shared:]}
            found.append((closing, sorted(on_way)))
        return found

    @functools.cached_property
    def _nodes(self) -> tuple[list[int], list[int], list[int], list[list[int]]]:
        """Return the nodes in breadth-first order.

        Returns:
            The velocity of each node, the number of velocities for a node without a motion; the parents, the
            number of nodes for the ground; the closing node of each row; and the nodes on the paths of each
            row, without the closing node.
        """
        ground, ways = len(self.parents), self._ways
        parents: list[int] = list(self.parents)  # Additional nodes start at index ground + 1.
        closings = [closing for closing, _ in ways]
        added: list[int] = []
        for place in dict.fromkeys(sorted(closings)):
            here = [row for row, closing in enumerate(closings) if closing == place]
            groups: list[tuple[set[int], list[int]]] = []
            for row in here:
                branches, rows = {node for node in ways[row][1] if self.parents[node] == place}, [row]
                for group in [group for group in groups if group[0] & branches]:
                    branches, rows = branches | group[0], rows + group[1]
                    groups.remove(group)
                groups.append((branches, rows))
            if place < ground and len(groups) == 1:
                continue
            for branches, rows in groups:
                number = ground + 1 + len(added)
                added.append(place)
                for node in branches:
                    parents[node] = number
                for row in rows:
                    closings[row] = number
        parents += [ground, *added]  # The entry of the ground is unused.
        children: dict[int, list[int]] = {}
        for node, parent in enumerate(parents):
            if node != ground:
                children.setdefault(parent, []).append(node)
        order: list[int] = []
        level = children.get(ground, [])
        while level:
            order += level
            level = [child for node in level for child in children.get(node, [])]
        number = {node: k for k, node in enumerate(order)} | {ground: len(order)}
        own = [node if node < ground else ground for node in order]
        on_way = [
            {*nodes, *(parents[node] for node in nodes if parents[node] > ground)} - {closing}
            for (_, nodes), closing in zip(ways, closings, strict=True)
        ]
        return (
            own,
            [number[parents[node]] for node in order],
            [number[closing] for closing in closings],
            [sorted(number[node] for node in nodes) for nodes in on_way],
        )

    @functools.cached_property
    def tree(self) -> Tree:
        """Return the tree of the nodes."""
        return Tree(tuple(self._nodes[1]))

    @property
    def places(self) -> int:
        """Return the number of places, including empty ones: the length of all arrays of a recursion."""
        return len(self.tree.slot_nodes)

    @functools.cached_property
    def velocities(self) -> np.ndarray:
        """Return the velocity of the node in each place (places,); the number of velocities for none."""
        return np.append(np.asarray(self._nodes[0], int), len(self.parents))[self.tree.slot_nodes]

    @functools.cached_property
    def of_velocities(self) -> np.ndarray:
        """Return the node of each velocity (nv,)."""
        nodes = np.empty(len(self.parents) + 1, int)
        nodes[np.asarray(self._nodes[0], int)] = np.arange(self.tree.count)
        return nodes[:-1]

    @functools.cached_property
    def slots(self) -> np.ndarray:
        """Return the slot of each row (rows,)."""
        _, parents, closings, ways = self._nodes
        # The slots of the rows that are open at the children of each node, or that close at the node.
        taken: list[set[int]] = [set() for _ in range(self.tree.count)]
        slots = np.zeros(self.rows, int)
        for row in sorted(range(self.rows), key=lambda row: closings[row]):  # Nodes are sorted by depth.
            slot = next(k for k in range(self.rows) if k not in taken[closings[row]])
            slots[row] = slot
            for node in (closings[row], *(parents[node] for node in ways[row])):
                taken[node].add(slot)
        return slots

    @functools.cached_property
    def width(self) -> int:
        """Return the number of slots: the largest number of open and closing rows at a node."""
        return int(self.slots.max(initial=-1)) + 1

    @functools.cached_property
    def closed(self) -> np.ndarray:
        """Return the row eliminated in each slot (places, width); the number of rows for none."""
        closed = np.full((self.places, self.width), self.rows)
        closed[self.tree.node_slots[self._nodes[2]], self.slots] = np.arange(self.rows)
        return closed

    @functools.cached_property
    def closings(self) -> np.ndarray:
        """Return where each row is eliminated, as an index into the slots of all places (rows,)."""
        return self.tree.node_slots[self._nodes[2]] * self.width + self.slots

    @functools.cached_property
    def _pushed(self) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Return tables of the pushes of open rows, and tables of the pushes of closing rows.

        The tables (places, width) contain the index of the push on the node in each place and slot. Sum over
        the tables. Pushes are numbered row by row, with the same number of pushes per row, the maximum of all
        rows. The total number of pushes stands for no push.
        """
        ground, places, (_, _, closings, ways) = len(self.parents), self.tree.node_slots, self._nodes
        sides = max((len(ends) for ends in self.ends), default=0)
        found: tuple[list[tuple[int, int, int]], list[tuple[int, int, int]]] = [], []
        for row, ends in enumerate(self.ends):
            for side, end in enumerate(ends):
                if end < ground:
                    # A row may push on the body at its closing node.
                    node = int(self.of_velocities[end])
                    is_met = node not in ways[row]
                    found[is_met].append(
                        (
                            int(places[closings[row] if is_met else node]),
                            int(self.slots[row]),
                            row * sides + side,
                        )
                    )
        of_open, of_closing = (_by_slots(at, (self.places, self.width), self.rows * sides) for at in found)
        return of_open, of_closing

    @property
    def pushes(self) -> list[np.ndarray]:
        """Return the tables of pushes on nodes at which the rows are open."""
        return self._pushed[0]

    @property
    def met(self) -> list[np.ndarray]:
        """Return the tables of pushes on nodes at which the rows close."""
        return self._pushed[1]

    @functools.cached_property
    def entries(self) -> list[np.ndarray]:
        """Return tables of the direct entries of rows in velocities, in the format of `pushes`."""
        count = max((len(own) for own in self.own), default=0)
        at = [
            (int(self.tree.node_slots[self.of_velocities[node]]), int(self.slots[row]), row * count + k)
            for row, own in enumerate(self.own)
            for k, node in enumerate(own)
        ]
        return _by_slots(at, (self.places, self.width), self.rows * count)

    def padded(self, numbers: tuple[tuple[int, ...], ...], width: int) -> np.ndarray:
        """Return the nodes of each row as an array (rows, width), padded with the number of velocities."""
        nothing = len(self.parents)
        return np.asarray([(*each, *[nothing] * (width - len(each))) for each in numbers], int).reshape(
            len(numbers), width
        )


def _by_slots(at: list[tuple[int, int, int]], shape: tuple[int, int], nothing: int) -> list[np.ndarray]:
    """Return numbers by place and slot, in as many tables as the fullest slot has numbers."""
    flat = tables_of(
        [(place * shape[1] + slot, number) for place, slot, number in at], shape[0] * shape[1], nothing
    )
    return [table.reshape(shape) for table in flat]


def tables_of(at: list[tuple[int, int]], size: int, nothing: int) -> list[np.ndarray]:
    """Return numbers by place (size,), in as many tables as the fullest place has numbers.

    `nothing` fills the rest.
    """
    tables: list[np.ndarray] = []
    for place, number in at:
        table = next((table for table in tables if table[place] == nothing), None)
        if table is None:
            table = np.full((size,), nothing)
            tables.append(table)
        table[place] = number
    return tables


@functools.lru_cache(maxsize=64)
def loop_order(
    parents: tuple[int, ...],
    ends: tuple[tuple[int, ...], ...],
    own: tuple[tuple[int, ...], ...],
    grounded: tuple[bool, ...],
) -> LoopOrder:
    """Return an elimination order from a cache."""
    return LoopOrder(parents, ends, own, grounded)
