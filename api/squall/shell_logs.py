"""Handlers for the `log` commands of shell components (`topology.multilang.log.handler`).

This is the public name of `squall_common.component.shell_logs`.
"""

from __future__ import annotations

from squall_common.component.shell_logs import DefaultShellLogHandler, ShellLogHandler

__all__ = ["DefaultShellLogHandler", "ShellLogHandler"]
