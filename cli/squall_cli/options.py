"""Options that every sub-command accepts, before or after its name.

storm --config FILE -c key=value list
storm list -c key=value
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from squall_common.config.options.typed import ClientOptions

_R = TypeVar("_R")
_WARNED = f"{__name__}.warned"  # in a context's `meta`: the warnings that were printed


@dataclass(frozen=True, slots=True)
class Settings:
    """The sources of this command's configuration."""

    config_file: Path | None = None
    overrides: tuple[str, ...] = ()  # "key=value", later ones win

    def load(self, *, daemon: bool = False) -> dict[str, Any]:
        """The merged configuration of a command, or of a daemon on this node, which does not read
        `~/.storm/storm.yaml`. Raises ConfigError when a file or a value is unusable."""
        from squall_common.config.load import load_conf

        return load_conf(
            config_file=self.config_file,
            overrides=self.overrides,
            client=not daemon,
            warn=_warn_once,
        )

    def client(self) -> ClientOptions:
        """What a command that calls the cluster reads of its configuration. Raises ConfigError."""
        from squall_common.config.options.typed import ClientOptions

        return ClientOptions.read(self.load())

    def parsed_overrides(self) -> dict[str, Any]:
        """The `-c` options alone. Raises ConfigError."""
        from squall_common.config.load import parse_override, read_conf, validate_conf

        values = dict(parse_override(text) for text in self.overrides)
        # Whether the cluster is secured stands in the site file, which load() looks at.
        validate_conf(values, where="-c", secured=True)
        return read_conf(values)


def _warn_once(text: str) -> None:
    """A command may load its configuration again, and warns of the same only once."""
    from squall_cli.output import say

    context = click.get_current_context(silent=True)
    said = set() if context is None else context.find_root().meta.setdefault(_WARNED, set())
    if text not in said:
        said.add(text)
        say(f"warning: {text}")


def _check_overrides(
    _ctx: click.Context, _param: click.Parameter, values: tuple[str, ...]
) -> tuple[str, ...]:
    for value in values:
        key, equals, _ = value.partition("=")
        if not equals or not key.strip():
            raise click.BadParameter(f"{value!r} is not KEY=VALUE")
    return values


def settings_options(function: Callable[..., _R]) -> Callable[..., _R]:
    """Add --config and -c, and pass the function `settings`. What was given before the
    sub-command's name counts too; what stands after it wins."""

    @click.option(
        "--config",
        "config_file",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="Site configuration instead of the usual storm.yaml.",
    )
    @click.option(
        "-c",
        "overrides",
        multiple=True,
        metavar="KEY=VALUE",
        callback=_check_overrides,
        help="Set one configuration key (repeatable); the value is YAML.",
    )
    @click.pass_context
    @functools.wraps(function)
    def with_settings(
        ctx: click.Context,
        /,
        *args: Any,
        config_file: Path | None,
        overrides: tuple[str, ...],
        **kwargs: Any,
    ) -> _R:
        outer = ctx.obj if isinstance(ctx.obj, Settings) else Settings()
        settings = Settings(config_file or outer.config_file, outer.overrides + overrides)
        ctx.obj = settings
        return function(*args, settings=settings, **kwargs)

    return with_settings


def check_entry(ctx: click.Context, _param: click.Parameter, value: str) -> str:
    """A callback for ENTRY, after which everything is the program's."""
    if value.startswith("-"):
        raise click.UsageError(
            f"{value} stands after PACKAGE, where ENTRY is expected. Options of "
            f"'{ctx.command_path}' come before PACKAGE, those of the program after ENTRY.",
            ctx,
        )
    return value


json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print JSON for programs instead of text for people."
)
