"""Where the rows of loops are eliminated in a tree of velocities; on the host, once for a structure.

A row of J pushes on a few links, and moves every velocity on the ways from them to their lowest common carrier, its *closing*: above it the
pushes cancel, because a joint sees the motion of one of its bodies against the other. From the leaves to the roots, a row is *open* at
every node on its ways, and it is eliminated at its closing, when all velocities that it moves are
(`jaxdae.mechanisms.coordinates.loop_factors`). How many rows are open or close at a node is what the elimination costs: two for a ladder of
four-bars, whatever its length.

Where several groups of branches close their rows at one node, each group has a node of its own between them and that node, without a
motion: what closes a hundred four-bars on one body, or on the ground, never meets. A row that does see a common motion of its bodies, such
as that of a gear, closes at the ground. Every row keeps one slot wherever it is open; rows that meet nowhere share slots. The nodes of a
row are a subtree, and subtrees that meet all contain the closing of one of them: giving slots from the roots to the leaves, always the
first one that is free, takes as many as come to the fullest node. Rows that only begin at a node may take the slots of those that close
there, which are eliminated before.

References:
    R. Featherstone, "Rigid Body Dynamics Algorithms" (2008), section 8.
    A. S. Sathya, J. Carpentier, "Constrained articulated body dynamics algorithms", IEEE Trans. Robotics 41 (2025).
    F. Gavril, "Algorithms for minimum coloring ... of a chordal graph", SIAM J. Computing 1 (1972), for the slots.
"""

from __future__ import annotations

import dataclasses
import functools

import numpy as np

from jaxdae.thresholds import ELIMINATED_FROM
from jaxdae.trees.tree import Tree

WIDE = 6
"""The number of directions in which bodies move, for the estimate of work."""


