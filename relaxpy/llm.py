"""Language models that one talks to: chat, server, Hugging Face folders and GGUF files."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.llm")
if TYPE_CHECKING:
    from relaxpy.plugins.llm.compiled import CompiledDecoder as CompiledDecoder
    from relaxpy.plugins.llm.config import Config as Config, FAMILIES as FAMILIES, ModelError as ModelError, ParameterError as ParameterError, config_of as config_of
    from relaxpy.plugins.llm.cross_encoder import CrossEncoder as CrossEncoder
    from relaxpy.plugins.llm.engine import Engine as Engine, Request as Request
    from relaxpy.plugins.llm.language_model import LanguageModel as LanguageModel, load as load
    from relaxpy.plugins.llm.sampling import Sampling as Sampling
