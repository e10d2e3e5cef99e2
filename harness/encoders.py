"""Turning text into token ids, by the library that a vocabulary names. Worker side; each library is imported lazily.

Encoding never yields a special token: text that looks like one is encoded as ordinary text.
"""
