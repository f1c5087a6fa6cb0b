"""Sparse Cholesky factorization of J J^T by elimination over a tree, linear in the number of rows.

Each row of J connects two bodies, or a few. J J^T has a block for every two joints that share a body. The
joints are eliminated one after another. A joint has all rows that connect its bodies: two bodies, and up to
four if coordinates of two joints are related. Fill-in appears only among the remaining neighbors of the
eliminated joint, its border. The parent of a joint is the joint of its border that is eliminated first. Each
joint is eliminated after its children, from the leaves of this elimination tree to its roots:

    [A  B^T]   [L    ] [L^T  X^T]
    [B   E ] = [X   1] [      E'],        X = B L^-T,        E' = E - X X^T goes to the parent,

where A holds the joint's own rows and B the rows of its border. The elimination trees of chains, ladders and
most robots have small borders, whatever the size of the mechanism. All joints are padded to one size. The
elimination is then a recursion over levels (`jaxdae.trees.tree_sweeps`), and the size of the program does not
depend on the number of joints.

All joints of a body with many branches would be neighbors of each other. The motion of such a crowded body
becomes an unknown instead: with z = F_b^T lam and F_b the entries of the rows for the motion of that body,
(J J^T + C) lam = r becomes

    (D + C) lam + F_b z = r,        F_b^T lam - z = 0,

where D comes from the other bodies. The joints of the body are then neighbors of the body instead. The matrix
is K = L S L^T, with S = 1 for rows and -1 for motions: eliminating the rows first leaves
-(1 + F_b^T (D + C)^-1 F_b) for the motion, which is negative definite.

*Rows before the motion.* D alone must be positive definite on the rows that are eliminated before the motion.
This holds for the rows of branches that are connected to that body only. Rows depend on the relative motion
of bodies, so moving such a branch as a whole has the same effect on the rows as moving the body. The columns
of the body therefore add nothing to the rank of the rows. All other joints of the body are eliminated after
the motion.

*Order.* The order is chosen once per structure. The next joint is always the joint with the smallest border
(minimum degree). Among equal borders, it is the joint with the fewest levels below it, so that a chain is
eliminated from both ends.

References:
    I. S. Duff, J. K. Reid, "The multifrontal solution of indefinite sparse symmetric linear equations", ACM
        Trans. Math. Softw. 9 (1983).
    D. Baraff, "Linear-time dynamics using Lagrange multipliers", SIGGRAPH (1996), for trees of bodies.
"""

from __future__ import annotations

import dataclasses
import functools

import numpy as np

from jaxdae.trees.tree_layout import Tree

CROWDED = 4
"""The number of branches from which the motion of their common body is an unknown."""


