"""Canaries: a secret in each of twelve places of a secured cluster, searched for in everything that
the cluster wrote, said, or handed to a process. And who may read what it wrote.

A topology's own secrets are on disks that its owner's workers need them on, for the cluster's user
alone, and nowhere else; a daemon's are nowhere but where they were put.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import secrets
import ssl
import stat
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from tests.integration.test_credentials import in_processes
from tests.integration.test_curve import znode_values
from tests.support.devcluster import ROOT, DevCluster, environment, wait_for
from tests.support.live_files import found, texts

from squall_common.authentication.credentials import credentials_of
from squall_common.config.load import default_conf
from squall_common.config.options.typed import ClientOptions
from squall_common.security.identity import Role
from squall_thrift import storm
from squall_thrift.client import ThriftClient

pytestmark = [pytest.mark.integration, pytest.mark.timeout(400)]

TOPOLOGY = ROOT / "tests" / "topologies" / "canaries"
NAME = "canaries"


def canary(place: str) -> str:
    return f"canary-{place}-{secrets.token_hex(6)}"


# What a site gives to its daemons, a user to a topology.
SITE = {place: canary(place) for place in ("site-key", "site-url", "site-deep", "environment")}
OF_TOPOLOGY = {place: canary(place) for place in ("conf", "url", "environ", "credentials")}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevCluster]:
    folder: Path = tmp_path_factory.mktemp("canaries")
    site = folder / "site"
    site.mkdir()
    (site / "storm.yaml").write_text(
        f"site.plugin.password: {SITE['site-key']}\n"
        f"site.plugin.url: amqp://app:{SITE['site-url']}@mq\n"
        f"site.plugin: {{deeper: [{{apiToken: {SITE['site-deep']}}}]}}\n"
    )
    (site / "storm.yaml").chmod(0o600)
    env = {
        **environment(),
        "STORM_CONF_DIR": str(site),
        "AWS_SECRET_ACCESS_KEY": SITE["environment"],
    }
    with DevCluster.start(folder / "c", secure=True, slots=1, env=env) as cluster:
        credentials = folder / "credentials.properties"
        credentials.write_text(f"password={OF_TOPOLOGY['credentials']}\n")
        credentials.chmod(0o600)
        cluster.storm(
            *("jar", "--credentials", credentials, TOPOLOGY, "canaries_topology.py", NAME),
            *(OF_TOPOLOGY[place] for place in ("conf", "url", "environ")),
        )

        def failed() -> bool:
            logs = list(texts(cluster.data_dir / "logs", "worker.log"))
            return any("canaries are here: True" in log for log in logs) and any(
                "cannot log in" in log for log in logs
            )

        wait_for("the worker has them, and has failed", failed, timeout_secs=60)

        def reported() -> bool:
            return "cannot log in" in cluster.storm("get-errors", NAME, "--json").stdout

        wait_for("its error is reported", reported, timeout_secs=60)
        # No launch waits for it.
        wait_for("the worker has its token", lambda: identities(cluster), 120)
        yield cluster


def identities(cluster: DevCluster) -> list[Path]:
    """The files with workers' tokens."""
    return [path for path in found(cluster.data_dir, "identity.json") if "workers" in path.parts]


def own_secrets(cluster: DevCluster) -> dict[str, str]:
    """What the cluster has made: the user's token, a worker's, and keys."""
    folder = cluster.data_dir
    [identity] = identities(cluster)
    made = {
        "token": (folder / "security" / "token").read_text().strip(),
        "worker token": json.loads(identity.read_text())["token"],
    }
    for key in ("ca/ca.key", "nimbus-nimbus.key", "supervisor-supervisor-1.key"):
        # A line of it, as it would show up in anything that quotes the file.
        made[key] = (folder / "security" / key).read_text().splitlines()[1]
    made["digest"] = (folder / "security" / "zookeeper.digest").read_text().strip()[-64:]
    [file] = [path for path in found(folder, "zookeeper.json") if "workers" in path.parts]
    made["worker digest"] = json.loads(file.read_text())["payloads"][0][-64:]
    [curve] = [path for path in found(folder, "curve.key") if "workers" in path.parts]
    made["curve key"] = json.loads(curve.read_text())["secret"]
    return made


