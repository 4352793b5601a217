"""Array back ends; the only module that distinguishes them.

Other modules get the namespace ``xp`` of their arguments from :func:`namespace` and call
functions of the array API standard. NumPy 2 implements the standard; torch, JAX and CuPy are
accessed through ``array_api_compat``. No back end but NumPy is imported here.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np

__all__ = [
    "Array",
    "IntArray",
    "Rows",
    "adjoint",
    "all_finite",
    "as_float_dtype",
    "conj",
    "dtype_name",
    "eps",
    "in_precision_of",
    "is_array",
    "is_complex",
    "is_jax",
    "is_numpy",
    "is_torch",
    "kind",
    "like",
    "limits",
    "moved_axis",
    "namespace",
    "one_blas_thread",
    "pad_and_stack",
    "per_trial",
    "put",
    "real",
    "real_dtype",
    "reshaped",
    "size",
    "to_numpy",
    "transposed",
    "without_gradients",
]

ndarray = np.ndarray  # a global name is found faster than an attribute
Array: TypeAlias = Any
IntArray: TypeAlias = Any
# A set of measurements: any index set. For a batch of problems, one index set per problem.
Rows: TypeAlias = slice | IntArray | tuple[slice | IntArray, ...]
# Supported dtypes: real, then complex; single precision before double.
FLOATS = ("float32", "float64", "complex64", "complex128")


def namespace(*arrays: Array) -> Any:
    """Return the array-API namespace of the arguments; plain ``numpy`` for NumPy arrays.

    Examples
    --------
    >>> namespace(np.zeros(3)).__name__
    'numpy'
    """
    for a in arrays:  # a plain loop, for speed: this runs thousands of times per second
        if not isinstance(a, ndarray):
            break
    else:
        return np
    if any(map(_says_numpy, arrays)) or all(isinstance(a, ndarray | np.generic) for a in arrays):
        return np
    import array_api_compat

    return array_api_compat.array_namespace(*arrays)


def is_numpy(x: Array) -> bool:
    """Whether ``x`` is a NumPy array, or an object of NumPy's namespace that becomes one."""
    return isinstance(x, np.ndarray) or _says_numpy(x)


def _says_numpy(x: Any) -> bool:
    """Whether an object that is not NumPy's own has NumPy as its array-API namespace."""
    own = getattr(x, "__array_namespace__", None)
    return own is not None and not isinstance(x, np.ndarray | np.generic) and own() is np


def is_jax(x: Array) -> bool:
    """Whether ``x`` is a JAX array (its elements cannot be assigned)."""
    if "jax" not in sys.modules:
        return False
    import array_api_compat

    return bool(array_api_compat.is_jax_array(x))


def kind(x: Array) -> str:
    """Return the name of the array kind and the device, for messages."""
    if is_numpy(x):
        return "NumPy"
    import array_api_compat

    return f"{type(x).__module__.split('.')[0]} on {array_api_compat.device(x)}"


def is_array(value: Any) -> bool:
    """Whether ``value`` is an array of any kind; lists and numbers are not."""
    return (
        isinstance(value, np.ndarray | np.generic)
        or hasattr(value, "__array_namespace__")
        or is_torch(value)
    )


def is_torch(value: Any) -> bool:
    """Whether ``value`` is a torch tensor."""
    torch = sys.modules.get("torch")  # without importing torch
    return torch is not None and isinstance(value, torch.Tensor)


def as_float_dtype(dtype: Any, prototype: Array | None = None) -> Any:
    """Check a floating point dtype and convert it to the kind of ``prototype`` (default NumPy).

    Examples
    --------
    >>> as_float_dtype(complex), as_float_dtype("float32")
    (dtype('complex128'), dtype('float32'))
    """
    name = dtype_name(dtype)
    if name not in FLOATS:
        raise TypeError(
            "dtype must be float32, float64, complex64 or complex128, got "
            f"{repr(dtype) if isinstance(dtype, str) else name}."
        )
    if prototype is None or isinstance(prototype.dtype, np.dtype):
        return np.dtype(name)
    return getattr(namespace(prototype), name)


def dtype_name(dtype: Any) -> str:
    """Return the name of a dtype of any kind: "float64" for torch.float64 or float."""
    if type(dtype).__module__.partition(".")[0] not in ("torch", "array_api_strict"):
        try:
            return str(np.dtype(dtype).name)
        except TypeError:
            pass
    return str(dtype).rsplit(".", maxsplit=1)[-1]


def in_precision_of(dtype: Any, prototype: Array | None, *, is_complex: bool) -> Any:
    """Return the real or complex dtype with the precision of ``dtype``, for ``prototype``."""
    single = dtype_name(as_float_dtype(dtype, prototype)) in ("float32", "complex64")
    wanted = FLOATS[2 * is_complex + (not single)]
    return as_float_dtype(wanted, prototype)


def is_complex(x: Array) -> bool:
    """Whether ``x`` has a complex dtype."""
    if isinstance(x, ndarray):  # numpy.isdtype takes microseconds
        return bool(x.dtype.kind == "c")
    return bool(namespace(x).isdtype(x.dtype, "complex floating"))


def conj(x: Array) -> Array:
    """Return the complex conjugate; a real array is returned unchanged."""
    return namespace(x).conj(x) if is_complex(x) else x


