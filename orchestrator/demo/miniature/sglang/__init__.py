"""A miniature shaped like SGLang, for demonstrations and tests; it is not SGLang."""

__version__ = "0.5.16"
