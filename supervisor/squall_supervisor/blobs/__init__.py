"""Packages and blobs on the node: downloaded, checked, unpacked, shared and deleted. May import
`confine` (whose files they become).
"""
