"""How a peer of a Thrift connection proves who it is: files, TLS, SASL mechanisms, groups.

Both ends: `authenticator` is a server's, `credentials` a client's. May import `security`,
`daemon` and `errors`; `security` decides, and knows nothing of this.
"""
