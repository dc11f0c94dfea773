"""A real Kafka broker for tests: one process in KRaft mode, its jars from Maven Central.

with KafkaServer.start(tmp_path) as kafka:
    kafka.create_topic("orders", partitions=4)
    ... kafka.address ...
    kafka.kill()      # SIGKILL; stop() is SIGSTOP and resume() its end
    kafka.restart()   # on the same port, with the same data
"""

from __future__ import annotations

import base64
import contextlib
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

from tests.support import maven
from tests.support.certificates import Certificates
from tests.support.servers import Server, free_port

VERSION = "4.2.0"
_SLF4J_VERSION = "1.7.36"  # of the broker's slf4j-api


def jars() -> Path:
    """The folder of the broker's jars; resolves them if they are not there."""
    return maven.jars(
        "kafka",
        VERSION,
        # The second writes its log; without it the broker has none.
        [f"org.apache.kafka:kafka_2.13:{VERSION}", f"org.slf4j:slf4j-simple:{_SLF4J_VERSION}"],
    )


def _formatted() -> Path:
    """A file of a formatted data folder: the features of the newest version, share groups among
    them. Without it a broker has those of an old version. Made once, as it takes a JVM."""
    made = jars() / "bootstrap.checkpoint"
    if made.exists():
        return made
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        conf = folder / "server.properties"
        conf.write_text(
            "process.roles=broker,controller\nnode.id=1\n"
            "controller.quorum.voters=1@127.0.0.1:1\n"
            "listeners=PLAINTEXT://127.0.0.1:2,CONTROLLER://127.0.0.1:1\n"
            "controller.listener.names=CONTROLLER\n"
            f"log.dirs={folder}/data\n"
        )
        tool = ["java", "-Xmx128m", "-cp", f"{jars()}/*", "kafka.tools.StorageTool"]
        subprocess.run(
            [
                *(*tool, "format", "-t", "AAAAAAAAAAAAAAAAAAAAAQ", "-c", str(conf)),
                *("--feature", "share.version=1"),
            ],
            check=True,
            capture_output=True,
            timeout=120,
        )
        with tempfile.NamedTemporaryFile(dir=jars(), delete=False) as whole:
            whole.write((folder / "data" / "bootstrap.checkpoint").read_bytes())
        Path(whole.name).replace(made)
    return made


class KafkaServer(Server):
    """A broker that is its own controller."""

    def __init__(self, folder: Path) -> None:
        self.port, controller = free_port(), free_port()
        self.address = f"127.0.0.1:{self.port}"
        # The same broker with SASL_SSL, for the user `app`.
        self.secure_address = f"127.0.0.1:{free_port()}"
        self.password = uuid.uuid4().hex
        self._data = folder / "data"
        self._data.mkdir(parents=True)
        identity = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        # What the storage tool writes, without a second JVM.
        (self._data / "meta.properties").write_text(
            f"version=1\ncluster.id={identity}\nnode.id=1\ndirectory.id={identity}\n"
        )
        shutil.copy(_formatted(), self._data / "bootstrap.checkpoint")
        self.certificates = Certificates.make(folder)
        keys = folder / "keys.pem"
        keys.write_text(
            self.certificates.key.read_text() + self.certificates.certificate.read_text()
        )
        login = "org.apache.kafka.common.security.plain.PlainLoginModule required"
        listeners = f"PLAINTEXT://{self.address},SASL_SSL://{self.secure_address}"
        self._conf = folder / "server.properties"
        self._conf.write_text(
            "\n".join(
                (
                    "process.roles=broker,controller",
                    "node.id=1",
                    f"controller.quorum.voters=1@127.0.0.1:{controller}",
                    f"listeners={listeners},CONTROLLER://127.0.0.1:{controller}",
                    f"advertised.listeners={listeners}",
                    "listener.security.protocol.map="
                    "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL_SSL:SASL_SSL",
                    "ssl.keystore.type=PEM",
                    f"ssl.keystore.location={keys}",
                    "listener.name.sasl_ssl.sasl.enabled.mechanisms=PLAIN",
                    "listener.name.sasl_ssl.plain.sasl.jaas.config="
                    f'{login} user_app="{self.password}";',
                    "controller.listener.names=CONTROLLER",
                    "inter.broker.listener.name=PLAINTEXT",
                    f"log.dirs={self._data}",
                    "offsets.topic.replication.factor=1",
                    "offsets.topic.num.partitions=1",
                    "transaction.state.log.replication.factor=1",
                    "transaction.state.log.min.isr=1",
                    "transaction.state.log.num.partitions=1",
                    "share.coordinator.state.topic.replication.factor=1",
                    "share.coordinator.state.topic.min.isr=1",
                    "share.coordinator.state.topic.num.partitions=1",
                    # One that was killed may register again only after this.
                    "broker.session.timeout.ms=3000",
                    "broker.heartbeat.interval.ms=500",
                    "group.initial.rebalance.delay.ms=0",
                    "group.min.session.timeout.ms=1000",
                    # Share groups: short locks and sessions for tests of lost members.
                    "group.share.min.session.timeout.ms=1000",
                    "group.share.min.heartbeat.interval.ms=500",
                    "group.share.min.record.lock.duration.ms=1000",
                    "auto.create.topics.enable=false",
                    "num.network.threads=2",
                    "num.io.threads=2",
                    "log.cleaner.enable=false",
                    "",
                )
            )
        )
        super().__init__(folder / "kafka.log")

    def command(self) -> list[str]:
        return [
            "java",
            "-Xmx384m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            # Rather than to go on without the thread that ran out of memory.
            "-XX:+ExitOnOutOfMemoryError",
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
            "-Dorg.slf4j.simpleLogger.showDateTime=true",
            "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
            "-cp",
            f"{jars()}/*",
            "kafka.Kafka",
            str(self._conf),
        ]

    def is_up(self) -> bool:
        """Whether its controller would make a topic now, with this broker as the leader. It answers
        questions earlier, from the metadata of before it was killed."""
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient, NewTopic

        client = AdminClient({"bootstrap.servers": self.address, "log_level": 0})
        try:
            if not client.list_topics(timeout=1).brokers:
                return False
            topic = NewTopic("is-it-up", 1, 1)
            asked = client.create_topics([topic], request_timeout=2, validate_only=True)
            asked["is-it-up"].result(3)
        except (KafkaException, TimeoutError):
            return False
        return True

    def create_topic(self, name: str, partitions: int = 1, **config: str) -> None:
        """Create a topic and wait until it is there."""
        from confluent_kafka.admin import AdminClient, NewTopic

        client = AdminClient({"bootstrap.servers": self.address})
        topic = NewTopic(name, partitions, 1, config=config)
        try:
            client.create_topics([topic])[name].result(30)
        except TimeoutError:
            raise AssertionError(f"topic {name} was not made within 30 s by {self}") from None

    @classmethod
    @contextlib.contextmanager
    def start(cls, folder: Path) -> Iterator[KafkaServer]:
        jars()
        server = cls(folder)
        with server.running():
            yield server
