"""Nimbus' answers: pure functions that turn stored and reported data into Thrift structs; `reader`
reads the data. Nothing here changes anything.
"""
