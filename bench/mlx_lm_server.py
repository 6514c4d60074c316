"""mlx-lm's own server behind the fast BLAS that Interlock loads: `python -m bench.mlx_lm_server --model FOLDER`."""

from engine.blas import load_fast_blas

load_fast_blas()

from mlx_lm.server import main  # noqa: E402 - after a fast BLAS

if __name__ == "__main__":
    main()  # type: ignore[no-untyped-call]
