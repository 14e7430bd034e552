"""The packed function that decodes files of images."""

from __future__ import annotations

import io
from typing import Any

import numpy as np

from relaxpy.errors import MisuseError
from relaxpy.exec.runtime.registry import register_func
from relaxpy.frontend.onnx.strings import PREFIX, Array

#: By pixel format, the mode in which an image is read, and the order of its channels.
FORMATS = {"RGB": ("RGB", 1), "BGR": ("RGB", -1), "Grayscale": ("L", 1)}


def decode_image(encoded: Any, pixel_format: str) -> Array:
    """The pixels of a file of an image, as (height, width, channels).

    Errors:
        MisuseError: Pillow is not installed, or the bytes are no image that it reads.
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
        raise MisuseError(f"these {len(data)} bytes are no image that can be decoded") from error
    return np.ascontiguousarray(pixels.reshape(*pixels.shape[:2], -1)[:, :, ::order])


register_func(PREFIX + "decode_image", decode_image, override=True)
