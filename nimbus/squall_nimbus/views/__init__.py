"""Nimbus' answers: pure functions that turn stored and reported data into Thrift structs;
`cluster_reader` reads the data. Nothing here changes anything.
"""
