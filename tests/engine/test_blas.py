import ctypes
import subprocess
import sys

import pytest

from engine import blas


@pytest.fixture
def loaded(monkeypatch):
    calls = []
    monkeypatch.setattr(ctypes, "CDLL", lambda name, mode: calls.append((name, mode)))
    return calls


def _absent(name, mode):
    raise OSError


def test_a_gpu_build_needs_no_openblas(monkeypatch, loaded):
    monkeypatch.setattr(blas, "version", lambda package: "0.32.4")

    assert blas.load_fast_blas() is None
    assert loaded == []


def test_apple_silicon_counts_as_a_gpu_build(monkeypatch, loaded):
    monkeypatch.setattr(blas.platform, "system", lambda: "Darwin")

    assert blas.has_gpu_build()
    assert blas.load_fast_blas() is None
    assert loaded == []


def test_openblas_is_loaded_for_all_libraries_to_see(monkeypatch, loaded):
    monkeypatch.setattr(blas.platform, "system", lambda: "Linux")
    monkeypatch.setattr(blas, "has_gpu_build", lambda: False)

    assert blas.load_fast_blas() is None
    assert loaded == [("libopenblasp.so.0", ctypes.RTLD_GLOBAL)]


def test_without_openblas_one_sentence_says_how_to_get_it(monkeypatch):
    monkeypatch.setattr(blas.platform, "system", lambda: "Linux")
    monkeypatch.setattr(blas, "has_gpu_build", lambda: False)
    monkeypatch.setattr(ctypes, "CDLL", _absent)

    sentence = blas.load_fast_blas()

    assert "apt-get install libopenblas0-pthread" in sentence
    assert sentence.count("\n") == 0


def test_loading_openblas_does_not_import_mlx():
    code = "import sys; from engine import blas, starter; blas.load_fast_blas(); sys.exit('mlx' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
