"""A splitter that asks for the task ids of every emit and waits for them, as Storm's own Python
library does: it can do at most one word per round trip through the pipes."""

import json
import os
import sys
from collections import deque

commands: deque = deque()
task_ids: deque = deque()


def read():
    lines = []
    while True:
        line = sys.stdin.readline()
        if not line:
            sys.exit(0)
        if line == "end\n":
            return json.loads("".join(lines))
        lines.append(line)


def read_task_ids():
    if task_ids:
        return task_ids.popleft()
    while not isinstance(message := read(), list):
        commands.append(message)
    return message


def read_command():
    if commands:
        return commands.popleft()
    while isinstance(message := read(), list):
        task_ids.append(message)
    return message


def send(message):
    print(json.dumps(message))
    print("end")
    sys.stdout.flush()


def main():
    setup = read()
    open(os.path.join(setup["pidDir"], str(os.getpid())), "w").close()
    send({"pid": os.getpid()})
    while True:
        tup = read_command()
        if tup["stream"] == "__heartbeat":
            send({"command": "sync"})
            continue
        for word in tup["tuple"][0].split(" "):
            send({"command": "emit", "anchors": [tup["id"]], "tuple": [word]})
            read_task_ids()
        send({"command": "ack", "id": tup["id"]})


main()
