"""Which rank of a running job hangs, and why: ``sample`` and ``gather`` look, ``judge`` judges."""
