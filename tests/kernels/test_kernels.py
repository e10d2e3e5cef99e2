"""Every kernel that runs here does what the definition says, bit for bit; the definition, what a loop says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness import bitmask
from harness.bitmask import Row
from harness.device import host
from harness.errors import MasktaxError, UnsupportedError
from harness.kernels import KERNELS
from harness.kernels.on_torch import array, tensor
from harness.kernels.protocol import DTYPES, NEGATIVE_INFINITY, Kernel, bits, empty_row, prepare

HOST = host()
COMPILED = ("torch_compiled", "xgrammar_torch_compile", "llguidance_torch")
SELECTS_NO_ROWS = ("llguidance_numpy", "llguidance_torch")


def cases(names: list[str]) -> list[Any]:
    """A parameter for each kernel; one that cannot run here is skipped by its own reason."""
    found = []
    for name in names:
        kernel = KERNELS[name]
        reason = kernel.unavailable(HOST) if "cpu" in kernel.devices else "runs on a CUDA device only"
        found.append(pytest.param(kernel, id=name, marks=[pytest.mark.skipif(bool(reason), reason=reason)]))
    return found


def logits(rows: int, width: int, dtype: str, seed: int = 0, apart: int = 0) -> npt.NDArray[Any]:
    """Any bits but NaN's, ``[rows, width]`` with ``apart`` unused elements between rows: both zeros, subnormals, both
    infinities among them."""
    held = DTYPES[dtype]
    raw = np.random.default_rng(seed).integers(0, 256, (rows, (width + apart) * held.itemsize), dtype=np.uint8)
    values = raw.view(f"u{held.itemsize}")
    infinity = NEGATIVE_INFINITY[dtype]
    magnitude = infinity ^ 1 << 8 * held.itemsize - 1  # of infinity: without the sign
    values[(values & magnitude) == magnitude] = infinity
    return values.view(held)[:, :width]


def block_of(shares: list[float], size: int, seed: int = 0) -> Row:
    """A row for each share of tokens allowed at random."""
    random = np.random.default_rng(seed)
    return np.stack([bitmask.pack(random.random(size) < share) for share in shares])


def applied(
    kernel: Kernel, values: npt.NDArray[Any], block: Row, rows: list[int] | None, size: int
) -> npt.NDArray[Any]:
    """A copy of the logits, laid out as they are, after the kernel."""
    copy = np.lib.stride_tricks.as_strided(values, (len(values), values.strides[0] // values.itemsize)).copy()
    working: Any = copy[:, : values.shape[1]]
    if kernel.array == "torch":
        working = tensor(working, HOST)
    prepare(kernel, working, block, rows, size)()
    return working if kernel.array == "numpy" else array(working)


def by_the_bit(values: npt.NDArray[Any], block: Row, rows: list[int] | None, size: int) -> npt.NDArray[Any]:
    """What must come out, one logit at a time."""
    expected = values.copy()
    infinity = NEGATIVE_INFINITY["bfloat16" if values.dtype == np.uint16 else str(values.dtype)]
    for i, row in enumerate(block):
        at = i if rows is None else rows[i]
        for token in range(values.shape[1]):
            if token >= size or not bitmask.test(row, token):
                bits(expected)[at, token] = infinity
    return expected


def same(got: npt.NDArray[Any], expected: npt.NDArray[Any]) -> bool:
    return bool((bits(np.ascontiguousarray(got)) == bits(np.ascontiguousarray(expected))).all())


@st.composite
def problems(draw: st.DrawFn) -> tuple[npt.NDArray[Any], Row, list[int] | None, int]:
    """Logits, a block, selected rows or none, and the vocabulary's size."""
    size = draw(st.integers(1, 200))
    rows = draw(st.integers(1, 5))
    shares = draw(st.lists(st.sampled_from([0.0, 0.02, 0.5, 0.98, 1.0]), min_size=1, max_size=rows))
    selected = (
        None if len(shares) == rows and draw(st.booleans()) else draw(st.permutations(range(rows)))[: len(shares)]
    )
    seed = draw(st.integers(0, 2**32 - 1))
    width = size + draw(st.integers(0, 40))
    values = logits(rows, width, draw(st.sampled_from(list(DTYPES))), seed, apart=draw(st.integers(0, 9)))
    return values, block_of(shares, size, seed), selected, size


