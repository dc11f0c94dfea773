"""Load-aware shuffle: how often each target is chosen, by how full the inboxes are. Pure.

It works like Storm's LoadAwareShuffleGrouping. Once a second, the weight of every target within 5 %
of the least loaded one rises by one, up to 100, and that of every other target falls by ten. The
targets are then laid out by weight in a ring of at least 1,000 places. While all weights are equal
there is no ring: the targets take turns. A local-or-shuffle begins with the targets of its own
worker, takes all targets when the load of its own is above `topology.localityaware.higher.bound`,
and goes back when it is below `topology.localityaware.lower.bound`. (In Storm a plain shuffle also
begins with local targets; ours is even over all workers from the beginning.)
"""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence

WEIGHT_MAX = 100
_GROW, _SHRINK = 1, 10
_LIKE_THE_LEAST = 0.05
_RING_MIN, _RING_PLACES_A_TARGET = 1_000, 5


class Balance:
    """The targets of one grouping of one task, or of tasks that share their edges."""

    def __init__(
        self,
        targets: Sequence[int],
        near: Collection[int],
        rng: random.Random,
        *,
        higher: float,
        lower: float,
    ) -> None:
        """`near` are the targets to begin with (empty: all). When their load is above `higher`, all
        targets are taken; when it is below `lower`, only the near ones again."""
        self.targets = tuple(targets)
        self._near = tuple(target for target in targets if target in near)
        self._higher, self._lower = higher, lower
        self._rng = rng
        self.stays_near = bool(self._near)
        self._weights = dict.fromkeys(self.targets, WEIGHT_MAX)
        self._ring: tuple[int, ...] = self._scope()

    def _scope(self) -> tuple[int, ...]:
        return self._near if self.stays_near else self.targets

    @property
    def weights(self) -> Mapping[int, int]:
        """The weights of the targets that are in use now."""
        return {target: self._weights[target] for target in self._scope()}

    def update(self, loads: Mapping[int, float]) -> Sequence[int] | None:
        """Adapt to the loads, once a second: from 0 (empty) to 1 (full), 0 for a target that is
        left out. Returns the targets to take in turn from now on; None when nothing changes."""
        if self._near and self._moves(loads):
            self.stays_near = not self.stays_near
            self._weights = dict.fromkeys(self.targets, WEIGHT_MAX)
        scope = self._scope()
        least = min(loads.get(target, 0.0) for target in scope)
        for target in scope:
            if loads.get(target, 0.0) <= least + _LIKE_THE_LEAST:
                self._weights[target] = min(WEIGHT_MAX, self._weights[target] + _GROW)
            else:
                self._weights[target] = max(0, self._weights[target] - _SHRINK)
        if len({self._weights[target] for target in scope}) == 1:
            if self._ring == scope:
                return None
            self._ring = scope
            return scope
        self._ring = self._lay_out(scope)
        return self._ring

    def _moves(self, loads: Mapping[int, float]) -> bool:
        mean = sum(loads.get(target, 0.0) for target in self._near) / len(self._near)
        if self.stays_near:
            return mean > self._higher and len(self._near) < len(self.targets)
        return mean < self._lower

    def _lay_out(self, scope: Sequence[int]) -> tuple[int, ...]:
        places = max(_RING_MIN, _RING_PLACES_A_TARGET * len(scope))
        total = sum(self._weights[target] for target in scope)
        ring = [target for target in scope for _ in range(places * self._weights[target] // total)]
        self._rng.shuffle(ring)
        return tuple(ring)
