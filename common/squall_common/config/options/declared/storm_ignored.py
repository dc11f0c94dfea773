# ruff: noqa: E501  names and defaults as Storm has them
"""Keys of Apache Storm's that have no effect in Squall, and why."""

from __future__ import annotations

from squall_common.config.options.verdicts import StormKey, ignored

KEYS: tuple[StormKey, ...] = (
    *ignored(
        "each topology gets a digest of its own from its supervisors; the value is dropped and "
        "never stored",
        {
            "storm.zookeeper.topology.auth.payload": None,
            "storm.zookeeper.topology.auth.scheme": None,
        },
    ),
    *ignored(
        "with storm.zookeeper.auth.payload the leading Nimbus always checks all access lists, and "
        "puts them right",
        {
            "storm.nimbus.zookeeper.acls.check": True,
            "storm.nimbus.zookeeper.acls.fixup": True,
        },
    ),
    *ignored(
        "DRPC servers keep nothing in ZooKeeper",
        {"storm.zookeeper.drpcACL": None},
    ),
    *ignored(
        "TLS connections are served as all others are, on one event loop and with the same limits",
        {
            "nimbus.thrift.tls.max_buffer_size": 1048576,
            "nimbus.thrift.tls.threads": 64,
            "storm.thrift.tls.socket.timeout.ms": 600000,
        },
    ),
    *ignored(
        "workers encrypt and authenticate their connections with CURVE, with keys that each "
        "topology has of its own (storm.messaging.curve)",
        {
            "storm.messaging.netty.tls.ciphers": None,
            "storm.messaging.netty.tls.client.keystore.password": None,
            "storm.messaging.netty.tls.client.keystore.path": None,
            "storm.messaging.netty.tls.client.truststore.password": None,
            "storm.messaging.netty.tls.client.truststore.path": None,
            "storm.messaging.netty.tls.keystore.password": None,
            "storm.messaging.netty.tls.keystore.path": None,
            "storm.messaging.netty.tls.require.open.ssl": None,
            "storm.messaging.netty.tls.ssl.protocols": None,
            "storm.messaging.netty.tls.truststore.password": None,
            "storm.messaging.netty.tls.truststore.path": None,
        },
    ),
    *ignored(
        "tuples travel by ZeroMQ with flow control of its own (topology.worker.buffer.bytes)",
        {
            "storm.messaging.netty.buffer.high.watermark": 16777216,
            "storm.messaging.netty.buffer.low.watermark": 8388608,
            "storm.messaging.netty.buffer_size": 5242880,
            "storm.messaging.netty.client_worker_threads": 1,
            "storm.messaging.netty.flush.check.interval.ms": None,
            "storm.messaging.netty.flush_timeout_ms": 600000,
            "storm.messaging.netty.max_wait_ms": 1000,
            "storm.messaging.netty.min_wait_ms": 100,
            "storm.messaging.netty.server_worker_threads": 1,
            "storm.messaging.netty.socket.backlog": 500,
            "storm.messaging.netty.transfer.batch.size": 262144,
            "storm.messaging.transport": "org.apache.storm.messaging.netty.Context",
        },
    ),
    *ignored(
        "there is no JVM",
        {
            "drpc.childopts": "-Xmx768m",
            "java.library.path": "/usr/local/lib:/opt/local/lib:/usr/lib:/usr/lib64",
            "logviewer.childopts": "-Xmx128m",
            "nimbus.childopts": "-Xmx1024m",
            "pacemaker.childopts": "-Xmx1024m",
            "supervisor.childopts": "-Xmx256m",
            "topology.worker.childopts": None,
            "topology.worker.gc.childopts": None,
            "topology.worker.logwriter.childopts": "-Xmx64m",
            "ui.childopts": "-Xmx768m",
            "worker.childopts": "-Xmx%HEAP-MEM%m -XX:+IgnoreUnrecognizedVMOptions -XX:+PrintGCDetails -Xloggc:artifacts/gc.log -XX:+PrintGCDateStamps -XX:+PrintGCTimeStamps -XX:+UseGCLogFileRotation -XX:NumberOfGCLogFiles=10 -XX:GCLogFileSize=1M -XX:+HeapDumpOnOutOfMemoryError -XX:HeapDumpPath=artifacts/heapdump",
            "worker.gc.childopts": "",
            "worker.profiler.childopts": "-XX:+UnlockCommercialFeatures -XX:+FlightRecorder",
        },
    ),
    *ignored(
        "Python has no class path; set PYTHONPATH in topology.environment, or package the module",
        {
            "storm.topology.classpath.beginning.enabled": False,
            "topology.classpath": None,
            "topology.classpath.beginning": None,
        },
    ),
    *ignored(
        "Squall has no Pacemaker: workers report to Nimbus",
        {
            "pacemaker.auth.method": "NONE",
            "pacemaker.base.threads": 10,
            "pacemaker.client.max.threads": 2,
            "pacemaker.kerberos.users": [],
            "pacemaker.max.threads": 50,
            "pacemaker.port": 6699,
            "pacemaker.servers": [],
            "pacemaker.thread.timeout": 10,
            "pacemaker.thrift.message.size.max": 10485760,
        },
    ),
    *ignored(
        "workers do not run in OCI containers",
        {
            "storm.oci.cgroup.parent": "/storm",
            "storm.oci.cgroup.root": "/sys/fs/cgroup",
            "storm.oci.image.tag.to.manifest.plugin": None,
            "storm.oci.layer.mounts.to.keep": None,
            "storm.oci.manifest.to.resources.plugin": None,
            "storm.oci.nscd.dir": "/var/run/nscd",
            "storm.oci.resources.local.dir": None,
            "storm.oci.resources.localizer": None,
        },
    ),
    *ignored(
        "Squall logs by its own rules (storm.log.level, storm.log.dir)",
        {
            "logviewer.appender.name": "A1",
            "storm.log4j2.conf.dir": "log4j2",
            "topology.logging.config": None,
            "worker.log.level.reset.poll.secs": 30,
        },
    ),
    *ignored(
        "logs carry no mark of how sensitive they are",
        {
            "topology.logging.sensitivity": None,
        },
    ),
    *ignored(
        "Squall has one scheduler, which spreads executors evenly",
        {
            "blacklist.scheduler.assume.supervisor.bad.based.on.bad.slot": True,
            "blacklist.scheduler.enable.send.assignment.failures": None,
            "blacklist.scheduler.reporter": "org.apache.storm.scheduler.blacklist.reporters.LogReporter",
            "blacklist.scheduler.resume.time.secs": 1800,
            "blacklist.scheduler.strategy": "org.apache.storm.scheduler.blacklist.strategies.DefaultBlacklistStrategy",
            "blacklist.scheduler.tolerance.count": 3,
            "blacklist.scheduler.tolerance.time.secs": 300,
            "isolation.scheduler.machines": None,
            "multitenant.scheduler.user.pools": None,
            "nimbus.scheduler.strategy.class.whitelist": None,
            "resource.aware.scheduler.constraint.max.state.search": 100000,
            "resource.aware.scheduler.max.topology.scheduling.attempts": None,
            "resource.aware.scheduler.priority.strategy": "org.apache.storm.scheduler.resource.strategies.priority.DefaultSchedulingPriorityStrategy",
            "resource.aware.scheduler.user.pools": None,
            "scheduler.config.cache.expiration.secs": None,
            "scheduler.config.loader.artifactory.base.directory": None,
            "scheduler.config.loader.polltime.secs": None,
            "scheduler.config.loader.timeout.secs": None,
            "scheduler.config.loader.uri": None,
            "scheduler.display.resource": False,
            "scheduling.timeout.seconds.per.topology": None,
            "storm.network.topography.plugin": "org.apache.storm.networktopography.DefaultRackDNSToSwitchMapping",
            "storm.scheduler": None,
            "supervisor.numa.meta": None,
            "topology.isolate.machines": None,
            "topology.ras.acker.executors.per.worker": 1,
            "topology.ras.constraint.max.state.search": 10000,
            "topology.ras.constraint.max.time.secs": None,
            "topology.ras.constraints": None,
            "topology.ras.one.component.per.worker": False,
            "topology.ras.one.executor.per.worker": False,
            "topology.ras.order.executors.by.proximity.needs": None,
            "topology.scheduler.favored.nodes": None,
            "topology.scheduler.strategy": "org.apache.storm.scheduler.resource.strategies.scheduling.DefaultResourceAwareStrategy",
            "topology.scheduler.unfavored.nodes": None,
            "topology.spread.components": None,
        },
    ),
    *ignored(
        "nothing is placed by resources; they limit workers only "
        "(topology.component.resources.onheap.memory.mb)",
        {
            "supervisor.resources.map": None,
            "topology.acker.cpu.pcore.percent": None,
            "topology.acker.resources.offheap.memory.mb": None,
            "topology.acker.resources.onheap.memory.mb": None,
            "topology.component.resources.map": None,
            "topology.metrics.consumer.cpu.pcore.percent": None,
            "topology.metrics.consumer.resources.offheap.memory.mb": None,
            "topology.metrics.consumer.resources.onheap.memory.mb": None,
        },
    ),
    *ignored(
        "new supervisors get work at the next rebalance",
        {
            "nimbus.even.rebalance.idle.supervisor.enabled": False,
            "nimbus.even.rebalance.idle.supervisor.min.stable.rounds": 3,
            "nimbus.even.rebalance.max.free.per.topology": 0,
        },
    ),
    *ignored(
        "Squall has no Trident",
        {
            "topology.transactional.id": None,
            "topology.trident.batch.emit.interval.millis": 500,
            "topology.trident.windowing.cache.tuple.limit": None,
            "transactional.zookeeper.port": None,
            "transactional.zookeeper.root": "/transactional",
            "transactional.zookeeper.servers": None,
        },
    ),
    *ignored(
        "state has the types that tuples have (topology.kryo.register)",
        {"topology.state.kryo.register": None},
    ),
    *ignored(
        "each task stores its own state, and waits for no other task",
        {"topology.state.synchronization.timeout.secs": 60},
    ),
    *ignored(
        "the run loop chooses how it waits (topology.sleep.spout.wait.strategy.time.ms, "
        "topology.run.turn.ms)",
        {
            "topology.backpressure.wait.park.microsec": 100,
            "topology.backpressure.wait.progressive.level1.count": 1,
            "topology.backpressure.wait.progressive.level2.count": 1000,
            "topology.backpressure.wait.progressive.level3.sleep.millis": 1,
            "topology.backpressure.wait.strategy": "org.apache.storm.policy.WaitStrategyProgressive",
            "topology.bolt.wait.park.microsec": 100,
            "topology.bolt.wait.progressive.level1.count": 1,
            "topology.bolt.wait.progressive.level2.count": 1000,
            "topology.bolt.wait.progressive.level3.sleep.millis": 1,
            "topology.bolt.wait.strategy": "org.apache.storm.policy.WaitStrategyProgressive",
            "topology.spout.recvq.skips": 3,
            "topology.spout.wait.park.microsec": 100,
            "topology.spout.wait.progressive.level1.count": 0,
            "topology.spout.wait.progressive.level2.count": 0,
            "topology.spout.wait.strategy": "org.apache.storm.policy.WaitStrategyProgressive",
        },
    ),
    *ignored(
        "backpressure is always on, by credit: topology.worker.buffer.bytes bounds what waits",
        {
            "topology.backpressure.check.millis": 50,
            "topology.backpressure.enable": None,
            "topology.executor.overflow.limit": 0,
        },
    ),
    *ignored(
        "batches form by themselves: what a turn of the run loop emits is sent together",
        {
            "topology.batch.flush.interval.millis": 1,
            "topology.producer.batch.dynamic": False,
            "topology.producer.batch.size": 1,
            "topology.transfer.batch.size": 1,
            "topology.transfer.buffer.size": 1000,
            "topology.worker.receiver.thread.count": 1,
        },
    ),
    *ignored(
        "Squall does not send this feedback; shuffle groupings go by how full inboxes are "
        "(topology.disable.loadaware.messaging)",
        {
            "topology.upstream.feedback.enable": False,
            "topology.upstream.feedback.freq.secs": 10,
        },
    ),
    *ignored(
        "tuples are not compressed",
        {
            "topology.tuple.compression.enable": False,
            "topology.tuple.compression.max.decompressed.bytes": 10485760,
            "topology.tuple.compression.threshold": 1460,
        },
    ),
    *ignored(
        "Squall compresses what it stores in its own format",
        {
            "storm.compression.gzip.max.decompressed.bytes": 104857600,
            "storm.compression.zstd.level": 3,
            "storm.compression.zstd.max.decompressed.bytes": 104857600,
            "storm.meta.serialization.delegate": "org.apache.storm.serialization.ZstdBridgeThriftSerializationDelegate",
        },
    ),
    *ignored(
        "tuples are not serialized by Kryo or by Java; topology.kryo.register and "
        "topology.fall.back.on.pickle say what travels",
        {
            "topology.fall.back.on.java.serialization": False,
            "topology.kryo.decorators": None,
            "topology.kryo.factory": "org.apache.storm.serialization.DefaultKryoFactory",
        },
    ),
    *ignored(
        "workers report by topology.metrics.reporters and topology.metrics.consumer.register, and "
        "show Prometheus everything on their supervisor's page",
        {
            "storm.metrics.reporters": None,
            "storm.topology.metrics.system.reporters": None,
            "topology.enable.send.iconnection.metrics": None,
            "topology.enable.v2.metrics.tick": None,
            "topology.serialized.message.size.metrics": False,
            "topology.stats.ewma.enable": False,
            "topology.stats.ewma.smoothing.factor": 0.0625,
            "topology.v2.metrics.tick.interval.seconds": None,
            "topology.worker.metrics": None,
            "worker.metrics": {
                "CGroupMemory": "org.apache.storm.metrics2.cgroup.CGroupMemoryUsage",
                "CGroupMemoryLimit": "org.apache.storm.metrics2.cgroup.CGroupMemoryLimit",
                "CGroupCpu": "org.apache.storm.metrics2.cgroup.CGroupCpu",
                "CGroupCpuGuarantee": "org.apache.storm.metrics2.cgroup.CGroupCpuGuarantee",
                "CGroupCpuGuaranteeByCfsQuota": "org.apache.storm.metrics2.cgroup.CGroupCpuGuaranteeByCfsQuota",
                "CGroupCpuStat": "org.apache.storm.metrics2.cgroup.CGroupCpuStat",
            },
        },
    ),
    *ignored(
        "daemons show their metrics to Prometheus (nimbus.metrics.port, supervisor.metrics.port)",
        {
            "storm.cluster.metrics.consumer.publish.interval.secs": 60,
            "storm.cluster.metrics.consumer.register": None,
            "storm.daemon.metrics.reporter.plugin.domain": None,
            "storm.daemon.metrics.reporter.plugin.duration.unit": None,
            "storm.daemon.metrics.reporter.plugin.locale": None,
            "storm.daemon.metrics.reporter.plugin.rate.unit": None,
            "storm.metricprocessor.class": "org.apache.storm.metricstore.NimbusMetricProcessor",
            "storm.metricstore.class": "org.apache.storm.metricstore.rocksdb.RocksDbStore",
            "storm.metricstore.rocksdb.create_if_missing": True,
            "storm.metricstore.rocksdb.deletion_period_hours": None,
            "storm.metricstore.rocksdb.location": "storm_rocks",
            "storm.metricstore.rocksdb.metadata_string_cache_capacity": 4000,
            "storm.metricstore.rocksdb.retention_hours": 240,
        },
    ),
    *ignored(
        "sampled tuples go to events.log of each worker",
        {
            "topology.event.logger.register": None,
            "topology.eventlogger.max.retained.files": None,
            "topology.eventlogger.rotation.size.mb": None,
        },
    ),
    *ignored(
        "the UI's pages have no links to other hosts",
        {
            "ui.central.logging.url": None,
            "ui.project.bugtracker.url": None,
        },
    ),
    *ignored(
        "the UI reads no offsets of Kafka's",
        {
            "ui.disable.spout.lag.monitoring": True,
        },
    ),
    *ignored(
        "the UI shows whole tables, and bounds a request's head itself",
        {
            "ui.header.buffer.bytes": 4096,
            "ui.pagination": 20,
        },
    ),
    *ignored(
        "there is one listener, which speaks TLS in a secured cluster, and HTTP in an open one",
        {
            "drpc.disable.http.binding": True,
            "logviewer.disable.http.binding": True,
            "ui.disable.http.binding": True,
        },
    ),
    *ignored(
        "daemons serve all calls on one event loop, without threads or a queue for each",
        {
            "drpc.invocations.threads": 64,
            "drpc.worker.threads": 64,
            "nimbus.assignments.service.thread.queue.size": 100,
            "nimbus.assignments.service.threads": 10,
            "nimbus.queue.size": 100000,
            "nimbus.thrift.threads": 64,
            "supervisor.queue.size": 128,
            "supervisor.thrift.threads": 16,
        },
    ),
    *ignored(
        "drpc.requests.max and drpc.function.requests.max bound what waits",
        {
            "drpc.queue.size": 128,
        },
    ),
    *ignored(
        "blobs lie on the disks of the Nimbus nodes; there is no other store",
        {
            "blobstore.cleanup.enable": None,
            "blobstore.hdfs.keytab": None,
            "blobstore.hdfs.principal": None,
            "client.blobstore.class": "org.apache.storm.blobstore.NimbusBlobStore",
            "nimbus.blobstore.class": "org.apache.storm.blobstore.LocalFsBlobStore",
            "storm.blobstore.dependency.jar.upload.chunk.size.bytes": 1048576,
            "storm.codedistributor.class": "org.apache.storm.codedistributor.LocalFileSystemCodeDistributor",
            "storm.hdfs.login.keytab": None,
            "storm.hdfs.login.principal": None,
            "supervisor.blobstore.class": "org.apache.storm.blobstore.NimbusBlobStore",
        },
    ),
    *ignored(
        "topology.min.replication.count says how many Nimbus nodes hold a blob",
        {
            "storm.blobstore.replication.factor": 3,
        },
    ),
    *ignored(
        "how Squall stores its state cannot be exchanged",
        {
            "nimbus.local.assignments.backend.class": "org.apache.storm.assignments.InMemoryAssignmentBackend",
            "nimbus.worker.heartbeats.recovery.strategy.class": "org.apache.storm.nimbus.TimeOutWorkerHeartbeatsRecoveryStrategy",
            "storm.cluster.state.store": "org.apache.storm.cluster.ZKStateStorageFactory",
        },
    ),
    *ignored(
        "Squall cannot run Java plug-ins",
        {
            "nimbus.topology.action.notifier.plugin.class": None,
            "storm.topology.submission.notifier.plugin.class": None,
        },
    ),
    *ignored(
        "groups are looked up again after two minutes",
        {
            "storm.group.mapping.service.cache.duration.secs": 120,
        },
    ),
    *ignored(
        "storm.supervisor.hard.memory.limit.multiplier says from where a worker is killed at once",
        {
            "storm.supervisor.hard.memory.limit.overage.mb": 2024,
        },
    ),
    *ignored(
        "a worker is held to its own limit, whatever the node has free",
        {
            "storm.supervisor.low.memory.threshold.mb": 1024,
            "storm.supervisor.medium.memory.grace.period.ms": 30000,
            "storm.supervisor.medium.memory.threshold.mb": 1536,
        },
    ),
    *ignored(
        "a limit of memory always counts, with cgroups "
        "(storm.resource.isolation.plugin.enable) or without",
        {
            "storm.cgroup.memory.enforcement.enable": False,
        },
    ),
    *ignored(
        "Squall makes its cgroups itself, below storm.cgroup.hierarchy.dir",
        {
            "storm.cgroup.cgexec.cmd": "/bin/cgexec",
            "storm.cgroup.hierarchy.name": "storm",
            "storm.cgroup.inherit.cpuset.configs": False,
        },
    ),
    *ignored(
        "the supervisor changes the user of a worker itself (supervisor.run.worker.as.user)",
        {
            "supervisor.worker.launcher": None,
        },
    ),
    *ignored(
        "all workers run the supervisor's version of Squall",
        {
            "supervisor.worker.default.version": None,
            "supervisor.worker.version.classpath.map": None,
            "supervisor.worker.version.logwriter.map": None,
            "supervisor.worker.version.main.map": None,
        },
    ),
    *ignored(
        "worker.max.timeout.secs bounds the timeout that a topology may choose",
        {
            "supervisor.worker.heartbeats.max.timeout.secs": 600,
        },
    ),
    *ignored(
        "supervisor.localizer.update.blob.interval.secs says how often changed blobs are "
        "looked for",
        {
            "worker.blob.update.poll.interval.secs": None,
        },
    ),
    *ignored(
        "nothing starts supervisors on other machines",
        {
            "supervisor.supervisors": [],
            "supervisor.supervisors.commands": [],
        },
    ),
    *ignored(
        "blobs are linked into the folder of a worker wherever they are used",
        {
            "storm.disable.symlinks": False,
        },
    ),
    *ignored(
        "Squall does not use ZeroMQ in local mode",
        {
            "storm.local.mode.zmq": False,
        },
    ),
)
