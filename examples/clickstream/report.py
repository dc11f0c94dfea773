"""Shows what is stored: python report.py DATABASE"""

import sqlite3
import sys

database = sqlite3.connect(sys.argv[1])
for label, query in (
    ("sessions", "SELECT count(*) FROM sessions"),
    ("clicks", "SELECT sum(clicks) FROM sessions"),
    ("clicks per session", "SELECT round(avg(clicks), 2) FROM sessions"),
    ("invalid lines", "SELECT count(*) FROM invalid"),
):
    print(f"{label}: {database.execute(query).fetchone()[0]}")
database.close()
