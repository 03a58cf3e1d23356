"""Named few-shot methods: an init, a rule, and their settings."""

from alfa.methods._methods import METHODS, Method, get_method, merge

__all__ = ["METHODS", "Method", "get_method", "merge"]
