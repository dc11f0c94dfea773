"""Starting a worker process: `launch` gathers what it needs, `launcher` writes its files,
`machine` starts the process. May import `confine`, `blobs` and `records`.
"""
