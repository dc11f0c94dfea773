"""Asking a running cluster: connections to Nimbus and ZooKeeper, and what several commands read
from them or have done there. May import `options` and `output`."""
