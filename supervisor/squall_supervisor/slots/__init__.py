"""The slots of a node: what each port should run, and what happens next.

`table` is the state machine, `slot` the state of one port, `describe` puts it into words; these are
values and pure functions. `runner` carries out what they decide, `slots` keeps a runner per port;
`adoption` and `discovery` find workers that outlived an earlier supervisor. Stands above `launch`,
`blobs` and `records`.
"""
