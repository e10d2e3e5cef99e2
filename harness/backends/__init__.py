"""One file per grammar library, all behind the protocol in ``harness.backends.protocol``."""
