"""Meshes of devices."""

from relaxpy.ir.relax.nodes.distributed import DeviceMesh as DeviceMesh, device_mesh as device_mesh
