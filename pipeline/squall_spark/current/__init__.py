"""Outputs that hold the current value of each key (`--current BOLT=PATH --key BOLT=FIELD,...`),
beside those that hold every change.

    write     merges a batch into an output, whatever its format
    newest    the newest tuple of each key
    view      a folder of Parquet that is replaced as a whole
    jdbc      a table of a database
    delta     a table of Delta Lake's

Each batch of a stream is merged once: the number of the last one is stored with the data, in the
same step. The newest tuple of a key is the one that its task has emitted last. One whose other
fields are all None deletes the key, as a record without a value does in a compacted Kafka topic.
"""
