"""Fuzzing of the bytes that other workers send: both cores must refuse or read them alike."""
