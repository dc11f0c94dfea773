"""Submitting a topology to a cluster, or running it on this machine, depending on how the program
was started.

`storm jar` and `storm local` run a package's entry point through `squall._entry`, which begins a
*session*: where the package is, which mode, which configuration. Every `submit_topology` of the
entry point belongs to it, and the package is uploaded once for all of them.

The steps run in this order, so that a failure leaves nothing half done: this module checks the
name, the configuration and the topology; Nimbus is asked whether the name is free, while a fresh
interpreter imports what workers will import; the package is uploaded; the topology is submitted.
Nimbus discards an upload that is not followed by a submit.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from squall._import_check import (
    CHECK_MODE,
    MODE_VARIABLE,
    ImportCheck,
    Recorded,
    UnguardedSubmitError,
    recorded_in,
)
from squall._savepoint import with_savepoint
from squall_common.component.checkpoints import (
    Place,
    class_refusals,
    option_refusals,
    structure_refusals,
)
from squall_common.component.refusals import Refusal, refuse
from squall_common.config.load import (
    check_json,
    component_conf,
    read_conf,
    validate_conf,
    warnings_about,
)
from squall_common.config.scopes import check_program_conf, topology_part
from squall_common.errors import InvalidTopologyError, NimbusError, SquallError
from squall_common.names import topology_name_error
from squall_common.security.credentials import check_credentials
from squall_common.topology.model import Topology
from squall_common.topology.system import validate_topology

if TYPE_CHECKING:
    from squall._workers import LocalWorkers
    from squall.local import LocalCluster
    from squall_common.client.nimbus import NimbusClient
    from squall_common.config.options.typed import TopologyOptions


@dataclass(slots=True)
class Session:
    """The run of one package's entry point in this process."""

    mode: Literal["cluster", "local", "spark", "graph"]
    archive: Path  # the package, as it is uploaded
    code: Path  # the same, unpacked
    conf: Mapping[str, Any]  # the client's configuration
    overrides: Mapping[str, Any] = field(default_factory=dict)  # -c key=value
    submitted: list[str] = field(default_factory=list)  # names
    # Not None once something runs in local mode.
    local_cluster: LocalCluster | LocalWorkers | None = None
    local_workers: int | None = None  # processes for each topology; None: in this process
    environment: Path | None = None  # the package's dependencies, installed
    wheels: tuple[Path, ...] = ()  # the same, for the cluster
    credentials: Mapping[str, str] = field(default_factory=dict, repr=False)  # --credentials
    # Components by id that were made here, where the topology does not name their classes (Flux).
    made: Mapping[str, Any] = field(default_factory=dict, repr=False)
    location: str | None = None  # Nimbus' handle for the package, once uploaded
    checked: set[Recorded] = field(default_factory=set)  # objects that are known to import
    # Runs a topology somewhere other than on a Squall cluster: (name, its conf, the topology). Not
    # None only in modes "spark" and "graph".
    runner: Callable[[str, Mapping[str, Any], Topology], None] | None = None


_session: Session | None = None


def set_session(session: Session | None) -> None:
    """Begin the session of this process, or end it."""
    global _session
    _session = session


def submit_topology(
    name: str,
    conf: Mapping[str, Any] | None,
    topology: Topology,
    *,
    initial_status: Literal["ACTIVE", "INACTIVE"] = "ACTIVE",
    credentials: Mapping[str, str] | None = None,
) -> None:
    """Run a topology: on the cluster under `storm jar`, on this machine under `storm local`.

    `conf` holds options by their names (`{"topology.workers": 4}`), and keys of your own, which
    components find in the `conf` of `open` and `prepare`; `-c` on the command line overrides it.
    With `initial_status="INACTIVE"` the spouts wait for `storm activate`. `credentials` are secrets
    that components find in `context.credentials`; those of `storm jar --credentials FILE` override
    them by name, and `storm upload-credentials` replaces them later. Returns once the topology
    is accepted; its workers start after that.

        if __name__ == "__main__":
            submit_topology("words", {"topology.workers": 2}, builder.build())

    Raises SquallError, whose message says what is wrong: an invalid name, configuration or
    topology (InvalidTopologyError), a name that is already in use or a Nimbus that cannot be
    reached (NimbusError). Put the call behind `if __name__ == "__main__":`, because workers also
    import the module.
    """
    if os.environ.get(MODE_VARIABLE) == CHECK_MODE:
        raise UnguardedSubmitError
    session = _session
    if session is None:
        raise SquallError(
            "submit_topology was called in a program that neither `storm jar` nor `storm local` "
            "started",
            hint="storm jar FOLDER MODULE, to run it on the cluster; "
            "storm local FOLDER MODULE, to run it on this machine",
        )
    merged = _check(name, conf, topology, session, initial_status)
    secrets = {**(credentials or {}), **session.credentials}
    check_credentials(secrets)
    recorded = [r for r in recorded_in(topology) if r not in session.checked]
    check = ImportCheck(session.code, recorded, session.environment) if recorded else None
    if check is not None:
        check.start()
    try:
        if session.runner is not None:
            if check is not None:
                check.wait_result()
            session.runner(name, merged, topology)
        elif session.mode == "local":
            if check is not None:
                check.wait_result()
            _run_locally(session, name, merged, topology, initial_status, secrets)
        else:
            _submit_to_cluster(session, name, merged, topology, initial_status, secrets, check)
    finally:
        if check is not None:
            check.cancel()
    session.checked.update(recorded)
    session.submitted.append(name)


