import mlx.core as mx
import pytest


@pytest.fixture
def uncompiled():
    """Spare the seconds that compiling takes on a CPU."""
    mx.disable_compile()
    yield
    mx.enable_compile()
