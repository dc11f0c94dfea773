"""A whole cluster on this machine: what `storm dev` runs.

One process, the *keeper*, starts ZooKeeper, Nimbus and the supervisors as programs of their own and
stays in the foreground. It is to them what systemd or Kubernetes is on a real cluster: daemons are
fail-fast, so one that dies is started again, on the same ports and the same folder.

    plan      which folders, ports and configurations: plain values, decided before anything starts
    process   one child that is kept alive
    cluster   starts all of them, waits until they answer, ends all of them
    guardian  a small process that ends what is left when the keeper itself is killed
    report    the same facts for people and as JSON

Workers belong to their supervisors and outlive them by design; so ending the cluster is: end the
supervisors, then their workers (`python -m squall_supervisor --kill-workers`), then Nimbus, then
ZooKeeper. What they wrote stays in the data folder, and the next `storm dev` there goes on with it:
topologies that were not killed run again.
"""
