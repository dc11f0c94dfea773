# ruff: noqa: E501  names and defaults as Storm has them
"""Keys of Apache Storm's that ask for protection which Squall does not give in that way."""

from __future__ import annotations

from squall_common.config.options.verdicts import StormKey, refused

KEYS: tuple[StormKey, ...] = (
    *refused(
        "Nimbus alone has a port for Storm's Java clients (storm.thrift.transport, "
        "nimbus.legacy.thrift.port); others have the mechanisms of docs/security.md",
        {
            "drpc.invocations.thrift.transport": None,
            "drpc.thrift.transport": None,
            "nimbus.thrift.transport": None,
            "supervisor.thrift.transport": None,
        },
    ),
    *refused(
        "Squall reads no keystores of Java's: in a secured cluster Thrift goes over TLS on the usual "
        "ports, with certificates of storm.security.ca; in an open one it travels in the clear",
        {
            "nimbus.thrift.client.use.tls": False,
            "nimbus.thrift.tls.client.auth.required": True,
            "nimbus.thrift.tls.client.cert.path": None,
            "nimbus.thrift.tls.client.key.path": None,
            "nimbus.thrift.tls.client.keystore.password": None,
            "nimbus.thrift.tls.client.keystore.path": None,
            "nimbus.thrift.tls.client.truststore.password": None,
            "nimbus.thrift.tls.client.truststore.path": None,
            "nimbus.thrift.tls.port": 0,
            "nimbus.thrift.tls.server.keystore.password": None,
            "nimbus.thrift.tls.server.keystore.path": None,
            "nimbus.thrift.tls.server.only": None,
            "nimbus.thrift.tls.server.truststore.password": None,
            "nimbus.thrift.tls.server.truststore.path": None,
            "nimbus.thrift.tls.transport": "org.apache.storm.security.auth.tls.TlsTransportPlugin",
            "supervisor.thrift.client.use.tls": None,
            "supervisor.thrift.tls.client.auth.required": None,
            "supervisor.thrift.tls.client.cert.path": None,
            "supervisor.thrift.tls.client.key.path": None,
            "supervisor.thrift.tls.client.keystore.password": None,
            "supervisor.thrift.tls.client.keystore.path": None,
            "supervisor.thrift.tls.client.truststore.password": None,
            "supervisor.thrift.tls.client.truststore.path": None,
            "supervisor.thrift.tls.server.keystore.password": None,
            "supervisor.thrift.tls.server.keystore.path": None,
            "supervisor.thrift.tls.server.truststore.password": None,
            "supervisor.thrift.tls.server.truststore.path": None,
            "topology.worker.nimbus.thrift.client.use.tls": False,
        },
    ),
    *refused(
        "Squall does not go by it, so it would not keep anyone out: a secured cluster has rules of "
        "its own (docs/security.md)",
        {
            "drpc.authorizer": None,
            "drpc.authorizer.acl": None,
            "nimbus.authorizer": None,
            "nimbus.daemon.user": None,
            "nimbus.daemon.users": None,
            "nimbus.impersonation.authorizer": None,
            "storm.auth.simple-white-list.users": [],
            "storm.blobstore.acl.validation.enabled": False,
            "supervisor.authorizer": None,
            "ui.users": None,
        },
    ),
    *refused(
        "Squall cannot run a Java filter: in a secured cluster the HTTP listeners ask for a "
        "certificate or a token (storm.security.ca), in an open one no one is authenticated",
        {
            "drpc.http.creds.plugin": "org.apache.storm.security.auth.DefaultHttpCredentialsPlugin",
            "drpc.http.filter": None,
            "drpc.http.filter.params": None,
            "logviewer.filter": None,
            "logviewer.filter.params": None,
            "ui.filter": None,
            "ui.filter.params": None,
            "ui.http.creds.plugin": "org.apache.storm.security.auth.DefaultHttpCredentialsPlugin",
        },
    ),
    *refused(
        "Squall reads no keystores of Java's: in a secured cluster the HTTP listeners speak TLS on "
        "their usual ports, with certificates of storm.security.ca; in an open one they do not",
        {
            "drpc.https.enable.ssl.reload": None,
            "drpc.https.key.password": None,
            "drpc.https.keystore.password": "",
            "drpc.https.keystore.path": None,
            "drpc.https.keystore.type": "JKS",
            "drpc.https.need.client.auth": None,
            "drpc.https.port": -1,
            "drpc.https.truststore.password": None,
            "drpc.https.truststore.path": None,
            "drpc.https.truststore.type": None,
            "drpc.https.want.client.auth": None,
            "logviewer.https.enable.ssl.reload": None,
            "logviewer.https.key.password": None,
            "logviewer.https.keystore.password": None,
            "logviewer.https.keystore.path": None,
            "logviewer.https.keystore.type": None,
            "logviewer.https.need.client.auth": None,
            "logviewer.https.port": None,
            "logviewer.https.truststore.password": None,
            "logviewer.https.truststore.path": None,
            "logviewer.https.truststore.type": None,
            "logviewer.https.want.client.auth": None,
            "ui.https.enable.ssl.reload": None,
            "ui.https.key.password": None,
            "ui.https.keystore.password": None,
            "ui.https.keystore.path": None,
            "ui.https.keystore.type": None,
            "ui.https.need.client.auth": None,
            "ui.https.port": None,
            "ui.https.truststore.password": None,
            "ui.https.truststore.path": None,
            "ui.https.truststore.type": None,
            "ui.https.want.client.auth": None,
        },
    ),
    *refused(
        "Squall proves who it is to ZooKeeper by storm.zookeeper.auth.payload",
        {
            "storm.zookeeper.auth.password": None,
            "storm.zookeeper.auth.user": None,
        },
    ),
    *refused(
        "Squall has no TLS to ZooKeeper, so requests would travel in the clear",
        {
            "storm.zookeeper.ssl.enable": False,
            "storm.zookeeper.ssl.hostnameVerification": False,
            "storm.zookeeper.ssl.keystore.password": None,
            "storm.zookeeper.ssl.keystore.path": None,
            "storm.zookeeper.ssl.truststore.password": None,
            "storm.zookeeper.ssl.truststore.path": None,
        },
    ),
    *refused(
        "no plug-in of a topology runs: plug-ins that fill in and renew credentials are Nimbus' "
        "(nimbus.autocredential.plugins.classes)",
        {
            "topology.auto-credentials": None,
        },
    ),
    *refused(
        "Squall cannot run a Java serializer: one that encrypts would not be used. Workers "
        "encrypt what they send with CURVE (storm.messaging.curve)",
        {
            "topology.tuple.serializer": "org.apache.storm.serialization.types.ListDelegateSerializer",
        },
    ),
    *refused(
        "Squall cannot run a Java validator, so every topology would be accepted",
        {
            "nimbus.topology.validator": "org.apache.storm.nimbus.DefaultTopologyValidator",
        },
    ),
)
