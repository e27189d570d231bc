import torch, json; import json; import numpy; from typing import TYPE_CHECKING
try:
    import torch
except ImportError:
    import numpy
if TYPE_CHECKING:
    import json
