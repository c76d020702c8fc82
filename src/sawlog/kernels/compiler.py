"""Kernels as machine code: what Numba makes of them, with a C ABI of our own around it.

An entry is a function `int32 entry(int64 *words)`: it takes the words of `sawlog.kernels.signature.Signature`, and
leaves there what the kernel returns. It answers 0, or another number where an index is out of bounds, which is only
looked at with `NUMBA_BOUNDSCHECK=1`. Nothing in it refers to Python or to Numba.
"""

from __future__ import annotations

import ctypes
import functools
import gc
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import llvmlite.binding as llvm
import numpy as np
from numba import types
from numba.core import cgutils, config
from numba.core.codegen import CPUCodeLibrary
from numba.core.compiler_lock import global_compiler_lock
from numba.core.errors import NumbaExperimentalFeatureWarning
from numba.core.registry import CPUDispatcher, cpu_target
from numba.extending import intrinsic
from numba.np import arrayobj
from numba.np.numpy_support import from_dtype

from sawlog.errors import InternalError
from sawlog.kernels.signature import Array, Group, Member, Number, Signature

_OPTIONS = {
    "nopython": True,
    "nogil": True,
    "error_model": "numpy",
    "_nrt": False,
    "no_cpython_wrapper": True,
    "no_cfunc_wrapper": True,
}
_CONFIG: Any = config
"""Its types name no settings."""
_LOADED: list[Any] = []
"""What holds machine code."""
_OWN_NODE = 1 << 31
"""A number of metadata that Numba does not come to."""
_CACHE_LINE = 64
"""Where entries begin, so that the speed of a loop does not depend on the size of what is linked before it."""


class _Helper(CPUDispatcher):
    def __call__(self, *arguments: Any) -> Any:
        """Refuse: there is no way from Python into its code, which Numba would take nevertheless."""
        name = f"{self.py_func.__module__}.{self.py_func.__qualname__}"
        raise InternalError(f"{name} is compiled into the kernels that call it: from Python, call a kernel")


class _Shared(_Helper):
    def get_call_template(self, args: Any, kws: Any) -> Any:
        """Return the template of a call: constants share the code of other numbers."""
        return super().get_call_template(tuple(map(types.unliteral, args)), kws)


def make_helper(function: Any, **options: Any) -> Any:
    """Return a function that kernels call."""
    kind = _Helper if "inline" in options else _Shared
    return kind(function, targetoptions={**_OPTIONS, **options})


class _Part(CPUCodeLibrary):
    """The code of a function, as it is linked into an entry: only that is optimized, and becomes machine code.

    Left to itself, Numba optimizes every jitted function and makes machine code of it, only to optimize it again in
    each that calls it.
    """

    @property
    def codegen(self) -> Any:
        return self

    def set_env(self, name: str, environment: Any) -> None:
        """Do nothing: only object mode has an environment."""

    def get_pointer_to_function(self, name: str) -> int:
        """Return 0: nobody calls the code by its address, and all of its modules are known now."""
        self._ensure_finalized()
        return 0

    def _optimize_functions(self, ll_module: Any) -> None:
        ll_module.data_layout = self._codegen._data_layout

    def _optimize_final_module(self) -> None:
        """Do nothing: to optimize gains nothing before it is known who calls."""

    def _finalize_final_module(self) -> None:
        self._finalized = True


@contextmanager
def _compile_in_parts() -> Iterator[None]:
    """Have Numba leave code as it is, in the block. Collect no garbage: that would look through all of Numba often.

    A helper that was compiled for a record would serve for records that begin with the same fields, too: that is a
    fault, since it depends on what was compiled before.
    """
    codegen = cpu_target.target_context.codegen()
    collects = gc.isenabled()
    with global_compiler_lock:
        before, codegen._library_class = codegen._library_class, _Part
        gc.disable()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error", NumbaExperimentalFeatureWarning)
                yield
        finally:
            codegen._library_class = before
            if collects:
                gc.enable()


