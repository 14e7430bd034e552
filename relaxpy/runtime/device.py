"""Devices."""

from relaxpy.ir.core.device import Device as Device, cpu as cpu, cuda as cuda, device as device
