"""The connection to the leading Nimbus, shared and cached. Imports nothing else of the UI."""
