"""Strangers and tenants in the network of the cluster in containers: each tries what
`intruder/attacks.py` knows, and gets nothing.

ZooKeeper is in a network that strangers and tenants are not in; they are tried in there as well, as
if somebody had let them in. Workers are there.
"""

from __future__ import annotations

import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tests.support.compose_cluster import ComposeCluster
from tests.support.devcluster import ROOT, wait_for
from tests.support.zookeeper_rights import not_listed

ATTACKS = ROOT / "tests" / "compose" / "intruder"
# A word that the victim's logs, configuration and code hold, and what is the administrator's alone.
SECRETS = ["ledger", "LedgerSink"]
# Run where the daemons' digest is: every node of the cluster's, but for those that went meanwhile.
_TREE = """\
import json
from pathlib import Path
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
client = KazooClient("zookeeper")
client.start()
client.add_auth("digest", Path("/data/security/zookeeper.digest").read_text().strip())
def below(path):
    try:
        names = client.get_children(path)
    except NoNodeError:
        return []
    return [path, *(one for name in names for one in below(f"{path}/{name}"))]
print(json.dumps(below("/storm")))
"""


def check_intruders(cluster: ComposeCluster) -> None:
    """The victim is the topology `ledger` of the administrator, in several workers."""
    plan = _plan(cluster)
    before = cluster.workers()
    cluster.start_clients("eve")
    token = cluster.compose("run", "--rm", "-T", "token", "eve").strip()
    as_admin = {**plan, "token": token, "as": "storm", "may": [], "http": [], "zeromq": []}
    # At once: servers keep a stranger waiting until its time is over.
    with ThreadPoolExecutor(8) as threads:
        let_in = threads.submit(_from_outside, cluster, _of_zookeeper(plan, []), "state")
        tenant_let_in = threads.submit(
            _from_outside, cluster, _of_zookeeper(plan, [f"eve:{token}", token]), "state"
        )
        from_worker = threads.submit(_from_worker, cluster, {**plan, "plain": []})
        stranger = threads.submit(_from_outside, cluster, plan)
        tenant = threads.submit(_from_outside, cluster, {**plan, "token": token})
        acting = threads.submit(_from_outside, cluster, as_admin)
        _check_plan(cluster, plan)
        _check(stranger.result(), "a stranger")
        _check(tenant.result(), "a tenant")
        _check(acting.result(), "a tenant as the administrator")
        _check(_but_its_own(from_worker.result()), "a tenant in a worker")
        for tried, who in ((let_in, "a stranger"), (tenant_let_in, "a tenant")):
            found = tried.result()
            _check_refusals(found, "nobody")
            _check(found, f"{who} beside ZooKeeper")
    assert cluster.workers() == before
    assert "ACTIVE" in cluster.storm("list")


