"""The child of `storm spark run`: runs a package's entry point, and its topologies on Spark.

    python -P -m squall_spark.entry ENTRY ARGS...

The rest is in the environment: the variables of `squall._entry`, and SQUALL_SPARK_JOB (see `job`).
The job runs inside `submit_topology`, which returns when the job has ended.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from squall._entry import ended_by_signal, print_error
from squall._entry import main as run_entry
from squall._submit import Session
from squall_common.config.load import default_conf, normalize_topology_conf
from squall_common.errors import SquallError
from squall_common.topology.model import Topology
from squall_spark.before import check_group, check_inputs, check_outputs
from squall_spark.diagnose import data_sets, diagnose
from squall_spark.job import JOB_VARIABLE, Job
from squall_spark.lock import Held, checkpoint_lock
from squall_spark.plan import SparkPlan, make_plan, with_parallelism
from squall_spark.session import check_master, check_requirements, spark_session
from squall_spark.traits import traits_of
from squall_spark.view.explain import explain

if TYPE_CHECKING:
    from squall_spark.stream.inputs import Limits


def plan_of(
    job: Job,
    session_conf: Mapping[str, Any],
    name: str,
    conf: Mapping[str, Any],
    topology: Topology,
) -> SparkPlan:
    """The plan of a submitted topology. Raises SquallError."""
    topology = with_parallelism(topology, dict(job.parallelism))
    stored = normalize_topology_conf(
        conf, {**default_conf(), **session_conf}, name=name, components=topology.component_confs
    )
    return make_plan(
        name,
        topology,
        stored,
        traits_of(topology),
        job.sources(),
        job.targets(),
        streaming=job.streaming,
    )


def run_on_spark(
    job: Job, session: Session, name: str, conf: Mapping[str, Any], topology: Topology
) -> None:
    """Replaces `submit_topology` under `storm spark run`. Raises SquallError."""
    if session.submitted:
        raise SquallError(
            f"{name!r} is the second topology that this entry point submits; --input and --output "
            "are for one",
            hint=f"{session.submitted[0]!r} has run; let an argument of the entry point pick one",
        )
    plan = plan_of(job, session.conf, name, conf, topology)
    if job.explain:
        print(explain(plan, job.master, streaming=job.streaming), end="", flush=True)
        session.submitted.append(name)
        return
    check_inputs(plan, streaming=job.streaming)
    if job.commit_group is not None:
        check_group(plan, job.commit_group)
    # Imported late: that pyarrow or PySpark is missing is reported before.
    from squall_spark.stream.inputs import Limits
    from squall_spark.stream.query import check_stream

    limits = Limits(job.max_rows, job.max_files, job.max_bytes)
    if job.streaming:
        check_stream(plan, limits)
    check_outputs(plan.sinks, overwrite=job.overwrite or job.streaming)
    _say(f"running topology {name!r} on Spark at {job.master} (its log: {job.log_file})")
    with checkpoint_lock(job.checkpoint) if job.checkpoint else nullcontext(Held()) as held:
        _run(job, session, plan, limits, held)


def _run(job: Job, session: Session, plan: SparkPlan, limits: Limits, held: Held) -> None:
    from squall_spark.batch import run_batch
    from squall_spark.stream.query import run_stream, say_batch, say_large_file
    from squall_spark.tasks.code import code_of
    from squall_spark.view.progress import Progress

    name = plan.name
    with contextlib.ExitStack() as stack:
        # (Of its own: what Spark writes to stderr meanwhile goes to the log.)
        out = stack.enter_context(os.fdopen(os.dup(2), "w"))
        with Progress(None, out).step("starting Spark"):
            spark = stack.enter_context(
                spark_session(
                    name, master=job.master, conf=job.spark_conf, log_file=Path(job.log_file)
                )
            )
            elsewhere = re.fullmatch(r"local(\[.*\])?", job.master) is None
            if elsewhere:
                for file in (session.archive, *session.wheels):
                    spark.sparkContext.addFile(str(file))
        code = code_of(
            session.code,
            session.archive,
            sent=elsewhere,
            environment=session.environment,
            wheels=session.wheels,
        )
        try:
            progress = Progress(spark.sparkContext)
            if job.streaming:
                assert job.checkpoint is not None
                run_stream(
                    spark,
                    plan,
                    code,
                    checkpoint=job.checkpoint,
                    trigger_secs=job.trigger_secs,
                    available_now=job.available_now,
                    limits=limits,
                    on_bad=job.on_bad(),
                    on_batch_done=say_batch,
                    on_large_file=say_large_file,
                    step=progress.step,
                    held=held,
                )
                return
            done = run_batch(
                spark,
                plan,
                code,
                overwrite=job.overwrite,
                on_bad=job.on_bad(),
                step=progress.step,
                commit_group=job.commit_group,
            )
        except (KeyboardInterrupt, SystemExit):
            _say_stopped(name, streaming=job.streaming)
            raise
        except Exception as error:
            if (status := ended_by_signal()) is not None:
                # Py4J hides the exit in the middle of a call, and goes on with half an answer.
                _say_stopped(name, streaming=job.streaming)
                raise SystemExit(status) from None
            if not isinstance(error, SquallError):
                raise spark_error(error, job.log_file, plan) from error
            cause = error.__cause__
            if cause is not None and is_of_spark(cause):
                raise spark_error(cause, job.log_file, plan, otherwise=error) from cause
            raise
    for one in done.written:
        _say(f"wrote {one.rows} tuples of {one.sink.name!r} to {one.sink.shown}")
    for stream, topic in done.topics.items():
        ends = ", ".join(f"{number}: {end}" for number, end in topic.ends.items())
        whom = "" if job.commit_group is None else f"; group {job.commit_group!r} goes on there"
        _say(f"read {stream} to these offsets of {topic.place.topic!r}: {ends}{whom}")
    for component, (taken, emitted) in done.totals.items():
        _say(f"{component}: took {taken:,} tuples, emitted {emitted:,}")
    for spout, count in done.left_out.items():
        if count:
            _say(f"left out {count} bad records of {spout!r}")
    _say(f"topology {name!r} has run")


def _say_stopped(name: str, *, streaming: bool) -> None:
    if streaming:
        _say(f"topology {name!r} is stopped; the same command goes on where it was")
    else:
        _say(f"topology {name!r} was stopped before it had run to its end")


def is_of_spark(error: BaseException) -> bool:
    return type(error).__module__.startswith(("pyspark", "py4j"))


def spark_error(
    error: BaseException,
    log_file: str,
    plan: SparkPlan | None = None,
    *,
    otherwise: SquallError | None = None,
) -> SquallError:
    """An error of Spark's as one of ours: the innermost cause, with the file or component. Any
    other exception is raised. `otherwise` is what is known if that is all."""
    if not is_of_spark(error):
        raise error
    found = diagnose(error, [] if plan is None else data_sets(plan), log_file)
    if otherwise is not None and found.message.startswith("Spark: "):
        return otherwise
    return found


def _say(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


def main(argv: Sequence[str], env: Mapping[str, str] = os.environ) -> int:
    """Run the process; returns the exit status."""
    try:
        job = Job.from_json(env[JOB_VARIABLE])
        check_master(job.master)
        if not job.explain:
            check_requirements(env)
    except SquallError as error:
        print_error(error)
        return 1

    def run(session: Session, name: str, conf: Mapping[str, Any], topology: Topology) -> None:
        run_on_spark(job, session, name, conf, topology)

    return run_entry(argv, env, run)


if __name__ == "__main__":
    # Imported under its own name, not as `__main__`: Spark pickles functions by module name.
    from squall_spark import entry as _entry

    sys.exit(_entry.main(sys.argv[1:]))
