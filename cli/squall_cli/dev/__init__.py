"""A whole cluster on this machine, as `storm dev` runs it.

One process, the *keeper*, starts ZooKeeper, Nimbus and the supervisors as separate programs and
stays in the foreground. It does the work of systemd or Kubernetes on a real cluster: daemons are
fail-fast, so one that dies is restarted, with the same ports and the same folder.

    plan      folders, ports and configurations: plain values, decided before anything starts
    process   one child that is kept alive
    cluster   starts all of them, waits until they answer, stops all of them
    guardian  a small process that cleans up when the keeper itself is killed
    report    the same facts for people and as JSON

Workers belong to their supervisors and outlive them by design. So the cluster is stopped in this
order: the supervisors, their workers (`python -m squall_supervisor --kill-workers`), Nimbus,
ZooKeeper. The data folder is kept, and the next `storm dev` with it continues from there:
topologies that were not killed run again.
"""
