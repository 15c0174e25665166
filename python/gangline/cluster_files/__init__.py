"""Clusters from the node lists that public traces come with; they give a cluster, never jobs."""

from gangline.cluster_files.formats import FORMATS, ClusterFormat, read_cluster

__all__ = ["FORMATS", "ClusterFormat", "read_cluster"]