@dataclasses.dataclass(frozen=True)
class Elimination:
    """Elimination order of the rows; structure, not data.

    Attributes:
        connected: the bodies of each row, all different; `bodies` for the ground.
        bodies: the number of bodies.
        width: the number of velocities per body.
    """

    connected: tuple[tuple[int, ...], ...]
    bodies: int
    width: int

    @functools.cached_property
    def _joints(self) -> list[tuple[tuple[int, ...], list[int]]]:
        """Return the joints: the bodies of each joint, in ascending order, and its rows."""
        rows: dict[tuple[int, ...], list[int]] = {}
        for row, on in enumerate(self.connected):
            rows.setdefault(tuple(sorted(on)), []).append(row)
        return list(rows.items())

    @functools.cached_property
    def _hanging(self) -> dict[int, list[int]]:
        """Return, for each crowded body, the joints of its branches that are connected to that body alone."""
        joints: dict[int, list[tuple[int, set[int]]]] = {}
        for joint, (on, _) in enumerate(self._joints):
            for body in on:
                joints.setdefault(body, []).append((joint, set(on) - {body}))
        crowded = {body for body, found in joints.items() if len(found) >= CROWDED and body < self.bodies}
        while True:
            ends = crowded | {self.bodies}
            # Connected components of the graph without crowded bodies and ground: the component of each body,
            # and the crowded bodies and ground that each component touches.
            part: dict[int, int] = {}
            touched: dict[int, set[int]] = {}
            for start in sorted(set(joints) - ends):
                waiting = [] if start in part else [start]
                while waiting:
                    body = waiting.pop()
                    part[body] = start
                    beside = set().union(*(others for _, others in joints[body]))
                    touched.setdefault(start, set()).update(beside & ends)
                    waiting.extend(other for other in beside - ends if other not in part)
            hanging = {
                body: [
                    joint
                    for joint, others in joints[body]
                    if not others & ends and all(touched[part[other]] == {body} for other in others)
                ]
                for body in sorted(crowded)
            }
            enough = {body for body, found in hanging.items() if len(found) >= CROWDED}
            if enough == crowded:
                return hanging
            crowded = enough

    @property
    def _crowded(self) -> list[int]:
        """Return the bodies whose motions are unknowns."""
        return list(self._hanging)

    @functools.cached_property
    def _order(self) -> list[tuple[int, list[int]]]:
        """Return the nodes in elimination order, each with its border at that time.

        Nodes are numbered joints first, then crowded bodies.
        """
        count, crowded = (
            len(self._joints),
            {body: len(self._joints) + k for k, body in enumerate(self._crowded)},
        )
        of_body: dict[int, list[int]] = {}
        around: dict[int, set[int]] = {node: set() for node in range(count + len(crowded))}
        for joint, (on, _) in enumerate(self._joints):
            for body in on:
                if body in crowded:
                    around[joint].add(crowded[body])
                    around[crowded[body]].add(joint)
                elif body < self.bodies:
                    of_body.setdefault(body, []).append(joint)
        for joints in of_body.values():
            for joint in joints:
                around[joint].update(other for other in joints if other != joint)
        hanging = {joint for joints in self._hanging.values() for joint in joints}
        late = {
            joint: {crowded[body] for body in on if body in crowded}
            for joint, (on, _) in enumerate(self._joints)
        }
        late = {joint: bodies for joint, bodies in late.items() if joint not in hanging}
        order, heights = [], dict.fromkeys(around, 0)
        while around:
            ready = (node for node in around if not late.get(node, set()) & around.keys())
            node = min(ready, key=lambda k: (sum(self._size(other) for other in around[k]), heights[k], -k))
            border = around.pop(node)
            for other in border:
                heights[other] = max(heights[other], heights[node] + 1)
                around[other].discard(node)
                around[other].update(border - {other})
            order.append((node, sorted(border)))
        return order

    def _size(self, node: int) -> int:
        return len(self._joints[node][1]) if node < len(self._joints) else self.width

    @property
    def unknowns(self) -> int:
        """Return the number of unknowns: rows and motions of crowded bodies."""
        return len(self.connected) + self.width * len(self._crowded)

    @functools.cached_property
    def _nodes(self) -> tuple[list[int], list[list[int]]]:
        """Return the nodes in reverse elimination order, and their borders.

        A border holds positions in this order, nearest first.
        """
        nodes = [node for node, _ in reversed(self._order)]
        place = {node: k for k, node in enumerate(nodes)}
        return nodes, [
            sorted((place[other] for other in border), reverse=True) for _, border in reversed(self._order)
        ]

    @functools.cached_property
    def tree(self) -> Tree:
        """Return the elimination tree of the nodes."""
        return Tree(tuple(border[0] if border else len(self._order) for border in self._nodes[1]))

    @functools.cached_property
    def sizes(self) -> tuple[int, int]:
        """Return the largest number of unknowns of a node, and of a border."""
        nodes, borders = self._nodes
        own = max((self._size(node) for node in nodes), default=0)
        return own, max((sum(self._size(nodes[k]) for k in border) for border in borders), default=0)

    def _laid(self, table: np.ndarray, nothing: int | float) -> np.ndarray:
        """Return a node table in slots, with `nothing` in empty slots: recursions then move no arrays."""
        return np.concatenate([table, np.full_like(table, nothing, shape=(1, *table.shape[1:]))])[
            self.tree.slot_nodes
        ]

    @functools.cached_property
    def signs(self) -> np.ndarray:
        """Return the sign of each slot (slots,): 1 for a joint, -1 for a crowded body, 0 for empty slots."""
        return self._laid(np.where(np.asarray(self._nodes[0], int) < len(self._joints), 1.0, -1.0), 0.0)

    @functools.cached_property
    def numbers(self) -> np.ndarray:
        """Return the unknowns in each slot (slots, own).

        Unknowns are numbered rows first, then motions of crowded bodies; the number `unknowns` marks padding.
        """
        return self._laid(self.fronts[:, : self.sizes[0]], self.unknowns)

    def _numbers_of(self, node: int) -> list[int]:
        joints = len(self._joints)
        if node < joints:
            return self._joints[node][1]
        first = len(self.connected) + self.width * (node - joints)
        return list(range(first, first + self.width))

    @functools.cached_property
    def fronts(self) -> np.ndarray:
        """Return the unknowns of each node and its border (nodes, own + border), numbered as in `numbers`."""
        (own, border), (nodes, borders) = self.sizes, self._nodes
        fronts = np.full((len(nodes), own + border), self.unknowns)
        for at, (node, others) in enumerate(zip(nodes, borders, strict=True)):
            fronts[at, : self._size(node)] = self._numbers_of(node)
            found = [number for k in others for number in self._numbers_of(nodes[k])]
            fronts[at, own : own + len(found)] = found
        return fronts

    @functools.cached_property
    def passed(self) -> np.ndarray:
        """Return the positions of each border in the parent's front, as 0/1 matrices.

        The shape is (slots, own + border, border).
        """
        own, border = self.sizes
        passed = np.zeros((len(self.fronts), own + border, border))
        nothing = self.unknowns
        for at, parent in enumerate(self.tree.parents):
            if parent < len(self.fronts):
                where = {number: k for k, number in enumerate(self.fronts[parent]) if number < nothing}
                for k, number in enumerate(self.fronts[at, own:]):
                    if number < nothing:
                        passed[at, where[number], k] = 1.0
        return self._laid(passed, 0.0)

    @functools.cached_property
    def aligned(self) -> bool:
        """Return whether every border is at the beginning of its parent's front, in order."""
        return not np.any(self.passed * (1.0 - np.eye(*self.passed.shape[1:])))

    @functools.cached_property
    def sides(self) -> list[np.ndarray]:
        """Return the sides of the rows of each front for the first, second, ... body of the node.

        The shape is (slots, own + border) each. Sides are numbered as the first bodies of all rows, then the
        second bodies, and so on. A side of zeros follows, for rows that are not on that body and for bodies
        whose motions are unknowns. Entries of J J^T in the columns of a node are products of sides on one of
        its bodies.
        """
        rows, nodes = len(self.connected), self._nodes[0]
        still = {*self._crowded, self.bodies}
        found = [np.full(self.fronts.shape, self._most * rows) for _ in range(self._most)]
        for at, node in enumerate(nodes):
            if node >= len(self._joints):
                continue
            for numbers, body in zip(found, self._joints[node][0], strict=False):
                for k, row in enumerate(self.fronts[at]):
                    if row < rows and body not in still and body in self.connected[row]:
                        numbers[at, k] = self.connected[row].index(body) * rows + row
        return [self._laid(numbers, self._most * rows) for numbers in found]

    @property
    def _most(self) -> int:
        """Return the largest number of bodies of a row."""
        return max((len(on) for on in self.connected), default=0)

    @functools.cached_property
    def motions(self) -> np.ndarray:
        """Return the index of the number that couples a row with the motion of a crowded body.

        The shape is (slots, front, own). Indices refer to the flat array of all sides.
        """
        rows, (own, _), fronts = len(self.connected), self.sizes, self.fronts
        found = np.full((*fronts.shape, own), self._most * rows * self.width)
        for at in range(len(fronts)):
            for i, one in enumerate(fronts[at]):
                for j, two in enumerate(fronts[at, :own]):
                    row, motion = min(one, two), max(one, two) - rows
                    if row >= rows or not 0 <= motion < self.width * len(self._crowded):
                        continue
                    body, k = self._crowded[motion // self.width], motion % self.width
                    if body in self.connected[row]:
                        found[at, i, j] = (self.connected[row].index(body) * rows + row) * self.width + k
        return self._laid(found, self._most * rows * self.width)


@functools.lru_cache(maxsize=64)
def elimination(connected: tuple[tuple[int, ...], ...], bodies: int, width: int) -> Elimination:
    """Return the elimination order of the rows. The order is computed once per structure and cached."""
    return Elimination(connected, bodies, width)
