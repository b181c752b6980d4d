"""Measurements: deltastore beside other savers, on the same work in the same run. Not installed."""