def aim_at(cpu: str, features: str) -> None:
    """Set the target, in LLVM's words."""
    _CONFIG.CPU_NAME, _CONFIG.CPU_FEATURES = cpu, features


def find_target() -> tuple[str, dict[str, bool]]:
    """Return the target, see `sawlog.kernels.jit.find_target`: this machine, or what Numba's variables name."""
    requested_features = _CONFIG.CPU_FEATURES
    if requested_features is None:
        return llvm.get_process_triple(), dict(llvm.get_host_cpu_features())
    features = (feature.strip() for feature in requested_features.split(","))
    return llvm.get_process_triple(), {feature[1:]: feature.startswith("+") for feature in features if feature}


def _make_array(ndim: int) -> Any:
    """Return `array(address, shape, dtype)` for entries."""

    @intrinsic
    def build(typing_context: Any, address: Any, shape: Any, like: Any) -> Any:
        item = like.dtype
        kind = types.Array(item, ndim, "C", aligned=not isinstance(item, types.Record) or item.aligned)

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            array = context.make_array(kind)(context, builder)
            element = context.get_data_type(item)
            size = context.get_constant(types.intp, context.get_abi_sizeof(element))
            lengths = cgutils.unpack_tuple(builder, arguments[1], ndim)
            strides = [size]
            for length in reversed(lengths[1:]):
                strides.insert(0, builder.mul(strides[0], length))
            arrayobj.populate_array(
                array,
                data=builder.inttoptr(arguments[0], element.as_pointer()),
                shape=cgutils.pack_array(builder, lengths),
                strides=cgutils.pack_array(builder, strides),
                itemsize=size,
                meminfo=None,
                parent=None,
            )
            return array._getvalue()

        return kind(types.intp, shape, like), generate

    return build


_ARRAYS = {1: _make_array(1), 2: _make_array(2)}


@intrinsic
def _make_record(typing_context: Any, address: Any, like: Any) -> Any:
    kind = like.dtype

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], context.get_value_type(kind))

    return kind(types.intp, like), generate


