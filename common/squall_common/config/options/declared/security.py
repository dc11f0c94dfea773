"""Who may do what: certificates, tokens, users and groups."""

from __future__ import annotations

from dataclasses import replace

from squall_common.config.options.declaration import (
    CLIENT,
    COMMAND,
    DAEMON,
    DAEMONS,
    DRPC,
    LOGVIEWER,
    NIMBUS,
    OURS,
    SUPERVISOR,
    TOPOLOGY,
    UI,
    WORKER,
    Option,
)
from squall_common.config.options.kinds import (
    FIXED_PORT,
    TEXT,
    YES_NO,
    either,
    list_of,
    map_of,
    number,
    whole,
)

NAMES = list_of(TEXT)
_TRANSPORT = replace(
    either(
        "org.apache.storm.security.auth.SimpleTransportPlugin",
        "org.apache.storm.security.auth.digest.DigestSaslTransportPlugin",
        "org.apache.storm.security.auth.kerberos.KerberosSaslTransportPlugin",
    ),
    annotation="str",
)
_TO_LOCAL = replace(
    either(
        "org.apache.storm.security.auth.DefaultPrincipalToLocal",
        "org.apache.storm.security.auth.KerberosPrincipalToLocal",
    ),
    annotation="str",
)
_GROUPS_FROM = replace(
    either(
        "org.apache.storm.security.auth.ShellBasedGroupsMapping",
        "org.apache.storm.security.auth.FixedGroupsMapping",
    ),
    annotation="str",
)