@given(problems())
def test_the_definition_is_what_a_loop_over_bits_says(
    problem: tuple[npt.NDArray[Any], Row, list[int] | None, int],
) -> None:
    values, block, rows, size = problem
    assert same(applied(KERNELS["definition"], values, block, rows, size), by_the_bit(values, block, rows, size))


@pytest.mark.parametrize("kernel", cases(["numpy", "torch", "xgrammar_cpu", "llguidance_numpy"]))
@settings(max_examples=30)
@given(problem=problems())
def test_a_kernel_gives_the_bits_that_the_definition_gives(
    kernel: Kernel, problem: tuple[npt.NDArray[Any], Row, list[int] | None, int]
) -> None:
    values, block, rows, size = problem
    dtype = "bfloat16" if values.dtype == np.uint16 else str(values.dtype)
    if dtype not in kernel.dtypes or (rows is not None and kernel.name in SELECTS_NO_ROWS):
        return
    expected = applied(KERNELS["definition"], values, block, rows, size)
    assert same(applied(kernel, values, block, rows, size), expected)


def compare(
    kernel: Kernel, dtype: str, run: Callable[[Kernel, npt.NDArray[Any], Row, list[int] | None, int], Any]
) -> None:
    """A real vocabulary's size, an odd one with a padded and strided tail, and selected rows where there are such."""
    shares = [0.0, 0.001, 0.5, 0.95, 0.9995, 1.0]
    problems: list[tuple[npt.NDArray[Any], Row, list[int] | None, int]] = [
        (logits(6, 129_280, dtype), block_of(shares, 129_280), None, 129_280),
        (logits(6, 9_999, dtype, apart=3), block_of(shares, 9_973), None, 9_973),
    ]
    if kernel.name not in SELECTS_NO_ROWS:
        problems.append((logits(7, 9_999, dtype), block_of(shares, 9_973), [6, 0, 3, 5, 1, 2], 9_973))
    for values, block, rows, size in problems:
        expected = applied(KERNELS["definition"], values, block, rows, size)
        assert same(run(kernel, values, block, rows, size), expected)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kernel", cases(["numpy", "torch", "xgrammar_cpu", "llguidance_numpy"]))
def test_a_kernel_agrees_over_a_vocabulary_of_real_size(kernel: Kernel, dtype: str) -> None:
    if dtype not in kernel.dtypes:
        pytest.skip(f"{kernel.name} takes no {dtype}")
    compare(kernel, dtype, applied)


@pytest.mark.heavy
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kernel", cases(list(COMPILED)))
def test_a_compiled_kernel_agrees_over_a_vocabulary_of_real_size(kernel: Kernel, dtype: str) -> None:
    import torch

    torch.compiler.reset()  # else the kernels before this one have used up how often a function may be recompiled
    compare(kernel, dtype, applied)


