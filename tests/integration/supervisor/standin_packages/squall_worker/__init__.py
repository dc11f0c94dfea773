"""Stands in for the real package of this name in tests of the supervisor's process."""
