"""Writes clicks of random visitors, the same for the same seed: python generate.py FILE [USERS]"""

import json
import random
import sys

PAGES = ["/", "/search", "/shoes", "/shirts", "/cart", "/checkout"]


def clicks(users, seed=7):
    """The clicks of `users` visitors, one to eight of each, in the order of their times."""
    chance = random.Random(seed)
    found = []
    for number in range(users):
        at = 1_700_000_000 + chance.random() * 600
        for _ in range(chance.randint(1, 8)):
            found.append({"user": f"u{number}", "at": round(at, 3), "page": chance.choice(PAGES)})
            at += chance.expovariate(1 / 10)
    return sorted(found, key=lambda click: click["at"])


if __name__ == "__main__":
    with open(sys.argv[1], "w", encoding="utf-8") as file:
        for click in clicks(int(sys.argv[2]) if len(sys.argv) > 2 else 100):
            file.write(json.dumps(click) + "\n")
        file.write("this is not a click\n")
