import bytewax.operators as op
from bytewax.dataflow import Dataflow
from bytewax.testing import TestingSink, TestingSource

LINES = ["to be", "or not to be"]
results = []


def count_word(seen, word):
    seen = (seen or 0) + 1
    return seen, seen


flow = Dataflow("words")
lines = op.input("lines", flow, TestingSource(LINES))
words = op.flat_map("split", lines, str.split)
keyed = op.key_on("word", words, lambda word: word)
counts = op.stateful_map("count", keyed, count_word)
op.output("out", counts, TestingSink(results))