def _cast(source: Any, target: Any) -> Any:
    @intrinsic
    def cast(typing_context: Any, value: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return builder.bitcast(arguments[0], context.get_value_type(target))

        return target(source), generate

    return cast


_as_float = _cast(types.int64, types.float64)
_as_word = _cast(types.float64, types.int64)


@intrinsic
def _load_word(typing_context: Any, address: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.load(builder.inttoptr(arguments[0], context.get_value_type(types.CPointer(types.int64))))

    return types.int64(types.int64), generate


_word_at: Any = _load_word
"""`_word_at(address) -> int64`."""


def _render_argument(member: Member, places: dict[str, int], names: dict[str, Any]) -> str:
    """Return the expression that makes an argument of words; what it refers to goes to `names`."""
    if isinstance(member, Group):
        type_name = f"T{len(names)}"
        names[type_name] = member.type
        return f"{type_name}({', '.join(_render_argument(child, places, names) for child in member.members)})"
    word_index = places[member.path]
    kind = member.kind
    if isinstance(kind, Number):
        dtype = np.dtype(kind.dtype)
        return {
            "b": f"(words[{word_index}] != 0)",
            "f": f"as_float(words[{word_index}])",
            "u": f"np.uint64(words[{word_index}])",
            "i": f"words[{word_index}]",
        }[dtype.kind]
    dtype_name = f"D{len(names)}"
    names[dtype_name] = np.dtype(kind.dtype)
    if isinstance(kind, Array):
        make = f"array_{kind.ndim}"
        names[make] = _ARRAYS[kind.ndim]
        shape = "".join(f"words[{word_index + 1 + i}], " for i in range(kind.ndim))
        return f"{make}(words[{word_index}], ({shape}), {dtype_name})"
    return f"record(words[{word_index}], {dtype_name})"


def _make_entry_function(signature: Signature, kernel: Any) -> Any:
    names: dict[str, Any] = {
        "kernel": kernel,
        "np": np,
        "record": _make_record,
        "as_float": _as_float,
        "as_word": _as_word,
    }
    arguments = ", ".join(_render_argument(member, signature.places, names) for member in signature.members)
    lines = ["def entry(words):", f"    result = kernel({arguments})"]
    for i, kind in enumerate(signature.results):
        value = f"result[{i}]" if signature.returns_tuple else "result"
        convert = "as_word" if np.dtype(kind.dtype).kind == "f" else "np.int64"
        lines.append(f"    words[{signature.places[''] + i}] = {convert}({value})")
    exec("\n".join(lines), names)  # noqa: S102 # of declarations
    return names["entry"]


_NUMBA_TYPES = {"b": types.boolean, "i": types.int64, "u": types.uint64, "f": types.float64}


def lower_function(function: Any, signature: Any, symbol: str) -> Any:
    """Return a function over pointers and numbers as a module of LLVM's, unoptimized: with C's ABI, all else internal.

    It calls the C library by the addresses in its table of them, not by stubs that jump there, which made kernels that
    copy many short texts some hundredths slower.
    """
    with _compile_in_parts():
        dispatcher = CPUDispatcher(function, targetoptions=_OPTIONS)
        dispatcher.compile(signature)
    compiled: Any = next(iter(dispatcher.overloads.values()))
    module = compiled.library._final_module.clone()
    for definition in (*module.functions, *module.global_variables):
        if not definition.is_declaration:
            definition.linkage = "internal"
    name = compiled.fndesc.llvm_func_name
    declared = ", ".join(f"ptr %a{i}" for i in range(len(signature.args)))
    around = f"""
define i32 @{symbol}({declared}) align {_CACHE_LINE} {{
  %result = alloca i64
  %error = alloca ptr
  %status = call i32 @"{name}"(ptr %result, ptr %error, {declared})
  ret i32 %status
}}
!llvm.module.flags = !{{!{_OWN_NODE}}}
!{_OWN_NODE} = !{{i32 7, !"RtLibUseGOT", i32 1}}
"""
    parsed_module = llvm.parse_assembly(str(module) + around)
    parsed_module.verify()
    # Numba numbers functions in the order in which a process compiles them; that must not show in the bytes.
    for number, definition in enumerate((*parsed_module.functions, *parsed_module.global_variables)):
        if not definition.is_declaration and definition.name != symbol:
            definition.name = f".{number}"
    return parsed_module


def _check_results(kernel: Any, signature: Signature, dispatcher: Any) -> None:
    """Check that a kernel returns the types that it declares, except for the width of integers."""
    (compiled,) = dispatcher.overloads.values()
    return_type: Any = compiled.signature.return_type
    is_tuple = isinstance(return_type, types.BaseTuple)
    parts = list(return_type) if is_tuple else [] if return_type == types.none else [return_type]
    expected = [_NUMBA_TYPES[np.dtype(kind.dtype).kind] for kind in signature.results]
    if [_strip_width(part) for part in parts] != [_strip_width(part) for part in expected]:
        raise TypeError(f"{signature.name}: returns {return_type}, declared {', '.join(map(str, expected)) or None}")


def _strip_width(kind: Any) -> str:
    """Return a type without its width."""
    return str(kind).rstrip("0123456789")


def _check_records(signature: Signature) -> None:
    """Check that fields of records are where NumPy has them."""
    for leaf in signature.objects:
        dtype = np.dtype(leaf.kind.dtype)
        if dtype.fields is not None:
            record: Any = from_dtype(dtype)
            offsets = {name: record.offset(name) for name in record.fields}
            if (offsets, record.size) != (
                {name: place for name, (_, place, *_) in dtype.fields.items()},
                dtype.itemsize,
            ):
                raise TypeError(f"{signature.name}: {leaf.path}: Numba lays {dtype} out in another way: {offsets}")


def lower_kernel(kernel: Any, symbol: str) -> Any:
    """Return the entry of a kernel as a module of LLVM's, not optimized.

    Raises:
        TypeError: When the kernel returns something else than it declares, or records differ from NumPy's.
    """
    _check_records(kernel.signature)
    dispatcher = make_helper(kernel.py_func)
    entry = _make_entry_function(kernel.signature, dispatcher)
    entry_module = lower_function(entry, types.void(types.CPointer(types.int64)), symbol)
    _check_results(kernel, kernel.signature, dispatcher)
    return entry_module


def find_external_names(module: Any) -> set[str]:
    """Return the names that a module calls and does not define, except for LLVM's own."""
    names = {symbol.name for symbol in (*module.functions, *module.global_variables) if symbol.is_declaration}
    return {name for name in names if not name.startswith("llvm.")}


def optimize(module: Any, machine: Any) -> None:
    """Optimize as Numba does: short functions are laid into others first, then all of LLVM's passes run.

    Copies of bytes call `memmove`: without a version, `memcpy` is glibc's first one, which is slow.
    """
    for speed in (0, 3):
        options = llvm.create_pipeline_tuning_options(speed_level=speed)
        options.loop_vectorization = speed > 0
        options.slp_vectorization = False
        builder = llvm.create_pass_builder(machine, options)
        passes = builder.getModulePassManager()
        if speed == 0:
            passes.add_loop_rotate_pass()
            passes.add_instruction_combine_pass()
            passes.add_jump_threading_pass()
        passes.run(module, builder)
    for function in module.functions:
        if function.is_declaration and function.name.startswith("llvm.memcpy."):
            function.name = function.name.replace("memcpy", "memmove")
    module.verify()


def _read_objects(objects: Any, layout: Any, words: Any) -> None:
    """Translate NumPy's arrays and records into words, see `sawlog.kernels.jit.make_caller`."""
    head = layout[0]
    misfits = 0
    for i in range(layout[1]):
        word_index = 3 + 4 * i
        place, kind, dtype, flags = (
            layout[word_index],
            layout[word_index + 1],
            layout[word_index + 2],
            layout[word_index + 3],
        )
        address = objects[i] + head
        if kind < 0:
            words[place] = _word_at(address + 8)
            fits = _word_at(address + 16) == dtype
        else:
            words[place] = _word_at(address)
            shape = _word_at(address + 16)
            fits = _word_at(address + 8) & 0xFFFFFFFF == kind
            fits = fits and _word_at(address + 40) == dtype and _word_at(address + 48) & flags == flags
            if fits:
                for dimension in range(kind):
                    words[place + 1 + dimension] = _word_at(shape + 8 * dimension)
        misfits += not fits
    words[layout[2]] = misfits


def lower_reader(symbol: str) -> Any:
    """Return `_read_objects` as a module of LLVM's, not optimized."""
    pointer = types.CPointer(types.int64)
    return lower_function(_read_objects, types.void(pointer, pointer, pointer), symbol)


ENTRY = "entry"
"""The symbol of what is compiled now."""


def _make_machine() -> Any:
    """Return the machine to compile for: this one, or what Numba's environment variables say."""
    codegen = cpu_target.target_context.codegen()
    return llvm.Target.from_triple(llvm.get_process_triple()).create_target_machine(
        cpu=codegen._get_host_cpu_name(), features=codegen._get_host_cpu_features(), opt=3, jit=True
    )


def optimize_module(module: Any) -> Any:
    """Return a module of LLVM's, for this machine."""
    optimize(module, _make_machine())
    return module


def load(module: Any) -> Any:
    """Return the function `ENTRY` of an optimized module, at an address of its own."""
    engine = llvm.create_mcjit_compiler(module.clone(), _make_machine())
    engine.finalize_object()
    _LOADED.append(engine)
    return ctypes.CFUNCTYPE(ctypes.c_int32)(engine.get_function_address(ENTRY))


def compile_entry(kernel: Any) -> Any:
    """Return the entry of a kernel, compiled now."""
    return load(optimize_module(lower_kernel(kernel, ENTRY)))


@functools.cache
def compile_reader() -> Any:
    """Return `_read_objects`, compiled now."""
    return load(optimize_module(lower_reader(ENTRY)))
