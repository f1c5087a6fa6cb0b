"""The Cholesky factor of J J^T where each row of J connects two bodies, or a few: elimination over a tree, linear in rows.

J J^T has a block for every two joints that share a body. The joints are eliminated one after another, each with all rows that connect its
bodies: two, and up to four where coordinates of two joints are related. What is left of the matrix then has new blocks only among the
neighbors of the eliminated joint, its border. A joint's parent is the joint of its border that is eliminated first. Every joint is done
when its children are, from the leaves of this tree to its roots:

    [A  B^T]   [L    ] [L^T  X^T]
    [B   E ] = [X   1] [      E'],        X = B L^-T,        E' = E - X X^T goes to the parent,

with A of the joint's own rows and B of its border. The trees of chains, of ladders and of most robots have small borders, whatever their
size. All joints are padded to one size, so that the elimination is a recursion over levels (`jaxdae.trees.sweep`) and the program does not
depend on how many there are.

A body on which many branches hang would make neighbors of all their joints. Its own motion is an unknown then: with z = F_b^T lam and F_b
the entries of the rows in the motion of that body, (J J^T + C) lam = r becomes

    (D + C) lam + F_b z = r,        F_b^T lam - z = 0,

with D from the other bodies, and its joints are neighbors of the body instead. The matrix is K = L S L^T then, with S = 1 for rows and -1
for motions: eliminating rows first leaves -(1 + F_b^T (D + C)^-1 F_b) there, which is negative definite.

*Which rows may come before the motion.* D alone has to be positive definite on them. It is on the rows of branches that are connected to
that body only. Rows see the motion of bodies against each other, so that moving such a branch as a whole does what moving the body does,
and the columns of the body add nothing to the rank of the rows. All other joints of the body come later.

*The order* is chosen once, for the structure. Next is always the joint with the smallest border (minimum degree), and of these the one with
the fewest levels below it, so that a chain is eliminated from both of its ends.

References:
    I. S. Duff, J. K. Reid, "The multifrontal solution of indefinite sparse symmetric linear equations", ACM Trans. Math. Softw. 9 (1983).
    D. Baraff, "Linear-time dynamics using Lagrange multipliers", SIGGRAPH (1996), for trees of bodies.
"""

from __future__ import annotations

import dataclasses
import functools

import numpy as np

from jaxdae.trees.tree import Tree

CROWDED = 4
"""The number of branches from which the motion of the body on which they hang is an unknown."""