def holders(cluster: DevCluster, secret: str) -> set[str]:
    """The files of the cluster that hold it, by their paths below its folder; ids are left out."""
    names = set()
    for path in found(cluster.data_dir):
        try:
            if path.is_file() and not path.is_symlink() and secret.encode() in path.read_bytes():
                name = str(path.relative_to(cluster.data_dir))
                names.add(re.sub(r"[0-9a-f-]{36,64}|canaries-1-\d+|\d{13}", "ID", name))
        except OSError:
            continue  # it went meanwhile
    return names


def said(cluster: DevCluster) -> dict[str, str]:
    """What Thrift, REST and pages say to the topology's own owner, by what was asked."""
    answers = asyncio.run(_thrift(cluster))
    state = cluster.state()
    topology_id = json.loads(cluster.storm("list", "--json").stdout)[0]["id"]
    token = (cluster.data_dir / "security" / "token").read_text().strip()
    context = ssl.create_default_context(cafile=str(cluster.data_dir / "security/ca/ca.pem"))
    paths = {
        "ui": [
            "/", f"/topology/{topology_id}", "/configuration", "/api/v1/cluster/configuration",
            "/api/v1/topology/summary", f"/api/v1/topology/{topology_id}",
            f"/api/v1/topology/{topology_id}/errors",
            f"/api/v1/topology/{topology_id}/component/fails",
            f"/api/v1/topology/{topology_id}/visualization", "/api/v1/history/summary",
            f"/live/topology/{topology_id}/state", "/live/cluster/state", "/metrics",
        ],
        "logviewer": ["/", "/api/v1/files", "/metrics"],
    }  # fmt: skip
    for daemon, asked in paths.items():
        for path in asked:
            request = urllib.request.Request(
                f"https://127.0.0.1:{state[daemon]['port']}{path}",
                headers={"Authorization": f"Bearer {token}"},
            )
            with urllib.request.urlopen(request, context=context, timeout=60) as answer:
                answers[path] = answer.read().decode()
    return answers


async def _thrift(cluster: DevCluster) -> dict[str, str]:
    conf = {**default_conf(), **yaml.safe_load(cluster.conf_file.read_text())}
    own = credentials_of(ClientOptions.read(conf), Role.NIMBUS)
    nimbus = cluster.state()["nimbus"]
    async with ThriftClient(
        storm.Nimbus, nimbus["host"], nimbus["port"], credentials=own
    ) as client:
        [summary] = await client.call("getTopologySummaries")
        return {
            method: repr(await client.call(method, *arguments))
            for method, arguments in (
                ("getClusterInfo", ()),
                ("getNimbusConf", ()),
                ("getTopologyConf", (summary.id,)),
                ("getTopologyInfo", (summary.id,)),
                ("getTopologyPageInfo", (summary.id, ":all-time", True)),
                ("getComponentPageInfo", (summary.id, "fails", ":all-time", True)),
                ("getOwnerResourceSummaries", (None,)),
                ("listBlobs", ("",)),
                ("listTokens", (None,)),
            )
        }


