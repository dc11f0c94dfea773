"""Archives, read within limits: `unpack` is the entry, `members` the rules for names, modes and
sizes, `read_tar` and `read_zip` the two formats. May import `daemon` (its files) and `errors`.
"""
