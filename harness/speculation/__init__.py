"""Speculative decoding as a grammar sees it: drafts, the rows for them, and a matcher that is where it was afterwards.

Worker side. A sequence's drafts are a chain (``chain``) or a tree (``tree``); ``drafts`` makes them, ``jump_forward``
writes text that needs no model at all. Nothing here knows which backend it has.
"""
