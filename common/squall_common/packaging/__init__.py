"""Packages: the archives that users submit, their dependencies and the platforms they run on.

`package` packs a project, `archive` unpacks hostile bytes within limits, `dependencies`,
`resolution` and `platforms` choose wheels. May import `daemon` (its files), `errors` and `names`.
"""
