"""What Nimbus stores of each topology, and how it reads them all. May import `blobs`."""
