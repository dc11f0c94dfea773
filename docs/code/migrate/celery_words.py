from collections import Counter

from celery import Celery

app = Celery("words", broker="amqp://localhost")
counts = Counter()


@app.task(acks_late=True)
def split(line):
    for word in line.split():
        count.delay(word)


@app.task(acks_late=True)
def count(word):
    counts[word] += 1  # of this process only
    return word, counts[word]
