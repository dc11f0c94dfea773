"""The port for Storm's own Java clients, which cannot do SASL inside TLS (decision 0146).

It is off unless the site names it, and only users come in by it: no daemon, no worker, no
administrator, and no one who acts for somebody else. What a user may do then is decided as on
every port. Nothing that travels on it is encrypted.

`jaas` reads the file that Storm's sites have, `users` the secrets in it, `digest_md5` is RFC 2831,
and `authenticator` puts them behind the port. May import nothing of Nimbus'.
"""
