"""Converts node lists from public traces to the keys of a cluster."""

from gangline.cluster.node_lists.formats import FORMATS, ClusterFormat

__all__ = ["FORMATS", "ClusterFormat"]
