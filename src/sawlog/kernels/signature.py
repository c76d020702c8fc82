"""Signatures of kernels, declared by annotations in words of NumPy's types.

    @kernel
    def gather(data: Bytes, state: Annotated[Any, Record(STATE)], out: Out, wanted: Bool) -> Int64: ...

A parameter is a number, an array, a record, or a `NamedTuple` whose fields are declared in the same way. Arrays are
contiguous, aligned and in the machine's byte order; those that a kernel writes to are declared as writable. To type
checkers all of them are `Any`, since NumPy's types know neither number of dimensions nor fields of records.

The compiler, the loader of the library and the kernels in plain Python all go by this one declaration.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from operator import attrgetter, index
from struct import Struct
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import numpy as np

from sawlog.errors import InternalError


@dataclass(frozen=True)
class Number:
    """A number, or a truth value.

    Attributes:
        dtype: Its type, of 64 bits, or bool.
    """

    dtype: Any

    def __str__(self) -> str:
        return str(np.dtype(self.dtype).name)


@dataclass(frozen=True, eq=False)  # `typing` keeps one of equal annotations, which may have another's dtype
class Array:
    """An array.

    Attributes:
        dtype: Of its items: a number's, or a record's as `sawlog.chain.kernels.make_record_type` makes it.
        ndim: How many dimensions it has.
        writable: Whether the kernel writes to it.
    """

    dtype: Any
    ndim: int = 1
    writable: bool = False

    def __str__(self) -> str:
        dimensions = ", ".join("*" * self.ndim)
        return f"{'writable ' * self.writable}array {_describe_type(self.dtype)}[{dimensions}]"


@dataclass(frozen=True, eq=False)  # `typing` keeps one of equal annotations, which may have another's dtype
class Record:
    """A record, which the kernel may write to.

    Attributes:
        dtype: Its type, as `sawlog.chain.kernels.make_record_type` makes it.
    """

    dtype: Any

    def __str__(self) -> str:
        return f"record {_describe_type(self.dtype)}"


@dataclass(frozen=True)
class Writable:
    """With a named tuple: the kernel writes to all arrays in it, `into: Annotated[Texts, WRITABLE]`."""


WRITABLE = Writable()

Bool = Annotated[Any, Number(np.bool_)]
Int64 = Annotated[Any, Number(np.int64)]
UInt64 = Annotated[Any, Number(np.uint64)]
Float64 = Annotated[Any, Number(np.float64)]

Bytes = Annotated[Any, Array(np.uint8)]
Int8s = Annotated[Any, Array(np.int8)]
Int16s = Annotated[Any, Array(np.int16)]
Int32s = Annotated[Any, Array(np.int32)]
Int64s = Annotated[Any, Array(np.int64)]
UInt16s = Annotated[Any, Array(np.uint16)]
UInt32s = Annotated[Any, Array(np.uint32)]
UInt64s = Annotated[Any, Array(np.uint64)]
Float64s = Annotated[Any, Array(np.float64)]

OutBytes = Annotated[Any, Array(np.uint8, writable=True)]
OutInt8s = Annotated[Any, Array(np.int8, writable=True)]
OutInt16s = Annotated[Any, Array(np.int16, writable=True)]
OutInt32s = Annotated[Any, Array(np.int32, writable=True)]
OutInt64s = Annotated[Any, Array(np.int64, writable=True)]
OutUInt16s = Annotated[Any, Array(np.uint16, writable=True)]
OutUInt32s = Annotated[Any, Array(np.uint32, writable=True)]
OutUInt64s = Annotated[Any, Array(np.uint64, writable=True)]
OutFloat64s = Annotated[Any, Array(np.float64, writable=True)]


class ArgumentError(InternalError, TypeError):
    """A kernel, or a call of one, is not as declared. It is the caller's fault, and says nothing of bytes."""


_FLOAT = Struct("=d")
_WORD = Struct("=q")


def _describe_type(dtype: Any) -> str:
    dtype = np.dtype(dtype)
    return str(dtype.name) if dtype.names is None else f"({', '.join(dtype.names)})"


def _encode_float(value: Any) -> int:
    """Return the bits of a float64."""
    if not isinstance(value, (float, int, np.floating, np.integer)):
        raise TypeError
    return int(_WORD.unpack(_FLOAT.pack(value))[0])


NUMBERS = {
    "_bool": {False: 0, True: 1},
    "_index": index,
    "_float": _encode_float,
    "_unpack": lambda word: _FLOAT.unpack(_WORD.pack(word))[0],
}
"""What callers refer to that turns numbers into words, and words into numbers."""


@dataclass(frozen=True)
class Leaf:
    """A number, an array or a record among the arguments."""

    path: str
    kind: Number | Array | Record


@dataclass(frozen=True)
class Group:
    """A named tuple among the arguments."""

    type: Any
    members: tuple[Member, ...]


