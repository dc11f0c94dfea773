"""Requests as batches of tuples that bolts see the end of: CoordinatedBolt and subtopologies."""
