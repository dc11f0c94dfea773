"""Keys and secrets: CURVE keys of workers, sealed blobs, and the origins that HTTP trusts.

Pure but for the libraries that encrypt. May import `errors`.
"""
