"""Turns node lists of public traces into the keys of a cluster."""

from gangline.cluster.node_lists.formats import FORMATS, ClusterFormat

__all__ = ["FORMATS", "ClusterFormat"]
