"""The packed function that decodes the file of an image."""

from __future__ import annotations

import io
from typing import Any

import numpy as np

from relaxpy.errors import MisuseError
from relaxpy.exec.runtime.registry import provided
from relaxpy.ir.core.dtype import Array
from relaxpy.plugins.importing.strings import PREFIX

#: By pixel format, the mode in which an image is read, and the order of its channels.
FORMATS = {"RGB": ("RGB", 1), "BGR": ("RGB", -1), "Grayscale": ("L", 1)}


@provided(PREFIX + "decode_image")
def decode_image(encoded: Any, pixel_format: str) -> Array:
    """The pixels of a file of an image, as (height, width, channels).

    Errors:
        MisuseError: Pillow is not installed, or it cannot read the bytes as an image.
    """
    try:
        from PIL import Image, UnidentifiedImageError
    except ModuleNotFoundError:
        raise MisuseError("decoding images needs Pillow: pip install pillow") from None
    mode, order = FORMATS[pixel_format]
    data = np.asarray(encoded, np.uint8).tobytes()
    try:
        with Image.open(io.BytesIO(data)) as image:
            pixels = np.asarray(image.convert(mode))
    except (UnidentifiedImageError, Image.DecompressionBombError, OSError, ValueError) as error:
        raise MisuseError(f"these {len(data)} bytes cannot be decoded as an image") from error
    return np.ascontiguousarray(pixels.reshape(*pixels.shape[:2], -1)[:, :, ::order])
