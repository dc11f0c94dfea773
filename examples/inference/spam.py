"""A model for messages: naive Bayes over words, trained here. No library is needed; a model of
scikit-learn or PyTorch is used in the same way.

    python spam.py MODEL.json      trains it on made-up messages, and prints how good it is
"""

import json
import math
import random
import re
import sys
from collections import Counter

WORD = re.compile(r"[a-z']+")
SPAM = "win free prize click now offer money cheap loan casino winner claim".split()
HAM = "meeting lunch report tomorrow thanks review project family train dinner notes call".split()
BOTH = "the you a to and for is on we your it please today".split()


def messages(count, seed):
    """Made-up messages with their labels."""
    chance = random.Random(seed)
    for _ in range(count):
        is_spam = chance.random() < 0.4
        own, other = (SPAM, HAM) if is_spam else (HAM, SPAM)
        words = [chance.choice(own if chance.random() < 0.8 else other) for _ in range(5)]
        words += chance.choices(BOTH, k=6)
        chance.shuffle(words)
        yield " ".join(words), is_spam


class Model:
    """Log-odds of each word, and of a message as such."""

    def __init__(self, prior, odds):
        self.prior = prior
        self.odds = odds

    @classmethod
    def train(cls, labelled):
        counts = {True: Counter(), False: Counter()}
        total = Counter()
        for text, is_spam in labelled:
            counts[is_spam].update(WORD.findall(text.lower()))
            total[is_spam] += 1
        known = counts[True] | counts[False]
        sums = {label: sum(c.values()) + len(known) for label, c in counts.items()}
        odds = {
            word: math.log((counts[True][word] + 1) / sums[True])
            - math.log((counts[False][word] + 1) / sums[False])
            for word in known
        }
        return cls(math.log(total[True] / total[False]), odds)

    @classmethod
    def load(cls, path):
        with open(path, encoding="utf-8") as file:
            return cls(**json.load(file))

    def save(self, path):
        with open(path, "w", encoding="utf-8") as file:
            json.dump({"prior": self.prior, "odds": self.odds}, file)

    def predict(self, texts):
        """The probability that each text is spam: a whole batch in one call."""
        return [
            1 / (1 + math.exp(-self.prior - sum(self.odds.get(w, 0.0) for w in words)))
            for words in (WORD.findall(text.lower()) for text in texts)
        ]


def accuracy(model, labelled):
    """The share of messages that the model gets right."""
    labelled = list(labelled)
    scores = model.predict([text for text, _ in labelled])
    right = sum((score > 0.5) == label for score, (_, label) in zip(scores, labelled, strict=True))
    return right / len(labelled)


if __name__ == "__main__":
    trained = Model.train(messages(5_000, seed=1))
    trained.save(sys.argv[1])
    print(f"accuracy: {accuracy(trained, messages(2_000, seed=2)):.3f}")