def _check(
    name: str,
    conf: Mapping[str, Any] | None,
    topology: Topology,
    session: Session,
    initial_status: str,
) -> dict[str, Any]:
    """The topology's configuration, overridden by `-c`. Raises for everything that Nimbus would
    refuse, and for options that would have no effect."""
    from squall_common.config.options.typed import TopologyOptions

    if not isinstance(name, str):
        raise SquallError(f"the topology's name is {name!r}; expected text")
    problem = topology_name_error(name)
    if problem is not None:
        raise SquallError(problem)
    if initial_status not in ("ACTIVE", "INACTIVE"):
        raise SquallError(f'initial_status is {initial_status!r}; expected "ACTIVE" or "INACTIVE"')
    if not isinstance(topology, Topology):
        raise InvalidTopologyError(
            f"submit_topology was given {topology!r} as the topology",
            hint="pass builder.build()",
        )
    if conf is not None and not isinstance(conf, Mapping):
        raise SquallError(f"the conf of topology {name!r} is {conf!r}; expected a dict or None")
    where = f"conf of topology {name!r}"
    check_program_conf(conf or {}, where=where)
    merged = {**(conf or {}), **topology_part(session.overrides, mode=session.mode)}
    check_json(merged, where=where)
    # Nimbus knows whether its cluster is secured, and refuses what it would not keep.
    validate_conf(merged, where=where, secured=session.mode == "cluster")
    merged = read_conf(merged)
    options = TopologyOptions.read(merged)
    validate_topology(topology, options)
    refuse(_refusals(topology, options, session))
    if session.mode == "cluster":
        merged = with_savepoint(name, merged, topology, options)
    # (Of -c, the command has warned.)
    for text in [*warnings_about(conf or {}, where=where), *_unconnected(topology, merged)]:
        print(f"warning: {text}", file=sys.stderr)
    return merged


def _unconnected(topology: Topology, conf: Mapping[str, Any]) -> Iterator[str]:
    """Sentences about bolts that get nothing. With ticks that may be meant; otherwise a
    subscription was forgotten."""
    from squall_common.config.options.typed import TopologyOptions

    for name, bolt in topology.bolts.items():
        if bolt.inputs:
            continue
        own = TopologyOptions.read(component_conf(conf, bolt.conf), where=f"bolt {name!r}")
        if not own.topology_tick_tuple_freq_secs:
            yield (
                f"bolt {name!r} subscribes to nothing, so it gets no tuples: connect it, for "
                'example with .shuffle("component")'
            )


def _refusals(topology: Topology, options: TopologyOptions, session: Session) -> Iterator[Refusal]:
    """What a topology may not have because of checkpoints. Of a cluster's own defaults nothing is
    known here, so Nimbus looks at the options. Local mode looks at everything itself."""
    if session.mode == "spark":
        yield from option_refusals(options, Place.ENGINE)
    elif session.mode != "local" and options.topology_checkpoint_interval_secs is not None:
        yield from structure_refusals(topology, options)
        yield from class_refusals(topology, has_checkpoints=True, made=session.made)


# ---- On the cluster ----


