"""What goes into a topology on Spark and what comes out: files, tables, and other sources.

bindings    --input and --output                                                 pure
datasets    data sets as data frames of a spout's fields
bad_records     records that cannot be read: left out, kept, or found            no Spark
kafka_sink  a batch as one transaction                                           no Spark
kafka_source    a topic as a stream or a batch, and the handover to a live topology
look        what a file says of its columns                                      no Spark
columns     from Python values to typed columns, for files                       pure
"""
