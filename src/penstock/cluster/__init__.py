"""Cluster metadata: what was decided (records), what holds now (image), and who may decide (controller)."""
