"""A shell bolt without any library: it writes down who it is and what its files say."""

import json
import os
import sys
import time


def read():
    lines = []
    for line in sys.stdin:
        if line.strip() == "end":
            return json.loads("".join(lines))
        lines.append(line)
    sys.exit(0)


def send(message):
    print(json.dumps(message), "end", sep="\n", flush=True)


handshake = read()
with open(os.path.join(handshake["pidDir"], str(os.getpid())), "w"):
    pass
send({"pid": os.getpid()})
while True:
    message = read()
    if isinstance(message, dict) and message.get("stream") == "__heartbeat":
        send({"command": "sync"})
    elif isinstance(message, dict) and "id" in message:
        with open("words.txt") as words, open(os.environ["OUTPUT"], "a") as output:
            told = {"prefix": sys.prefix, "words": words.read(), "cwd": os.getcwd()}
            told |= {"pid": os.getpid(), "worker": os.getppid(), "argv": sys.argv}
            output.write(json.dumps(told) + "\n")
        send({"command": "ack", "id": message["id"]})
        time.sleep(0.02)