def _plan(cluster: ComposeCluster) -> dict[str, Any]:
    """Every port of the cluster, and what to do with it."""
    listed = json.loads(cluster.storm("list", "--json"))
    [victim] = [one["id"] for one in listed if one["name"] == "ledger"]
    hosts = [cluster.inspect(one, "{{.Config.Hostname}}") for one in cluster.workers()]
    [nimbus1] = cluster.containers("nimbus1")
    kill: list[Any] = ["killTopologyWithOpts", "ledger", {"struct": "KillOptions", "wait_secs": 0}]
    nimbus = [
        ["getClusterInfo"],
        ["getTopologySummaries"],
        ["getTopologyInfo", victim],
        ["getTopologyConf", victim],
        ["getUserTopology", victim],
        ["getTopologyPageInfo", victim, ":all-time", False],
        ["getSupervisorPageInfo", None, hosts[0], False],
        ["getOwnerResourceSummaries", "storm"],
        ["getNimbusConf"],
        ["listTokens", "storm"],
        ["createToken", "storm", 3600, "", None, None],
        ["revokeTokens", "storm"],
        ["getTopologyKey", victim, "x"],
        ["getTopologyCredentials", victim, "x"],
        ["getWorkerTokens", hosts[0], [victim]],
        ["getIdentityToken", victim, "https://vault.example.org"],
        ["beginBlobDownload", f"{victim}-stormcode.ser"],
        ["beginBlobDownload", f"{victim}-stormconf.ser"],
        ["getBlobMeta", f"{victim}-stormjar.jar"],
        ["deleteBlob", f"{victim}-stormjar.jar"],
        ["deactivate", "ledger"],
        ["rebalance", "ledger", {"struct": "RebalanceOptions", "wait_secs": 0}],
        kill,
    ]
    supervisor = [
        ["getLocalAssignmentForStorm", victim],
        ["sendSupervisorAssignments", {"struct": "SupervisorAssignments"}],
    ]
    paths = json.loads(cluster.docker.run("exec", "-i", nimbus1, "python", "-", text=_TREE))
    assert f"/storm/security/topologies/{victim}" in paths
    assert len(paths) > 20
    return {
        "ca": cluster.ca(),
        "secrets": SECRETS,
        "victim": victim,
        "may": [
            "getClusterInfo", "getTopologySummaries", "getOwnerResourceSummaries",
            "getSupervisorPageInfo", "getNimbusConf", "listTokens",
        ],
        "thrift": [
            ["nimbus1", 6627, "Nimbus", nimbus],
            ["nimbus2", 6637, "Nimbus", nimbus],
            ["drpc", 3772, "DistributedRPC", [["execute", "reach", "x"]]],
            ["drpc", 3773, "DistributedRPCInvocations", [["fetchRequest", "reach"]]],
            *([host, 6628, "Supervisor", supervisor] for host in hosts),
        ],
        "http": [
            ["ui", 8080, "GET", "/api/v1/topology/summary"],
            ["ui", 8080, "GET", f"/api/v1/topology/{victim}"],
            ["ui", 8080, "GET", f"/api/v1/topology/{victim}/visualization"],
            ["ui", 8080, "POST", f"/api/v1/topology/{victim}/kill/0"],
            ["ui", 8080, "POST", f"/api/v1/topology/{victim}/deactivate"],
            ["drpc", 3774, "GET", "/drpc/reach/x"],
            *(
                [host, 8000, "GET", path]
                for host in hosts
                for path in (
                    f"/log?file={victim}/6700/worker.log",
                    f"/api/v1/log?file={victim}%2F6700%2Fworker.log",
                    f"/download?file={victim}/6700/worker.log",
                    "/api/v1/listLogs",
                    "/daemonlog?file=supervisor.log",
                )
            ),
            *([host, 9627, "GET", "/metrics"] for host in ("nimbus1", "nimbus2")),
            *([host, 9628, "GET", "/metrics"] for host in hosts),
        ],
        "zeromq": [[host, port] for host in hosts for port in (6700, 6701)],
        # It is not in this network.
        "plain": [["zookeeper", 2181]],
        # Where it is: every node, and passwords that somebody may have chosen.
        "zookeeper": {
            "host": "zookeeper",
            "paths": paths,
            "payloads": ["super:super", "squall:squall", "storm:storm"],
        },
    }  # fmt: skip


def _of_zookeeper(plan: dict[str, Any], payloads: list[str]) -> dict[str, Any]:
    """The part of a plan that is about ZooKeeper, with more passwords."""
    asked = {**plan["zookeeper"], "payloads": [*plan["zookeeper"]["payloads"], *payloads]}
    return {**plan, "thrift": [], "http": [], "zeromq": [], "plain": [], "zookeeper": asked}