def real(x: Array) -> Array:
    """Return the real part; a real array is returned unchanged."""
    return namespace(x).real(x) if is_complex(x) else x


def adjoint(x: Array) -> Array:
    """Return the conjugate transpose of the last two axes."""
    return conj(transposed(x))


def transposed(x: Array) -> Array:
    """Return the transpose of the last two axes."""
    if isinstance(x, ndarray):  # three times as fast as the function
        return x.swapaxes(-1, -2)
    return namespace(x).matrix_transpose(x)


def reshaped(x: Array, shape: tuple[int, ...]) -> Array:
    """Return the array in another shape, in row-major order."""
    return x.reshape(shape) if isinstance(x, ndarray) else namespace(x).reshape(x, shape)


def moved_axis(x: Array, source: int, destination: int) -> Array:
    """Return the array with an axis moved; both axes are counted from the first."""
    if not isinstance(x, ndarray):
        return namespace(x).moveaxis(x, source, destination)
    axes = list(range(x.ndim))
    axes.insert(destination, axes.pop(source))
    return x.transpose(axes)


def real_dtype(x: Array) -> Any:
    """Return the dtype of the absolute values of ``x``."""
    xp = namespace(x)
    return xp.real(xp.empty((0,), dtype=x.dtype)).dtype if is_complex(x) else x.dtype


def eps(x: Array) -> float:
    """Return the machine epsilon of the dtype of ``x``."""
    return limits(x)[0]


def limits(x: Array) -> tuple[float, float]:
    """Return the machine epsilon and the smallest normal number of the dtype of ``x``."""
    xp = namespace(x)
    return _limits(x.dtype) if xp is np else _limits_in(xp, x.dtype)


def _limits_in(xp: Any, dtype: Any) -> tuple[float, float]:
    found = xp.finfo(dtype)
    return float(found.eps), float(found.smallest_normal)


@lru_cache(maxsize=16)
def _limits(dtype: Any) -> tuple[float, float]:
    return _limits_in(np, dtype)


def all_finite(x: Array) -> bool:
    """Whether ``x`` has neither NaN nor infinity. One pass and no copy if so."""
    xp = namespace(x)
    if isinstance(x, np.ndarray) and x.dtype.kind in "biu":
        return True
    # sums of half precision would overflow
    dtype = np.float32 if isinstance(x, np.ndarray) and x.dtype.char == "e" else None
    with np.errstate(all="ignore"):
        total = xp.sum(x, dtype=dtype)
    if bool(xp.isfinite(total)):
        return True
    # the sum itself may have overflowed
    return bool(xp.all(xp.isfinite(x)))


def like(value: Any, prototype: Array | None, dtype: Any = None) -> Array:
    """Convert to an array of the kind and device of ``prototype`` (NumPy if it is None)."""
    if prototype is None or is_numpy(prototype):
        return np.asarray(value, dtype=dtype)
    import array_api_compat

    xp = namespace(prototype)
    if isinstance(value, np.ndarray) and not value.flags.writeable:
        value = value.copy()  # torch warns about read-only memory
    return xp.asarray(value, dtype=dtype, device=array_api_compat.device(prototype))


def to_numpy(x: Array) -> np.ndarray[Any, Any]:
    """Convert ``x`` to a NumPy array on the host; NumPy arrays are not copied."""
    if is_numpy(x):
        return np.asarray(x)
    if is_torch(x):
        return np.asarray(x.detach().cpu().resolve_conj().numpy())
    if hasattr(x, "get"):  # CuPy
        return np.asarray(x.get())
    return np.asarray(x)


def put(x: Array, where: IntArray, values: Array) -> Array:
    """Return a copy of ``x`` with the items ``where`` of the first axis replaced by ``values``."""
    xp = namespace(x)
    index = np.arange(x.shape[0])
    index[to_numpy(where)] = x.shape[0] + np.arange(values.shape[0])
    return xp.take(xp.concat([x, values], axis=0), like(index, x), axis=0)


def pad_and_stack(parts: Sequence[Array]) -> Array:
    """Stack vectors, padding the shorter ones with zeros."""
    xp = namespace(*parts)
    lengths = [part.shape[0] for part in parts]
    length = max(lengths)
    if min(lengths) == length:
        return xp.reshape(xp.concat(list(parts)), (len(parts), length))  # faster than stack
    zeros = like(np.zeros(length), parts[0], parts[0].dtype)
    return xp.stack([xp.concat([part, zeros[part.shape[0] :]]) for part in parts])


def per_trial(value: Any, x: Array) -> Any:
    """Append axes to one number per problem, so that it broadcasts against the batch ``x``."""
    if not hasattr(value, "ndim") or value.ndim == 0:
        return value
    return namespace(x).reshape(value, (*value.shape, *(1,) * (x.ndim - value.ndim)))


def size(shape: Sequence[int]) -> int:
    """Return the number of elements of a tensor of that shape."""
    return math.prod(shape)


def one_blas_thread() -> AbstractContextManager[Any]:
    """Limit BLAS to one thread, so that sums keep their order and workers share the cores."""
    from threadpoolctl import threadpool_limits

    limits: AbstractContextManager[Any] = threadpool_limits(1)
    return limits


def without_gradients() -> AbstractContextManager[Any]:
    """Disable gradient recording in torch, if it is imported."""
    torch = sys.modules.get("torch")
    return nullcontext() if torch is None else torch.no_grad()
