"""Other systems on the same lines: word count, the result checked exactly, CPU a word.

Libraries are installed into environments of their own in the build folder, Apache Storm is resolved
by Maven; what cannot be had is left out by name, with the reason.
"""

from bench.peers.compare import cases, tables, take

__all__ = ["cases", "tables", "take"]
