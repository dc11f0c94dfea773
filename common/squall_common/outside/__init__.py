"""What a cluster and foreign parties prove to each other: identity tokens of topologies.

    audiences                       what a topology may declare
    issuer · issued · published     what Nimbus signs for foreign parties, and how they verify it
    held                            the tokens that a worker has
    provider · jwk                  tokens of a site's identity provider, by which users log in

A token for a foreign party is never a proof inside the cluster: it has another kind of key than
the cluster's own tokens (`security.tokens`). Pure but for the library that signs. `held` and
`audiences` import no cryptography: every component, and a Nimbus of an open cluster, imports them.
May import `security`, `errors` and `names`.
"""