OPTIONS: tuple[Option, ...] = (
    Option(
        "storm.security.ca",
        TEXT,
        None,
        "File with the certificate of the cluster's CA, in PEM (storm admin ca init). With it the "
        "cluster is secured: Nimbus and who calls it prove who they are. null: the cluster is "
        "open.",
        scope=DAEMON | CLIENT,
        readers=DAEMONS | COMMAND,
        storm=OURS,
    ),
    Option(
        "storm.security.certificate",
        TEXT,
        None,
        "File with the certificate of this daemon or user, in PEM (storm admin ca issue). A "
        "command without one shows its token.",
        scope=DAEMON | CLIENT,
        readers=DAEMONS | COMMAND,
        storm=OURS,
    ),
    Option(
        "storm.security.key",
        TEXT,
        None,
        "File with the key of storm.security.certificate, which no one else may read.",
        scope=DAEMON | CLIENT,
        readers=DAEMONS | COMMAND,
        storm=OURS,
    ),
    Option(
        "storm.security.revoked",
        TEXT,
        None,
        "File with the certificates that the CA has revoked (storm admin ca revoke writes it). "
        "Read at the start and when it changes.",
        scope=DAEMON,
        readers=NIMBUS | SUPERVISOR | UI | LOGVIEWER | DRPC,
        storm=OURS,
    ),
    Option(
        "storm.security.token.file",
        TEXT,
        None,
        "File with the token that a command shows (storm login writes it); null: ~/.storm/token.",
        scope=CLIENT,
        readers=COMMAND,
        storm=OURS,
    ),
    Option(
        "storm.identity.issuer",
        TEXT,
        None,
        "An https URL that names this cluster to foreign parties. With it, Nimbus issues identity "
        "tokens to workers, and the UI serves the discovery document and the keys below the path "
        "of this URL. null: there are no identity tokens.",
        scope=DAEMON,
        readers=NIMBUS | UI,
        storm=OURS,
        secured=True,
    ),
    Option(
        "nimbus.identity.audiences",
        NAMES,
        None,
        "The audiences that topologies may declare in topology.identity.audiences; null: all.",
        scope=DAEMON,
        readers=NIMBUS,
        storm=OURS,
        secured=True,
    ),
    Option(
        "topology.identity.audiences",
        NAMES,
        [],
        "The foreign parties to which the topology proves who it is, up to eight: for each, "
        "`context.identity_token(AUDIENCE)` is a token for it alone.",
        scope=TOPOLOGY,
        readers=NIMBUS | WORKER,
        storm=OURS,
    ),
    Option(
        "storm.doAsUser",
        TEXT,
        None,
        "User that a command acts for, if nimbus.impersonation.acl lets its own user.",
        scope=CLIENT,
        readers=COMMAND,
        secured=True,
    ),
    Option(
        "nimbus.legacy.thrift.port",
        FIXED_PORT,
        None,
        "Port on which Nimbus serves Storm's own Java clients, by the mechanism of "
        "storm.thrift.transport and without encryption; the same on each Nimbus. null: none.",
        scope=DAEMON,
        readers=NIMBUS,
        storm=OURS,
        secured=True,
    ),
    Option(
        "storm.thrift.transport",
        _TRANSPORT,
        "org.apache.storm.security.auth.SimpleTransportPlugin",
        "How Storm's Java clients prove who they are on nimbus.legacy.thrift.port: "
        "DigestSaslTransportPlugin for DIGEST-MD5, KerberosSaslTransportPlugin for Kerberos. All "
        "other ports of a secured cluster have mechanisms of their own.",
        scope=DAEMON,
        readers=NIMBUS,
        secured=True,
    ),
    Option(
        "java.security.auth.login.config",
        TEXT,
        None,
        "JAAS file of nimbus.legacy.thrift.port. For DIGEST-MD5 its entry StormServer has users "
        "and their secrets, as user_NAME; no one else may read it, and it is read again when it "
        "changes. For Kerberos it has the keyTab and the principal of Nimbus.",
        scope=DAEMON,
        readers=NIMBUS,
        secured=True,
    ),
    Option(
        "storm.principal.tolocal",
        _TO_LOCAL,
        "org.apache.storm.security.auth.DefaultPrincipalToLocal",
        "Which user a Kerberos principal NAME@REALM is: NAME@REALM, or with "
        "KerberosPrincipalToLocal NAME. Principals of other realms than Nimbus' own, and those "
        "with an instance (NAME/INSTANCE), are refused.",
        scope=DAEMON,
        readers=NIMBUS,
        secured=True,
    ),
    Option(
        "supervisor.workers.share.user",
        YES_NO,
        False,
        "In a secured cluster a supervisor without supervisor.run.worker.as.user starts only with "
        "true: it accepts that the workers of all topologies run as the supervisor's own user, and "
        "can read each other's files and keys, and the supervisor's.",
        scope=DAEMON,
        readers=SUPERVISOR,
        storm=OURS,
    ),
    Option(
        "nimbus.users",
        NAMES,
        None,
        "Users who may submit topologies and look at the cluster; null, and no nimbus.groups: "
        "every user that is authenticated.",
        scope=DAEMON,
        readers=NIMBUS | DRPC,
        secured=True,
    ),
    Option(
        "nimbus.groups",
        NAMES,
        None,
        "Groups whose users may do what nimbus.users may.",
        scope=DAEMON,
        readers=NIMBUS | DRPC,
        secured=True,
    ),
    Option(
        "logs.users",
        NAMES,
        [],
        "In a topology's configuration: users who may read its logs and dumps, besides its owner, "
        "topology.users and administrators. In a logviewer's: users who may read the logs of "
        "daemons.",
        scope=TOPOLOGY | DAEMON,
        readers=NIMBUS | LOGVIEWER,
        storm=None,
        secured=True,
    ),
    Option(
        "logs.groups",
        NAMES,
        [],
        "Groups whose users may do what logs.users may.",
        scope=TOPOLOGY | DAEMON,
        readers=NIMBUS | LOGVIEWER,
        storm=None,
        secured=True,
    ),
    Option(
        "metrics.users",
        NAMES,
        [],
        "Users who may read the metrics pages of Nimbus and supervisors, besides administrators.",
        scope=DAEMON,
        readers=NIMBUS | SUPERVISOR,
        storm=OURS,
        secured=True,
    ),
    Option(
        "metrics.groups",
        NAMES,
        [],
        "Groups whose users may do what metrics.users may.",
        scope=DAEMON,
        readers=NIMBUS | SUPERVISOR,
        storm=OURS,
        secured=True,
    ),
    Option(
        "nimbus.admins.groups",
        NAMES,
        None,
        "Groups whose users are administrators, as nimbus.admins are.",
        scope=DAEMON,
        readers=NIMBUS | SUPERVISOR | LOGVIEWER | DRPC,
        secured=True,
    ),
    Option(
        "nimbus.impersonation.acl",
        map_of(map_of(NAMES)),
        None,
        "Who may act for other users: by user, `hosts` that it calls from and `groups` of those it "
        'acts for; "*" is all.',
        scope=DAEMON,
        readers=NIMBUS | LOGVIEWER | DRPC,
        secured=True,
    ),
    Option(
        "nimbus.quotas",
        map_of(map_of(whole(0, 2**53))),
        None,
        'What each user may have: by user, or "*" for everyone, `topologies`, `workers` and '
        "`executors` of all of them, `blob.bytes`, and `sessions`, which are uploads and downloads "
        "at a time.",
        scope=DAEMON,
        readers=NIMBUS,
        storm=OURS,
        secured=True,
    ),
    Option(
        "storm.group.mapping.service",
        _GROUPS_FROM,
        "org.apache.storm.security.auth.ShellBasedGroupsMapping",
        "Where the groups of a user come from: the operating system of Nimbus (no shell is "
        "started), or storm.group.mapping.service.params.",
        scope=DAEMON,
        readers=NIMBUS | SUPERVISOR | LOGVIEWER | DRPC,
        secured=True,
    ),
    Option(
        "storm.group.mapping.service.params",
        map_of(map_of(NAMES)),
        None,
        "For FixedGroupsMapping: `storm.fixed.group.mapping`, a map from user to groups.",
        scope=DAEMON,
        readers=NIMBUS | SUPERVISOR | LOGVIEWER | DRPC,
        secured=True,
    ),
    Option(
        "drpc.authorizer.acl.filename",
        TEXT,
        None,
        "File (YAML) that says who may call and serve which DRPC function: under "
        "`drpc.authorizer.acl`, by function, `client.users`, a list, and `invocation.user`, the "
        "owner of the topologies that serve it. Read at the start and when it changes.",
        scope=DAEMON,
        readers=DRPC,
        storm="drpc-auth-acl.yaml",
        secured=True,
    ),
    Option(
        "drpc.authorizer.acl.strict",
        YES_NO,
        True,
        "Whether functions that drpc.authorizer.acl.filename does not list are refused; false: "
        "every user may call, and the topologies of all may serve them.",
        scope=DAEMON,
        readers=DRPC,
        storm=False,
    ),
    Option(
        "nimbus.autocredential.plugins.classes",
        NAMES,
        None,
        "Classes (module:name) that add to a topology's credentials when it is submitted: "
        "`populate_credentials(credentials, topology_conf, owner)`.",
        scope=DAEMON,
        readers=NIMBUS,
    ),
    Option(
        "nimbus.credential.renewers.classes",
        NAMES,
        None,
        "Classes (module:name) that renew the credentials of running topologies: "
        "`renew(credentials, topology_conf, owner)`.",
        scope=DAEMON,
        readers=NIMBUS,
    ),
    Option(
        "nimbus.credential.renewers.freq.secs",
        number(1.0, 86_400.0),
        600,
        "How often the leader calls nimbus.credential.renewers.classes for each topology.",
        scope=DAEMON,
        readers=NIMBUS,
        unit="seconds",
    ),
)