@dataclasses.dataclass(frozen=True)
class Elimination:
    """Who is eliminated when; structure, not data.

    Attributes:
        connected: the bodies of each row, all different; `bodies` for the ground.
        bodies: how many there are.
        width: how many velocities a body has.
    """

    connected: tuple[tuple[int, ...], ...]
    bodies: int
    width: int

    @functools.cached_property
    def _joints(self) -> list[tuple[tuple[int, ...], list[int]]]:
        """The bodies that are connected, in ascending order, with the rows that do so."""
        rows: dict[tuple[int, ...], list[int]] = {}
        for row, on in enumerate(self.connected):
            rows.setdefault(tuple(sorted(on)), []).append(row)
        return list(rows.items())

    @functools.cached_property
    def _hanging(self) -> dict[int, list[int]]:
        """The joints that hang on crowded bodies, by body: beyond each are bodies that are connected to that body alone."""
        joints: dict[int, list[tuple[int, set[int]]]] = {}
        for joint, (on, _) in enumerate(self._joints):
            for body in on:
                joints.setdefault(body, []).append((joint, set(on) - {body}))
        crowded = {body for body, found in joints.items() if len(found) >= CROWDED and body < self.bodies}
        while True:
            ends = crowded | {self.bodies}
            # Parts of the graph without crowded bodies and ground: a number for each body, and what each of them is connected to.
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
                    joint for joint, others in joints[body] if not others & ends and all(touched[part[other]] == {body} for other in others)
                ]
                for body in sorted(crowded)
            }
            enough = {body for body, found in hanging.items() if len(found) >= CROWDED}
            if enough == crowded:
                return hanging
            crowded = enough

    @property
    def _crowded(self) -> list[int]:
        """The bodies whose motions are unknowns."""
        return list(self._hanging)

    @functools.cached_property
    def _order(self) -> list[tuple[int, list[int]]]:
        """The nodes as they are eliminated, with the borders that they have then: joints by number, crowded bodies after them."""
        count, crowded = len(self._joints), {body: len(self._joints) + k for k, body in enumerate(self._crowded)}
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
        late = {joint: {crowded[body] for body in on if body in crowded} for joint, (on, _) in enumerate(self._joints)}
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
        """The number of rows and motions of crowded bodies."""
        return len(self.connected) + self.width * len(self._crowded)

    @functools.cached_property
    def _nodes(self) -> tuple[list[int], list[list[int]]]:
        """The nodes with the last eliminated first, and their borders by their places in this order, nearest first."""
        nodes = [node for node, _ in reversed(self._order)]
        place = {node: k for k, node in enumerate(nodes)}
        return nodes, [sorted((place[other] for other in border), reverse=True) for _, border in reversed(self._order)]

    @functools.cached_property
    def tree(self) -> Tree:
        """Return the tree of the nodes."""
        return Tree(tuple(border[0] if border else len(self._order) for border in self._nodes[1]))

    @functools.cached_property
    def sizes(self) -> tuple[int, int]:
        """The largest number of unknowns of a node, and of a border."""
        nodes, borders = self._nodes
        own = max((self._size(node) for node in nodes), default=0)
        return own, max((sum(self._size(nodes[k]) for k in border) for border in borders), default=0)

    def _laid(self, table: np.ndarray, nothing: int | float) -> np.ndarray:
        """Returns a table of nodes in the places of the levels, with nothing in those that are empty: recursions move no arrays then."""
        return np.concatenate([table, np.full_like(table, nothing, shape=(1, *table.shape[1:]))])[self.tree.slot_nodes]

    @functools.cached_property
    def signs(self) -> np.ndarray:
        """What is in each place of the levels (places,): 1 for a joint, -1 for a crowded body, 0 for nothing."""
        return self._laid(np.where(np.asarray(self._nodes[0], int) < len(self._joints), 1.0, -1.0), 0.0)

    @functools.cached_property
    def numbers(self) -> np.ndarray:
        """Which unknowns are in each place of the levels (places, own): rows by number, then motions of crowded bodies, then nothing."""
        return self._laid(self.fronts[:, : self.sizes[0]], self.unknowns)

    def _numbers_of(self, node: int) -> list[int]:
        joints = len(self._joints)
        if node < joints:
            return self._joints[node][1]
        first = len(self.connected) + self.width * (node - joints)
        return list(range(first, first + self.width))

    @functools.cached_property
    def fronts(self) -> np.ndarray:
        """Which unknowns each node and its border have (nodes, own + border), as `numbers` has them."""
        (own, border), (nodes, borders) = self.sizes, self._nodes
        fronts = np.full((len(nodes), own + border), self.unknowns)
        for at, (node, others) in enumerate(zip(nodes, borders, strict=True)):
            fronts[at, : self._size(node)] = self._numbers_of(node)
            found = [number for k in others for number in self._numbers_of(nodes[k])]
            fronts[at, own : own + len(found)] = found
        return fronts

    @functools.cached_property
    def passed(self) -> np.ndarray:
        """Where each border stands in the parent's front: 0/1 matrices (places, own + border, border)."""
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
        """Whether all borders stand at the beginning of the parents' fronts, in order."""
        return not np.any(self.passed * (1.0 - np.eye(*self.passed.shape[1:])))

    @functools.cached_property
    def sides(self) -> list[np.ndarray]:
        """Which sides of the rows of each front are on the first, on the second, ... body of the node, (places, own + border) each.

        Sides are numbered as those of all rows on their first bodies, then on their second ones, and so on, then one of zeros, for rows
        that are not on that body and for bodies whose motions are unknowns. Entries of J J^T in the columns of a node are products of sides
        on one of its bodies.
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
        """The largest number of bodies of a row."""
        return max((len(on) for on in self.connected), default=0)

    @functools.cached_property
    def motions(self) -> np.ndarray:
        """Which single number of the sides (flat) couples a row with the motion of a crowded body (places, front, own)."""
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
    """Returns the elimination of rows; its order is found once."""
    return Elimination(connected, bodies, width)
