"""A bolt in Storm's multi-language protocol, with Python's standard library alone."""

import json
import os
import sys


def receive():
    lines = []
    for line in sys.stdin:
        if line == "end\n":
            return json.loads("".join(lines))
        lines.append(line)
    sys.exit()


def send(message):
    sys.stdout.write(json.dumps(message) + "\nend\n")
    sys.stdout.flush()


handshake = receive()
open(os.path.join(handshake["pidDir"], str(os.getpid())), "w").close()
send({"pid": os.getpid()})
least = handshake["conf"].get("words.least", 1)

while True:
    message = receive()
    if isinstance(message, list):
        continue  # task ids: an answer to an emit
    if message.get("stream") == "__heartbeat":
        send({"command": "sync"})
        continue
    for word in message["tuple"][0].split():
        if len(word) >= least:
            send(
                {
                    "command": "emit",
                    "anchors": [message["id"]],
                    "tuple": [word],
                    "need_task_ids": False,
                }
            )
    send({"command": "ack", "id": message["id"]})
