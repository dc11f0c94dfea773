"""The certificates of a cluster on Kubernetes, and its daemons' digest for ZooKeeper, as Secrets
for squall.yaml in this folder:

    python deploy/kubernetes/certificates.py | kubectl apply -f -
    python deploy/kubernetes/certificates.py --user alice | kubectl apply -f -

The CA is made in the folder `ca` (--dir) at the first call: it stays on the machine of whoever
calls, and is in no Secret. Each call prints all Secrets anew, with the certificates in the folder
`issued` of the CA's, also those of pods beyond the numbers given (--supervisor 5); those that are
missing, revoked, or in the second half of their life, are made. After a change, restart the pods
that have them: kubectl -n squall rollout restart statefulset.

The digest is made in the folder of the CA, too (`zookeeper.digest`); pods of Nimbus and supervisors
get it. `storm admin zookeeper-digest --replace ca/zookeeper.digest` replaces it
(docs/security.md#access-to-zookeeper).

For each user there are a certificate, for `storm login`, in the folder `issued`, and an account in
the ConfigMap `squall-accounts`, as which the workers of the user's topologies run.
"""

from __future__ import annotations

import argparse
import base64
import sys
import time
from pathlib import Path
from typing import Any

import yaml

from squall_cli.secure.authority_folder import CERTIFICATE_DAYS, AuthorityFolder
from squall_cli.secure.enrolment import Accounts, EnrolmentRefusedError, is_issued
from squall_cli.secure.zookeeper_digest import FILE as DIGEST_FILE
from squall_cli.secure.zookeeper_digest import cluster_digest
from squall_common.errors import SquallError
from squall_common.security.identity import Role

NAMESPACE = "squall"
# Pods of a StatefulSet: their number in squall.yaml, and the roles that each has.
SETS: dict[str, tuple[int, tuple[Role, ...]]] = {
    "nimbus": (2, (Role.NIMBUS,)),
    "supervisor": (3, (Role.SUPERVISOR, Role.LOGVIEWER)),
    "ui": (1, (Role.UI,)),
}
# Those that use ZooKeeper.
WITH_DIGEST = ("nimbus", "supervisor")
_RENEW_SECS = CERTIFICATE_DAYS * 86_400 // 2


def hosts_of(name: str, number: int) -> list[str]:
    """The names under which a pod of a StatefulSet is reached, its own first."""
    pod = f"{name}-{number}.{name}"
    return [pod, f"{pod}.{NAMESPACE}.svc.cluster.local", name, "localhost", "127.0.0.1"]


def secrets(
    authority: AuthorityFolder, sizes: dict[str, int], users: list[str]
) -> list[dict[str, Any]]:
    """All manifests. Raises SquallError."""
    issued = authority.path / "issued"

    def issue(role: Role, name: str, hosts: list[str]) -> tuple[Path, Path]:
        found = issued / f"{role.value}-{name}.pem"
        if is_issued(authority.certificate, found, role, name, hosts, time.time() + _RENEW_SECS):
            return found, found.with_suffix(".key")
        return authority.issue(role, name, hosts, issued, days=CERTIFICATE_DAYS)

    accounts = Accounts(authority.path / "accounts", [], [])
    for user in users:
        try:
            accounts.add(user)
        except EnrolmentRefusedError as error:
            raise SquallError(str(error)) from error
        issue(Role.USER, user, [])
    public = {
        "ca.pem": authority.certificate.read_text(),
        "revoked.jws": authority.revoked.read_text(),
    }
    found = [
        _manifest("ConfigMap", "squall-ca", public),
        _manifest("ConfigMap", "squall-accounts", {"accounts": accounts.text()}),
    ]
    for name, (_, roles) in SETS.items():
        files: dict[str, str] = {}
        # A call for fewer pods, or for none by name, takes no certificate from those that run.
        for number in range(max(sizes[name], _pods_of(issued, roles[0], name))):
            for role in roles:
                hosts = hosts_of(name, number)
                for path in issue(role, f"{name}-{number}", hosts):
                    files[f"{role.value}-{number}{path.suffix}"] = path.read_text()
        if name in WITH_DIGEST:
            files[DIGEST_FILE] = cluster_digest(authority.path / DIGEST_FILE)
        found.append(_manifest("Secret", f"squall-{name}", files))
    return found


def _pods_of(issued: Path, role: Role, name: str) -> int:
    """For how many pods of a StatefulSet there are certificates."""
    count = 0
    while (issued / f"{role.value}-{name}-{count}.pem").exists():
        count += 1
    return count


def _manifest(kind: str, name: str, files: dict[str, str]) -> dict[str, Any]:
    data = files
    if kind == "Secret":
        data = {key: base64.b64encode(text.encode()).decode() for key, text in files.items()}
    found: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": NAMESPACE},
        "data": data,
    }
    return found | ({"type": "Opaque"} if kind == "Secret" else {})


def main(arguments: list[str] | None = None) -> int:
    """Print the manifests; returns the exit status."""
    parser = argparse.ArgumentParser(description="Certificates of a cluster on Kubernetes.")
    parser.add_argument("--dir", type=Path, default=Path("ca"), help="folder of the CA (ca)")
    parser.add_argument("--user", action="append", default=[], help="make a user (repeatable)")
    for name, (number, _) in SETS.items():
        parser.add_argument(f"--{name}", type=int, default=number, help=f"pods ({number})")
    options = parser.parse_args(arguments)
    authority = AuthorityFolder(options.dir)
    try:
        if not (options.dir / "ca.key").exists():
            authority.create("squall")
        manifests = secrets(
            authority, {name: getattr(options, name) for name in SETS}, ["admin", *options.user]
        )
    except (SquallError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(yaml.safe_dump_all([_namespace(), *manifests], sort_keys=False), end="")
    return 0


def _namespace() -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}


if __name__ == "__main__":
    sys.exit(main())
