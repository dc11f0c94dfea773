from collections import Counter

import faust

app = faust.App("words", broker="kafka://localhost", store="memory://")
lines = app.topic("lines", value_type=str)
words = app.topic("words", value_type=str)
counts = Counter()


@app.agent(lines)
async def split(stream):
    async for line in stream:
        for word in line.split():
            await words.send(key=word, value=word)
        yield line


@app.agent(words)
async def count(stream):
    async for word in stream:
        counts[word] += 1
        yield word, counts[word]
