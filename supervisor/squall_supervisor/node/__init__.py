"""The node within the cluster: its registration, its neighbours, whether it is cut off, and the
lock that keeps a second supervisor away."""
