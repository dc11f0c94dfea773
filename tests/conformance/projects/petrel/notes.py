import os


def note(conf, name, line):
    with open(os.path.join(conf["conformance.results"], name), "a") as file:
        file.write(f"{line}\n")
