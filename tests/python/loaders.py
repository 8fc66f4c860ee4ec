"""The loaders that the installed frameworks allow. Without torch a file that imports this is skipped;
without JAX its tests of JAX are.
"""

import pytest

torch = pytest.importorskip("torch")
import cachew.torch  # noqa: E402

try:
    import jax

    import cachew.jax
except ImportError:
    jax = None

needs_jax = pytest.mark.skipif(jax is None, reason="could not import jax")
LOADERS = [cachew.torch.loader, *([cachew.jax.loader] if jax else [])]
