"""Shows what is stored: python report.py DATABASE"""

import sqlite3
import sys

database = sqlite3.connect(sys.argv[1])
flags = database.execute("SELECT rule, count(*) FROM flags GROUP BY rule ORDER BY rule").fetchall()
print("flags:", ", ".join(f"{rule} {count}" for rule, count in flags) or "none")
(left_out,) = database.execute("SELECT count(*) FROM left_out").fetchone()
print("lines left out:", left_out)
alerts = database.execute("SELECT DISTINCT card FROM alerts ORDER BY length(card), card").fetchall()
for (card,) in alerts:
    rules = database.execute("SELECT DISTINCT rule FROM flags WHERE card = ? ORDER BY rule", [card])
    print(f"alert: {card} ({' '.join(rule for (rule,) in rules)})")
database.close()
