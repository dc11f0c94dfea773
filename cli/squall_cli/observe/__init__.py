"""Reads what Nimbus knows of running topologies, and says what it means, for `storm status`, `top`
and `monitor`.

`facts` reads the cluster into plain values, `findings` puts them before the rules that say why a
topology is slow or stopped, and `screen` draws `storm top`. It may import `squall_cli.nimbus`,
`squall_cli.output` and `squall_common`; no command.
"""
