"""A client of Nimbus: finding the leader, calling it, uploading to it, waiting for what it does.

Used by the command line, `squall.submit_topology` and the supervisors. May import `cluster`,
`packaging`, `daemon`, `errors` and `names`.
"""
