"""The tuples of a bolt as columns: the interface of batches, bolts on Arrow, shared rows."""