Member = Leaf | Group


def _parse_member(hint: Any, path: str, kernel: str, *, writable: bool = False) -> Member:
    if get_origin(hint) is Annotated:
        hint, *marks = get_args(hint)
        for kind in marks:
            if isinstance(kind, Array) and writable:
                return Leaf(path, replace(kind, writable=True))
            if isinstance(kind, Number | Array | Record):
                return Leaf(path, kind)
        writable = writable or WRITABLE in marks
    if isinstance(hint, type) and issubclass(hint, tuple) and hasattr(hint, "_fields"):
        hints = get_type_hints(hint, include_extras=True)
        return Group(
            hint, tuple(_parse_member(hints[name], f"{path}.{name}", kernel, writable=writable) for name in hints)
        )
    raise ArgumentError(f"{kernel}: {path} is declared as {hint}: expected a type of sawlog.kernels.signature")


def _leaves(members: tuple[Member, ...]) -> Iterator[Leaf]:
    for member in members:
        if isinstance(member, Leaf):
            yield member
        else:
            yield from _leaves(member.members)


def _parse_results(hint: Any, kernel: str) -> tuple[Number, ...]:
    if hint is type(None):
        return ()
    parts = get_args(hint) if get_origin(hint) is tuple else (hint,)
    numbers = tuple(kind for part in parts for kind in get_args(part)[1:] if isinstance(kind, Number))
    if len(numbers) != len(parts):
        raise ArgumentError(f"{kernel} is declared to return {hint}: expected a number, a tuple of them, or None")
    return numbers


class Signature:
    """The declaration of a kernel.

    Its arguments become **words** of 64 bits: first all numbers, in order; then for each array or record, in order, its
    address, and the lengths of an array's dimensions; then room for what is returned.

    Attributes:
        name: The kernel, as messages name it.
        parameters: Names of its parameters.
        members: What they have to be.
        numbers: Which of them, or of the fields in them, are numbers.
        objects: And which are arrays and records.
        results: What is returned.
        returns_tuple: Whether that is a tuple.

    Args:
        function: The kernel.

    Raises:
        ArgumentError: For a parameter that is not declared.
    """

    def __init__(self, function: Any) -> None:
        self.name = f"{function.__module__}.{function.__qualname__}"
        code = function.__code__
        self.parameters = code.co_varnames[: code.co_argcount]
        hints = get_type_hints(function, include_extras=True)
        self.members = tuple(_parse_member(hints.get(name), name, self.name) for name in self.parameters)
        self.results = _parse_results(hints.get("return"), self.name)
        self.returns_tuple = get_origin(hints.get("return")) is tuple
        leaves = list(_leaves(self.members))
        self.numbers = [leaf for leaf in leaves if isinstance(leaf.kind, Number)]
        self.objects = [leaf for leaf in leaves if not isinstance(leaf.kind, Number)]

    @cached_property
    def places(self) -> dict[str, int]:
        """The first word of each leaf, by its path; that of the results by an empty one."""
        places_by_path = {leaf.path: place for place, leaf in enumerate(self.numbers)}
        place = len(places_by_path)
        for leaf in self.objects:
            places_by_path[leaf.path] = place
            place += 1 + (leaf.kind.ndim if isinstance(leaf.kind, Array) else 0)
        return {**places_by_path, "": place}

    @property
    def words(self) -> int:
        """Return the number of words."""
        return self.places[""] + len(self.results)

    @property
    def caller(self) -> str:
        """The Python source of `call(*arguments)`: it fills the words, runs machine code, and returns what that left.

        It is written for the kernel: loops over its arguments would take longer than many a kernel. Besides `NUMBERS`
        it refers to `_words`, the type of the array; `_pack`, which packs addresses of objects; `_reader`, which fills
        in the words of arrays and records, or None; `_layout`, what that compares with; `_array` and `_record`, NumPy's
        types; `_check(arguments)`, `_fill(objects, words)` and `_function(words)`.
        """
        numbers = ", ".join(_WRITTEN[np.dtype(leaf.kind.dtype).kind].format(leaf.path) for leaf in self.numbers)
        places = [f"_{number}" for number in range(len(self.objects))]
        types = ["_array" if isinstance(leaf.kind, Array) else "_record" for leaf in self.objects]
        fits = [f"isinstance({place}, {type})" for place, type in zip(places, types, strict=True)]
        kinds = enumerate((np.dtype(kind.dtype).kind for kind in self.results), self.places[""])
        results = "".join(_READ[kind].format(f"_filled[{place}]") + ", " for place, kind in kinds)
        return f"""
def call(*_arguments):
    try:
        {"".join(f"{name}, " for name in self.parameters)} = _arguments
        _filled = _words({numbers})
        {"; ".join(f"{place} = {leaf.path}" for place, leaf in zip(places, self.objects, strict=True))}
    except (AttributeError, KeyError, TypeError, ValueError):
        _check(_arguments)
        raise
    _fits = {" and ".join(["_reader is not None", *fits])}
    if _fits:
        _reader(_pack({", ".join(f"id({place})" for place in places)}), _layout, _filled)
        _fits = not _filled[{self.words}]
    if not _fits:
        _check(_arguments)
        _fill(({"".join(f"{place}, " for place in places)}), _filled)
    if _function(_filled):
        raise IndexError({f"{self.name}: an index is out of bounds"!r})
    return {f"({results})" if self.returns_tuple else results.rstrip(", ") or None}
"""

    def check(self, arguments: tuple[Any, ...]) -> None:
        """Compare arguments with the declaration.

        Raises:
            ArgumentError: Where they differ; it names kernel, argument, what was expected and what was found.
        """
        if len(arguments) != len(self.parameters):
            raise ArgumentError(f"{self.name}: expected {len(self.parameters)} arguments, found {len(arguments)}")
        arguments_by_name = dict(zip(self.parameters, arguments, strict=True))
        for leaf in _leaves(self.members):
            name, _, member_path = leaf.path.partition(".")
            try:
                value = attrgetter(member_path)(arguments_by_name[name]) if member_path else arguments_by_name[name]
            except AttributeError:
                raise ArgumentError(
                    f"{self.name}: {leaf.path}: expected {leaf.kind}, found {type(arguments_by_name[name])}"
                ) from None
            if not _fits(leaf.kind, value):
                raise ArgumentError(f"{self.name}: {leaf.path}: expected {leaf.kind}, found {_describe_value(value)}")

    def fill(self, objects: tuple[Any, ...], words: Any) -> None:
        """Fill in the words of arrays and records that fit, but are described by other objects than usual."""
        for leaf, value in zip(self.objects, objects, strict=True):
            place = self.places[leaf.path]
            words[place] = value.__array_interface__["data"][0]
            if isinstance(leaf.kind, Array):
                words[place + 1 : place + 1 + leaf.kind.ndim] = value.shape

    def convert_arguments(self, arguments: tuple[Any, ...]) -> list[Any]:
        """Return checked arguments as a kernel in plain Python takes them: what is only read cannot be written to."""
        return [_convert_value(member, value) for member, value in zip(self.members, arguments, strict=True)]

    def convert_result(self, result: Any) -> Any:
        """Return the result, from what a kernel in plain Python returned."""
        if not self.results:
            return None
        values = result if self.returns_tuple else (result,)
        converted_values = tuple(
            np.dtype(kind.dtype).type(number).item() for kind, number in zip(self.results, values, strict=True)
        )
        return converted_values if self.returns_tuple else converted_values[0]


