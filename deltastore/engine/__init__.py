"""Ordered, transactional key-value stores of bytes. The seam is `deltastore.engine.api`."""
