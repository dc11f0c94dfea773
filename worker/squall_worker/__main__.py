"""`python -m squall_worker TOPOLOGY_ID SUPERVISOR_ID PORT WORKER_ID LAUNCH_FILE`

Started by a supervisor, never by hand. Exit status: see `squall_worker.process`. SIGTERM drains and
stops, a second one ends at once, SIGUSR1 writes the stacks of all threads to stderr.
"""

import gc
import os
import sys

# Imports allocate much and free little; garbage collection is turned on once the worker runs.
gc.disable()


def main(argv: list[str]) -> int:
    if len(argv) != 5:
        print(__doc__, file=sys.stderr)
        return 2
    # Before anything slow: a worker that hangs from here on is noticed by its missing heartbeats.
    from squall_worker.report.first_beat import FirstBeats

    beats = FirstBeats(os.path.join(os.path.dirname(argv[4]), "heartbeat"))

    import faulthandler
    import logging
    import signal
    from pathlib import Path

    from squall_common.config.options.typed import WorkerOptions
    from squall_common.daemon.logs import get_logger, set_up_logging
    from squall_common.errors import SquallError
    from squall_common.worker_files.launch_spec import LaunchSpec
    from squall_worker.report.logged_output import LoggedOutput
    from squall_worker.report.printed import bound_printed

    try:
        spec = LaunchSpec.read(Path(argv[4]))
        options = WorkerOptions.read(spec.daemon_conf)
    except (OSError, ValueError, KeyError, TypeError, SquallError) as error:
        print(f"cannot read the launch file {argv[4]}: {error!r}", file=sys.stderr)
        return 2
    level = logging.getLevelNamesMapping()[options.storm_log_level]
    as_json = options.storm_log_format == "json"
    set_up_logging(spec.artifacts_dir / "worker.log", level=level, as_json=as_json)
    sys.stdout = LoggedOutput(sys.stdout, logging.getLogger("stdout"))
    bound_printed(spec.artifacts_dir)
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    os.chdir(spec.worker_dir)
    log = get_logger("squall_worker")
    log.info(
        "worker_starts",
        topology_id=spec.topology_id,
        slot=f"{spec.supervisor_id}:{spec.port}",
        incarnation=spec.incarnation,
        worker_id=spec.worker_id,
        pid=os.getpid(),
    )

    import asyncio

    import uvloop

    from squall_worker.process import EXIT_FATAL, Worker

    async def run() -> int:
        try:
            worker = Worker(spec)
        except SquallError as error:
            log.error("worker_refused", error=error)
            return EXIT_FATAL
        beats.stop()  # the worker's own thread goes on
        return await worker.run()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        status = runner.run(run())
        _leave_soon(status)
    return status


def _leave_soon(status: int) -> None:
    """A user's thread that never ends must not keep the process alive."""
    import logging
    import threading

    def leave() -> None:
        logging.shutdown()
        os._exit(status)

    timer = threading.Timer(1.0, leave)
    timer.daemon = True
    timer.start()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