@dataclasses.dataclass(frozen=True)
class LoopOrder:
    """Who is eliminated when; structure, not data.

    Attributes:
        parents: of the velocities as nodes, which come before them; their number for the ground.
        ends: the nodes on which each row pushes; the number of nodes for the ground.
        own: the velocities in which each row has an entry by itself.
        grounded: whether each row sees a motion that all of its bodies have.
    """

    parents: tuple[int, ...]
    ends: tuple[tuple[int, ...], ...]
    own: tuple[tuple[int, ...], ...]
    grounded: tuple[bool, ...]

    @functools.cached_property
    def pays(self) -> bool:
        """Whether elimination is less work than matrices of this size are."""
        rows, nv = self.rows, len(self.parents)
        if not rows or nv < ELIMINATED_FROM:
            return False
        matrices = rows * nv * (nv + rows)
        return self.places * (WIDE + self.width) ** 2 * (1 + self.width) <= matrices

    @property
    def rows(self) -> int:
        """The number of rows."""
        return len(self.ends)

    @functools.cached_property
    def _ways(self) -> list[tuple[int, list[int]]]:
        """The closing of each row, and all nodes below it on its ways; the ground has the number of nodes."""
        ground = len(self.parents)
        above: list[list[int]] = []  # From the root to the node itself.
        for node, parent in enumerate(self.parents):
            above.append([*(above[parent] if parent < ground else []), node])
        found = []
        for ends, own, grounded in zip(self.ends, self.own, self.grounded, strict=True):
            chains = [above[end] if end < ground else [] for end in ends]
            tops = chains + [above[node][:-1] for node in own]
            shared = 0
            while not grounded and all(len(chain) > shared for chain in tops) and len({chain[shared] for chain in tops}) == 1:
                shared += 1
            closing = tops[0][shared - 1] if shared else ground
            on_way = {node for chain in (*chains, *(above[node] for node in own)) for node in chain[shared:]}
            found.append((closing, sorted(on_way)))
        return found

    @functools.cached_property
    def _nodes(self) -> tuple[list[int], list[int], list[int], list[list[int]]]:
        """The nodes in their order.

        Returns:
            The velocity of each node, the number of velocities for nodes without a motion; the parents, the number of nodes for the ground;
            the node at which each row closes; and the nodes on the ways of each row, the closing left out.
        """
        ground, ways = len(self.parents), self._ways
        parents: list[int] = list(self.parents)  # Further nodes have the numbers from ground + 1 on, until they are sorted.
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
        parents += [ground, *added]  # The ground itself is never looked up.
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
        """The number of places in the grids of the levels, those without a node included. All arrays of a recursion have so many rows."""
        return len(self.tree.slot_nodes)

    @functools.cached_property
    def velocities(self) -> np.ndarray:
        """The velocity of the node in each place, the number of velocities for none (places,)."""
        return np.append(np.asarray(self._nodes[0], int), len(self.parents))[self.tree.slot_nodes]

    @functools.cached_property
    def of_velocities(self) -> np.ndarray:
        """The node of each velocity (nv,)."""
        nodes = np.empty(len(self.parents) + 1, int)
        nodes[np.asarray(self._nodes[0], int)] = np.arange(self.tree.count)
        return nodes[:-1]

    @functools.cached_property
    def slots(self) -> np.ndarray:
        """The slot of each row (rows,)."""
        _, parents, closings, ways = self._nodes
        # The slots of the rows that come to each node from its children, or close there.
        taken: list[set[int]] = [set() for _ in range(self.tree.count)]
        slots = np.zeros(self.rows, int)
        for row in sorted(range(self.rows), key=lambda row: closings[row]):  # Nodes are sorted by their depth.
            slot = next(k for k in range(self.rows) if k not in taken[closings[row]])
            slots[row] = slot
            for node in (closings[row], *(parents[node] for node in ways[row])):
                taken[node].add(slot)
        return slots

    @functools.cached_property
    def width(self) -> int:
        """The number of slots: the largest number of rows that come to a node."""
        return int(self.slots.max(initial=-1)) + 1

    @functools.cached_property
    def closed(self) -> np.ndarray:
        """The row that is eliminated in each slot of the node in each place (places, width); the number of rows for none."""
        closed = np.full((self.places, self.width), self.rows)
        closed[self.tree.node_slots[self._nodes[2]], self.slots] = np.arange(self.rows)
        return closed

    @functools.cached_property
    def closings(self) -> np.ndarray:
        """Where each row is eliminated, among the slots of all places (rows,)."""
        return self.tree.node_slots[self._nodes[2]] * self.width + self.slots

    @functools.cached_property
    def _pushed(self) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Which push of which row acts on the node in each place in each slot: where rows are open, and where they close.

        Tables (places, width) that add up. Pushes are numbered row by row, with as many for each row as the row with most of them has; the
        number of all of them is for none.
        """
        ground, places, (_, _, closings, ways) = len(self.parents), self.tree.node_slots, self._nodes
        sides = max((len(ends) for ends in self.ends), default=0)
        found: tuple[list[tuple[int, int, int]], list[tuple[int, int, int]]] = [], []
        for row, ends in enumerate(self.ends):
            for side, end in enumerate(ends):
                if end < ground:
                    # A row may push on the body at whose own node its branches only meet.
                    node = int(self.of_velocities[end])
                    is_met = node not in ways[row]
                    found[is_met].append((int(places[closings[row] if is_met else node]), int(self.slots[row]), row * sides + side))
        of_open, of_closing = (_by_slots(at, (self.places, self.width), self.rows * sides) for at in found)
        return of_open, of_closing

    @property
    def pushes(self) -> list[np.ndarray]:
        """The tables of pushes of rows on nodes at which they are open."""
        return self._pushed[0]

    @property
    def met(self) -> list[np.ndarray]:
        """The tables of pushes of rows on the nodes at which they close."""
        return self._pushed[1]

    @functools.cached_property
    def entries(self) -> list[np.ndarray]:
        """Which entry of which row is that of the velocity of the node in each place in each slot; numbered as `pushes`."""
        count = max((len(own) for own in self.own), default=0)
        at = [
            (int(self.tree.node_slots[self.of_velocities[node]]), int(self.slots[row]), row * count + k)
            for row, own in enumerate(self.own)
            for k, node in enumerate(own)
        ]
        return _by_slots(at, (self.places, self.width), self.rows * count)

    def padded(self, numbers: tuple[tuple[int, ...], ...], width: int) -> np.ndarray:
        """Returns numbers of nodes by row as an array (rows, width); the number of nodes where there are no more."""
        nothing = len(self.parents)
        return np.asarray([(*each, *[nothing] * (width - len(each))) for each in numbers], int).reshape(len(numbers), width)


def _by_slots(at: list[tuple[int, int, int]], shape: tuple[int, int], nothing: int) -> list[np.ndarray]:
    """Returns numbers by place and slot, in as many tables as some of these have numbers."""
    flat = tables_of([(place * shape[1] + slot, number) for place, slot, number in at], shape[0] * shape[1], nothing)
    return [table.reshape(shape) for table in flat]


def tables_of(at: list[tuple[int, int]], size: int, nothing: int) -> list[np.ndarray]:
    """Returns numbers by place (size,), in as many tables as some places have numbers; `nothing` where there is none."""
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
    parents: tuple[int, ...], ends: tuple[tuple[int, ...], ...], own: tuple[tuple[int, ...], ...], grounded: tuple[bool, ...]
) -> LoopOrder:
    """Returns the order of an elimination; it is found once."""
    return LoopOrder(parents, ends, own, grounded)
