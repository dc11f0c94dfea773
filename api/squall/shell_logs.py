"""Where the `log` commands of shell components go (`topology.multilang.log.handler`).

The public name of `squall_common.component.shell_logs`.
"""

from __future__ import annotations

from squall_common.component.shell_logs import DefaultShellLogHandler, ShellLogHandler

__all__ = ["DefaultShellLogHandler", "ShellLogHandler"]
