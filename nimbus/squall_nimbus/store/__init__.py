"""How Nimbus stores each topology and reads them all. May import `blobs`."""
