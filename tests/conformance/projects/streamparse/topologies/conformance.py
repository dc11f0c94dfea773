"""numbers -> split -> batches -> sizes"""

from numbers_components import Batches, Numbers, Sizes, Split
from streamparse import Grouping, Topology


class Conformance(Topology):
    numbers = Numbers.spec()
    split = Split.spec(inputs={numbers: Grouping.fields("n")}, par=2)
    batches = Batches.spec(
        inputs={split: Grouping.fields("word")},
        par=2,
        config={"topology.tick.tuple.freq.secs": 1},
    )
    sizes = Sizes.spec(inputs={batches: Grouping.SHUFFLE})
