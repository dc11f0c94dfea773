"""Who may do what, and how that is proved; keys and secrets of workers; the origins HTTP trusts.

    identity · certificates · tokens      who a caller is
    acl · actions · authorize · audit     what it may do, and the log of what it did
    quotas                                how much a user may have
    jws · signing · revocation · records  what Nimbus signs, and what counts no longer
    curve · sealing · web_origin          keys of workers, sealed secrets, web pages elsewhere

Pure but for the libraries that encrypt and sign. May import `errors` and `names`.
"""
