"""`storm node-health-check`: run the health checks of this node."""

from __future__ import annotations

from dataclasses import asdict

import click

from squall_cli.options import Settings, json_option, settings_options
from squall_cli.output import print_json, print_table, say


@click.command("node-health-check")
@json_option
@settings_options
def command(settings: Settings, as_json: bool) -> int:
    """Run the programs in storm.health.check.dir, and fail if one finds this node unhealthy.

    A program fails if it prints a line that begins with ERROR, or ends with a status other than 0.
    """
    from squall_common.config.load import local_dir
    from squall_common.config.options.typed import ClientOptions
    from squall_common.daemon.health_checks import is_healthy, run_checks

    conf = settings.load(daemon=True)
    options = ClientOptions.read(conf)
    folder = local_dir(conf) / options.storm_health_check_dir
    timeout_secs = options.storm_health_check_timeout_ms / 1000
    checks = run_checks(folder, timeout_secs)
    healthy = is_healthy(checks, fail_on_timeouts=options.storm_health_check_fail_on_timeouts)
    if as_json:
        print_json({"healthy": healthy, "checks": [asdict(one) for one in checks]})
    elif checks:
        print_table(
            ("PROGRAM", "RESULT", "DETAIL"),
            ((one.program, one.result, one.detail) for one in checks),
        )
    else:
        say(f"There are no health checks in {folder}.")
    return 0 if healthy else 1