def _submit_to_cluster(
    session: Session,
    name: str,
    conf: Mapping[str, Any],
    topology: Topology,
    initial_status: str,
    credentials: Mapping[str, str],
    check: ImportCheck | None,
) -> None:
    # Imported here: `storm local` needs no Thrift, and here it loads while the check runs.
    from squall_common.client.nimbus import run_nimbus
    from squall_common.client.upload import upload_package, upload_wheels
    from squall_common.config.options.typed import ClientOptions
    from squall_common.topology.thrift import to_thrift
    from squall_thrift import storm
    from squall_thrift.client import ThriftApplicationError

    client = ClientOptions.read(session.conf)
    struct = to_thrift(topology)

    async def is_free(nimbus: NimbusClient) -> bool:
        await _refuse_without_checkpoints(nimbus, conf, topology, session)
        return bool(await nimbus.call("isTopologyNameAllowed", name))

    async def submit(nimbus: NimbusClient) -> str:
        if session.wheels:
            struct.dependency_artifacts = await upload_wheels(nimbus, session.wheels)
        if session.location is None:
            session.location = await upload_package(nimbus, session.archive, client)
        status = storm.TopologyInitialStatus[initial_status]
        options = storm.SubmitOptions(initial_status=status)
        if credentials:
            options.creds = storm.Credentials(creds=dict(credentials))
        print(f"submitting topology {name!r} ...", file=sys.stderr, flush=True)
        await nimbus.call(
            "submitTopologyWithOpts", name, session.location, json.dumps(conf), struct, options
        )
        return f"{nimbus.host}:{nimbus.port}"

    try:
        if not run_nimbus(client, is_free):
            raise _name_taken(name)
        if check is not None:
            check.wait_result()
        address = run_nimbus(client, submit)
    except storm.AlreadyAliveException as error:
        raise _name_taken(name) from error
    except storm.InvalidTopologyException as error:
        raise InvalidTopologyError(f"Nimbus refused topology {name!r}: {error.msg}") from error
    except storm.AuthorizationException as error:
        raise NimbusError(f"you may not submit topology {name!r}: {error.msg}") from error
    except ThriftApplicationError as error:
        raise NimbusError(
            f"Nimbus could not accept topology {name!r}: {error}",
            hint="see the log of Nimbus for details",
        ) from error
    print(f"submitted topology {name!r} to Nimbus at {address}", file=sys.stderr)


async def _refuse_without_checkpoints(
    nimbus: NimbusClient, conf: Mapping[str, Any], topology: Topology, session: Session
) -> None:
    """Raise InvalidTopologyError if components need checkpoints (for themselves, or for async state
    on disk), and neither the topology's
    configuration nor the cluster's asks for them. (Nimbus does not know the classes.)"""
    from squall_common.config.options.typed import TopologyOptions
    from squall_thrift import storm

    def has_interval(conf: Mapping[str, Any]) -> bool:  # as far as this version can read it
        return TopologyOptions.read_valid(conf).topology_checkpoint_interval_secs is not None

    refusals = list(
        class_refusals(
            topology,
            has_checkpoints=False,
            backend=TopologyOptions.read_valid(conf).topology_state_backend,
            made=session.made,
        )
    )
    if not refusals or has_interval(conf):
        return
    try:
        defaults = json.loads(await nimbus.call("getNimbusConf"))
    except storm.AuthorizationException:  # then its workers say so
        return
    if not has_interval({**defaults, **conf}):
        refuse(refusals)


def _name_taken(name: str) -> NimbusError:
    return NimbusError(
        f"there is already a topology named {name!r}",
        hint=f"choose another name, or kill it first: storm kill {name}",
    )


# ---- On this machine ----


def _run_locally(
    session: Session,
    name: str,
    conf: Mapping[str, Any],
    topology: Topology,
    initial_status: str,
    credentials: Mapping[str, str],
) -> None:
    if session.local_cluster is None:
        session.local_cluster = _local_cluster(session)
    session.local_cluster.submit_topology(
        name, conf, topology, initial_status=initial_status, credentials=credentials
    )


def _local_cluster(session: Session) -> LocalCluster | LocalWorkers:
    if session.local_workers is None:
        from squall.local import LocalCluster
        from squall_engine.embed import tune_garbage_collector

        tune_garbage_collector()  # as in a worker: this process is for topologies
        return LocalCluster(conf=session.conf, code_dir=session.code)
    from squall._workers import LocalWorkers

    return LocalWorkers(
        session.local_workers,
        session.conf,
        code_dir=session.code,
        environment=session.environment,
    )