@pytest.mark.parametrize("dtype", DTYPES)
def test_our_triton_kernel_agrees_in_tritons_interpreter(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton")
    pytest.importorskip("torch")
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    compare(KERNELS["masktax_triton"], dtype, applied)


def test_our_triton_kernel_never_reads_a_logit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every load of the interpreter is seen: of the mask and of the selection, and of nothing else."""
    pytest.importorskip("torch")
    interpreter = pytest.importorskip("triton.runtime.interpreter")
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    loaded: list[npt.NDArray[Any]] = []
    load = interpreter.InterpreterBuilder.create_masked_load

    def watched(self: Any, pointers: Any, mask: Any, *rest: Any) -> Any:
        loaded.append(np.asarray(pointers.data)[np.asarray(mask.data)])
        return load(self, pointers, mask, *rest)

    monkeypatch.setattr(interpreter.InterpreterBuilder, "create_masked_load", watched)
    values = tensor(logits(3, 5_000, "float32"), HOST)
    prepare(KERNELS["masktax_triton"], values, block_of([0.5, 0.1], 5_000), [2, 0], 5_000)()
    addresses = np.concatenate([a.reshape(-1) for a in loaded])
    start, end = values.data_ptr(), values.data_ptr() + values.numel() * values.element_size()
    assert addresses.size
    assert not ((start <= addresses) & (addresses < end)).any()


@pytest.mark.parametrize("kernel", cases(["definition", "numpy", "torch", "xgrammar_cpu"]))
def test_kernels_that_only_store_leave_even_a_nan_its_bits(kernel: Kernel) -> None:
    values = np.random.default_rng(0).integers(0, 2**16, (2, 70_000), dtype=np.uint16)
    block = block_of([0.5, 0.9], 70_000)
    assert same(applied(kernel, values, block, None, 70_000), by_the_bit(values, block, None, 70_000))


RIGHT = block_of([0.5, 0.5], 70)


def with_padding_set() -> Row:
    block = RIGHT.copy()
    block[1, -1] |= 1 << 6
    return block


@pytest.mark.parametrize(
    ("values", "block", "rows", "said"),
    [
        (np.zeros((2, 70), np.float64), RIGHT, None, "not float64"),
        (np.zeros((2, 70), np.int32), RIGHT, None, "not int32"),
        (np.zeros((2, 69), np.float32), RIGHT, None, "narrower than the vocabulary of 70"),
        (np.zeros(70, np.float32), RIGHT, None, "shape"),
        (np.zeros((70, 2), np.float32).T, RIGHT, None, "side by side"),
        (np.zeros((3, 70), np.float32), RIGHT, None, "name the rows"),
        (np.zeros((2, 70), np.float32), RIGHT[:, :2], None, "shape"),
        (np.zeros((2, 70), np.float32), RIGHT[0], None, "shape"),
        (np.zeros((2, 70), np.float32), RIGHT.astype(np.int64), None, "int32"),
        (np.zeros((2, 70), np.float32), np.asfortranarray(RIGHT), None, "contiguous"),
        (np.zeros((2, 70), np.float32), with_padding_set(), None, "padding bits"),
        (np.zeros((3, 70), np.float32), RIGHT, [0], "1 rows are named"),
        (np.zeros((3, 70), np.float32), RIGHT, [0, 3], "0…2"),
        (np.zeros((3, 70), np.float32), RIGHT, [-1, 0], "0…2"),
        (np.zeros((3, 70), np.float32), RIGHT, [1, 1], "twice"),
        (np.zeros((3, 70), np.float32), RIGHT, [0.0, 1.0], "whole numbers"),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_is_written(
    values: npt.NDArray[Any], block: Row, rows: list[Any] | None, said: str
) -> None:
    before = values.copy()
    with pytest.raises(ValueError, match=said):
        prepare(KERNELS["numpy"], values, block, rows, 70)
    assert (values == before).all()


def test_a_kernel_is_given_the_kind_of_array_it_takes() -> None:
    with pytest.raises(ValueError, match="torch array, not ndarray"):
        prepare(KERNELS["torch"], np.zeros((2, 70), np.float32), RIGHT, None, 70)
    with pytest.raises(ValueError, match="numpy array, not list"):
        prepare(KERNELS["numpy"], [[0.0] * 70] * 2, RIGHT, None, 70)


def test_read_only_logits_are_refused() -> None:
    values = np.zeros((2, 70), np.float32)
    values.flags.writeable = False
    with pytest.raises(ValueError, match="writable"):
        prepare(KERNELS["numpy"], values, RIGHT, None, 70)


def test_a_row_that_forbids_everything_is_named_where_it_is_asked_for() -> None:
    block = np.concatenate([RIGHT, np.zeros_like(RIGHT)])
    values = np.zeros((4, 70), np.float32)
    with pytest.raises(MasktaxError, match="row 2 of the block forbids every token"):
        prepare(KERNELS["numpy"], values, block, None, 70, checked=True)
    assert not values.any()
    assert empty_row(block) == 2
    assert empty_row(RIGHT) is None
    prepare(KERNELS["numpy"], values, block, None, 70)()
    assert np.isneginf(values[2:]).all()


def test_llguidance_says_that_it_selects_no_rows() -> None:
    kernel = KERNELS["llguidance_numpy"]
    if kernel.unavailable(HOST):
        pytest.skip(kernel.unavailable(HOST))
    with pytest.raises(UnsupportedError, match="no selection of rows"):
        prepare(kernel, np.zeros((3, 70), np.float32), RIGHT, [0, 2], 70)


def test_no_library_is_imported_until_a_kernel_is_prepared() -> None:
    import subprocess
    import sys

    script = (
        "import sys; import harness.stages.apply; from harness.kernels import KERNELS; "
        "from harness.device import host; "
        "[k.unavailable(host()) for k in KERNELS.values() if 'cpu' in k.devices]; "
        "print([m for m in ('torch', 'triton', 'xgrammar', 'llguidance') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"
