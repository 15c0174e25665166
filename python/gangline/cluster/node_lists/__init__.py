"""The node lists that public traces come with: from their rows to the keys of a cluster."""

from gangline.cluster.node_lists.formats import FORMATS, ClusterFormat

__all__ = ["FORMATS", "ClusterFormat"]
