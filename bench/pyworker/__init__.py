"""Readers of datasets from Python: what the suite `python` runs inside the virtual environments of the peers."""