_READ = {"b": "{} != 0", "i": "{}", "u": f"{{}} & {(1 << 64) - 1}", "f": "_unpack({})"}
_WRITTEN = {"b": "_bool[{}]", "i": "_index({})", "u": "_index({})", "f": "_float({})"}


def _fits(kind: Number | Array | Record, value: Any) -> bool:
    dtype = np.dtype(kind.dtype)
    if isinstance(kind, Record):
        return isinstance(value, np.void) and value.dtype == dtype and bool(value.flags.writeable)
    if isinstance(kind, Array):
        return (
            isinstance(value, np.ndarray)
            and value.dtype == dtype
            and value.ndim == kind.ndim
            and value.flags.c_contiguous
            and value.flags.aligned >= (dtype.names is None)
            and value.flags.writeable >= kind.writable
        )
    if dtype.kind == "b":
        return isinstance(value, bool | np.bool_)
    if dtype.kind == "f":
        return isinstance(value, float | int | np.floating | np.integer)
    return isinstance(value, int | np.integer)


def _describe_value(value: Any) -> str:
    if isinstance(value, np.ndarray):
        dimensions = ", ".join(map(str, value.shape))
        flags = value.flags
        words = {"read-only": not flags.writeable, "strided": not flags.c_contiguous, "unaligned": not flags.aligned}
        return " ".join(
            [*(word for word, is_so in words.items() if is_so), f"array {_describe_type(value.dtype)}[{dimensions}]"]
        )
    return f"record {_describe_type(value.dtype)}" if isinstance(value, np.void) else str(type(value))


def _convert_value(member: Member, value: Any) -> Any:
    if isinstance(member, Group):
        names = member.type._fields
        return member.type(
            *(_convert_value(child, getattr(value, name)) for child, name in zip(member.members, names, strict=True))
        )
    if isinstance(member.kind, Number):
        return np.dtype(member.kind.dtype).type(value)
    if isinstance(member.kind, Array) and not member.kind.writable:
        value = value.view()
        value.flags.writeable = False
    return value
