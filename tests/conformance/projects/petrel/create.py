"""numbers -> doubles -> sink, as users of petrel describe a topology."""

from doubles import Doubles
from numbers_spout import Numbers
from sink import Sink


def create(builder):
    builder.setSpout("numbers", Numbers(), 1)
    builder.setBolt("doubles", Doubles(), 2).fieldsGrouping("numbers", ["n"])
    builder.setBolt("sink", Sink(), 2).shuffleGrouping("doubles")
