"""Flux: topologies that a YAML file defines, as in Apache Storm.

    storm flux --local words.yaml

A file is read in five steps, a module each:

    substitution   ${property} and ${ENV-NAME} are replaced in the text
    reading        the text becomes plain data that knows the line of each value
    model          the shape that the data must have, also as a JSON Schema
    definition     a file and its includes become one definition
    building       the definition becomes a topology: classes are imported, objects made

`user_code` imports and calls what is the user's, `recipe` is how an object that YAML describes
travels to workers, `storm_classes` has the classes of Storm that Flux files name, and `entry` is
the process that `storm flux` starts.
"""
