"""The stores under the cluster state: a real ZooKeeper ensemble, and one in memory for tests and
local workers. They implement `cluster.store`, and know nothing of what is kept in them."""
