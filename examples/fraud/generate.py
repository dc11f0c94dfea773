"""Writes an hour and a half of payments: python generate.py FILE [CARDS]

Most are honest. With every fortieth card a thief pays, too: in another country, quickly and much.
At one shop somebody tries out cards. The same for the same number of cards.
"""

import json
import random
import sys

SHOPS = [f"shop{number}" for number in range(20)]
START = 1_700_000_000_000 // 60_000 * 60_000
MINUTE = 60_000
LENGTH = 90 * MINUTE


def stolen(cards):
    """The cards of which a thief has a copy."""
    return [f"c{number}" for number in range(0, cards, 40)]


def tried(cards):
    """The cards that are tried out at one shop, with one tiny payment each."""
    return [f"c{number}" for number in range(20, cards, 40)][:8]


def payments(cards, seed=7):
    """All payments, in the order of their times."""
    chance = random.Random(seed)
    found = []

    def pay(card, at, amount, country, shop):
        found.append(
            {"card": card, "at": round(at), "amount": round(amount, 2), "country": country,
             "shop": shop}
        )  # fmt: skip

    for number in range(cards):
        usual = chance.uniform(5, 80)
        for _ in range(chance.randint(6, 12)):
            amount = max(3.0, chance.gauss(usual, usual / 5))
            pay(f"c{number}", START + chance.random() * LENGTH, amount, "NL", chance.choice(SHOPS))
    for card in stolen(cards):
        at = START + LENGTH * 0.8
        for _ in range(8):
            pay(card, at, chance.uniform(500, 900), "BR", chance.choice(SHOPS))
            at += chance.uniform(10_000, 40_000)
    for place, card in enumerate(tried(cards)):
        pay(card, START + LENGTH // 2 + 1_000 * (place + 1), 1.0, "NL", "shop7")
    found.sort(key=lambda payment: payment["at"])
    # The last one lets windows end: their time is that of the payments.
    pay("c1", START + 2 * LENGTH, 10.0, "NL", "shop0")
    return [{"id": f"p{number}", **payment} for number, payment in enumerate(found)]


if __name__ == "__main__":
    cards = int(sys.argv[2]) if len(sys.argv) > 2 else 200
    with open(sys.argv[1], "w", encoding="utf-8") as file:
        for payment in payments(cards):
            file.write(json.dumps(payment) + "\n")
        file.write("this is not a payment\n")
    print("stolen:", *stolen(cards))
