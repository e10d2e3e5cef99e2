"""Batches: rows of several requests, and the policies by which engines fill them. Worker side."""
