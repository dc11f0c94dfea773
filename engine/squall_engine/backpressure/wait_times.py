"""How long the components downstream made others wait. Pure: the time is passed in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable


class WaitTimes:
    """For each component, the seconds in which at least one of its tasks was closed."""

    def __init__(self) -> None:
        self._closed: Counter[str] = Counter()  # tasks of a component that are closed
        self._since: dict[str, float] = {}
        self._secs: dict[str, float] = {}

    def closed(self, component: str, now: float) -> None:
        """One more task of the component is closed."""
        self._closed[component] += 1
        self._since.setdefault(component, now)

    def opened(self, component: str, now: float) -> None:
        """One task less is closed."""
        self._closed[component] -= 1
        if self._closed[component] <= 0:
            del self._closed[component]
            self._secs[component] = self.secs(component, now)
            del self._since[component]

    def changed(self, before: Iterable[str], after: Iterable[str], now: float) -> None:
        """The components that are closed as a whole have changed."""
        before, after = set(before), set(after)
        for component in after - before:
            self.closed(component, now)
        for component in before - after:
            self.opened(component, now)

    def secs(self, component: str, now: float) -> float:
        """Seconds since the beginning, up to now."""
        since = self._since.get(component, now)
        return self._secs.get(component, 0.0) + max(0.0, now - since)
