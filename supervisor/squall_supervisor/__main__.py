"""`python -m squall_supervisor [--kill-workers]`, with SQUALL_DAEMON_CONF naming the configuration.

With --kill-workers it ends this node's workers, prints one JSON line that names them, and exits.
"""

import argparse
import json
import os
import sys
from dataclasses import asdict

from squall_common.errors import SquallError


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m squall_supervisor", allow_abbrev=False)
    parser.add_argument(
        "--kill-workers",
        action="store_true",
        help="end the workers of this node, and what they started, instead of supervising",
    )
    arguments = parser.parse_args()
    from squall_common.daemon.run import begin_daemon, read_daemon_conf
    from squall_supervisor import daemon

    begin_daemon()
    try:
        conf = read_daemon_conf(os.environ, "storm supervisor")
        if not arguments.kill_workers:
            return daemon.run(conf)
        from squall_supervisor import kill_workers
        from squall_supervisor.node.lock import supervisor_runs

        if supervisor_runs(conf):
            print(
                "a supervisor is running here and will start its workers again; stop it first to "
                "keep them down",
                file=sys.stderr,
            )
        killed = kill_workers(conf)
        print(json.dumps({"killed": [asdict(worker) for worker in killed]}))
    except SquallError as error:
        return daemon.fail(error)
    return 0


sys.exit(main())
