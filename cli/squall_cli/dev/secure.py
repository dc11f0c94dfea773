"""`storm dev --secure`: a CA, certificates for the daemons and for whoever runs the cluster, and a
token for the commands; all in the cluster's data folder, which only its owner may enter."""

from __future__ import annotations

import getpass
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from squall_cli.dev.plan import DevPlan
from squall_cli.secure.authority_folder import CA_DAYS, CERTIFICATE_DAYS, AuthorityFolder
from squall_cli.secure.tokens import create_token, keep_token
from squall_cli.secure.zookeeper_digest import make_digest
from squall_common.config.options.typed import ClientOptions
from squall_common.daemon.ports import LOOPBACK
from squall_common.security.certificates import CertificateError, check_issued, read_certificate
from squall_common.security.identity import IdentityError, Role

_CLUSTER = "dev"
_RENEW_SECS = 7 * 86_400
_TOKEN_SECS = 12 * 3600


def make_identities(plan: DevPlan) -> None:
    """Make what the cluster lacks: the CA, the digest for ZooKeeper, and certificates that end
    within a week. Raises SquallError."""
    folder = AuthorityFolder(plan.security / "ca")
    if not (folder.path / "ca.key").exists():
        folder.create(_CLUSTER, days=CA_DAYS)
    if not plan.digest_file.exists():
        make_digest(plan.digest_file)
    names = {
        (Role.NIMBUS, "nimbus"),
        (Role.DRPC, "drpc"),
        (Role.UI, "ui"),
        (Role.LOGVIEWER, "logviewer"),
        (Role.USER, getpass.getuser()),
        *((Role.SUPERVISOR, one.name) for one in plan.supervisors),
    }
    for role, name in sorted(names):
        if not _lasts(plan.security / f"{role.value}-{name}.pem", folder):
            hosts = [] if role is Role.USER else [LOOPBACK, "localhost"]
            folder.issue(role, name, hosts, plan.security, days=CERTIFICATE_DAYS)


def _lasts(certificate: Path, folder: AuthorityFolder) -> bool:
    authority = folder.load()
    try:
        found = read_certificate(certificate.read_bytes())
        check_issued(found, authority.certificate, _CLUSTER, time.time() + _RENEW_SECS)
    except (OSError, CertificateError, IdentityError):
        return False
    return True


def user_options(plan: DevPlan) -> ClientOptions:
    """The options of a client that shows the certificate of whoever runs the cluster."""
    return ClientOptions.read({**plan.site_conf, **user_conf(plan)})


def user_conf(plan: DevPlan) -> Mapping[str, Any]:
    """Of a client that shows that certificate."""
    return {**plan.client_conf(), **plan.identity("user", getpass.getuser())}


def make_token(plan: DevPlan) -> None:
    """Get a token for the commands of the next hours. Raises NimbusError."""
    token = create_token(
        user_options(plan), user=None, lifetime_secs=_TOKEN_SECS, label="storm dev"
    )
    keep_token(token, plan.token_file)
