"""Reporters of metrics (`topology.metrics.reporters`): the base class and one for each kind of
server or file. They run in workers, each on a thread of its own. `squall.metrics` is their public
name. May import `squall_common.component` and what lies below it."""
