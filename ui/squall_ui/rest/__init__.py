"""Storm's UI REST API: `/api/v1` with Storm's routes and field names.

Each module has the endpoints of one subject: plain functions from Thrift structs to JSON, the shape
of each answer beside the code that makes it, and the coroutine that reads what they need.
`endpoints` has what they share, `openapi` makes the document from them. Imports `nimbus` only.
"""
