"""The exact reference masking engine: the judge of every backend.

Either it decides exactly, or it raises ``UnsupportedError``. Layers, each readable and tested alone:

* ``codepoints``, ``regular``: sets of code points; regular languages over code points, closed under Boolean operations.
* ``spelling``: how decoded text is spelled in bytes (UTF-8; JSON strings); regular languages as automata over bytes.
* ``automaton``: the one protocol that everything above it is composed by.
* ``keywords``, ``algebra``, ``tree``: JSON Schema; ``grammar``: context-free grammars; ``choice``, ``tags``.
* ``masker``, ``matcher``: rows over a vocabulary; one request's state.

docs/REFERENCE.md follows one byte through them and lists every file.

It imports ``constraint``, ``vocabulary``, ``profile``, ``bitmask`` and ``errors``, numpy and the standard library.
"""
