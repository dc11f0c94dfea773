"""Blobs: their files, their records in ZooKeeper, their copies on other Nimbuses, their
sessions."""
