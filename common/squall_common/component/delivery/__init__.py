"""Base classes that keep what is under way: spouts that replay failed messages or rewind, and sinks
that write each epoch once."""
