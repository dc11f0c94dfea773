"""The declarations themselves, a module a subject: Squall's options, and the keys of Storm's that
are ignored or refused. Imports `declaration` and `kinds` only."""
