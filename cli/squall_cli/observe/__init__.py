"""Reads what Nimbus knows of running topologies, and says what it means, for `storm status`, `top`,
`monitor` and `logs`.

`facts` reads the cluster into plain values, `findings` puts them before the rules that say why a
topology is slow or stopped, `screen` draws `storm top`, and `worker_logs` reads logviewers. It may
import `squall_cli.cluster.nimbus`, `squall_cli.output` and `squall_common`; no command.
"""
