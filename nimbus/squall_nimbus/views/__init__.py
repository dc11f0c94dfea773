"""The answers of Nimbus: pure functions from what is stored and reported to Thrift structures;
`reader` reads what they need. Nothing here changes anything.
"""
