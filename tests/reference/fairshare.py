"""Computes the fair share of users in a tree of accounts: fair tree and classic formula.

Sources: Slurm's pages "Fair Tree Fairshare Algorithm" (2019-01-16) and "Classic Fairshare
Algorithm" (2019-06-11).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .parts import total

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(eq=False)
class Node:
    """An account, or a user in one; root is an account without a name."""

    name: str
    is_user: bool
    shares: float = 1.0
    usage: float = 0.0  # the usage of a user; that of an account is the sum of its children
    children: list[Node] = field(default_factory=list)

    def sort(self) -> None:
        """Put children into the order in which numbers are added."""
        self.children.sort(key=lambda node: (node.is_user, node.name))
        for child in self.children:
            child.sort()

    def add_up(self) -> float:
        """Set the usage of accounts."""
        if not self.is_user:
            self.usage = total([child.add_up() for child in self.children])
        return self.usage

    def users(self) -> list[Node]:
        if self.is_user:
            return [self]
        return [user for child in self.children for user in child.users()]


def ratio(part: float, whole: float) -> float:
    """Return the ratio of a part to a whole; 0 for a whole of 0."""
    return part / whole if whole > 0 else 0.0


def levels(parent: Node) -> dict[Node, float]:
    """Return the level fair share of each child: its part of the shares over that of the usage."""
    shares = total([child.shares for child in parent.children])
    usage = total([child.usage for child in parent.children])
    found = {}
    for child in parent.children:
        used = ratio(child.usage, usage)
        found[child] = ratio(child.shares, shares) / used if used > 0 else math.inf
    return found


def fair_tree(root: Node) -> dict[Node, float]:
    """Return the rank of every user divided by their number; the best user has 1.0."""
    count = len(root.users())
    ranks: dict[Node, int] = {}

    def visit(parents: list[Node], first_rank: int) -> None:
        level = {child: lf for parent in parents for child, lf in levels(parent).items()}
        rank = first_rank
        for lf in sorted(set(level.values()), reverse=True):
            group = [child for child in level if level[child] == lf]
            users = [child for child in group if child.is_user]
            accounts = [child for child in group if not child.is_user]
            ranks.update(dict.fromkeys(users, rank))
            if accounts:
                visit(accounts, rank)
            rank = count - len(ranks)

    visit([root], count)
    return {user: rank / count for user, rank in ranks.items()}


def classic(
    root: Node, dampening: float, power: Callable[[float, float], float] = math.pow
) -> dict[Node, float]:
    """Return 1/2 for a user that used exactly its share, and more for one that used less."""
    found: dict[Node, float] = {}

    def visit(parent: Node, shares: float, effective: float | None) -> None:
        among = total([child.shares for child in parent.children])
        for child in parent.children:
            own = ratio(child.shares, among)
            used = ratio(child.usage, root.usage)
            if effective is not None:
                used = used + (effective - used) * own
            if not child.is_user:
                visit(child, shares * own, used)
            elif shares * own > 0:
                found[child] = power(2.0, -used / (shares * own) / dampening)
            else:
                found[child] = 0.0

    visit(root, 1.0, None)
    return found