_DAEMONS = ("drpc", "logviewer", "nimbus", "supervisor-1", "ui")
_DAEMON_CONF = {f"{name}/daemon-conf.json" for name in _DAEMONS}
_CONF = {
    "nimbus/nimbus/blobs/ID/data.ID",
    "nimbus/nimbus/stormdist/ID/stormconf.ser",
    "supervisor-1/supervisor/stormdist/ID/stormconf.ser",
}
# Where a secret has to be. Nothing else that the cluster has written may hold it.
PLACES = {
    **dict.fromkeys(("site-key", "site-url", "site-deep"), _DAEMON_CONF),
    "environment": set(),
    **dict.fromkeys(("conf", "url", "environ"), _CONF),
    "credentials": {
        "nimbus/nimbus/blobs/ID/data.ID",
        "supervisor-1/supervisor/stormdist/ID/credentials.json",
        "supervisor-1/workers/ID/credentials.json",
    },
    "curve key": {
        "nimbus/nimbus/blobs/ID/data.ID",
        "supervisor-1/supervisor/stormdist/ID/curve.key",
        "supervisor-1/workers/ID/curve.key",
    },
    "digest": {"security/zookeeper.digest"},
    "worker digest": {"supervisor-1/workers/ID/zookeeper.json"},
    "token": {"security/token"},
    "worker token": {"supervisor-1/workers/ID/identity.json"},
    **{
        key: {f"security/{key}"}
        for key in ("ca/ca.key", "nimbus-nimbus.key", "supervisor-supervisor-1.key")
    },
}


def test_a_secret_is_where_it_has_to_be_and_nowhere_else(cluster: DevCluster) -> None:
    canaries = {**SITE, **OF_TOPOLOGY, **own_secrets(cluster)}
    assert canaries.keys() == PLACES.keys()
    assert len(canaries) >= 12
    answers, values = said(cluster), list(znode_values(cluster))
    assert "fails" in answers["getTopologyInfo"]
    assert values
    wrong = []
    for place, secret in canaries.items():
        in_files = holders(cluster, secret)
        if in_files != PLACES[place]:
            wrong.append(f"{place} is in {sorted(in_files ^ PLACES[place])}, or is not there")
        wrong += [f"{place} is in a znode" for value in values if secret.encode() in value]
        for source, text in {**answers, "storm dev": cluster.messages()}.items():
            if (at := text.find(secret)) >= 0:
                wrong.append(f"{place} is said by {source}: {text[at - 60 : at + 40]}")
        wrong += [f"{place}: {one}" for one in processes_with(cluster, place, secret)]
    assert not wrong, "\n".join(wrong)


def processes_with(cluster: DevCluster, place: str, secret: str) -> list[str]:
    """The processes that show a secret, but for those to which it was given so: the daemons were
    started with a variable, and a topology has one for its workers."""
    workers = {f"/proc/{pid}/environ" for pid in cluster.worker_processes()}
    found = in_processes(secret.encode())
    if place == "environment":
        return [one for one in found if one in workers or one.endswith("cmdline")]
    return [one for one in found if place != "environ" or one not in workers]


# What others may read: certificates and what was revoked, which are public; what this test made.
_PUBLIC = re.compile(r"security/(ca/)?([\w-]+\.pem|revoked\.jws)|storm-dev\.err")


def test_nothing_that_the_cluster_wrote_is_for_others(cluster: DevCluster) -> None:
    """Whatever lies around it: the folder of a cluster need not be closed."""
    wrong, seen = [], set()
    for folder, folders, files in os.walk(cluster.data_dir):
        here = Path(folder)
        # Into a folder that others may not enter they come by no path.
        folders[:] = [name for name in folders if _mode(here / name) & 0o001]
        for name in files:
            path = here / name
            shown = str(path.relative_to(cluster.data_dir))
            mode = _mode(path)
            if stat.S_ISREG(mode) and mode & 0o006 and not _PUBLIC.fullmatch(shown):
                wrong.append(f"{shown}: {stat.S_IMODE(mode):o}")
            seen.add(name)
    assert not wrong, "\n".join(sorted(wrong))
    # It was not an empty folder that was looked at.
    assert {"nimbus.log", "nimbus-audit.log", "daemon-conf.json", "token", "ui-ui.key"} <= seen


def _mode(path: Path) -> int:
    """0 for what has gone meanwhile."""
    try:
        return path.lstat().st_mode
    except FileNotFoundError:
        return 0