def _check_plan(cluster: ComposeCluster, plan: dict[str, Any]) -> None:
    """The same calls succeed for the administrator, from the same place: what is refused to others
    is not refused for another reason."""
    token = cluster.compose("run", "--rm", "-T", "token", "storm").strip()
    reads = ("getTopologyInfo", "getTopologyConf", "getBlobMeta", "beginBlobDownload")
    nimbus = [call for call in plan["thrift"][0][3] if call[0] in reads]
    asked = {
        **plan,
        "token": token,
        "thrift": [["nimbus1", 6627, "Nimbus", nimbus]],
        "http": [one for one in plan["http"] if one[0] == "ui" and one[2] == "GET"],
        "zeromq": [],
        "plain": [],
    }
    outcomes = _from_outside(cluster, asked)
    got = {what for what, said in outcomes.items() if said.startswith("GOT")}
    assert {what.split()[1] for what in got} == {*reads, "GET"}, outcomes


def _from_outside(
    cluster: ComposeCluster, plan: dict[str, Any], network: str = "default"
) -> dict[str, str]:
    """In a container of its own in a network of the cluster's, which shares nothing with others.
    From where ZooKeeper is not, it is not tried."""
    if network == "default":
        plan = {**plan, "zookeeper": None}
    # The script and its plan in one stream: nothing has to be mounted.
    program = (ATTACKS / "attacks.py").read_text().replace("json.load(sys.stdin)", repr(plan))
    said = cluster.docker.run(
        "run", "--rm", "--interactive", "--network", cluster.network(network),
        "--entrypoint", "/opt/squall/bin/python", cluster.docker.env["SQUALL_IMAGE"], "-",
        text=program,
    )  # fmt: skip
    found: dict[str, str] = json.loads(said)
    return found


def _from_worker(cluster: ComposeCluster, plan: dict[str, Any]) -> dict[str, str]:
    """As code of eve's topology, in a worker beside those of the victim."""
    docker, client = cluster.docker, cluster.clients["eve"]
    docker.run("cp", ATTACKS, f"{client}:/tmp/intruder")
    cluster.storm("jar", "/tmp/intruder", "intruder_topology.py", json.dumps(plan), user="eve")
    [mine] = json.loads(cluster.storm("list", "--json", user="eve"))
    assert (mine["name"], mine["owner"]) == ("intruder", "eve")

    def outcomes() -> str | None:
        for one in cluster.containers("supervisor"):
            if found := docker.run("exec", one, "cat", "/tmp/outcomes.json", check=False):
                return found
        return None

    said: dict[str, str] = json.loads(wait_for("the intruder's outcomes", outcomes, 180, 1))
    assert int(said.pop("uid")) >= 20_000
    cluster.storm("kill", "intruder", "-w", "0", "--wait", user="eve")
    return said


def _check_refusals(outcomes: dict[str, str], who: str) -> None:
    """ZooKeeper was reached, and refused nodes that are there."""
    said = [said for what, said in outcomes.items() if what.startswith(f"zookeeper {who} ")]
    assert said.count("refused: NoAuthError") > len(said) / 2 > 50, Counter(said)


def _but_its_own(outcomes: dict[str, str]) -> dict[str, str]:
    """Without what a worker got of its own topology's nodes in ZooKeeper, as decision 0130 lists
    it. It got that, so the refusals are not for a digest that counts for nothing."""
    mine = outcomes.pop("id")
    for who in ("nobody", "own 0"):
        _check_refusals(outcomes, who)
    words = {what: what.split(" own 0 ")[1].split() for what in outcomes if " own 0 " in what}
    got = {
        (kind, path.removeprefix("/storm")): what
        for what, (kind, path) in words.items()
        if outcomes[what].startswith("GOT")
    }
    wanted = {("get", f"/security/topologies/{mine}"), ("create", f"/workerbeats/{mine}")}
    assert wanted <= got.keys(), sorted(got)
    listed = got.keys() - not_listed(set(got), mine)
    return {what: outcomes[what] for what in outcomes.keys() - {got[one] for one in listed}}


def _check(outcomes: dict[str, str], who: str) -> None:
    got = {what: said for what, said in outcomes.items() if not said.startswith("refused")}
    assert got == {}, f"{who} got: {json.dumps(got, indent=1)}"
    print(f"{who}: {len(outcomes)} attacks, nothing got", flush=True)
    assert len(outcomes) > 20
