"""Packages and blobs on the node: downloaded, checked, unpacked, shared and deleted. May import
`confine`, which says whose files they become.
"""
