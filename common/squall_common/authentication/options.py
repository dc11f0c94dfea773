"""The options by which a process knows its cluster."""

from __future__ import annotations

from typing import Protocol


class SecurityOptions(Protocol):
    """The options of a daemon or a client that this reads."""

    @property
    def storm_security_ca(self) -> str | None: ...

    @property
    def storm_security_certificate(self) -> str | None: ...

    @property
    def storm_security_key(self) -> str | None: ...
