"""A bbolt file: the newer of its two sound metas, and the entries of buckets, every page checked before it is used.

bbolt has a checksum for metas only. Pages are held to what a tree has to be: ids, flags, bounds, order of keys, and no
page twice. A value whose bytes have changed is not noticed here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from sawlog.errors import FormatError
from sawlog.milvus.etcd import layout
from sawlog.milvus.etcd.layout import PageKind
from sawlog.storage import Source


class BrokenError(FormatError):
    """Error for a file of etcd that is cut or damaged.

    Attributes:
        path: The file.
        offset: First byte that is wrong, or missing.
        detail: What was expected and what is there.
    """

    def __init__(self, path: str, offset: int, detail: str) -> None:
        super().__init__(f"{path}: byte {offset}: {detail}")
        self.path = path
        self.offset = offset
        self.detail = detail


class Meta(NamedTuple):
    """Contents of a meta page: the transaction that wrote it, page size, root page, and number of pages."""

    transaction: int
    page_size: int
    root: int
    pages: int


class LeafElement(NamedTuple):
    """Element of a leaf page, and where it is in the file."""

    flags: int
    key: bytes
    value: bytes
    offset: int


@dataclass(frozen=True, slots=True)
class _Page:
    """Page with its overflow.

    Attributes:
        offset: Where it is in the file.
        kind: Branch or leaf.
        count: Number of its elements.
        data: Its bytes.
    """

    offset: int
    kind: PageKind
    count: int
    data: bytes


def is_bolt(head: bytes) -> bool:
    """Return whether a file begins as one of bbolt does: with a meta page."""
    start = layout.PAGE_HEADER.size
    return head[start : start + 4] == layout.BOLT_MAGIC.to_bytes(4, "little")


class Database:
    """The buckets of a bbolt file.

    Args:
        source: The file.
        path: Its path, for messages.

    Raises:
        BrokenError: When none of its metas is sound, or it is shorter than the newer of them says.
    """

    def __init__(self, source: Source, path: str) -> None:
        self._source = source
        self._path = path
        metas = list(self._read_metas())
        if not metas:
            raise BrokenError(path, 0, f"no valid meta page in {source.size} bytes: expected a bbolt database")
        self.meta = max(metas)
        size = self.meta.pages * self.meta.page_size
        if source.size < size:
            raise BrokenError(
                path, source.size, f"cut: {source.size} bytes of {size} ({self.meta.pages} pages) are there"
            )

    def iterate_bucket(self, name: bytes) -> Iterator[LeafElement]:
        """Yield the entries of a bucket at the top, in order; none where there is no such bucket.

        Raises:
            BrokenError: For a page that cannot be part of the tree.
        """
        for entry in self._walk_tree(self.meta.root):
            if entry.key != name or not entry.flags & layout.IS_BUCKET:
                continue
            if len(entry.value) < layout.BUCKET_HEADER.size:
                raise self._make_error(entry.offset, f"bucket {name!r}: a header of {len(entry.value)} bytes")
            root, _ = layout.BUCKET_HEADER.unpack_from(entry.value)
            if root:
                yield from self._walk_tree(root)
            else:
                yield from self._iterate_inline(entry)
            return

    def _make_error(self, offset: int, detail: str) -> BrokenError:
        return BrokenError(self._path, offset, detail)

    def _read(self, offset: int, length: int) -> bytes:
        return self._source.read_window(offset, length).tobytes()

    def _read_metas(self) -> Iterator[Meta]:
        """Yield the metas whose checksums are right. The first says where the second is, if it is sound."""
        for start in (0, *layout.PAGE_SIZES):
            data = self._read(start + layout.PAGE_HEADER.size, layout.META.size)
            if len(data) < layout.META.size:
                continue
            magic, version, page_size, _, root, _, _, pages, transaction, checksum = layout.META.unpack(data)
            if (magic, version) != (layout.BOLT_MAGIC, layout.BOLT_VERSION):
                continue
            is_sound = checksum == fnv1a(data[: layout.META_CHECKED]) and page_size in layout.PAGE_SIZES
            if is_sound and start in (0, page_size):
                yield Meta(transaction, page_size, root, pages)

    def _walk_tree(self, root: int) -> Iterator[LeafElement]:
        """Yield the entries of all leaves below a page, in order."""
        used: set[int] = set()
        last: bytes | None = None
        below = [(root, 0)]
        while below:
            id, referrer = below.pop()
            page = self._read_page(id, referrer, used)
            for entry in self._iterate_entries(page) if page.kind is PageKind.LEAF else ():
                if last is not None and entry.key <= last:
                    raise self._make_error(entry.offset, f"the key {entry.key[:40]!r} is not after {last[:40]!r}")
                last = entry.key
                yield entry
            below += reversed(list(self._list_children(page)) if page.kind is PageKind.BRANCH else [])

    def _read_page(self, id: int, referrer: int, used: set[int]) -> _Page:
        """Read a page, by the place that refers to it; no page of a tree may be one of those that are used already."""
        page_size, pages = self.meta.page_size, self.meta.pages
        if not layout.FIRST_PAGE <= id < pages:
            raise self._make_error(referrer, f"page {id} is none of the pages {layout.FIRST_PAGE} to {pages - 1}")
        offset = id * page_size
        own_id, flags, count, overflow = layout.PAGE_HEADER.unpack(self._read(offset, layout.PAGE_HEADER.size))
        if own_id != id:
            raise self._make_error(offset, f"page {id} says that it is page {own_id}")
        if overflow >= pages - id:
            raise self._make_error(
                offset, f"page {id} takes {overflow} more pages; there are {pages - id - 1} after it"
            )
        taken_pages = range(id, id + overflow + 1)
        if not used.isdisjoint(taken_pages):
            raise self._make_error(referrer, f"page {id} (byte {offset}) is in the tree twice")
        used.update(taken_pages)
        return self._check_page(offset, flags, count, self._read(offset, (1 + overflow) * page_size))

    def _check_page(self, offset: int, flags: int, count: int, data: bytes) -> _Page:
        """Return a page whose elements lie within it."""
        if flags not in (PageKind.BRANCH, PageKind.LEAF):
            raise self._make_error(offset, f"flags {flags:#x}: expected a branch (1) or a leaf (2)")
        if count > (len(data) - layout.PAGE_HEADER.size) // layout.LEAF_ELEMENT.size:
            raise self._make_error(offset, f"{count} elements do not fit into {len(data)} bytes")
        if flags == PageKind.BRANCH and not count:
            raise self._make_error(offset, "a branch without elements")
        return _Page(offset, PageKind(flags), count, data)

    def _list_children(self, page: _Page) -> Iterator[tuple[int, int]]:
        """Yield the ids of a branch's children, and where they are referred to."""
        for index in range(page.count):
            place = layout.PAGE_HEADER.size + index * layout.BRANCH_ELEMENT.size
            _, _, child = layout.BRANCH_ELEMENT.unpack_from(page.data, place)
            yield child, page.offset + place

    def _iterate_entries(self, page: _Page) -> Iterator[LeafElement]:
        data = page.data
        end = layout.PAGE_HEADER.size + page.count * layout.LEAF_ELEMENT.size
        for index in range(page.count):
            place = layout.PAGE_HEADER.size + index * layout.LEAF_ELEMENT.size
            flags, position, key_size, value_size = layout.LEAF_ELEMENT.unpack_from(data, place)
            key = place + position
            value = key + key_size
            if key < end or value + value_size > len(data):
                element = f"an element from byte {key} to {value + value_size} of its page"
                raise self._make_error(page.offset + place, f"{element}: expected it between {end} and {len(data)}")
            end = value + value_size
            yield LeafElement(flags, data[key:value], data[value:end], page.offset + place)

    def _iterate_inline(self, entry: LeafElement) -> Iterator[LeafElement]:
        """Yield the entries of a bucket whose only page is in its parent's value."""
        data = entry.value[layout.BUCKET_HEADER.size :]
        if len(data) < layout.PAGE_HEADER.size:
            raise self._make_error(entry.offset, f"bucket {entry.key!r}: a page of {len(data)} bytes")
        _, flags, count, _ = layout.PAGE_HEADER.unpack_from(data)
        page = self._check_page(entry.offset, flags, count, data)
        if page.kind is not PageKind.LEAF:
            raise self._make_error(entry.offset, f"bucket {entry.key!r}: an inline page that is no leaf")
        yield from (inner._replace(offset=entry.offset) for inner in self._iterate_entries(page))


def fnv1a(data: bytes) -> int:
    """Return the hash FNV-1a of 64 bits."""
    value = layout.FNV_OFFSET
    for byte in data:
        value = (value ^ byte) * layout.FNV_PRIME & 0xFFFFFFFFFFFFFFFF
    return value
