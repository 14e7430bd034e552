"""The convolutions and the attention that cuDNN computes."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face
import relaxpy.tvm.libraries.patterns as _cudnn  # registers patterns

_face(globals(), "relaxpy.relax.backend.cuda.cudnn")
if TYPE_CHECKING:
    from relaxpy.tvm.libraries.patterns import partition_for_cudnn as partition_for_cudnn
