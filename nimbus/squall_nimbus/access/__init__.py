"""Who may call Nimbus, and do what: the decisions, the tokens, and what counts no longer.

May import `store`, `blobs.store` and `leader`; `service` asks it.
"""
